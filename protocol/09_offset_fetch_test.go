package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// fetched is an answer of any version, brought into one form: per group, top
// error and, in order, what is said of each partition.
type fetched struct {
	group string
	code  int16
	parts []fetchedPart
}

type fetchedPart struct {
	topic     string // name or first byte of the id
	partition int32
	offset    int64
	epoch     int32
	metadata  string
	code      int16
}

// fetchOf asks one group, in the form of the version. Null topics: nil.
func fetchOf(t *testing.T, b *stub, v int16, stable bool, topics []kmsg.OffsetFetchRequestGroupTopic) fetched {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = stable
	if v >= 8 {
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group, rg.MemberEpoch, rg.Topics = "g", -1, topics
		req.Groups = append(req.Groups, rg)
	} else {
		req.Group = "g"
		if topics != nil {
			req.Topics = []kmsg.OffsetFetchRequestTopic{}
		}
		for _, gt := range topics {
			rt := kmsg.NewOffsetFetchRequestTopic()
			rt.Topic, rt.Partitions = gt.Topic, gt.Partitions
			req.Topics = append(req.Topics, rt)
		}
	}
	resp := asked[*kmsg.OffsetFetchResponse](t, b, &offsetFetchAPI, v, req)
	if v >= 8 {
		if len(resp.Groups) != 1 {
			t.Fatalf("%d groups answered", len(resp.Groups))
		}
		return fetchedGroup(t, v, resp.Groups[0])
	}
	f := fetched{group: "g", code: resp.ErrorCode}
	for _, st := range resp.Topics {
		for _, sp := range st.Partitions {
			f.parts = append(f.parts, fetchedPart{st.Topic, sp.Partition, sp.Offset, sp.LeaderEpoch, *sp.Metadata, sp.ErrorCode})
		}
	}
	return f
}

func fetchedGroup(t *testing.T, v int16, sg kmsg.OffsetFetchResponseGroup) fetched {
	t.Helper()
	f := fetched{group: sg.Group, code: sg.ErrorCode}
	for _, st := range sg.Topics {
		name := st.Topic
		if v >= 10 {
			name = string('0' + rune(st.TopicID[0]))
		}
		for _, sp := range st.Partitions {
			f.parts = append(f.parts, fetchedPart{name, sp.Partition, sp.Offset, sp.LeaderEpoch, *sp.Metadata, sp.ErrorCode})
		}
	}
	return f
}

func fetchTopic(id byte, name string, partitions ...int32) kmsg.OffsetFetchRequestGroupTopic {
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic, rt.Partitions = name, partitions
	if id != 0 {
		rt.TopicID = types.TopicID{id, 15: 1}
	}
	return rt
}

