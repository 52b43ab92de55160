package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// script answers the nth append of a gateway with the nth fault.
type script struct {
	mu     sync.Mutex // guards: n, ops
	n      int
	faults []memory.WriteFault
	ops    []memory.Op
}

func (s *script) append(op memory.Op) memory.WriteFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, op)
	if s.n++; s.n <= len(s.faults) {
		return s.faults[s.n-1]
	}
	return memory.WriteFault{}
}

// The acknowledgement of one append is lost. The outcome is
// looked up in the log; nothing is stored twice, nothing acknowledged is lost.
func TestC40LostAck(t *testing.T) {
	for _, x := range []struct {
		name   string
		faults []memory.WriteFault
	}{
		{"stored", []memory.WriteFault{{LoseAck: true}}},
		{"never arrived", []memory.WriteFault{{Drop: true}}},
		{"never arrived, twice", []memory.WriteFault{{Drop: true}, {Drop: true}}},
		{"arrives late, after the copy", []memory.WriteFault{{Late: 2 * time.Second}}},
		{"arrives late, before the copy", []memory.WriteFault{{Late: time.Millisecond}, {Before: 10 * time.Millisecond}}},
		{"copy stored, its ack lost too", []memory.WriteFault{{Drop: true}, {LoseAck: true}}},
		{"copy refused, then stored", []memory.WriteFault{{Drop: true}, {Err: pubsub.ErrUnavailable}}},
		{"slower than the timeout", []memory.WriteFault{{After: ackTimeout + time.Second}}},
		{"later than the timeout", []memory.WriteFault{{Before: ackTimeout + time.Second}}},
	} {
		for _, pid := range []int64{0, 7} {
			t.Run(fmt.Sprintf("%s, producer %d", x.name, pid), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, memory.Config{})
					s := &script{faults: x.faults}
					g := w.gateway(memory.Faults{Append: s.append})
					done := make(chan AppendResult, 3)
					for i := range int32(3) {
						g.p.Submit(AppendRequest{Records: idempotent(pid, 0, 2*i, 2)}, func(a AppendResult) { done <- a })
					}
					for i := range types.Offset(3) {
						if a := <-done; a.Err != nil || a.BaseOffset != 2*i {
							t.Errorf("answer %d: %+v", i, a)
						}
					}
					time.Sleep(time.Minute)
					if bs := w.gateway(memory.Faults{}).read(0); len(bs) != 3 {
						t.Errorf("batches at %v", offsets(bs))
					}
				})
			})
		}
	}
}

// The repeat is the same message to the byte.
func TestC40LostAckRepeatsTheSameBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.config.LogAppendTime = true
		g := w.gateway(memory.Faults{Append: (&script{faults: []memory.WriteFault{{Drop: true}, {Late: 7 * time.Second}}}).append})
		log := &recorder{Log: g.p.log}
		g.p.log = log
		if a := g.produce(AppendRequest{Records: batch(2)}); a.Err != nil {
			t.Fatal(a.Err)
		}
		if len(log.entries) < 3 {
			t.Fatalf("%d appends", len(log.entries))
		}
		for _, e := range log.entries[1:] {
			if !bytes.Equal(e.Data, log.entries[0].Data) || e.Header.Get(headerLog) != log.entries[0].Header.Get(headerLog) {
				t.Error("a repeat differs from the first message")
			}
		}
	})
}

type recorder struct {
	pubsub.Log
	entries []pubsub.Entry
}

func (r *recorder) Append(ctx context.Context, prev pubsub.Seq, e pubsub.Entry) (pubsub.Seq, error) {
	r.entries = append(r.entries, pubsub.Entry{Header: e.Header, Data: append([]byte(nil), e.Data...)})
	return r.Log.Append(ctx, prev, e)
}

