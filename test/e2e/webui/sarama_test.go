package webui

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// Calls of kafka_exporter and Burrow, by their own library, in the protocol
// version each asks for unless it is told another one.

func saramaClient(t *testing.T, w *world, version sarama.KafkaVersion) sarama.Client {
	t.Helper()
	config := sarama.NewConfig()
	config.Version = version
	cl, err := sarama.NewClient([]string{w.Addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	})
	return cl
}

func exporterTopics(t *testing.T, w *world) {
	cl := saramaClient(t, w, sarama.V2_0_0_0)
	if brokers := cl.Brokers(); len(brokers) != 1 || brokers[0].Addr() != w.Addr {
		t.Errorf("brokers: %v", brokers)
	}
	topics, err := cl.Topics()
	if err != nil {
		t.Fatal(err)
	}
	has(t, "topics", topics, "orders", "empty")
	partitions, err := cl.Partitions("orders")
	if err != nil || !slices.Equal(partitions, []int32{0, 1}) {
		t.Fatalf("%v, %v", partitions, err)
	}
	newest, oldest := map[int32]int64{}, map[int32]int64{}
	for _, p := range partitions {
		leader, err := cl.Leader("orders", p)
		if err != nil || leader.ID() != 1 {
			t.Errorf("leader of %d: %v, %v", p, leader, err)
		}
		if newest[p], err = cl.GetOffset("orders", p, sarama.OffsetNewest); err != nil {
			t.Error(err)
		}
		if oldest[p], err = cl.GetOffset("orders", p, sarama.OffsetOldest); err != nil {
			t.Error(err)
		}
		replicas, err := cl.Replicas("orders", p)
		if err != nil || !slices.Equal(replicas, []int32{1}) {
			t.Errorf("replicas: %v, %v", replicas, err)
		}
		isr, err := cl.InSyncReplicas("orders", p)
		if err != nil || !slices.Equal(isr, []int32{1}) {
			t.Errorf("in sync: %v, %v", isr, err)
		}
	}
	same(t, "current offsets", newest, ends)
	same(t, "oldest offsets", oldest, starts)
}

func exporterGroups(t *testing.T, w *world) {
	cl := saramaClient(t, w, sarama.V2_0_0_0)
	b := cl.Brokers()[0]
	if err := b.Open(cl.Config()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	groups, err := b.ListGroups(&sarama.ListGroupsRequest{})
	if err != nil || groups.Err != sarama.ErrNoError {
		t.Fatalf("%v, %+v", err, groups)
	}
	var names []string
	for name := range groups.Groups {
		names = append(names, name)
	}
	has(t, "groups", names, "live", "idle")
	described, err := b.DescribeGroups(&sarama.DescribeGroupsRequest{Groups: names})
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]int{}
	for _, g := range described.Groups {
		if g.Err != sarama.ErrNoError {
			t.Errorf("%s: %v", g.GroupId, g.Err)
		}
		members[g.GroupId] = len(g.Members)
		// --offset.show-all is its default: every partition of every topic.
		req := sarama.OffsetFetchRequest{ConsumerGroup: g.GroupId, Version: 4}
		for p := range int32(2) {
			req.AddPartition("orders", p)
		}
		req.AddPartition("empty", 0)
		resp, err := b.FetchOffset(&req)
		if err != nil || resp.Err != sarama.ErrNoError {
			t.Fatalf("%v, %+v", err, resp)
		}
		lag := map[int32]int64{}
		for p, block := range resp.Blocks["orders"] {
			end, err := cl.GetOffset("orders", p, sarama.OffsetNewest)
			if err != nil || block.Err != sarama.ErrNoError {
				t.Errorf("%v, %+v", err, block)
			}
			if block.Offset != -1 {
				lag[p] = end - block.Offset
			}
		}
		same(t, "kafka_consumergroup_lag of "+g.GroupId, lag, lags[g.GroupId])
		// What was never committed is -1, so that the topic is left out.
		if block := resp.GetBlock("empty", 0); block == nil || block.Offset != -1 || block.Err != sarama.ErrNoError {
			t.Errorf("%s of empty: %+v", g.GroupId, block)
		}
	}
	same(t, "kafka_consumergroup_members", members, map[string]int{"live": 1, "idle": 0})
}

