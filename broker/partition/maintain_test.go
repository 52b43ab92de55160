package partition

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// holding is what a gateway knows of the maintenance lease.
type holding struct {
	mu   sync.Mutex
	term uint64
	held bool
}

func (h *holding) set(term uint64, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.term, h.held = term, held
}

func (h *holding) holds() (uint64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term, h.held
}

// maintainer is a gateway that asks for the lease before it lets go of anything.
func (w *world) maintainer(f memory.Faults, term uint64, held bool) (*gateway, *holding) {
	g, h := w.gateway(f), &holding{}
	h.set(term, held)
	g.host.maintains = h.holds
	return g, h
}

// pass makes one retention pass and returns its error.
func (g *gateway) pass() error {
	b, err := g.p.log.Bounds(g.w.t.Context())
	if err != nil {
		return err
	}
	return g.p.Retain(g.w.t.Context(), time.Now(), b)
}

// stored is the partition record as it is in the store.
func (w *world) stored() *record {
	w.t.Helper()
	g := w.gateway(memory.Faults{})
	defer g.kill()
	v, err := g.host.records.Get(w.t.Context(), recordKey(w.id, 0))
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := parseRecord(v.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// end is the next offset: every message here has one record.
func (w *world) end() types.Offset {
	ms := w.server.Messages(testLog)
	return types.Offset(ms[len(ms)-1].Seq)
}

// freezing stops a gateway at one of its store calls, as SIGSTOP does.
type freezing struct {
	mu     sync.Mutex // guards: all below
	client *memory.Client
	calls  int
	at     int // 0: not yet armed
	frozen bool
}

func (f *freezing) call() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at == 0 {
		return
	}
	if f.calls++; f.calls == f.at {
		f.client.Freeze()
		f.frozen = true
	}
}

func (f *freezing) faults() memory.Faults {
	w := func(memory.Op) memory.WriteFault { f.call(); return memory.WriteFault{} }
	r := func(memory.Op) memory.ReadFault { f.call(); return memory.ReadFault{} }
	return memory.Faults{Append: w, Set: w, Trim: w, Read: r, Get: r, Bounds: r, Headers: r, TableGet: r, Scan: r, Find: r}
}

// TestFrozenMaintainerDeletesNothing: the holder of the lease freezes at every
// store call of a pass. Meanwhile another takes over, and an operator has all
// records kept. When it wakes up it lets go of nothing more, whatever it had
// decided; and what it had begun in the record its successor finishes.
func TestFrozenMaintainerDeletesNothing(t *testing.T) {
	for _, before := range []uint64{0, 3} { // the term in the record
		points := 0
		for done := false; !done; {
			points++
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				w.config.Retained, w.config.RetentionMillis = true, 60_000
				f := &freezing{}
				a, lease := w.maintainer(f.faults(), 3, true)
				old := func() []byte { return at(time.Now().UnixMilli() - 600_000) }
				for range 5 {
					a.mustProduce(old())
				}
				time.Sleep(time.Minute)
				if before != 0 { // claimed by a pass before
					if err := a.pass(); err != nil {
						t.Fatal(err)
					}
					for range 5 {
						a.mustProduce(old())
					}
					time.Sleep(time.Minute)
				}
				f.mu.Lock()
				f.client, f.at = a.client, points
				f.mu.Unlock()
				ended := make(chan error, 1)
				go func() { ended <- a.pass() }()
				synctest.Wait()
				f.mu.Lock()
				done = !f.frozen
				f.mu.Unlock()
				if done {
					if err := <-ended; err != nil || w.stored().Start != w.end() || w.stored().Term != 3 {
						t.Errorf("without a freeze: %v, %+v", err, w.stored())
					}
					return
				}
				was := w.stored()
				lease.set(3, false)
				b, _ := w.maintainer(memory.Faults{}, 4, true)
				b.configure(func(c *Config) { c.RetentionMillis = -1 })
				if err := b.pass(); err != nil {
					t.Errorf("call %d: the next holder: %v", points, err)
				}
				time.Sleep(5 * time.Minute)
				a.client.Thaw()
				if err := <-ended; err != nil && !errors.Is(err, ErrNotMaintainer) && !errors.As(err, new(*TermError)) && !errors.Is(err, pubsub.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("call %d: a holder that was replaced: %v", points, err)
				}
				if now := w.stored(); now.Start != was.Start || now.Base > now.Start {
					t.Errorf("call %d: log start %d became %d, and the stream begins at %d", points, was.Start, now.Start, now.Base)
				}
				if err := b.pass(); err != nil {
					t.Error(err)
				}
				if first, now := w.first(), w.stored(); first != now.First || now.Base > now.Start {
					t.Errorf("call %d: the stream begins at %d, the record says %+v", points, first, now)
				}
				if err := a.pass(); !errors.Is(err, ErrNotMaintainer) {
					t.Errorf("call %d: a pass without the lease: %v", points, err)
				}
				// Kept for ever no more: the holder goes on where the other was.
				b.configure(func(c *Config) { c.RetentionMillis = 60_000 })
				time.Sleep(time.Minute)
				if err := b.pass(); err != nil || w.stored().Start != w.end() || w.stored().Term != 4 {
					t.Errorf("call %d: %v, %+v", points, err, w.stored())
				}
			})
			if t.Failed() {
				t.FailNow()
			}
		}
		if points < 5 {
			t.Errorf("only %d calls were tried", points)
		}
	}
}

// TestTermOfPartition: a partition with nothing to let go of is not claimed; terms
// only grow; a holder with a lower term lets go of nothing and says which it met.
func TestTermOfPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.config.Retained, w.config.RetentionMillis = true, 60_000
		g, lease := w.maintainer(memory.Faults{}, 7, true)
		g.mustProduce(at(time.Now().UnixMilli()))
		for range 3 {
			if err := g.pass(); err != nil || w.stored().Term != 0 {
				t.Fatalf("%v, %+v", err, w.stored())
			}
		}
		time.Sleep(2 * time.Minute)
		if err := g.pass(); err != nil || w.stored().Term != 7 || w.stored().Start != 1 {
			t.Fatalf("%v, %+v", err, w.stored())
		}
		g.mustProduce(at(time.Now().UnixMilli()))
		lease.set(9, true)
		if err := g.pass(); err != nil || w.stored().Term != 9 {
			t.Fatalf("%v, %+v", err, w.stored())
		}
		lease.set(8, true)
		time.Sleep(2 * time.Minute)
		var met *TermError
		if err := g.pass(); !errors.As(err, &met) || met.Term != 9 || w.stored().Start != 1 {
			t.Errorf("%v, %+v", err, w.stored())
		}
		// Deleting what a client names needs no lease.
		if _, err := g.p.DeleteRecords(t.Context(), HighWatermark); err != nil || w.stored().Start != 2 || w.stored().Term != 9 {
			t.Errorf("%v, %+v", err, w.stored())
		}
	})
}
