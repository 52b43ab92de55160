package keys

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// fetcher sends the fetches of one client with a session (KIP-227).
type fetcher struct {
	*script
	v       int16
	ids     map[string][16]byte
	session int32
}

// part is a partition with the offset to fetch.
type part struct {
	topic  string
	n      int32
	offset int64
}

// fetch asks with the session's id and an epoch, and notes the answer. A session
// id in the answer is kept.
func (f *fetcher) fetch(name string, epoch int32, set func(*kmsg.FetchRequest), parts ...part) *kmsg.FetchResponse {
	f.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MinBytes, req.MaxBytes = -1, 1, 1<<20
	req.SessionID, req.SessionEpoch = f.session, epoch
	for _, p := range parts {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.topic {
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = p.topic, f.ids[p.topic]
			req.Topics = append(req.Topics, rt)
		}
		rt := &req.Topics[len(req.Topics)-1]
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.n, p.offset, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
	}
	if set != nil {
		set(req)
	}
	resp := ask[*kmsg.FetchResponse](f.wire, f.v, req)
	// Kafka answers unknown ids before all else.
	slices.SortStableFunc(resp.Topics, func(a, b kmsg.FetchResponseTopic) int { return unknownID(b) - unknownID(a) })
	f.note(fmt.Sprintf("Fetch v%d: %s", f.v, name), resp)
	if resp.SessionID != 0 {
		f.session = resp.SessionID
	}
	return resp
}

func unknownID(t kmsg.FetchResponseTopic) int {
	if t.Partitions[0].ErrorCode == 100 {
		return 1
	}
	return 0
}

func (f *fetcher) forget(parts ...part) func(*kmsg.FetchRequest) {
	return func(r *kmsg.FetchRequest) {
		for _, p := range parts {
			r.ForgottenTopics = append(r.ForgottenTopics, kmsg.FetchRequestForgottenTopic{Topic: p.topic, TopicID: f.ids[p.topic], Partitions: []int32{p.n}})
		}
	}
}

// fetchSessions walks through the life of sessions, in versions before and after
// topic ids.
func (s *script) fetchSessions() {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer cl.Close()
	for _, v := range []int16{7, 12, 13, 18} {
		topic, other := fmt.Sprintf("keys-session-%d", v), fmt.Sprintf("keys-other-%d", v)
		ids := s.create(topic, 3)
		for name, id := range s.create(other, 1) {
			ids[name] = id
		}
		ids["keys-nowhere"] = [16]byte{7, 7, 7}
		produce := func(n int32) {
			s.t.Helper()
			if err := cl.ProduceSync(s.ctx, &kgo.Record{Topic: topic, Partition: n, Value: []byte("value")}).FirstErr(); err != nil {
				s.t.Fatal(err)
			}
		}
		f := &fetcher{script: s, v: v, ids: ids}
		p := func(n int32, offset int64) part { return part{topic, n, offset} }
		all := []part{p(0, 0), p(1, 0), p(2, 0), {other, 0, 0}}

		f.fetch("full", 0, nil, all...)
		f.fetch("nothing new", 1, nil)
		produce(1)
		f.fetch("one has a record", 2, nil)
		f.fetch("it is told again", 3, nil)
		f.fetch("read on", 4, nil, p(1, 1))
		f.fetch("epoch again", 4, nil)
		f.fetch("epoch ahead", 9, nil)
		f.fetch("epoch below -1", -2, nil)
		f.fetch("goes on", 5, nil)
		f.fetch("forget one, add unknown ones", 6, f.forget(p(0, 0)), p(7, 0), part{"keys-nowhere", 0, 0})
		f.fetch("errors are told again", 7, nil)
		produce(0)
		f.fetch("what was forgotten has a record", 8, f.forget(p(7, 0), part{"keys-nowhere", 0, 0}))
		f.fetch("out of range", 9, nil, p(1, 100))
		f.fetch("out of range again", 10, nil)
		f.fetch("in range: told though nothing is new", 11, nil, p(1, 1))
		f.fetch("and then no more", 12, nil)
		f.fetch("forget what was never there", 13, f.forget(p(0, 0), p(9, 0)))
		f.fetch("added again", 14, nil, p(0, 0))
		f.fetch("forgotten and added at once", 15, f.forget(p(0, 0)), p(0, 1))
		f.fetch("all forgotten", 16, f.forget(p(0, 0), p(1, 0), p(2, 0), part{other, 0, 0}))
		f.fetch("after its end", 17, nil)
		f.session = 12345
		f.fetch("never there", 1, nil)
		f.fetch("never there, with partitions", 1, nil, all...)
		f.session = 0
		f.fetch("no id, epoch", 3, nil, all...)
		f.fetch("no session", -1, nil, all...)
		f.fetch("no partitions", 0, nil)
		f.session = 0
		f.fetch("full again", 0, nil, p(0, 1), p(0, 1), p(1, 1))
		first := f.session
		f.fetch("full in a session", 0, nil, p(2, 0))
		second := f.session
		f.session = first
		f.fetch("the session before", 1, nil)
		f.session = second
		f.fetch("its successor", 1, nil)
		f.fetch("close", -1, nil, p(2, 0))
		f.session = second
		f.fetch("closed", 2, nil)
		f.session = 0
		f.fetch("only unknown ones", 0, nil, p(8, 0), part{"keys-nowhere", 0, 0})
		f.fetch("only unknown ones again", 1, nil)

		// One that has had records comes last the next time.
		for n := range int32(3) {
			produce(n)
			produce(n)
		}
		f.session = 0
		tight := func(r *kmsg.FetchRequest) { r.MaxBytes = 1 }
		f.fetch("turns: full", 0, tight, p(0, 0), p(1, 0), p(2, 0))
		f.fetch("turns: second", 1, tight, p(0, 1))
		f.fetch("turns: third", 2, tight, p(1, 1))
		f.fetch("turns: fourth", 3, tight, p(2, 1))
		f.fetch("turns: all", 4, nil)

		// Names and ids do not mix.
		f.session = 0
		f.fetch("names or ids", 0, nil, p(0, 0))
		f.v = map[bool]int16{true: 13, false: 12}[v < 13]
		f.fetch(fmt.Sprintf("session of v%d", v), 1, nil)
	}
}

// create makes a topic and tells its id.
func (s *script) create(name string, partitions int32) map[string][16]byte {
	s.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, rt)
	st := ask[*kmsg.CreateTopicsResponse](s.wire, 7, req).Topics[0]
	if st.ErrorCode != 0 {
		s.t.Fatalf("create %s: code %d", name, st.ErrorCode)
	}
	// Kafka's broker hears of a topic a moment after its controller made it.
	fetch := kmsg.NewPtrFetchRequest()
	fetch.ReplicaID, fetch.SessionEpoch, fetch.MaxBytes = -1, -1, 1
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic = name
	for n := range partitions {
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition = n
		ft.Partitions = append(ft.Partitions, fp)
	}
	fetch.Topics = append(fetch.Topics, ft)
	testkit.Poll(s.t, 30*time.Second, "leaders of "+name, func() error {
		for _, p := range ask[*kmsg.FetchResponse](s.wire, 12, fetch).Topics[0].Partitions {
			if p.ErrorCode != 0 {
				return fmt.Errorf("code %d", p.ErrorCode)
			}
		}
		return nil
	})
	return map[string][16]byte{name: st.TopicID}
}
