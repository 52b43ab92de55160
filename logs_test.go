package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// deleteRecords moves the log start of partition 0.
func (n *node) deleteRecords(topic string, to int64) kmsg.DeleteRecordsResponseTopicPartition {
	n.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt, rp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	rt.Topic, rp.Offset = topic, to
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
	return ask[*kmsg.DeleteRecordsResponse](n, 2, req).Topics[0].Partitions[0]
}

// TestC39C44DeletedEverywhere: what one gateway deletes is gone on the others, on
// those that come later and after all of them have gone; offsets go on.
func TestC39C44DeletedEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a, b := w.nodes[0], w.nodes[1]
	a.mustCreate("t", 1)
	for _, size := range []int{10, 10, 10, 3} {
		a.mustProduce("t", records(0, 0, size, "x"))
	}
	check := func(n *node, start, end int64) {
		t.Helper()
		for at, want := range map[int64]int64{-2: start, -1: end} {
			if sp := n.list(7, "t", at); sp.ErrorCode != 0 || sp.Offset != want {
				t.Errorf("list %d: %+v, want %d", at, sp, want)
			}
		}
		if start > 0 {
			if sp := n.fetch(12, "t", types.TopicID{}, start-1); sp.ErrorCode != kerr.OffsetOutOfRange.Code || sp.HighWatermark != -1 || sp.LogStartOffset != -1 {
				t.Errorf("fetch at %d: %+v", start-1, sp)
			}
		}
		sp := n.fetch(12, "t", types.TopicID{}, start)
		bs := batches(t, sp)
		if sp.LogStartOffset != start || sp.HighWatermark != end || (len(bs) == 0) != (start == end) || len(bs) > 0 && (bs[0].BaseOffset() > start || bs[0].LastOffset() < start) {
			t.Errorf("fetch at %d: start %d, end %d, %d batches", start, sp.LogStartOffset, sp.HighWatermark, len(bs))
		}
	}
	check(b, 0, 33)
	for _, to := range []int64{5, 20, 29} {
		if sp := a.deleteRecords("t", to); sp.ErrorCode != 0 || sp.LowWatermark != to {
			t.Fatalf("delete up to %d: %+v", to, sp)
		}
		check(b, to, 33)
		check(a, to, 33)
	}
	if sp := b.deleteRecords("t", -1); sp.ErrorCode != 0 || sp.LowWatermark != 33 {
		t.Fatalf("delete all: %+v", sp)
	}
	check(a, 33, 33)
	eventually(t, "a stream of one message", func() bool { return len(w.server.Messages("kafka-t-0")) == 1 })
	a.kill()
	b.kill()
	c := w.start()
	check(c, 33, 33)
	if sp := c.produce(9, "t", records(0, 0, 2, "x")); sp.ErrorCode != 0 || sp.BaseOffset != 33 || sp.LogStartOffset != 33 {
		t.Errorf("produce: %+v", sp)
	}
	check(w.start(), 33, 35)
	check(c, 33, 35)
}

// alter sets configs of a topic; "" deletes one.
func (n *node) alter(topic string, configs map[string]string) {
	n.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for k, v := range configs {
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		rc.Name, rc.Value = k, &v
		if v == "" {
			rc.Op, rc.Value = kmsg.IncrementalAlterConfigOpDelete, nil
		}
		rr.Configs = append(rr.Configs, rc)
	}
	req.Resources = append(req.Resources, rr)
	if r := ask[*kmsg.IncrementalAlterConfigsResponse](n, 1, req).Resources[0]; r.ErrorCode != 0 {
		n.t.Fatalf("alter %v: %d", configs, r.ErrorCode)
	}
}

// TestConfigsAreLive: what one gateway changes every other obeys within a second, on
// partitions that are in use; a deleted value is as it never was.
func TestConfigsAreLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a, b := w.nodes[0], w.nodes[1]
	a.mustCreate("t", 1)
	b.mustProduce("t", records(0, 0, 1, "x"))
	old := func() []byte {
		return serde.Build(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
			[]serde.NewRecord{{TimestampMillis: time.Now().Add(-time.Hour).UnixMilli(), Key: []byte("k"), Value: []byte("v")}})
	}
	codec := func(want compress.Codec) func(kmsg.ProduceResponseTopicPartition) bool {
		return func(sp kmsg.ProduceResponseTopicPartition) bool {
			bs := batches(t, b.fetch(12, "t", types.TopicID{}, sp.BaseOffset))
			return sp.ErrorCode == 0 && len(bs) > 0 && compress.Codec(bs[0].Codec()) == want
		}
	}
	code := func(k *kerr.Error) func(kmsg.ProduceResponseTopicPartition) bool {
		return func(sp kmsg.ProduceResponseTopicPartition) bool {
			return k == nil && sp.ErrorCode == 0 || k != nil && sp.ErrorCode == k.Code
		}
	}
	large := func() []byte { return records(0, 0, 1, strings.Repeat("x", 2000)) }
	for _, c := range []struct {
		configs map[string]string
		batch   func() []byte
		obeyed  func(kmsg.ProduceResponseTopicPartition) bool
	}{
		{map[string]string{"compression.type": "zstd"}, large, codec(compress.Zstd)},
		{map[string]string{"compression.type": "gzip", "compression.gzip.level": "9"}, large, codec(compress.Gzip)},
		{map[string]string{"compression.type": ""}, large, codec(compress.None)},
		{map[string]string{"max.message.bytes": "1000"}, large, code(kerr.MessageTooLarge)},
		{map[string]string{"max.message.bytes": ""}, large, code(nil)},
		{map[string]string{"message.timestamp.before.max.ms": "60000"}, old, code(kerr.InvalidTimestamp)},
		{map[string]string{"message.timestamp.type": "LogAppendTime"}, old, func(sp kmsg.ProduceResponseTopicPartition) bool { return sp.ErrorCode == 0 && sp.LogAppendTime > 0 }},
		{map[string]string{"message.timestamp.type": "", "message.timestamp.before.max.ms": ""}, old, func(sp kmsg.ProduceResponseTopicPartition) bool { return sp.ErrorCode == 0 && sp.LogAppendTime == -1 }},
	} {
		a.alter("t", c.configs)
		began := time.Now()
		eventually(t, fmt.Sprint(c.configs), func() bool { return c.obeyed(b.produce(9, "t", c.batch())) })
		if took := time.Since(began); took > time.Second {
			t.Errorf("%v: obeyed after %v", c.configs, took)
		}
	}
}
