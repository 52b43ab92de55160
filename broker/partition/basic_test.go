package partition

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// C-18: fetch inside a batch, warm and cold. C-17: an offset is not a count of
// messages.
func TestC18FetchInsideABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		for i, n := range []int{10, 10, 1} {
			if got, want := g.mustProduce(batch(n)), types.Offset(10*i); got != want {
				t.Fatalf("base %d, want %d", got, want)
			}
		}
		cold := w.gateway(memory.Faults{})
		for _, g := range []*gateway{g, cold} {
			for o := types.Offset(0); o <= 20; o++ {
				want := []int64{0, 10, 20}[o/10:]
				if got := offsets(g.read(o)); !slices.Equal(got, want) {
					t.Errorf("fetch at %d: batches at %v, want %v", o, got, want)
				}
			}
			if bs := g.read(21); len(bs) != 0 {
				t.Errorf("fetch at the end: %d batches", len(bs))
			}
			for _, o := range []types.Offset{22, 1000, -1} {
				if _, err := g.p.Read(t.Context(), ReadRequest{Offset: o, MaxBytes: 1000, Whole: true}); !errors.Is(err, kerr.OffsetOutOfRange) {
					t.Errorf("fetch at %d: %v", o, err)
				}
			}
		}
	})
}

func TestC17OffsetIsNoCountOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		if a, b := g.mustProduce(batch(31)), g.mustProduce(batch(1)); a != 0 || b != 31 {
			t.Fatalf("bases %d, %d", a, b)
		}
		r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest})
		if err != nil || r.Offset != 32 {
			t.Fatalf("latest: %+v, %v", r, err)
		}
		s, err := g.p.Status(t.Context())
		if err != nil || s.LastSeq != 2 || s.End != 32 || s.Start != 0 {
			t.Fatalf("status: %+v, %v", s, err)
		}
		if bs := g.read(32); len(bs) != 0 {
			t.Fatalf("%d batches at the end", len(bs))
		}
	})
}

func TestC29RetryThroughAnotherGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		a, b := w.gateway(memory.Faults{}), w.gateway(memory.Faults{})
		for s := int32(0); s <= 12; s += 2 {
			if r := a.produce(AppendRequest{Records: idempotent(5, 0, s, 2)}); r.Err != nil || r.BaseOffset != types.Offset(s) {
				t.Fatalf("sequence %d: %+v", s, r)
			}
		}
		for _, x := range []struct {
			epoch int16
			seq   int32
			n     int
			err   error
			base  types.Offset
		}{
			{0, 12, 2, nil, 12},
			{0, 4, 2, nil, 4},
			{0, 2, 2, kerr.OutOfOrderSequenceNumber, -1},
			{0, 12, 1, kerr.OutOfOrderSequenceNumber, -1},
			{0, 18, 2, kerr.OutOfOrderSequenceNumber, -1},
			{1, 5, 2, kerr.OutOfOrderSequenceNumber, -1},
			{1, 0, 2, nil, 14},
			{0, 14, 2, kerr.InvalidProducerEpoch, -1},
		} {
			r := b.produce(AppendRequest{Records: idempotent(5, x.epoch, x.seq, x.n)})
			if !errors.Is(r.Err, x.err) || r.BaseOffset != x.base {
				t.Errorf("epoch %d sequence %d ×%d: %v base %d, want %v base %d", x.epoch, x.seq, x.n, r.Err, r.BaseOffset, x.err, x.base)
			}
		}
		if n := len(w.server.Messages(testLog)); n != 8 {
			t.Errorf("%d messages stored, want 8", n)
		}
	})
}

func TestPlainMessageIsOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		g.mustProduce(batch(3))
		if _, err := w.server.Publish(testSubject, pubsub.Header{"Kafka-Key": {"k"}, "B": {"2", "3"}, "A": {"1"}}, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if got := g.mustProduce(batch(2)); got != 4 {
			t.Fatalf("base after a plain message: %d", got)
		}
		cold := w.gateway(memory.Faults{})
		for _, g := range []*gateway{g, cold} {
			bs := g.read(0)
			if got := offsets(bs); !slices.Equal(got, []int64{0, 3, 4}) {
				t.Fatalf("batches at %v", got)
			}
			if bs[1].Count() != 1 || bs[1].MaxTimestamp() != w.server.Messages(testLog)[1].Time.UnixMilli() {
				t.Errorf("plain batch: %d records, max %d", bs[1].Count(), bs[1].MaxTimestamp())
			}
		}
	})
}