// Nobody knows: 7 for all, and the log goes on when the store answers again.
func TestC40LostAckUnresolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		var mu sync.Mutex
		broken := true
		g := w.gateway(memory.Faults{
			Append: (&script{faults: []memory.WriteFault{{LoseAck: true}}}).append,
			Bounds: func(memory.Op) (f memory.ReadFault) {
				mu.Lock()
				defer mu.Unlock()
				if broken {
					f.Err = pubsub.ErrUnavailable
				}
				return f
			},
		})
		mu.Lock()
		broken = false
		mu.Unlock()
		g.read(0)
		mu.Lock()
		broken = true
		mu.Unlock()
		began := time.Now()
		if a := g.produce(AppendRequest{Records: idempotent(3, 0, 0, 2)}); !errors.Is(a.Err, kerr.RequestTimedOut) {
			t.Errorf("%+v", a)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("answered after %v: the client has given up", took)
		}
		if r, err := g.p.Read(t.Context(), ReadRequest{MaxBytes: 100, Whole: true}); err == nil && r.HighWatermark > 0 && len(r.Batches) == 0 {
			t.Errorf("%+v", r)
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		if a := g.produce(AppendRequest{Records: idempotent(3, 0, 0, 2)}); a.Err != nil || a.BaseOffset != 0 {
			t.Errorf("repeated by the client: %+v", a)
		}
		if a := g.produce(AppendRequest{Records: idempotent(3, 0, 2, 2)}); a.Err != nil || a.BaseOffset != 2 {
			t.Errorf("the next one: %+v", a)
		}
		if n := len(w.server.Messages(testLog)); n != 2 {
			t.Errorf("%d messages", n)
		}
	})
}

// The copy is refused, or nothing is taken for as long as we ask, while the first
// one is late: 7, which says that nobody knows, and never an error that says
// that nothing is stored.
func TestC40LostAckFirstCopyIsLate(t *testing.T) {
	for _, c := range []struct {
		name string
		copy memory.WriteFault
	}{
		{"copy refused by a full store", memory.WriteFault{Err: pubsub.ErrFull}},
		{"no copy is taken", memory.WriteFault{Drop: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				n := 0
				g := w.gateway(memory.Faults{Append: func(memory.Op) memory.WriteFault {
					if n++; n == 1 {
						return memory.WriteFault{Late: time.Minute}
					}
					return c.copy
				}})
				if a := g.produce(AppendRequest{Records: batch(2)}); !errors.Is(a.Err, kerr.RequestTimedOut) {
					t.Fatalf("%+v: it is stored a minute later", a)
				}
				time.Sleep(2 * time.Minute)
				if n := len(w.server.Messages(testLog)); n != 1 {
					t.Fatalf("%d messages, want the late one", n)
				}
			})
		})
	}
}

// Purged before the outcome was known: the producer table decides for an
// idempotent producer, nobody can for another.
func TestC40LostAckPurgedMeanwhile(t *testing.T) {
	for _, pid := range []int64{0, 4} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Config{})
			other := w.gateway(memory.Faults{})
			g := w.gateway(memory.Faults{Append: (&script{faults: []memory.WriteFault{{}, {LoseAck: true, After: 2 * time.Second}}}).append})
			if a := g.produce(AppendRequest{Records: idempotent(pid, 0, 0, 1)}); a.Err != nil {
				t.Fatal(a.Err)
			}
			done := make(chan AppendResult, 1)
			g.p.Submit(AppendRequest{Records: idempotent(pid, 0, 1, 1)}, func(a AppendResult) { done <- a })
			time.Sleep(time.Second)
			// The other gateway appends, writes a snapshot, and purges.
			other.mustProduce(batch(1))
			if err := other.host.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := other.p.updateRecord(t.Context(), func(r *record) bool {
				r.First, r.Base, r.Start = 3, 2, 2
				return true
			}); err != nil {
				t.Fatal(err)
			}
			if err := other.p.log.Trim(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
			a := <-done
			switch {
			case pid > 0 && (a.Err != nil || a.BaseOffset != 1):
				t.Errorf("idempotent: %+v", a)
			case pid == 0 && !errors.Is(a.Err, kerr.RequestTimedOut):
				t.Errorf("plain: %+v", a)
			}
			if got := g.mustProduce(batch(1)); got != 3 {
				t.Errorf("next base %d", got)
			}
		})
	}
}

