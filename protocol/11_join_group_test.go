package protocol

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
)

func joinRequest() *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID = "g", "m", ptr("i")
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 45_000, 300_000
	req.ProtocolType, req.Reason = "consumer", ptr("rejoining")
	for _, name := range []string{"range", "sticky"} {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, []byte(name+"!")
		req.Protocols = append(req.Protocols, p)
	}
	return req
}

// What belongs to some versions is on in those and off in all others.
func TestC25JoinGroup(t *testing.T) {
	versions(t, &joinGroupAPI, func(t *testing.T, v int16) {
		var got group.JoinRequest
		b := &stub{}
		b.groups.join = func(r group.JoinRequest) group.JoinResponse {
			got = r
			return group.JoinResponse{
				Generation: 7, ProtocolType: ptr("consumer"), Protocol: ptr("sticky"),
				Leader: "m", Member: "m", SkipAssignment: true,
				Members: []group.JoinMember{{Member: "m", Instance: ptr("i"), Metadata: []byte("x")}, {Member: "n", Metadata: []byte{}}},
			}
		}
		resp := asked[*kmsg.JoinGroupResponse](t, b, &joinGroupAPI, v, joinRequest())

		want := group.JoinRequest{
			Caller: group.Caller{ClientID: "me", Host: "/10.1.2.3"},
			Group:  "g", Member: "m", ProtocolType: "consumer",
			Protocols:       []group.Protocol{{Name: "range", Metadata: []byte("range!")}, {Name: "sticky", Metadata: []byte("sticky!")}},
			SessionTimeout:  45 * time.Second,
			RequireMemberID: v >= 4, CanSkipAssignment: v >= 9,
			RebalanceTimeout: 5 * time.Minute,
		}
		if v < 1 {
			want.RebalanceTimeout = -time.Millisecond // the group takes the session timeout
		}
		if v >= 5 {
			want.Instance = ptr("i")
		}
		if v >= 8 {
			want.Reason = "rejoining"
		}
		same(t, "request", got, want)

		answer := kmsg.NewJoinGroupResponse()
		answer.Version, answer.Generation = v, 7
		answer.Protocol, answer.LeaderID, answer.MemberID = ptr("sticky"), "m", "m"
		answer.SkipAssignment = v >= 9
		answer.Members = []kmsg.JoinGroupResponseMember{{MemberID: "m", ProtocolMetadata: []byte("x")}, {MemberID: "n", ProtocolMetadata: []byte{}}}
		if v >= 5 {
			answer.Members[0].InstanceID = ptr("i")
		}
		if v >= 7 {
			answer.ProtocolType = ptr("consumer")
		}
		same(t, "answer", resp, &answer)
	})
}

// An error comes with generation −1, and with the id to come back with.
func TestJoinGroupError(t *testing.T) {
	versions(t, &joinGroupAPI, func(t *testing.T, v int16) {
		for _, c := range []struct {
			err    error
			member string
			code   int16
		}{
			{kerr.MemberIDRequired, "me-1", 79},
			{kerr.InvalidGroupID, "m", 24},
			{kerr.InvalidSessionTimeout, "m", 26},
			{kerr.InconsistentGroupProtocol, "m", 23},
			{kerr.GroupMaxSizeReached, "", 81},
			{errStore, "m", 15},
		} {
			b := &stub{}
			b.groups.join = func(group.JoinRequest) group.JoinResponse {
				return group.JoinResponse{Err: c.err, Member: c.member, Generation: 9, Leader: "x"}
			}
			resp := asked[*kmsg.JoinGroupResponse](t, b, &joinGroupAPI, v, joinRequest())
			if resp.ErrorCode != c.code || resp.Generation != -1 || resp.MemberID != c.member || resp.LeaderID != "" || len(resp.Members) != 0 {
				t.Errorf("%v: %+v", c.err, resp)
			}
		}
	})
}

func TestHeartbeat(t *testing.T) {
	versions(t, &heartbeatAPI, func(t *testing.T, v int16) {
		for err, code := range map[error]int16{
			nil: 0, kerr.InvalidGroupID: 24, kerr.UnknownMemberID: 25, kerr.IllegalGeneration: 22,
			kerr.RebalanceInProgress: 27, kerr.FencedInstanceID: 82, errStore: 15,
			kerr.NotCoordinator: 16, kerr.CoordinatorLoadInProgress: 0,
		} {
			var got group.Membership
			b := &stub{}
			b.groups.heartbeat = func(m group.Membership) error { got = m; return err }
			req := kmsg.NewPtrHeartbeatRequest()
			req.Group, req.MemberID, req.Generation, req.InstanceID = "g", "m", 7, ptr("i")
			resp := asked[*kmsg.HeartbeatResponse](t, b, &heartbeatAPI, v, req)
			if resp.ErrorCode != code {
				t.Errorf("%v: code %d, want %d", err, resp.ErrorCode, code)
			}
			want := group.Membership{Group: "g", Member: "m", Generation: 7}
			if v >= 3 {
				want.Instance = ptr("i")
			}
			same(t, "request", got, want)
		}
	})
}

