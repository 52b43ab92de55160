package protocol

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
)

// Absent, empty and stable are three views; so is a group out of reach.
func TestC45DescribeGroups(t *testing.T) {
	stable := group.Description{
		Group: "stable", State: group.Stable, ProtocolType: "consumer", Protocol: "range",
		Members: []group.DescribedMember{{
			Member: "m", Instance: ptr("i"), Caller: group.Caller{ClientID: "c", Host: "/10.9.9.9"},
			Metadata: []byte("meta"), Assignment: []byte("mine"),
		}},
	}
	b := &stub{}
	b.groups.describe = func(name string) group.Description {
		switch name {
		case "stable":
			return stable
		case "empty":
			return group.Description{Group: name, State: group.Empty}
		case "moved":
			return group.Description{Group: name, Err: kerr.NotCoordinator}
		}
		return group.Description{Group: name, State: group.Dead}
	}
	versions(t, &describeGroupsAPI, func(t *testing.T, v int16) {
		for _, ask := range []bool{false, true} {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups, req.IncludeAuthorizedOperations = []string{"moved", "gone", "empty", "stable"}, ask
			resp := asked[*kmsg.DescribeGroupsResponse](t, b, &describeGroupsAPI, v, req)

			want := slices.Repeat([]kmsg.DescribeGroupsResponseGroup{kmsg.NewDescribeGroupsResponseGroup()}, 4)
			want[0].Group, want[0].ErrorCode = "moved", 16
			want[1].Group, want[1].State = "gone", "Dead"
			want[2].Group, want[2].State = "empty", "Empty"
			want[3].Group, want[3].State, want[3].ProtocolType, want[3].Protocol = "stable", "Stable", "consumer", "range"
			want[3].Members = []kmsg.DescribeGroupsResponseGroupMember{{
				MemberID: "m", ClientID: "c", ClientHost: "/10.9.9.9",
				ProtocolMetadata: []byte("meta"), MemberAssignment: []byte("mine"),
			}}
			if v >= 4 {
				want[3].Members[0].InstanceID = ptr("i")
			}
			if v >= 6 {
				want[0].ErrorMessage = ptr("This is not the correct coordinator.")
				want[1].ErrorCode, want[1].ErrorMessage = 69, ptr("Group gone not found.")
			}
			if v >= 3 && ask {
				for i := range want {
					if want[i].ErrorCode == 0 {
						want[i].AuthorizedOperations = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11
					}
				}
			}
			same(t, "groups", resp.Groups, want)
		}
	})
}

// A failure's text stays here.
func TestDescribeGroupsFailure(t *testing.T) {
	b := &stub{}
	b.groups.describe = func(string) group.Description { return group.Description{Err: errStore} }
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{"g"}
	g := asked[*kmsg.DescribeGroupsResponse](t, b, &describeGroupsAPI, 6, req).Groups[0]
	if g.ErrorCode != 15 || *g.ErrorMessage != kerr.CoordinatorNotAvailable.Description {
		t.Errorf("code %d %q", g.ErrorCode, *g.ErrorMessage)
	}
}

func TestC45ListGroups(t *testing.T) {
	versions(t, &listGroupsAPI, func(t *testing.T, v int16) {
		var states, kinds []string
		b := &stub{}
		b.groups.list = func(s, k []string) ([]group.Listing, error) {
			states, kinds = s, k
			return []group.Listing{
				{Group: "a", ProtocolType: "consumer", State: group.Stable, Type: "classic"},
				{Group: "b", State: group.Empty, Type: "classic"},
			}, nil
		}
		req := kmsg.NewPtrListGroupsRequest()
		req.StatesFilter, req.TypesFilter = []string{"stable", "NoSuch"}, []string{"Classic"}
		resp := asked[*kmsg.ListGroupsResponse](t, b, &listGroupsAPI, v, req)

		want := []kmsg.ListGroupsResponseGroup{{Group: "a", ProtocolType: "consumer"}, {Group: "b"}}
		var wantStates, wantKinds []string
		if v >= 4 {
			wantStates = req.StatesFilter
			want[0].GroupState, want[1].GroupState = "Stable", "Empty"
		}
		if v >= 5 {
			wantKinds = req.TypesFilter
			want[0].GroupType, want[1].GroupType = "classic", "classic"
		}
		same(t, "states", states, wantStates)
		same(t, "types", kinds, wantKinds)
		same(t, "groups", resp.Groups, want)
		if resp.ErrorCode != 0 {
			t.Errorf("code %d", resp.ErrorCode)
		}

		b.groups.list = func([]string, []string) ([]group.Listing, error) { return nil, errStore }
		resp = asked[*kmsg.ListGroupsResponse](t, b, &listGroupsAPI, v, req)
		if resp.ErrorCode != 15 || len(resp.Groups) != 0 {
			t.Errorf("failure: %+v", resp)
		}
	})
}

func TestDeleteGroups(t *testing.T) {
	versions(t, &deleteGroupsAPI, func(t *testing.T, v int16) {
		var deleted []string
		b := &stub{}
		b.groups.delete = func(name string) error {
			deleted = append(deleted, name)
			return map[string]error{"busy": kerr.NonEmptyGroup, "gone": kerr.GroupIDNotFound, "away": errStore}[name]
		}
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{"busy", "mine", "gone", "mine", "away", ""}
		resp := asked[*kmsg.DeleteGroupsResponse](t, b, &deleteGroupsAPI, v, req)
		same(t, "deleted", deleted, []string{"busy", "mine", "gone", "away", ""})
		same(t, "groups", resp.Groups, []kmsg.DeleteGroupsResponseGroup{
			{Group: "busy", ErrorCode: 68}, {Group: "mine"}, {Group: "gone", ErrorCode: 69}, {Group: "away", ErrorCode: 15}, {Group: ""},
		})
	})
}