// Two gateways append at the same time: one loses, reads what is there, and
// decides again.
func TestConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		a, b := w.gateway(memory.Faults{}), w.gateway(memory.Faults{})
		for i := range types.Offset(20) {
			g := []*gateway{a, b}[i%2]
			if got := g.mustProduce(batch(3)); got != 3*i {
				t.Fatalf("base %d, want %d", got, 3*i)
			}
		}
		if _, err := w.server.Publish(testSubject, nil, []byte("plain")); err != nil {
			t.Fatal(err)
		}
		if x, y := a.mustProduce(batch(1)), b.mustProduce(batch(1)); x != 61 || y != 62 {
			t.Errorf("bases %d, %d", x, y)
		}
	})
}

// The append is stored, its gateway dies, the client sends
// the batch to another one.
func TestC30KilledAfterTheAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{Append: func(memory.Op) memory.WriteFault { return memory.WriteFault{After: time.Hour} }})
		done := make(chan AppendResult, 1)
		g.p.Submit(AppendRequest{Records: idempotent(5, 0, 0, 3)}, func(a AppendResult) { done <- a })
		synctest.Wait()
		g.client.Disconnect()
		g.kill()
		if a := <-done; a.Err == nil {
			t.Errorf("acknowledged by a dead gateway: %+v", a)
		}
		b := w.gateway(memory.Faults{})
		if a := b.produce(AppendRequest{Records: idempotent(5, 0, 0, 3)}); a.Err != nil || a.BaseOffset != 0 {
			t.Errorf("%+v", a)
		}
		if a := b.produce(AppendRequest{Records: idempotent(5, 0, 3, 3)}); a.Err != nil || a.BaseOffset != 3 {
			t.Errorf("%+v", a)
		}
	})
}

// Only what is stored is visible, however slow the store is between
// choosing an offset and the acknowledgement.
func TestC36EndFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		slow := func(memory.Op) memory.WriteFault { return memory.WriteFault{Before: 500 * time.Millisecond} }
		a, b := w.gateway(memory.Faults{Append: slow}), w.gateway(memory.Faults{})
		done := make(chan AppendResult, 5)
		for range 5 {
			a.p.Submit(AppendRequest{Records: batch(2)}, func(r AppendResult) { done <- r })
		}
		last := types.Offset(0)
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(37 * time.Millisecond) {
			for _, g := range []*gateway{a, b} {
				r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest})
				if err != nil {
					t.Fatal(err)
				}
				stored := types.Offset(0)
				for _, m := range w.server.Messages(testLog) {
					d, _ := decodeHeader(w.id.String(), &m)
					stored = d.last + 1
				}
				if r.Offset != stored || r.Offset < last {
					t.Fatalf("latest %d, stored %d, before %d", r.Offset, stored, last)
				}
				last = r.Offset
				if last > 0 {
					if bs := g.read(last - 1); len(bs) != 1 || bs[0].LastOffset() != int64(last-1) {
						t.Fatalf("the record before the end: %v", offsets(bs))
					}
				}
			}
		}
		for range 5 {
			if r := <-done; r.Err != nil {
				t.Error(r.Err)
			}
		}
		if last != 10 {
			t.Errorf("end %d", last)
		}
	})
}

