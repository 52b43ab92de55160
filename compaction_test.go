package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/admin"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// keyed is a batch of records, key=value, an empty value is a tombstone; pid 0 means
// not idempotent.
func keyed(pid int64, seq int32, pairs ...string) []byte {
	f := serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	if pid != 0 {
		f = serde.BatchFields{ProducerID: pid, BaseSequence: seq}
	}
	var rs []serde.NewRecord
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		r := serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Key: []byte(k)}
		if v != "" {
			r.Value = []byte(v)
		}
		rs = append(rs, r)
	}
	return serde.Build(f, rs)
}

// createWith makes a topic of one partition with configs, name=value.
func (n *node) createWith(name string, configs ...string) {
	n.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 1, 1
	for _, c := range configs {
		k, v, _ := strings.Cut(c, "=")
		rt.Configs = append(rt.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: &v})
	}
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 30_000
	if code := ask[*kmsg.CreateTopicsResponse](n, 7, req).Topics[0].ErrorCode; code != 0 {
		n.t.Fatalf("create %s: %v", name, kerr.ErrorForCode(code))
	}
}

// setConfig changes one config of a topic.
func (n *node) setConfig(topic, name, value string) {
	n.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	r.Configs = append(r.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Value: &value})
	req.Resources = append(req.Resources, r)
	if code := ask[*kmsg.IncrementalAlterConfigsResponse](n, 1, req).Resources[0].ErrorCode; code != 0 {
		n.t.Fatalf("set %s of %s: %v", name, topic, kerr.ErrorForCode(code))
	}
}

// compact has a topic compacted by whichever gateway does it, and waits.
func (n *node) compact(topic string) {
	n.t.Helper()
	c, err := n.gateway.Compact(n.t.Context(), topic)
	if err != nil {
		n.t.Fatal(err)
	}
	want := c.Partitions[0].Wanted
	eventually(n.t, "the topic is compacted", func() bool {
		c, err := n.gateway.Compaction(n.t.Context(), topic)
		if err != nil {
			n.t.Fatal(err)
		}
		return c.Partitions[0].CompactedTo >= want
	})
}

// left reads a topic from its start to its end as a consumer does; it gives what the
// records hold and fails if the end cannot be reached.
func (n *node) left(topic string, isolation int8) (pairs []string, offsets []int64) {
	n.t.Helper()
	start, end := n.list(7, topic, -2).Offset, n.list(7, topic, -1).Offset
	for position := start; position < end; {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MaxBytes, req.IsolationLevel = 100, 1<<20, isolation
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.FetchOffset, rp.PartitionMaxBytes = position, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		bs := batches(n.t, ask[*kmsg.FetchResponse](n, 12, req).Topics[0].Partitions[0])
		if len(bs) == 0 {
			n.t.Fatalf("%s: nothing at %d, the end is %d", topic, position, end)
		}
		for _, b := range bs {
			if b.LastOffset() < position {
				n.t.Fatalf("%s: a batch that ends at %d, read from %d", topic, b.LastOffset(), position)
			}
			if !b.Control() {
				it := serde.NewRecords(b.Records(), b.Count())
				for it.Next() {
					if o := b.BaseOffset() + int64(it.Record.OffsetDelta); o >= position {
						pairs, offsets = append(pairs, string(it.Record.Key)+"="+string(it.Record.Value)), append(offsets, o)
					}
				}
				if err := it.Err(); err != nil {
					n.t.Fatal(err)
				}
			}
			position = b.LastOffset() + 1
		}
	}
	return pairs, offsets
}

var quick = []string{"--log-cleaner-backoff-ms", "1s", "--compaction-cpu-percent", "100"}

// TestC23CompactedTopicIsReadToItsEnd: a loop that reads until its position is the
// end ends on compacted topics, whatever has gone: records inside of batches, whole
// batches, all of a transaction but its marker.
func TestC23CompactedTopicIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, quick...)
	a, b := w.nodes[0], w.nodes[1]
	a.createWith("c", "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.9")
	for i := range 20 {
		w.nodes[i%2].mustProduce("c", keyed(0, 0, "a=1", "b=1", fmt.Sprintf("a=%d", i), "c=1"))
	}
	a.mustProduce("c", keyed(0, 0, "only=1"))
	a.mustProduce("c", keyed(0, 0, "b=2", "b=3"))
	a.mustProduce("c", keyed(0, 0, "last=1"))
	a.compact("c")
	for i, n := range append(w.nodes, w.start()) {
		pairs, offsets := n.left("c", 0)
		if got := fmt.Sprint(pairs, offsets); got != "[a=19 c=1 only=1 b=3 last=1] [78 79 80 82 83]" {
			t.Errorf("gateway %d: %s", i, got)
		}
		if start := n.list(7, "c", -2).Offset; start != 0 {
			t.Errorf("the log start moved to %d", start)
		}
	}
	// What comes later is compacted with what was left.
	b.mustProduce("c", keyed(0, 0, "a=", "c=2"))
	b.mustProduce("c", keyed(0, 0, "last=2"))
	b.compact("c")
	for i, n := range w.nodes {
		if pairs, offsets := n.left("c", 1); fmt.Sprint(pairs, offsets) != "[only=1 b=3 last=1 a= c=2 last=2] [80 82 83 84 85 86]" {
			t.Errorf("gateway %d: %v %v", i, pairs, offsets)
		}
	}
}

