package partition

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// Fetch inside a batch, warm and cold.
func TestC18FetchInsideABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		for i, n := range []int{10, 10, 1} {
			if got, want := g.mustProduce(batch(n)), types.Offset(10*i); got != want {
				t.Fatalf("base %d, want %d", got, want)
			}
		}
		if n := len(w.server.Messages(testLog)); n != 3 {
			t.Fatalf("%d messages", n)
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

// The same where one stored message carries many batches.
func TestC18FetchInsideAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		first, once := make(chan struct{}), sync.Once{}
		g := w.gateway(memory.Faults{Append: func(memory.Op) (f memory.WriteFault) {
			once.Do(func() { close(first); f.Before = time.Second })
			return f
		}})
		sizes := []int{2, 10, 1, 7, 1, 1, 12, 3}
		done := make(chan AppendResult, len(sizes))
		for i, n := range sizes {
			g.p.Submit(AppendRequest{Records: batch(n)}, func(a AppendResult) { done <- a })
			if i == 0 {
				<-first // the others gather behind it
			}
		}
		var bases []int64
		end := int64(0)
		for _, n := range sizes {
			if a := <-done; a.Err != nil || int64(a.BaseOffset) != end {
				t.Fatalf("%+v, want base %d", a, end)
			}
			bases = append(bases, end)
			end += int64(n)
		}
		if n := len(w.server.Messages(testLog)); n != 2 {
			t.Fatalf("%d messages, want 2", n)
		}
		for _, g := range []*gateway{g, w.gateway(memory.Faults{})} {
			for o := range end {
				i, exact := slices.BinarySearch(bases, o)
				if !exact {
					i--
				}
				if got := offsets(g.read(types.Offset(o))); !slices.Equal(got, bases[i:]) {
					t.Errorf("fetch at %d: batches at %v, want %v", o, got, bases[i:])
				}
			}
			if bs := g.read(types.Offset(end)); len(bs) != 0 {
				t.Errorf("fetch at the end: %d batches", len(bs))
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

// The verdict on a sequence follows from the log: the same gateway, another one
// that was there, one that gets no news, and one that starts after everything
// was killed all say the same.
func TestC29RetryThroughAnotherGateway(t *testing.T) {
	deaf := memory.Faults{News: func(string, pubsub.Message) bool { return true }}
	// Each is called before the producer writes through a, and gives what is
	// called to retry.
	for name, through := range map[string]func(w *world, a *gateway) func() *gateway{
		"the same": func(_ *world, a *gateway) func() *gateway { return func() *gateway { return a } },
		"a warm one": func(w *world, _ *gateway) func() *gateway {
			b := w.gateway(memory.Faults{})
			b.read(0)
			return func() *gateway { return b }
		},
		"a deaf one": func(w *world, _ *gateway) func() *gateway {
			b := w.gateway(deaf)
			b.read(0)
			return func() *gateway { return b }
		},
		"one that hands over to it": func(w *world, a *gateway) func() *gateway {
			team := &team{w: w}
			team.seat(a)
			b := team.join(memory.Faults{})
			b.hands = true
			return func() *gateway { return b }
		},
		"one that it has handed over to": func(w *world, a *gateway) func() *gateway {
			team := &team{w: w}
			b := team.join(deaf)
			team.seat(a)
			a.hands = true
			return func() *gateway { return b }
		},
		"a cold one": func(w *world, _ *gateway) func() *gateway {
			return func() *gateway { return w.gateway(memory.Faults{}) }
		},
		"after a kill": func(w *world, a *gateway) func() *gateway {
			return func() *gateway { a.kill(); return w.gateway(memory.Faults{}) }
		},
		"after a restart": func(w *world, a *gateway) func() *gateway {
			return func() *gateway {
				if err := a.host.Drain(w.t.Context()); err != nil { // writes a snapshot
					w.t.Fatal(err)
				}
				a.kill()
				return w.gateway(memory.Faults{})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				a := w.gateway(memory.Faults{})
				other := through(w, a)
				for s := int32(0); s <= 12; s += 2 {
					if r := a.produce(AppendRequest{Records: idempotent(5, 0, s, 2)}); r.Err != nil || r.BaseOffset != types.Offset(s) {
						t.Fatalf("sequence %d: %+v", s, r)
					}
				}
				retries(t, w, other())
			})
		})
	}
}

// retries repeats, wrongly and rightly, behind seven batches of two records.
func retries(t *testing.T, w *world, b *gateway) {
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
}

func TestC17PlainMessageIsOneRecord(t *testing.T) {
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

// Stored bytes are the client's bytes, whatever the codec; only
// base offset and leader epoch are the broker's, and the epoch is 0 everywhere.
func TestC15C28BytesPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		r := rand.New(rand.NewPCG(1, 2))
		var sent [][]byte
		for codec := range int16(5) {
			for _, size := range []int{100, 40_000, 200_000} {
				v := make([]byte, size)
				for i := range v {
					v[i] = byte(r.Uint32())
				}
				now := time.Now().UnixMilli()
				b := batchSpec{times: []int64{now, now + 1}, values: [][]byte{v, nil}, attrs: codec, body: func(p []byte) []byte {
					z, err := compress.Encode(nil, compress.Codec(codec), p)
					if err != nil {
						t.Fatal(err)
					}
					return z
				}}.bytes()
				sent = append(sent, slices.Clone(b))
				if got, want := g.mustProduce(b), types.Offset(2*len(sent)-2); got != want {
					t.Fatalf("base %d, want %d", got, want)
				}
			}
		}
		for _, g := range []*gateway{g, w.gateway(memory.Faults{})} {
			for i, want := range sent {
				b := g.read(types.Offset(2 * i))[0]
				if b.BaseOffset() != int64(2*i) || b.LeaderEpoch() != 0 {
					t.Errorf("batch %d: base %d, leader epoch %d", i, b.BaseOffset(), b.LeaderEpoch())
				}
				if !bytes.Equal(b[16:], want[16:]) || !bytes.Equal(b[8:12], want[8:12]) {
					t.Errorf("batch %d was changed", i)
				}
			}
		}
		for _, at := range []int64{Latest, Earliest, 0} {
			if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: at}); err != nil || r.LeaderEpoch != 0 {
				t.Errorf("lookup %d: %+v, %v", at, r, err)
			}
		}
	})
}

