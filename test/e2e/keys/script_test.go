package keys

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// script asks one broker everything, in an order that is always the same, and
// notes the answers.
type script struct {
	*wire
	ctx     context.Context
	addr    string
	noted   []note
	version map[int16][2]int16
}

// note is one answer under a name of its own.
type note struct{ name, answer string }

// each asks a request in every version that 4.3.1 serves.
func (s *script) each(name string, make func() kmsg.Request) {
	s.t.Helper()
	r := s.version[make().Key()]
	if r[1] == 0 && r[0] == 0 && !slices.Contains([]int16{46, 47, 61, 75}, make().Key()) {
		s.t.Fatalf("key %d is not served", make().Key())
	}
	for v := r[0]; v <= r[1]; v++ {
		s.once(name, v, make())
	}
}

// once asks a request in one version.
func (s *script) once(name string, v int16, req kmsg.Request) {
	s.t.Helper()
	resp := ask[kmsg.Response](s.wire, v, req)
	sorted(req, resp)
	s.note(fmt.Sprintf("%s v%d: %s", kmsg.NameForKey(req.Key()), v, name), resp)
}

// sorted puts in order what Kafka answers in the order of a hash table.
func sorted(req kmsg.Request, resp kmsg.Response) {
	sortedLog(resp)
	switch r := resp.(type) {
	case *kmsg.DescribeLogDirsResponse:
		for _, d := range r.Dirs {
			for _, t := range d.Topics {
				slices.SortFunc(t.Partitions, func(a, b kmsg.DescribeLogDirsResponseDirTopicPartition) int { return int(a.Partition - b.Partition) })
			}
			slices.SortFunc(d.Topics, func(a, b kmsg.DescribeLogDirsResponseDirTopic) int { return strings.Compare(a.Topic, b.Topic) })
		}
	case *kmsg.ElectLeadersResponse:
		if req.(*kmsg.ElectLeadersRequest).Topics == nil {
			slices.SortFunc(r.Topics, func(a, b kmsg.ElectLeadersResponseTopic) int { return strings.Compare(a.Topic, b.Topic) })
		}
	}
}

func (s *script) note(name string, resp kmsg.Response) {
	s.t.Helper()
	for _, n := range s.noted {
		if n.name == name {
			s.t.Fatalf("%q is there twice", name)
		}
	}
	s.noted = append(s.noted, note{name, normal(s.t, resp)})
}

// versions are what 4.3.1 serves of the keys in the script; a broker must serve
// the same.
var versions = map[int16][2]int16{
	35: {1, 5}, 43: {0, 2}, 45: {0, 1}, 46: {0, 0}, 47: {0, 0}, 75: {0, 0},
	21: {0, 2}, 23: {2, 4}, 61: {0, 0},
}

// run is the whole script. Topics: keys-a (1 partition, 10 records), keys-b (3,
// of which 1 has records), keys-c (2, empty).
func run(t testing.TB, addr string) []note {
	s := &script{wire: dial(t, addr), ctx: t.Context(), addr: addr, version: versions}
	s.fixture()
	s.logDirs()
	s.electLeaders()
	s.reassignments()
	s.topicPartitions()
	s.offsetDelete()
	s.fetchSessions()
	s.logs()
	return s.noted
}