// TestC30CompactedProducerIsKnown: the last batch of a producer is known after its
// records were compacted away, on every gateway: a second time it is answered with
// its first offset, and the next sequence follows.
func TestC30CompactedProducerIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, quick...)
	a, b := w.nodes[0], w.nodes[1]
	a.createWith("c", "cleanup.policy=compact")
	for i := range int32(5) {
		if got := a.mustProduce("c", keyed(7, 2*i, "k=1", "l=1")); got != int64(2*i) {
			t.Fatal(got)
		}
	}
	a.mustProduce("c", keyed(0, 0, "k=2", "l=2"))
	a.mustProduce("c", keyed(0, 0, "end=1"))
	a.compact("c")
	for i, n := range []*node{b, a, w.start()} {
		if pairs, _ := n.left("c", 0); strings.Join(pairs[:3], " ") != "k=2 l=2 end=1" {
			t.Errorf("gateway %d: %v", i, pairs)
		}
		if got := n.mustProduce("c", keyed(7, 8, "k=1", "l=1")); got != 8 {
			t.Errorf("gateway %d: the last batch again is at %d, it was at 8", i, got)
		}
		if sp := n.produce(9, "c", keyed(7, 100, "k=1")); sp.ErrorCode != kerr.OutOfOrderSequenceNumber.Code {
			t.Errorf("gateway %d: a gap of sequences: %d", i, sp.ErrorCode)
		}
		n.mustProduce("c", keyed(7, int32(10+i), "m=1"))
	}
}

// TestC13C42PolicyIsObeyed: cleanup.policy can change at any time, and is obeyed
// within a moment on every gateway: with compact a record without key is refused, old
// keys outlive retention; with delete they do not; with both, both.
func TestC13C42PolicyIsObeyed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, quick...)
	a, b := w.nodes[0], w.nodes[1]
	old := func(n *node, pairs ...string) { // records of 1970
		var rs []serde.NewRecord
		for _, p := range pairs {
			k, v, _ := strings.Cut(p, "=")
			rs = append(rs, serde.NewRecord{TimestampMillis: 1000, Key: []byte(k), Value: []byte(v)})
		}
		n.mustProduce("t", serde.Build(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, rs))
	}
	keyless := func() []byte {
		return serde.Build(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, []serde.NewRecord{{Value: []byte("x")}})
	}
	a.createWith("t", "cleanup.policy=compact", "retention.ms=1", "retention.bytes=1")
	for v := int16(3); v <= 12; v++ {
		for _, n := range w.nodes {
			if sp := n.produce(v, "t", keyless()); sp.ErrorCode != kerr.InvalidRecord.Code {
				t.Errorf("v%d, without a key: %d", v, sp.ErrorCode)
			}
		}
	}
	old(a, "a=1", "b=1")
	old(b, "a=2")
	old(a, "z=1")
	a.compact("t")
	if pairs, _ := b.left("t", 0); fmt.Sprint(pairs) != "[b=1 a=2 z=1]" {
		t.Errorf("compact: %v", pairs)
	}
	if _, err := a.gateway.Compact(t.Context(), "nope"); refusal(err) != "unknown_topic" {
		t.Error(err)
	}
	a.setConfig("t", "cleanup.policy", "delete")
	eventually(t, "a record without key is taken", func() bool { return b.produce(9, "t", keyless()).ErrorCode == 0 })
	for _, n := range w.nodes {
		if _, err := n.gateway.Compact(t.Context(), "t"); refusal(err) != "not_compacted" {
			t.Error(err)
		}
	}
	if c, err := b.gateway.Compaction(t.Context(), "t"); err != nil || c.Compacted || c.Partitions[0].CompactedTo != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	// Back again: what has no key goes, what came under delete is compacted too.
	b.setConfig("t", "cleanup.policy", "compact")
	b.setConfig("t", "retention.ms", "-1")
	b.setConfig("t", "retention.bytes", "-1")
	eventually(t, "a record without key is refused", func() bool { return a.produce(9, "t", keyless()).ErrorCode != 0 })
	old(a, "b=2")
	old(a, "end=1")
	b.compact("t")
	pairs, _ := a.left("t", 0)
	if got := fmt.Sprint(pairs); got != "[a=2 z=1 b=2 end=1]" {
		t.Errorf("compact again: %v", got)
	}
}