// After a purge, written into the record first, everything is found from the
// new start on, cold and warm, and nothing before it. The next base goes
// on, also when everything readable is gone.
//
// DeleteRecords, which purges on request, belongs to its own cases.
func TestC39AfterAPurge(t *testing.T) {
	for _, plain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Config{})
			g := w.gateway(memory.Faults{})
			const n, first = 1500, 1100
			for range n {
				if plain {
					if _, err := w.server.Publish(testSubject, nil, []byte("x")); err != nil {
						t.Fatal(err)
					}
				} else {
					g.mustProduce(batch(1))
				}
			}
			g.mustProduce(batch(1))
			if err := g.host.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := g.p.updateRecord(t.Context(), func(r *record) bool {
				r.First, r.Base, r.Start = first, first-1, first+4
				return true
			}); err != nil {
				t.Fatal(err)
			}
			if err := g.p.log.Trim(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			cold := w.gateway(memory.Faults{})
			for _, g := range []*gateway{g, cold} {
				for _, o := range []types.Offset{0, first, first + 3} {
					if _, err := g.p.Read(t.Context(), ReadRequest{Offset: o, MaxBytes: 100, Whole: true}); !errors.Is(err, kerr.OffsetOutOfRange) {
						t.Errorf("read at %d: %v", o, err)
					}
				}
				for _, o := range []types.Offset{first + 4, first + 5, 1279, 1280, 1281, n} {
					if bs := g.read(o); len(bs) == 0 || bs[0].BaseOffset() != int64(o) {
						t.Errorf("read at %d: %v", o, offsets(bs[:min(len(bs), 1)]))
					}
				}
				for at, want := range map[int64]types.Offset{Earliest: first + 4, 0: first + 4, Latest: n + 1} {
					if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: at}); err != nil || r.Offset != want {
						t.Errorf("lookup %d: %+v, %v, want %d", at, r, err, want)
					}
				}
			}
			// Everything goes; the last message stays as the store's memory.
			if err := g.p.updateRecord(t.Context(), func(r *record) bool {
				r.First, r.Base, r.Start = n+1, n, n+1
				return true
			}); err != nil {
				t.Fatal(err)
			}
			if err := g.p.log.Trim(t.Context(), n+1); err != nil {
				t.Fatal(err)
			}
			for i, g := range []*gateway{w.gateway(memory.Faults{}), g} {
				if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: 0}); err != nil || r.Offset != -1 && i == 0 {
					t.Errorf("lookup in an empty log: %+v, %v", r, err)
				}
				for _, at := range []int64{Earliest, Latest} {
					if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: at}); err != nil || r.Offset != n+1 && i == 0 {
						t.Errorf("lookup %d in an empty log: %+v, %v", at, r, err)
					}
				}
				if got := g.mustProduce(batch(1)); got != types.Offset(n+1+i) {
					t.Errorf("next base %d", got)
				}
			}
		})
	}
}