func TestOffsetFetchNamed(t *testing.T) {
	orders := stubTopic(1, "orders", 2)
	versions(t, &offsetFetchAPI, func(t *testing.T, v int16) {
		var got group.FetchRequest
		b := &stub{topics: []*topic.Topic{orders}}
		b.groups.fetch = func(r group.FetchRequest) group.FetchResponse {
			got = r
			res := group.FetchResponse{}
			for _, p := range r.Partitions {
				o := group.CommittedOffset{TopicPartition: p.TopicPartition, TopicID: p.TopicID, Offset: -1, LeaderEpoch: -1}
				switch {
				case p.TopicID.IsZero():
				case p.Partition == 0:
					o.Offset, o.LeaderEpoch, o.Metadata = 42, 5, "note"
				case p.Partition == 1:
					o.Err = kerr.UnstableOffsetCommit
				}
				res.Offsets = append(res.Offsets, o)
			}
			return res
		}
		f := fetchOf(t, b, v, true, []kmsg.OffsetFetchRequestGroupTopic{
			fetchTopic(1, "orders", 1, 0, 2, -3), fetchTopic(9, "gone", 0), fetchTopic(0, "", 4),
		})

		orderID, goneID, zeroID, epoch := "orders", "gone", "", int32(5)
		var unknown int16
		if v >= 10 {
			orderID, goneID, zeroID, unknown = "1", "9", "0", kerr.UnknownTopicID.Code
		}
		if v < 5 {
			epoch = -1
		}
		same(t, "answer", f, fetched{group: "g", parts: []fetchedPart{
			{orderID, 1, -1, -1, "", 88},
			{orderID, 0, 42, epoch, "note", 0},
			{orderID, 2, -1, -1, "", 0},
			{orderID, -3, -1, -1, "", 0},
			{goneID, 0, -1, -1, "", unknown},
			{zeroID, 4, -1, -1, "", unknown},
		}})

		want := group.FetchRequest{Group: "g", RequireStable: v >= 7, Partitions: []group.FetchPartition{
			{TopicPartition: types.TopicPartition{Topic: "orders", Partition: 1}, TopicID: orders.ID},
			{TopicPartition: types.TopicPartition{Topic: "orders", Partition: 0}, TopicID: orders.ID},
			{TopicPartition: types.TopicPartition{Topic: "orders", Partition: 2}},
			{TopicPartition: types.TopicPartition{Topic: "orders", Partition: -3}},
		}}
		if v < 10 {
			want.Partitions = append(want.Partitions,
				group.FetchPartition{TopicPartition: types.TopicPartition{Topic: "gone", Partition: 0}},
				group.FetchPartition{TopicPartition: types.TopicPartition{Topic: "", Partition: 4}})
		}
		same(t, "request", got, want)
	})
}

// Null topics are everything, an empty list is nothing. v1 knows no null.
func TestC06OffsetFetchAll(t *testing.T) {
	orders, again := stubTopic(1, "orders", 2), stubTopic(2, "again", 1)
	versions(t, &offsetFetchAPI, func(t *testing.T, v int16) {
		b := &stub{topics: []*topic.Topic{orders, again}}
		b.groups.fetch = func(r group.FetchRequest) group.FetchResponse {
			if !r.All {
				if len(r.Partitions) != 0 {
					t.Errorf("partitions %v", r.Partitions)
				}
				return group.FetchResponse{}
			}
			at := func(name string, p int32, id types.TopicID) group.CommittedOffset {
				return group.CommittedOffset{TopicPartition: types.TopicPartition{Topic: name, Partition: p}, TopicID: id, Offset: 7, LeaderEpoch: -1}
			}
			return group.FetchResponse{Offsets: []group.CommittedOffset{
				at("again", 0, types.TopicID{99}), // of a topic that was deleted and made again
				at("gone", 0, types.TopicID{98}),
				{TopicPartition: types.TopicPartition{Topic: "gone", Partition: 1}, Offset: -1, Err: errStore}, // of no interest
				at("orders", 0, orders.ID),
				at("orders", 1, orders.ID),
			}}
		}
		name := "orders"
		if v >= 10 {
			name = "1"
		}
		all := fetched{group: "g", parts: []fetchedPart{{name, 0, 7, -1, "", 0}, {name, 1, 7, -1, "", 0}}}
		if v < 2 {
			all.parts = nil
		}
		same(t, "null", fetchOf(t, b, v, false, nil), all)
		same(t, "empty", fetchOf(t, b, v, false, []kmsg.OffsetFetchRequestGroupTopic{}), fetched{group: "g"})
	})
}