// burrowOffsets: as Burrow asks since it sends a version that Apache Kafka 4 still
// has. Debian's Burrow 1.2.1 sends ListOffsets 0 and gets nowhere on either.
func burrowOffsets(t *testing.T, w *world) {
	for _, version := range []sarama.KafkaVersion{sarama.V0_10_2_0, sarama.V2_0_0_0, sarama.V2_1_0_0} {
		cl := saramaClient(t, w, version)
		if err := cl.RefreshMetadata(); err != nil {
			t.Fatal(err)
		}
		topics, err := cl.Topics()
		if err != nil {
			t.Fatal(err)
		}
		has(t, "topics", topics, "orders", "empty")
		req := &sarama.OffsetRequest{}
		switch {
		case version.IsAtLeast(sarama.V2_1_0_0):
			req.Version = 4
		case version.IsAtLeast(sarama.V2_0_0_0):
			req.Version = 3
		default:
			req.Version = 1
		}
		var leader *sarama.Broker
		for p := range int32(2) {
			if leader, err = cl.Leader("orders", p); err != nil {
				t.Fatal(err)
			}
			req.AddBlock("orders", p, sarama.OffsetNewest, 1)
		}
		resp, err := leader.GetAvailableOffsets(req)
		if err != nil {
			t.Fatalf("%v: %v", version, err)
		}
		got := map[int32]int64{}
		for p, block := range resp.Blocks["orders"] {
			if block.Err != sarama.ErrNoError {
				t.Errorf("%v: %v", version, block.Err)
			}
			got[p] = block.Offset
			if len(block.Offsets) > 0 {
				got[p] = block.Offsets[0]
			}
		}
		same(t, version.String(), got, ends)
	}
}

// burrowCommits reads the topic of commits as Burrow does. It must be told a version
// of the protocol for this: at its default it sends a Fetch that Kafka 4 has no
// more.
func burrowCommits(t *testing.T, w *world) {
	cl := saramaClient(t, w, sarama.V2_0_0_0)
	consumer, err := sarama.NewConsumerFromClient(cl)
	if err != nil {
		t.Fatal(err)
	}
	partitions, err := cl.Partitions("__consumer_offsets")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[int32]int64{}
	for _, p := range partitions {
		end, err := cl.GetOffset("__consumer_offsets", p, sarama.OffsetNewest)
		if err != nil {
			t.Fatal(err)
		}
		start, err := cl.GetOffset("__consumer_offsets", p, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		if start >= end {
			continue
		}
		pc, err := consumer.ConsumePartition("__consumer_offsets", p, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		limit := time.After(10 * time.Second)
		for last := int64(-1); last < end-1; {
			select {
			case m := <-pc.Messages():
				last = m.Offset
				readCommit(t, m, got)
			case <-limit:
				t.Fatalf("partition %d: at %d of %d", p, last, end)
			}
		}
		if err := pc.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := consumer.Close(); err != nil {
		t.Error(err)
	}
	for group, want := range commits {
		same(t, group, got[group], want)
	}
}

// readCommit reads a key (version, group, topic, partition) and a value (version,
// offset, …).
func readCommit(t *testing.T, m *sarama.ConsumerMessage, got map[string]map[int32]int64) {
	t.Helper()
	key := m.Key
	if version := binary.BigEndian.Uint16(key); version > 1 || m.Value == nil {
		return // a group's own record, or a deletion
	}
	text := func() string {
		n := binary.BigEndian.Uint16(key)
		s := string(key[2 : 2+n])
		key = key[2+n:]
		return s
	}
	key = key[2:]
	group, topic := text(), text()
	partition := int32(binary.BigEndian.Uint32(key))
	version, offset := binary.BigEndian.Uint16(m.Value), int64(binary.BigEndian.Uint64(m.Value[2:]))
	// Apache Kafka 4.3.1 writes version 4. Burrow leaves out what is not 0, 1 or 3,
	// from either.
	if topic != "orders" || version != 4 {
		t.Errorf("%s, %s-%d: value version %d", group, topic, partition, version)
	}
	if got[group] == nil {
		got[group] = map[int32]int64{}
	}
	got[group][partition] = offset
}