// A gateway that dies, or freezes for 30 s, with appends on their way leaves no
// hole, and no end that others showed falls, nor does its own when it wakes up.
func TestC36WriterDies(t *testing.T) {
	for _, freeze := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Config{})
			a := w.gateway(memory.Faults{Append: func(memory.Op) memory.WriteFault {
				return memory.WriteFault{Before: 300 * time.Millisecond, After: 300 * time.Millisecond}
			}})
			b := w.gateway(memory.Faults{})
			var acked types.Offset
			var mu sync.Mutex // guards: acked
			for range 40 {
				a.p.Submit(AppendRequest{Records: batch(2)}, func(r AppendResult) {
					mu.Lock()
					defer mu.Unlock()
					if r.Err == nil {
						acked = max(acked, r.BaseOffset+2)
					}
				})
				time.Sleep(50 * time.Millisecond)
			}
			time.AfterFunc(450*time.Millisecond, func() {
				if freeze {
					a.client.Freeze()
				} else {
					a.client.Disconnect()
				}
			})
			last := types.Offset(0)
			look := func(g *gateway) {
				t.Helper()
				mu.Lock()
				known := acked
				mu.Unlock()
				r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest})
				if err != nil || r.Offset < last || r.Offset < known {
					t.Fatalf("latest %+v after %d, acknowledged up to %d: %v", r, last, known, err)
				}
				last = r.Offset
				next := int64(0)
				for next < int64(last) {
					for _, b := range g.read(types.Offset(next)) {
						if b.BaseOffset() != next {
							t.Fatalf("a batch at %d, want %d", b.BaseOffset(), next)
						}
						next = b.LastOffset() + 1
					}
				}
			}
			for range 40 {
				look(b)
				time.Sleep(37 * time.Millisecond)
			}
			// It goes on elsewhere, from the end that was shown.
			if got := b.mustProduce(batch(2)); got != last {
				t.Errorf("base %d, want %d", got, last)
			}
			time.Sleep(30 * time.Second)
			look(b)
			if freeze {
				a.client.Thaw()
				synctest.Wait()
				look(a)
			} else {
				a.kill()
			}
			look(b)
			look(w.gateway(memory.Faults{}))
			if last < 6 {
				t.Errorf("end %d: nothing was stored before", last)
			}
		})
	}
}

// The store is full for a while: 56 while it lasts, reads work, nothing is lost.
func TestStoreIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		s := &script{faults: []memory.WriteFault{{}, {Err: pubsub.ErrFull}, {Err: pubsub.ErrFull}}}
		g := w.gateway(memory.Faults{Append: s.append})
		g.mustProduce(idempotent(1, 0, 0, 1))
		for range 2 {
			if a := g.produce(AppendRequest{Records: idempotent(1, 0, 1, 1)}); !errors.Is(a.Err, pubsub.ErrFull) || !errors.Is(a.Err, pubsub.ErrUnavailable) {
				t.Errorf("%+v", a)
			}
			if bs := g.read(0); len(bs) != 1 {
				t.Errorf("%d batches", len(bs))
			}
		}
		if a := g.produce(AppendRequest{Records: idempotent(1, 0, 1, 1)}); a.Err != nil || a.BaseOffset != 1 {
			t.Errorf("%+v", a)
		}
	})
}

// A new producer's first batch fails and the second, sent already, comes
// through: it must not become the first one stored.
func TestLaterBatchOfANewProducerAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{Append: (&script{faults: []memory.WriteFault{{Err: pubsub.ErrUnavailable}}}).append})
		send := func(seq int32) AppendResult { return g.produce(AppendRequest{Records: idempotent(6, 0, seq, 2)}) }
		if a := send(0); a.Err == nil {
			t.Fatal("no failure")
		}
		if a := send(2); !errors.Is(a.Err, kerr.OutOfOrderSequenceNumber) {
			t.Errorf("second: %+v", a)
		}
		for i, seq := range []int32{0, 2, 4} {
			if a := send(seq); a.Err != nil || a.BaseOffset != types.Offset(2*i) {
				t.Errorf("sequence %d: %+v", seq, a)
			}
		}
	})
}

// A producer that wrote through another gateway meanwhile is not out of order.
func TestC29ProducerMovesBetweenGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		deaf := memory.Faults{News: func(string, pubsub.Message) bool { return true }}
		a, b := w.gateway(deaf), w.gateway(deaf)
		for i, g := range []*gateway{a, b, b, b, a, b, a, a} {
			if r := g.produce(AppendRequest{Records: idempotent(8, 0, int32(2*i), 2)}); r.Err != nil || r.BaseOffset != types.Offset(2*i) {
				t.Fatalf("batch %d: %+v", i, r)
			}
		}
	})
}
