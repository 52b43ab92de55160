package main

import (
	"testing"
	"time"

	"github.com/hanzoai/stream/serde"
)

// sequenced is a batch of an idempotent producer.
func sequenced(pid int64, epoch int16, seq int32, n int) []byte {
	rs := make([]serde.NewRecord, n)
	for i := range rs {
		rs[i] = serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Value: []byte("v")}
	}
	return serde.Build(serde.BatchFields{ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq}, rs)
}

// TestC29RetryThroughAnotherGateway: a producer's batches went through A, what
// comes again, rightly and wrongly, goes through B; codes and offsets are those
// of Apache Kafka.
func TestC29RetryThroughAnotherGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a, b := w.nodes[0], w.nodes[1]
	a.mustCreate("t", 1)
	for s := int32(0); s <= 12; s += 2 {
		if got := a.mustProduce("t", sequenced(5, 0, s, 2)); got != int64(s) {
			t.Fatalf("sequence %d at %d", s, got)
		}
	}
	for _, x := range []struct {
		epoch int16
		seq   int32
		n     int
		code  int16
		base  int64
	}{
		{0, 12, 2, 0, 12},
		{0, 4, 2, 0, 4},
		{0, 2, 2, 45, -1},
		{0, 12, 1, 45, -1},
		{0, 18, 2, 45, -1},
		{1, 5, 2, 45, -1},
		{1, 0, 2, 0, 14},
		{0, 14, 2, 47, -1},
	} {
		if r := b.produce(9, "t", sequenced(5, x.epoch, x.seq, x.n)); r.ErrorCode != x.code || r.BaseOffset != x.base {
			t.Errorf("epoch %d, sequence %d ×%d: code %d base %d, want %d and %d", x.epoch, x.seq, x.n, r.ErrorCode, r.BaseOffset, x.code, x.base)
		}
	}
	if r := a.list(7, "t", -1); r.Offset != 16 {
		t.Errorf("the log ends at %d, want 16", r.Offset)
	}
}
