package txn

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
)

// crash is where a gateway dies: at the nth of its steps, each write of a
// transaction's record, each producer id and each partition or group that is told
// being one; a write is lost, or stored.
type crash struct {
	step   int32
	stored bool
}

// A gateway dies at every step of two transactions, one after the other: the next
// one finishes what was decided, the client repeats what was not answered, and
// every partition and group knows exactly what the client was told.
func TestC33KilledAtEveryStep(t *testing.T) {
	for _, bump := range []bool{true, false} {
		for _, stored := range []bool{true, false} {
			last := false
			for step := int32(1); !last; step++ {
				t.Run(fmt.Sprintf("bump %v, stored %v, step %d", bump, stored, step), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { last = !killed(t, crash{step, stored}, bump) })
				})
				if step > 60 {
					t.Fatal("there is no end of steps")
				}
			}
		}
	}
}

// killed runs it with one crash; false if there were fewer steps.
func killed(t *testing.T, c crash, bump bool) (died bool) {
	w := newWorld(t)
	var steps atomic.Int32
	var first atomic.Pointer[site]
	die := func() bool {
		if steps.Add(1) != c.step {
			return false
		}
		a := first.Load()
		a.dead.Store(true)
		go a.kill()
		return true
	}
	a := w.begin(memory.Faults{Set: func(op memory.Op) memory.WriteFault {
		if op.Name != bucket || !die() {
			return memory.WriteFault{}
		}
		return memory.WriteFault{Drop: !c.stored, LoseAck: c.stored}
	}}, func(s *site, ctx context.Context, what string) error {
		if die() {
			return errKilled
		}
		return ctx.Err()
	})
	first.Store(a)
	w.begin(memory.Faults{}, nil)
	cl := &client{w: w}
	cl.init()
	pid := cl.p.ID
	if n := cl.add(p0, p1); n != 1 {
		t.Fatalf("first transaction has number %d", n)
	}
	cl.addOffsets("g")
	cl.end(true, bump)
	one := cl.p
	if n := cl.add(p1, p2); n != 2 {
		t.Fatalf("second transaction has number %d", n)
	}
	cl.end(false, bump)
	two := cl.p
	w.wait("the second transaction is complete", func() bool { return w.stored().state == CompleteAbort })
	for where, want := range map[string][]endMarker{
		place(p0): {{pid, 1, one.Epoch, true}},
		place(p1): {{pid, 1, one.Epoch, true}, {pid, 2, two.Epoch, false}},
		place(p2): {{pid, 2, two.Epoch, false}},
		"g":       {{pid, 1, -1, true}},
	} {
		if got := w.logs.of(where); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", where, got, want)
		}
	}
	if s := w.stored(); s.producer != two || s.n != 2 {
		t.Errorf("stored %+v n=%d, want %+v", s.producer, s.n, two)
	}
	return a.dead.Load()
}

// A gateway is killed with a transaction open, and one with a decision half carried
// out: nobody asks, and both end.
func TestC33NobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.begin(memory.Faults{}, func(s *site, ctx context.Context, what string) error {
			if what == "before "+place(p1) {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		w.begin(memory.Faults{}, nil)
		cl := &client{w: w}
		cl.init()
		cl.add(p0, p1)
		cl.end(true, true)
		w.wait("one marker", func() bool { return len(w.logs.of(place(p0))) == 1 })
		a.kill()
		w.wait("the other marker", func() bool { return len(w.logs.of(place(p1))) == 1 })
		w.wait("complete", func() bool { return w.stored().state == CompleteCommit })

		began := time.Now()
		cl.add(p2)
		w.begin(memory.Faults{}, nil)
		w.sites[1].kill()
		w.wait("aborted", func() bool { return len(w.logs.of(place(p2))) == 1 })
		if took := time.Since(began); took < time.Minute || took > time.Minute+5*time.Second {
			t.Errorf("aborted after %v", took)
		}
		if m := w.logs.of(place(p2))[0]; m.commit || m.epoch != cl.p.Epoch+1 {
			t.Errorf("marker %+v, producer %+v", m, cl.p)
		}
	})
}