func (s *script) fixture() {
	s.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, c := range []struct {
		name       string
		partitions int32
	}{{"keys-a", 1}, {"keys-b", 3}, {"keys-c", 2}} {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = c.name, c.partitions, 1
		req.Topics = append(req.Topics, rt)
	}
	for _, st := range ask[*kmsg.CreateTopicsResponse](s.wire, 5, req).Topics {
		if st.ErrorCode != 0 {
			s.t.Fatalf("create %s: code %d", st.Topic, st.ErrorCode)
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer cl.Close()
	for _, topic := range []string{"keys-a", "keys-b"} {
		for i := range 10 {
			r := &kgo.Record{Topic: topic, Partition: int32(len(topic) - 6), Value: fmt.Appendf(nil, "value %d", i)}
			if topic == "keys-b" {
				r.Partition = 1
			}
			if err := cl.ProduceSync(s.ctx, r).FirstErr(); err != nil {
				s.t.Fatalf("produce to %s: %v", topic, err)
			}
		}
	}
}

// named are topics with partitions, in order.
type named struct {
	topic      string
	partitions []int32
}

func (s *script) logDirs() {
	for _, c := range []struct {
		name   string
		topics []named // nil: null
	}{
		{"all", nil},
		{"none", []named{}},
		{"some", []named{{"keys-a", []int32{0}}, {"keys-b", []int32{0, 1}}}},
		{"unknown", []named{{"keys-a", []int32{0, 1, -1}}, {"keys-x", []int32{0}}, {"", []int32{0}}}},
		{"twice", []named{{"keys-a", []int32{0, 0}}, {"keys-a", []int32{0}}}},
		{"no partitions", []named{{"keys-a", nil}, {"keys-b", []int32{}}}},
	} {
		s.each(c.name, func() kmsg.Request {
			req := kmsg.NewPtrDescribeLogDirsRequest()
			if c.topics != nil {
				req.Topics = []kmsg.DescribeLogDirsRequestTopic{}
			}
			for _, n := range c.topics {
				rt := kmsg.NewDescribeLogDirsRequestTopic()
				rt.Topic, rt.Partitions = n.topic, n.partitions
				req.Topics = append(req.Topics, rt)
			}
			return req
		})
	}
}

func (s *script) electLeaders() {
	for _, c := range []struct {
		name   string
		kind   int8
		topics []named
	}{
		{"all, preferred", 0, nil},
		{"all, unclean", 1, nil},
		{"none", 0, []named{}},
		{"some, preferred", 0, []named{{"keys-b", []int32{2, 0}}, {"keys-a", []int32{0}}}},
		{"some, unclean", 1, []named{{"keys-b", []int32{2, 0}}, {"keys-a", []int32{0}}}},
		{"unknown", 0, []named{{"keys-a", []int32{0, 1, -1}}, {"keys-x", []int32{0}}, {"", []int32{0}}}},
		{"twice", 0, []named{{"keys-a", []int32{0, 0}}, {"keys-a", []int32{0}}}},
		{"no partitions", 0, []named{{"keys-a", nil}, {"keys-x", nil}}},
		{"no such type", 2, []named{{"keys-a", []int32{0}}}},
		{"all, no such type", -1, nil},
	} {
		s.each(c.name, func() kmsg.Request {
			req := kmsg.NewPtrElectLeadersRequest()
			req.ElectionType = c.kind
			if c.topics != nil {
				req.Topics = []kmsg.ElectLeadersRequestTopic{}
			}
			for _, n := range c.topics {
				rt := kmsg.NewElectLeadersRequestTopic()
				rt.Topic, rt.Partitions = n.topic, n.partitions
				req.Topics = append(req.Topics, rt)
			}
			return req
		})
	}
}

func (s *script) reassignments() {
	type move struct {
		topic     string
		partition int32
		replicas  []int32
	}
	alter := func(name string, change bool, moves ...move) {
		s.each(name, func() kmsg.Request {
			req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			req.AllowReplicationFactorChange = change
			req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{}
			for _, m := range moves {
				if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != m.topic {
					rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
					rt.Topic = m.topic
					req.Topics = append(req.Topics, rt)
				}
				rt := &req.Topics[len(req.Topics)-1]
				rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
				rp.Partition, rp.Replicas = m.partition, m.replicas
				rt.Partitions = append(rt.Partitions, rp)
			}
			return req
		})
	}
	alter("none", true)
	alter("same", true, move{"keys-a", 0, []int32{1}}, move{"keys-b", 1, []int32{1}})
	alter("cancel", true, move{"keys-a", 0, nil}, move{"keys-a", 7, nil}, move{"keys-x", 0, nil})
	alter("other", true, move{"keys-b", 0, []int32{2}}, move{"keys-b", 1, []int32{1, 2}}, move{"keys-b", 2, []int32{2, 3}})
	alter("other, factor fixed", false, move{"keys-b", 0, []int32{2}}, move{"keys-b", 1, []int32{1, 2}}, move{"keys-b", 2, []int32{}}, move{"keys-a", 0, []int32{1}})
	alter("bad", true, move{"keys-b", 0, []int32{}}, move{"keys-b", 1, []int32{1, 1}}, move{"keys-b", 2, []int32{-1}}, move{"keys-b", 3, []int32{1}}, move{"keys-b", -1, []int32{1}}, move{"keys-x", 0, []int32{1}}, move{"", 0, []int32{1}})
	alter("twice", true, move{"keys-a", 0, []int32{1}}, move{"keys-a", 0, []int32{2}}, move{"keys-b", 0, []int32{1}}, move{"keys-a", 0, []int32{1}})

	for _, c := range []struct {
		name   string
		topics []named
	}{
		{"all", nil},
		{"none", []named{}},
		{"some", []named{{"keys-a", []int32{0}}, {"keys-b", []int32{0, 9}}}},
		{"unknown", []named{{"keys-x", []int32{0}}, {"", nil}}},
	} {
		s.each(c.name, func() kmsg.Request {
			req := kmsg.NewPtrListPartitionReassignmentsRequest()
			if c.topics != nil {
				req.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{}
			}
			for _, n := range c.topics {
				rt := kmsg.NewListPartitionReassignmentsRequestTopic()
				rt.Topic, rt.Partitions = n.topic, n.partitions
				req.Topics = append(req.Topics, rt)
			}
			return req
		})
	}
}

func (s *script) topicPartitions() {
	cursor := func(topic string, partition int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		c.Topic, c.Partition = topic, partition
		return &c
	}
	all := []string{"keys-c", "keys-a", "keys-b"}
	for _, c := range []struct {
		name   string
		topics []string
		limit  int32
		cursor *kmsg.DescribeTopicPartitionsRequestCursor
	}{
		{"all", nil, 100, nil},
		{"all, from the middle", nil, 100, cursor("keys-b", 1)},
		{"all, from between", nil, 100, cursor("keys-ab", 0)},
		{"all, from between, not at 0", nil, 100, cursor("keys-ab", 1)},
		{"all, from behind", nil, 100, cursor("keys-d", 0)},
		{"all, by two", nil, 2, nil},
		{"some", all, 100, nil},
		{"twice", []string{"keys-a", "keys-a"}, 100, nil},
		{"unknown", []string{"keys-x", "keys-a", "keys x", "keys-aa"}, 100, nil},
		{"empty name", []string{"keys-a", ""}, 100, nil},
		{"limit 1", all, 1, nil},
		{"limit 2", all, 2, cursor("keys-b", 0)},
		{"limit 3", all, 3, cursor("keys-b", 0)},
		{"limit 4", all, 4, nil},
		{"limit 0", all, 0, nil},
		{"limit -1", all, -1, cursor("keys-b", 2)},
		{"cursor at the end", all, 100, cursor("keys-b", 3)},
		{"cursor behind the end", all, 1, cursor("keys-b", 30)},
		{"cursor negative", all, 100, cursor("keys-b", -1)},
		{"all, cursor negative", nil, 100, cursor("keys-b", -1)},
		{"cursor not in list", []string{"keys-a", "keys-c"}, 100, cursor("keys-b", 0)},
		{"cursor unknown", []string{"keys-a", "keys-x"}, 100, cursor("keys-x", 2)},
		{"limit before unknown", []string{"keys-a", "keys-x"}, 1, nil},
		{"unknown before limit", []string{"keys-aa", "keys-b", "keys-x"}, 3, nil},
	} {
		s.each(c.name, func() kmsg.Request {
			req := kmsg.NewPtrDescribeTopicPartitionsRequest()
			req.ResponsePartitionLimit, req.Cursor = c.limit, c.cursor
			for _, name := range c.topics {
				rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
				rt.Topic = name
				req.Topics = append(req.Topics, rt)
			}
			return req
		})
	}
}

func (s *script) offsetDelete() {
	find := func(group string) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey = group
		testkit.Poll(s.t, 30*time.Second, "coordinator", func() error {
			if c := ask[*kmsg.FindCoordinatorResponse](s.wire, 2, req).ErrorCode; c != 0 {
				return fmt.Errorf("code %d", c)
			}
			hb := kmsg.NewPtrHeartbeatRequest()
			hb.Group, hb.MemberID = group, "nobody"
			if c := ask[*kmsg.HeartbeatResponse](s.wire, 2, hb).ErrorCode; c != 25 {
				return fmt.Errorf("code %d", c)
			}
			return nil
		})
	}
	commit := func(group, member string, generation int32, topics ...named) {
		s.t.Helper()
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.MemberID, req.Generation = group, member, generation
		for _, n := range topics {
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic = n.topic
			for _, p := range n.partitions {
				rp := kmsg.NewOffsetCommitRequestTopicPartition()
				rp.Partition, rp.Offset = p, int64(p)+5
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		for _, st := range ask[*kmsg.OffsetCommitResponse](s.wire, 7, req).Topics {
			for _, p := range st.Partitions {
				if p.ErrorCode != 0 {
					s.t.Fatalf("commit %s-%d: code %d", st.Topic, p.Partition, p.ErrorCode)
				}
			}
		}
	}
	committed := func(name, group string) {
		s.t.Helper()
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = group
		resp := ask[*kmsg.OffsetFetchResponse](s.wire, 5, req)
		slices.SortFunc(resp.Topics, func(a, b kmsg.OffsetFetchResponseTopic) int {
			return strings.Compare(a.Topic, b.Topic)
		})
		for _, t := range resp.Topics {
			slices.SortFunc(t.Partitions, func(a, b kmsg.OffsetFetchResponseTopicPartition) int {
				return int(a.Partition - b.Partition)
			})
		}
		s.note("committed after: "+name, resp)
	}
	remove := func(name, group string, topics ...named) {
		s.t.Helper()
		s.each(name, func() kmsg.Request {
			req := kmsg.NewPtrOffsetDeleteRequest()
			req.Group = group
			for _, n := range topics {
				rt := kmsg.NewOffsetDeleteRequestTopic()
				rt.Topic = n.topic
				for _, p := range n.partitions {
					rp := kmsg.NewOffsetDeleteRequestTopicPartition()
					rp.Partition = p
					rt.Partitions = append(rt.Partitions, rp)
				}
				req.Topics = append(req.Topics, rt)
			}
			return req
		})
	}
	// join makes a group of one member, up to its first generation: between
	// Join and Sync if synced is not set.
	join := func(group, protocolType string, metadata []byte, synced bool) (member string, generation int32) {
		s.t.Helper()
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.ProtocolType = group, protocolType
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 30000, 30000
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = "range", metadata
		req.Protocols = append(req.Protocols, p)
		resp := ask[*kmsg.JoinGroupResponse](s.wire, 3, req)
		if resp.ErrorCode != 0 {
			s.t.Fatalf("join %s: code %d", group, resp.ErrorCode)
		}
		if synced {
			sync := kmsg.NewPtrSyncGroupRequest()
			sync.Group, sync.MemberID, sync.Generation = group, resp.MemberID, resp.Generation
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = resp.MemberID, []byte("share")
			sync.GroupAssignment = append(sync.GroupAssignment, a)
			if c := ask[*kmsg.SyncGroupResponse](s.wire, 2, sync).ErrorCode; c != 0 {
				s.t.Fatalf("sync %s: code %d", group, c)
			}
		}
		return resp.MemberID, resp.Generation
	}
	leave := func(group, member string) {
		s.t.Helper()
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group, req.MemberID = group, member
		if c := ask[*kmsg.LeaveGroupResponse](s.wire, 2, req).ErrorCode; c != 0 {
			s.t.Fatalf("leave %s: code %d", group, c)
		}
	}
	full := []named{{"keys-a", []int32{0}}, {"keys-b", []int32{0, 1, 2}}, {"keys-c", []int32{0, 1}}}

	for _, g := range []string{"keys-gone", "keys-simple", "keys-member", "keys-joining", "keys-other", "keys-broken", "keys-none", "keys-many"} {
		find(g)
	}
	remove("unknown group", "keys-gone", full...)
	remove("unknown group, unknown topic", "keys-gone", named{"keys-x", []int32{0}})
	remove("unknown group, no topics", "keys-gone")
	remove("no group", "", full...)
	remove("no group, no topics", "")

	commit("keys-simple", "", -1, full...)
	remove("group without members", "keys-simple", named{"keys-b", []int32{2, 0}}, named{"keys-a", []int32{0}})
	committed("group without members", "keys-simple")
	remove("nothing there", "keys-simple", named{"keys-b", []int32{0}})
	remove("unknown partitions", "keys-simple", named{"keys-b", []int32{1, 3, -1}}, named{"keys-x", []int32{0}}, named{"", []int32{0}}, named{"keys x", []int32{0}})
	committed("unknown partitions", "keys-simple")
	remove("twice", "keys-simple", named{"keys-c", []int32{0, 0}}, named{"keys-a", []int32{0}}, named{"keys-c", []int32{0, 1}})
	committed("twice", "keys-simple")
	remove("no topics", "keys-simple")
	remove("no partitions", "keys-simple", named{"keys-a", nil}, named{"keys-x", nil})

	member, generation := join("keys-member", "consumer", subscription("keys-a", "keys-x"), true)
	commit("keys-member", member, generation, full...)
	remove("stable consumer", "keys-member", named{"keys-a", []int32{0}}, named{"keys-b", []int32{0, 7}}, named{"keys-x", []int32{0}})
	committed("stable consumer", "keys-member")
	leave("keys-member", member)
	remove("consumer has left", "keys-member", named{"keys-a", []int32{0}}, named{"keys-b", []int32{1}})
	committed("consumer has left", "keys-member")

	member, _ = join("keys-joining", "consumer", subscription("keys-a"), false)
	remove("consumer between join and sync", "keys-joining", named{"keys-a", []int32{0}}, named{"keys-b", []int32{1}})
	leave("keys-joining", member)

	member, generation = join("keys-other", "connect", []byte("anything"), true)
	commit("keys-other", member, generation, full...)
	remove("other protocol type", "keys-other", named{"keys-a", []int32{0}})
	remove("other protocol type, no topics", "keys-other")
	remove("other protocol type, unknown topic", "keys-other", named{"keys-x", []int32{0}})
	leave("keys-other", member)
	remove("other protocol type has left", "keys-other", named{"keys-a", []int32{0}})
	committed("other protocol type has left", "keys-other")

	member, generation = join("keys-broken", "consumer", []byte{0, 1}, true)
	commit("keys-broken", member, generation, full...)
	remove("subscription that cannot be read", "keys-broken", named{"keys-a", []int32{0}})
	committed("subscription that cannot be read", "keys-broken")
	leave("keys-broken", member)

	member, generation = join("keys-none", "consumer", subscription(), true)
	commit("keys-none", member, generation, full...)
	remove("subscribed to nothing", "keys-none", named{"keys-a", []int32{0}})
	committed("subscribed to nothing", "keys-none")
	leave("keys-none", member)

	member, generation = join("keys-many", "consumer", append(subscriptionOf(99, "keys-a"), "what a later version adds"...), true)
	commit("keys-many", member, generation, full...)
	remove("subscription of a later version", "keys-many", named{"keys-a", []int32{0}}, named{"keys-b", []int32{0}})
	committed("subscription of a later version", "keys-many")
	leave("keys-many", member)
}

// subscription is what a consumer says of itself in JoinGroup.
func subscription(topics ...string) []byte { return subscriptionOf(0, topics...) }

func subscriptionOf(version int16, topics ...string) []byte {
	b := kbin.AppendInt16(nil, version)
	b = kbin.AppendArrayLen(b, len(topics))
	for _, t := range topics {
		b = kbin.AppendString(b, t)
	}
	b = kbin.AppendInt32(b, -1) // no user data
	if version >= 1 {
		b = kbin.AppendArrayLen(b, 0) // owns nothing
	}
	if version >= 2 {
		b = kbin.AppendInt32(b, -1) // generation
	}
	if version >= 3 {
		b = kbin.AppendInt16(b, -1) // no rack
	}
	return b
}
