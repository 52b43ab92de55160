package keys

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sortedLog puts in order what Kafka answers about logs in the order of a hash
// table.
func sortedLog(resp kmsg.Response) {
	switch r := resp.(type) {
	case *kmsg.DeleteRecordsResponse:
		for _, t := range r.Topics {
			slices.SortFunc(t.Partitions, func(a, b kmsg.DeleteRecordsResponseTopicPartition) int { return int(a.Partition - b.Partition) })
		}
		slices.SortFunc(r.Topics, func(a, b kmsg.DeleteRecordsResponseTopic) int { return strings.Compare(a.Topic, b.Topic) })
	case *kmsg.OffsetForLeaderEpochResponse:
		for _, t := range r.Topics {
			slices.SortStableFunc(t.Partitions, func(a, b kmsg.OffsetForLeaderEpochResponseTopicPartition) int {
				return cmp.Compare(a.Partition, b.Partition)
			})
		}
		slices.SortFunc(r.Topics, func(a, b kmsg.OffsetForLeaderEpochResponseTopic) int { return strings.Compare(a.Topic, b.Topic) })
	}
}

// logs asks for what is about one partition's log: where it starts, where an epoch
// ends, who wrote to it. Topics: keys-log (offsets 0 to 32 in batches of 10, 10, 10,
// 3), keys-compact and keys-both with those policies (one record each).
func (s *script) logs() {
	s.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, c := range []struct{ name, policy string }{{"keys-log", "delete"}, {"keys-compact", "compact"}, {"keys-both", "compact,delete"}} {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = c.name, 1, 1
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = "cleanup.policy", &c.policy
		rt.Configs = append(rt.Configs, rc)
		req.Topics = append(req.Topics, rt)
	}
	for _, st := range ask[*kmsg.CreateTopicsResponse](s.wire, 5, req).Topics {
		if st.ErrorCode != 0 {
			s.t.Fatalf("create %s: code %d", st.Topic, st.ErrorCode)
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.ManualFlushing(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer cl.Close()
	write := func(topic string, n int) {
		s.t.Helper()
		for i := range n {
			cl.Produce(s.ctx, &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: []byte("v")}, func(_ *kgo.Record, err error) {
				if err != nil {
					s.t.Errorf("produce to %s: %v", topic, err)
				}
			})
		}
		if err := cl.Flush(s.ctx); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, n := range []int{10, 10, 10, 3} {
		write("keys-log", n)
	}
	write("keys-compact", 1)
	write("keys-both", 1)

	for _, p := range []int32{0, 1, -1} {
		for _, e := range [][2]int32{{-1, 0}, {0, 0}, {0, 1}, {0, -1}, {0, -7}, {-1, 1}, {1, 0}, {7, 7}, {-2, 0}} {
			s.each(fmt.Sprintf("partition %d, current %d, asked %d", p, e[0], e[1]), func() kmsg.Request {
				return epochs(named{"keys-log", []int32{p}}, e[0], e[1])
			})
		}
	}
	s.each("unknown", func() kmsg.Request { return epochs(named{"keys-x", []int32{0}}, 0, 0) })
	s.each("no name", func() kmsg.Request { return epochs(named{"keys x", []int32{0}}, 9, 0) })
	s.each("empty", func() kmsg.Request { return epochs(named{"keys-c", []int32{0, 1, 1}}, 0, 0) })
	s.each("none", func() kmsg.Request { return kmsg.NewPtrOffsetForLeaderEpochRequest() })

	for _, c := range []struct {
		name   string
		topics []named
	}{
		{"none", nil},
		{"some", []named{{"keys-log", []int32{0}}, {"keys-c", []int32{0, 1}}}},
		{"unknown", []named{{"keys-log", []int32{0, 1, -1}}, {"keys-x", []int32{0}}, {"keys x", []int32{0}}, {"", []int32{0}}}},
	} {
		s.each(c.name, func() kmsg.Request {
			req := kmsg.NewPtrDescribeProducersRequest()
			for _, n := range c.topics {
				rt := kmsg.NewDescribeProducersRequestTopic()
				rt.Topic, rt.Partitions = n.topic, n.partitions
				req.Topics = append(req.Topics, rt)
			}
			return req
		})
	}

	type up struct {
		topic     string
		partition int32
		to        int64
	}
	remove := func(name string, ups ...up) {
		s.t.Helper()
		s.each(name, func() kmsg.Request {
			req := kmsg.NewPtrDeleteRecordsRequest()
			req.TimeoutMillis = 20_000
			for _, u := range ups {
				if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != u.topic {
					rt := kmsg.NewDeleteRecordsRequestTopic()
					rt.Topic = u.topic
					req.Topics = append(req.Topics, rt)
				}
				rt := &req.Topics[len(req.Topics)-1]
				rp := kmsg.NewDeleteRecordsRequestTopicPartition()
				rp.Partition, rp.Offset = u.partition, u.to
				rt.Partitions = append(rt.Partitions, rp)
			}
			return req
		})
	}
	// look notes where the log starts and ends and what reading there gives.
	look := func(name string, offsets ...int64) {
		s.t.Helper()
		for _, at := range []int64{-2, -1, -3, 0} {
			req := kmsg.NewPtrListOffsetsRequest()
			rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
			rp.Timestamp = at
			rt.Topic, rt.Partitions = "keys-log", append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			resp := ask[*kmsg.ListOffsetsResponse](s.wire, 7, req)
			if p := &resp.Topics[0].Partitions[0]; p.Timestamp > 0 {
				p.Timestamp = 1
			}
			if at == -3 { // all records may have the same time
				if p := &resp.Topics[0].Partitions[0]; p.Offset > 0 {
					p.Offset = 1
				}
			}
			s.note(fmt.Sprintf("after %s: offset at %d", name, at), resp)
		}
		for _, o := range offsets {
			req := kmsg.NewPtrFetchRequest()
			req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 1, 1<<20
			ft, fp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
			fp.FetchOffset, fp.PartitionMaxBytes = o, 1<<20
			ft.Topic, ft.Partitions = "keys-log", append(ft.Partitions, fp)
			req.Topics = append(req.Topics, ft)
			s.note(fmt.Sprintf("after %s: fetch at %d", name, o), ask[*kmsg.FetchResponse](s.wire, 11, req))
		}
	}
	remove("none")
	remove("to 0", up{"keys-log", 0, 0})
	look("to 0", 0)
	remove("to 5", up{"keys-log", 0, 5})
	look("to 5", 0, 4, 5, 10)
	remove("back to 3", up{"keys-log", 0, 3})
	remove("beyond", up{"keys-log", 0, 10000})
	remove("just beyond", up{"keys-log", 0, 34})
	remove("to -2", up{"keys-log", 0, -2})
	remove("unknown", up{"keys-log", 1, 0}, up{"keys-log", -1, 0}, up{"keys-x", 0, 0}, up{"keys x", 0, 0}, up{"", 0, 0})
	remove("mixed", up{"keys-log", 0, 20}, up{"keys-x", 0, 0}, up{"keys-compact", 0, 0}, up{"keys-a", 0, 11}, up{"keys-b", 1, 4})
	look("mixed", 19, 20)
	remove("twice", up{"keys-log", 0, 25}, up{"keys-b", 1, 5}, up{"keys-log", 0, 22})
	look("twice", 22)
	remove("compact", up{"keys-compact", 0, -1})
	remove("compact, beyond", up{"keys-compact", 0, 100})
	remove("compact and delete", up{"keys-both", 0, -1})
	remove("internal", up{"__consumer_offsets", 0, -1})
	remove("empty, all", up{"keys-c", 0, -1}, up{"keys-c", 1, 0})
	remove("all", up{"keys-log", 0, -1})
	look("all", 32, 33)
	remove("all again", up{"keys-log", 0, -1})
	write("keys-log", 1)
	look("one more", 33)
	s.each("after all", func() kmsg.Request { return epochs(named{"keys-log", []int32{0}}, 0, 0) })
}

func epochs(n named, current, asked int32) kmsg.Request {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -2
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = n.topic
	for _, p := range n.partitions {
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = p, current, asked
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}