func TestLeaveGroup(t *testing.T) {
	versions(t, &leaveGroupAPI, func(t *testing.T, v int16) {
		var got []group.LeaveMember
		b := &stub{}
		b.groups.leave = func(name string, members []group.LeaveMember) group.LeaveResponse {
			if name != "g" {
				t.Errorf("group %q", name)
			}
			got = members
			res := group.LeaveResponse{}
			for i, m := range members {
				r := group.LeaveResult{LeaveMember: m}
				if i == len(members)-1 {
					r.Err = kerr.UnknownMemberID
				}
				res.Members = append(res.Members, r)
			}
			return res
		}
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group, req.MemberID = "g", "m"
		req.Members = []kmsg.LeaveGroupRequestMember{
			{MemberID: "", InstanceID: ptr("i"), Reason: ptr("closed")},
			{MemberID: "n"},
		}
		resp := asked[*kmsg.LeaveGroupResponse](t, b, &leaveGroupAPI, v, req)
		if v < 3 {
			same(t, "request", got, []group.LeaveMember{{Member: "m"}})
			if resp.ErrorCode != 25 || len(resp.Members) != 0 {
				t.Errorf("answer %+v", resp)
			}
			return
		}
		want := []group.LeaveMember{{Instance: ptr("i")}, {Member: "n"}}
		if v >= 5 {
			want[0].Reason = "closed"
		}
		same(t, "request", got, want)
		same(t, "members", resp.Members, []kmsg.LeaveGroupResponseMember{{InstanceID: ptr("i")}, {MemberID: "n", ErrorCode: 25}})
		if resp.ErrorCode != 0 {
			t.Errorf("top error %d", resp.ErrorCode)
		}
	})
}

// What concerns the group stands at the top, and no member is named.
func TestLeaveGroupError(t *testing.T) {
	versions(t, &leaveGroupAPI, func(t *testing.T, v int16) {
		b := &stub{}
		b.groups.leave = func(string, []group.LeaveMember) group.LeaveResponse {
			return group.LeaveResponse{Err: kerr.NotCoordinator}
		}
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: "n"}}
		resp := asked[*kmsg.LeaveGroupResponse](t, b, &leaveGroupAPI, v, req)
		if resp.ErrorCode != 16 || len(resp.Members) != 0 {
			t.Errorf("answer %+v", resp)
		}
	})
}

func TestSyncGroup(t *testing.T) {
	versions(t, &syncGroupAPI, func(t *testing.T, v int16) {
		var got group.SyncRequest
		b := &stub{}
		b.groups.sync = func(r group.SyncRequest) group.SyncResponse {
			got = r
			return group.SyncResponse{ProtocolType: ptr("consumer"), Protocol: ptr("range"), Assignment: []byte("mine")}
		}
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.MemberID, req.Generation, req.InstanceID = "g", "m", 7, ptr("i")
		req.ProtocolType, req.Protocol = ptr("consumer"), ptr("range")
		req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "m", MemberAssignment: []byte("mine")}, {MemberID: "n", MemberAssignment: []byte{}}}
		resp := asked[*kmsg.SyncGroupResponse](t, b, &syncGroupAPI, v, req)

		want := group.SyncRequest{
			Membership:      group.Membership{Group: "g", Member: "m", Generation: 7},
			RequireProtocol: v >= 5,
			Assignments:     []group.Assignment{{Member: "m", Data: []byte("mine")}, {Member: "n", Data: []byte{}}},
		}
		if v >= 3 {
			want.Instance = ptr("i")
		}
		answer := kmsg.NewSyncGroupResponse()
		answer.Version, answer.MemberAssignment = v, []byte("mine")
		if v >= 5 {
			want.ProtocolType, want.Protocol = ptr("consumer"), ptr("range")
			answer.ProtocolType, answer.Protocol = ptr("consumer"), ptr("range")
		}
		same(t, "request", got, want)
		same(t, "answer", resp, &answer)

		b.groups.sync = func(group.SyncRequest) group.SyncResponse {
			return group.SyncResponse{Err: kerr.RebalanceInProgress, Assignment: []byte("stale")}
		}
		resp = asked[*kmsg.SyncGroupResponse](t, b, &syncGroupAPI, v, req)
		if resp.ErrorCode != 27 || len(resp.MemberAssignment) != 0 {
			t.Errorf("error: %+v", resp)
		}
	})
}