// Errors of a group stand where the version has room, never as offset −1; a
// topic that cannot be looked up is one of them.
func TestC41OffsetFetchGroupError(t *testing.T) {
	orders := stubTopic(1, "orders", 2)
	loading := func(group.FetchRequest) group.FetchResponse {
		return group.FetchResponse{Err: kerr.CoordinatorLoadInProgress}
	}
	offset := func(group.FetchRequest) group.FetchResponse {
		return group.FetchResponse{Offsets: []group.CommittedOffset{
			{TopicPartition: types.TopicPartition{Topic: "orders"}, TopicID: orders.ID, Offset: 1},
		}}
	}
	broken := func(group.FetchRequest) group.FetchResponse {
		return group.FetchResponse{Offsets: []group.CommittedOffset{
			{TopicPartition: types.TopicPartition{Topic: "orders"}, TopicID: orders.ID, Offset: 1},
			{TopicPartition: types.TopicPartition{Topic: "orders", Partition: 1}, Offset: -1, Err: errStore},
		}}
	}
	named := []kmsg.OffsetFetchRequestGroupTopic{fetchTopic(1, "orders", 0, 1)}
	versions(t, &offsetFetchAPI, func(t *testing.T, v int16) {
		for _, c := range []struct {
			name   string
			b      stub
			topics []kmsg.OffsetFetchRequestGroupTopic
			code   int16
		}{
			{"loading", stub{topics: []*topic.Topic{orders}, groups: stubGroups{fetch: loading}}, named, 14},
			{"loading, all", stub{topics: []*topic.Topic{orders}, groups: stubGroups{fetch: loading}}, nil, 14},
			{"topic lookup failed", stub{topicErr: errStore}, named, 16},
			{"topic lookup failed, all", stub{topicErr: errStore, groups: stubGroups{fetch: offset}}, nil, 16},
			{"one offset failed", stub{topics: []*topic.Topic{orders}, groups: stubGroups{fetch: broken}}, named, 16},
			{"one offset failed, all", stub{topics: []*topic.Topic{orders}, groups: stubGroups{fetch: broken}}, nil, 16},
		} {
			if v < 2 && c.topics == nil {
				continue
			}
			want := fetched{group: "g", code: c.code}
			if v < 2 {
				want = fetched{group: "g", parts: []fetchedPart{
					{"orders", 0, -1, -1, "", c.code}, {"orders", 1, -1, -1, "", c.code},
				}}
			}
			same(t, c.name, fetchOf(t, &c.b, v, false, c.topics), want)
		}
	})
}

// From v8 groups are answered one by one, in order.
func TestOffsetFetchGroups(t *testing.T) {
	orders := stubTopic(1, "orders", 2)
	for v := int16(8); v <= offsetFetchAPI.max; v++ {
		b := &stub{topics: []*topic.Topic{orders}}
		b.groups.fetch = func(r group.FetchRequest) group.FetchResponse {
			if r.Group == "moved" {
				return group.FetchResponse{Err: kerr.NotCoordinator}
			}
			return group.FetchResponse{Offsets: []group.CommittedOffset{
				{TopicPartition: types.TopicPartition{Topic: "orders", Partition: 1}, TopicID: orders.ID, Offset: 8, LeaderEpoch: 0},
			}}
		}
		req := kmsg.NewPtrOffsetFetchRequest()
		for _, g := range []string{"moved", "here"} {
			rg := kmsg.NewOffsetFetchRequestGroup()
			rg.Group, rg.Topics = g, []kmsg.OffsetFetchRequestGroupTopic{fetchTopic(1, "orders", 1)}
			req.Groups = append(req.Groups, rg)
		}
		resp := asked[*kmsg.OffsetFetchResponse](t, b, &offsetFetchAPI, v, req)
		var got []fetched
		for _, sg := range resp.Groups {
			got = append(got, fetchedGroup(t, v, sg))
		}
		name := "orders"
		if v >= 10 {
			name = "1"
		}
		same(t, "groups", got, []fetched{
			{group: "moved", code: 16},
			{group: "here", parts: []fetchedPart{{name, 1, 8, 0, "", 0}}},
		})
	}
	resp := asked[*kmsg.OffsetFetchResponse](t, &stub{}, &offsetFetchAPI, 8, kmsg.NewPtrOffsetFetchRequest())
	if len(resp.Groups) != 0 {
		t.Errorf("no groups asked, %d answered", len(resp.Groups))
	}
}