func refusal(err error) string {
	if r := (*admin.Refusal)(nil); errors.As(err, &r) {
		if r.Status/100 != 4 || r.Status == http.StatusForbidden || r.Hint == "" {
			return fmt.Sprintf("%+v", r)
		}
		return r.Code
	}
	return fmt.Sprint(err)
}

// TestCompactionState: whoever is asked tells how far a topic is compacted, and what
// the gateway that compacts has done.
func TestCompactionState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, quick...)
	a, b := w.nodes[0], w.nodes[1]
	// Only one run: none of its own accord, before all is there.
	a.createWith("c", "cleanup.policy=compact,delete", "min.cleanable.dirty.ratio=1")
	a.mustCreate("d", 1)
	for range 3 {
		a.mustProduce("c", keyed(0, 0, "k=1", "k=2"))
	}
	b.compact("c")
	// What is in the record is known before the one that wrote it says so itself.
	eventually(t, "all know that one has compacted and does nothing now", func() bool {
		return !slices.ContainsFunc(w.nodes, func(n *node) bool {
			f := n.gateway.Cleaner(t.Context())
			return f.Last == nil || f.State != "idle"
		})
	})
	first := a.gateway.Cleaner(t.Context())
	for i, n := range w.nodes {
		c, err := n.gateway.Compaction(t.Context(), "c")
		if err != nil || !c.Compacted || c.Partitions[0].CompactedTo != 4 || c.Partitions[0].Records != 1 || c.Partitions[0].LastRun == nil || c.Partitions[0].Wanted != 0 {
			t.Errorf("gateway %d: %+v, %v", i, c, err)
		}
		f := n.gateway.Cleaner(t.Context())
		if f.Topics != 1 || f.State != "idle" || f.Gateway == 0 || f.Gateway != first.Gateway || f.Detail != "" {
			t.Errorf("gateway %d: %+v", i, f)
		}
		if l := f.Last; l == nil || *l != *first.Last || l.Partition != "c-0" || l.CompactedTo != 4 || l.RecordsIn != 4 || l.RecordsOut != 1 || l.BytesIn <= l.BytesOut {
			t.Errorf("gateway %d: %+v", i, l)
		}
		if c.Cleaner != f.Cleaner {
			t.Errorf("gateway %d: %+v of the topic, %+v of all", i, c.Cleaner, f.Cleaner)
		}
	}
	// Nothing more to do: done at once.
	for _, n := range w.nodes {
		n.compact("c")
	}
	if id := a.metadata(12, "c", false)[0].TopicID; id == (types.TopicID{}) {
		t.Error("no id")
	}
}

// fullStore has no room for what compaction writes while full.
type fullStore struct {
	pubsub.Store
	full *atomic.Bool
}

func (s fullStore) CreateLog(ctx context.Context, c pubsub.LogConfig) error {
	if s.full.Load() && strings.Contains(c.Name, "=k") {
		return fmt.Errorf("create %s: %w", c.Name, pubsub.ErrFull)
	}
	return s.Store.CreateLog(ctx, c)
}

// TestCompactionFailureIsToldByAll: why a topic could not be compacted is in what
// every gateway says of it; asked for again it is tried, and not told of any more.
func TestCompactionFailureIsToldByAll(t *testing.T) {
	t.Parallel()
	full := &atomic.Bool{}
	full.Store(true)
	w := newWorld(t, 0, quick...)
	w.wrap = func(s pubsub.Store) pubsub.Store { return fullStore{s, full} }
	a, b := w.start(), w.start()
	a.createWith("c", "cleanup.policy=compact", "min.cleanable.dirty.ratio=1")
	for range 3 {
		a.mustProduce("c", keyed(0, 0, "k=1", "k=2"))
	}
	if _, err := b.gateway.Compact(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	for _, n := range w.nodes {
		eventually(t, "the failure is told of", func() bool {
			c, err := n.gateway.Compaction(t.Context(), "c")
			if err != nil {
				t.Fatal(err)
			}
			p, f := c.Partitions[0], n.gateway.Cleaner(t.Context()).Failing
			return strings.Contains(p.Error, pubsub.ErrFull.Error()) && p.Again != nil && p.Wanted == 4 &&
				len(f) == 1 && f[0].Partition == "c-0" && strings.Contains(f[0].Error, pubsub.ErrFull.Error()) && !f[0].At.IsZero()
		})
	}
	full.Store(false)
	for _, n := range w.nodes {
		n.compact("c")
		eventually(t, "all is well", func() bool {
			c, err := n.gateway.Compaction(t.Context(), "c")
			if err != nil {
				t.Fatal(err)
			}
			return c.Partitions[0].Error == "" && len(n.gateway.Cleaner(t.Context()).Failing) == 0
		})
	}
}
