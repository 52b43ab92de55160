package partition

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// slowTrims is a store whose trims take 10 ms each, and where they went to.
type slowTrims struct {
	mu sync.Mutex
	to []pubsub.Seq // guarded by mu
}

func (s *slowTrims) faults() memory.Faults {
	return memory.Faults{Trim: func(o memory.Op) memory.WriteFault {
		s.mu.Lock()
		defer s.mu.Unlock()
		if o.Name == testLog {
			s.to = append(s.to, o.Seq)
		}
		return memory.WriteFault{Before: 10 * time.Millisecond}
	}}
}

func (s *slowTrims) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.to)
}

// large is a log of 41 messages on a gateway that trims three of them at a time.
func large(t *testing.T, s *slowTrims) (*world, *gateway) {
	w := compacted(t)
	g := w.gateway(s.faults())
	for i := range 40 {
		g.put(0, fmt.Sprintf("k%d=%d", i%4, i))
	}
	g.put(0, "end=1")
	b, err := g.p.log.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g.host.trimStep = int64(b.Bytes) * 3 / 40
	return w, g
}

// TestReplacedGoesInSteps: what a run has replaced of a large log is removed after
// the run, a little at a time, with rests that are long against the steps. Meanwhile
// everything is read and appended as ever, and retention, which would be told too many
// bytes, waits.
func TestReplacedGoesInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowTrims{}
		w, g := large(t, s)
		began := time.Now()
		g.mustCompact(CompactOptions{})
		if took := time.Since(began); took > time.Second {
			t.Errorf("the run waited %v for what it had replaced", took)
		}
		want := "[36:k0=36 37:k1=37 38:k2=38 39:k3=39 40:end=1]"
		first, seen := g.p.first, w.first()
		if first != 41 {
			t.Fatalf("the main stream begins with %d", first)
		}
		// The sibling has some hundred bytes: of more than that the oldest would go.
		w.config.RetentionBytes = 2000
		for steps := 0; w.first() < first; {
			time.Sleep(100 * time.Millisecond)
			if n := s.count(); n > steps+1 {
				t.Fatalf("%d steps in a tenth of a second", n-steps)
			} else {
				steps = n
			}
			if at := w.first(); at > seen+5 {
				t.Fatalf("one step from %d to %d", seen, at)
			} else {
				seen = at
			}
			if time.Since(began) > 2*trimWithin {
				t.Fatalf("after two minutes the stream begins with %d", seen)
			}
			if err := g.pass(); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(g.shows()); got != want {
				t.Fatalf("while %d was the first message: %s", seen, got)
			}
		}
		if n := s.count(); n < 10 {
			t.Errorf("it took %d steps", n)
		}
		synctest.Wait()
		if g.p.trims {
			t.Error("it goes on after the end")
		}
		// The next run has little to remove: at once.
		g.put(0, "k0=41")
		g.put(0, "end=2")
		g.mustCompact(CompactOptions{Force: true})
		if w.first() != g.p.first {
			t.Errorf("the stream begins with %d instead of %d", w.first(), g.p.first)
		}
	})
}

// TestReplacedIsRemovedByOthers: a gateway that ends between two steps leaves the rest
// to the next holder's retention, and one that is told of a later run goes on to its
// first message.
func TestReplacedIsRemovedByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowTrims{}
		w, g := large(t, s)
		g.mustCompact(CompactOptions{})
		time.Sleep(100 * time.Millisecond)
		first := g.p.first
		if w.first() >= first || !g.p.trims {
			t.Fatalf("after the first step the stream begins with %d", w.first())
		}
		g.put(0, "k0=41")
		g.put(0, "end=2")
		g.mustCompact(CompactOptions{Force: true})
		if g.p.first <= first || w.first() >= first {
			t.Fatalf("after the second run the stream begins with %d, the main part with %d", w.first(), g.p.first)
		}
		g.kill()
		h := w.gateway(memory.Faults{})
		if err := h.pass(); err != nil {
			t.Fatal(err)
		}
		if w.first() != h.p.first || h.p.first != 43 {
			t.Errorf("the stream begins with %d instead of %d", w.first(), h.p.first)
		}
		if got := fmt.Sprint(h.shows()); got != "[37:k1=37 38:k2=38 39:k3=39 40:end=1 41:k0=41 42:end=2]" {
			t.Error(got)
		}
	})
}

func TestStepsTo(t *testing.T) {
	b := pubsub.Bounds{First: 11, Last: 20, Messages: 10, Bytes: 1000}
	for _, c := range []struct {
		first pubsub.Seq
		step  int64
		want  int64
	}{{11, 10, 0}, {5, 10, 0}, {12, 1000, 1}, {16, 100, 6}, {20, 1, 901}, {99, 1000, 2}, {16, 0, 0}} {
		if n := stepsTo(b, c.first, c.step); n != c.want {
			t.Errorf("to %d by %d: %d steps, want %d", c.first, c.step, n, c.want)
		}
	}
	if n := stepsTo(pubsub.Bounds{First: 5, Last: 4}, 5, 1); n != 0 {
		t.Errorf("%d steps in an empty log", n)
	}
}