// A partition cannot be told for a long time: it is told again and again, the
// others know, InitProducerId waits it out, and nothing is forgotten.
func TestC33StoreRefusesAMarker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var away atomic.Bool
		away.Store(true)
		var tries atomic.Int32
		a := w.begin(memory.Faults{}, func(_ *site, ctx context.Context, what string) error {
			if away.Load() && what == "before "+place(p1) {
				tries.Add(1)
				return errKilled
			}
			return ctx.Err()
		})
		cl := &client{w: w}
		cl.init()
		cl.add(p0, p1, p2)
		cl.end(true, true)
		time.Sleep(10 * time.Minute)
		if n := tries.Load(); n < 300 || n > 700 {
			t.Errorf("tried %d times in ten minutes", n)
		}
		for _, p := range []Partition{p0, p2} {
			if len(w.logs.of(place(p))) != 1 {
				t.Errorf("%s does not know", place(p))
			}
		}
		r := a.Init(t.Context(), InitRequest{TransactionalID: "t", Timeout: time.Minute, Producer: NoProducer})
		if d := a.Describe(t.Context(), "t"); r.Err == nil || d.State != PrepareCommit {
			t.Errorf("init: %+v in %s", r, d.State)
		}
		away.Store(false)
		before := cl.p
		cl.init()
		if cl.p.ID != before.ID || cl.p.Epoch != before.Epoch+1 {
			t.Errorf("%+v after %+v", cl.p, before)
		}
		if got := w.logs.of(place(p1)); len(got) != 1 || !got[0].commit {
			t.Errorf("markers %+v", got)
		}
	})
}

// A frozen owner wakes up in the middle of carrying out a decision, and of storing
// one, when another has gone on long since: what it says late is what it would have
// said then, and what it stores late is refused.
func TestC33FrozenOwner(t *testing.T) {
	for _, storing := range []bool{false, true} {
		t.Run(fmt.Sprintf("storing %v", storing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var frozen atomic.Bool
				var first atomic.Pointer[site]
				wake := make(chan struct{})
				awake := sync.OnceFunc(func() { close(wake) })
				hold := func() {
					if frozen.CompareAndSwap(false, true) {
						first.Load().client.Freeze()
					}
					<-wake
				}
				var deciding atomic.Bool
				a := w.begin(memory.Faults{Set: func(op memory.Op) memory.WriteFault {
					if storing && op.Name == bucket && deciding.Load() {
						hold()
					}
					return memory.WriteFault{}
				}}, func(_ *site, _ context.Context, what string) error {
					if !storing && deciding.Load() && what == "before "+place(p1) {
						hold()
					}
					return nil // as if the context were not looked at
				})
				first.Store(a)
				b := w.begin(memory.Faults{}, nil)
				t.Cleanup(awake)
				cl := &client{w: w}
				cl.init()
				cl.add(p0, p1)
				if !a.rt.Holds("t") {
					t.Fatal("the first gateway does not own it")
				}
				deciding.Store(true)
				late := make(chan EndResponse, 1)
				go func() {
					late <- a.End(context.Background(), EndRequest{TransactionalID: "t", Producer: cl.p, Commit: true, Bump: true})
				}()
				w.wait("frozen", frozen.Load)
				w.sites = []*site{b}
				// The client has had no answer, or has had it: it asks again elsewhere. If
				// the commit was not decided it may abort instead.
				commit := !storing
				cl.end(commit, true)
				if n := cl.add(p1, p2); n != 2 {
					t.Fatalf("number %d", n)
				}
				cl.end(!commit, true)
				w.wait("complete", func() bool { return len(w.logs.of(place(p2))) == 1 && len(w.logs.of(place(p1))) == 2 })
				told, last := w.logs.of(place(p1)), w.stored()
				a.client.Thaw()
				awake()
				r := <-late
				time.Sleep(time.Minute)
				if r.Err == nil && storing {
					t.Errorf("the late commit was acknowledged: %+v", r)
				}
				if got := w.logs.of(place(p1)); !reflect.DeepEqual(got, told) {
					t.Errorf("markers %+v, before %+v", got, told)
				}
				if got := w.logs.of(place(p1)); got[0].commit != commit || got[1].commit == commit {
					t.Errorf("markers %+v, want %v first", got, commit)
				}
				if s := w.stored(); s.n != 2 || s.producer != last.producer {
					t.Errorf("stored n=%d %+v, before n=%d %+v", s.n, s.producer, last.n, last.producer)
				}
			})
		})
	}
}
