package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/test/testkit"
)

func TestElapsed(t *testing.T) {
	a := time.Now().Round(0)
	if s := testkit.Skewed(a, 0, 0); !s.Equal(a) {
		t.Fatalf("%v is not %v", s, a)
	}
	for _, c := range []struct{ wall, monotonic, least, most time.Duration }{
		{0, 0, 3, 3},
		{time.Hour, 0, 3, 3603},
		{-time.Hour, 0, 3, 3},
		{0, -3 * time.Second, 0, 3}, // suspended
	} {
		a, b := testkit.Skewed(a, 0, 0), testkit.Skewed(a.Add(3*time.Second), c.wall, c.monotonic)
		if got := atLeast(a, b); got != c.least*time.Second {
			t.Errorf("%+v: at least %v", c, got)
		}
		if got := atMost(a, b); got != c.most*time.Second {
			t.Errorf("%+v: at most %v", c, got)
		}
	}
}

// lies are what happens to the clock of one machine.
var lies = map[string]func(*testkit.Clock){
	"an hour ahead":  func(c *testkit.Clock) { c.Move(time.Hour) },
	"an hour behind": func(c *testkit.Clock) { c.Move(-time.Hour) },
	"frozen":         func(c *testkit.Clock) { c.Stop() },
}

// TestClocksThatLie: a clock that is wrong from the start or is set while a gateway
// runs makes it neither keep a lease too long nor take one too early, nor wait for
// hours; and it knows how far it is off.
func TestClocksThatLie(t *testing.T) {
	for what, lie := range lies {
		for _, holds := range []bool{true, false} {
			for _, from := range []time.Duration{0, 10 * time.Second} {
				synctest.Test(t, func(t *testing.T) {
					srv := memory.NewServer(memory.Config{})
					bad := &testkit.Clock{}
					if from == 0 {
						lie(bad)
					}
					var a, b *holder // a has the bad clock
					if holds {
						a = startHolderAt(t, srv, memory.Faults{}, bad.Now)
						one(t, a)
						b = startHolder(t, srv, memory.Faults{})
					} else {
						b = startHolder(t, srv, memory.Faults{})
						one(t, b)
						a = startHolderAt(t, srv, memory.Faults{}, bad.Now)
					}
					never2 := func(d time.Duration) {
						t.Helper()
						for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(25 * time.Millisecond) {
							if a.holds() && b.holds() {
								t.Fatalf("%s: two hold the lease", what)
							}
						}
					}
					never2(10 * time.Second)
					if from != 0 {
						lie(bad)
					}
					never2(90 * time.Second)
					if a.holds() != holds || b.holds() == holds || !a.Fresh() || !b.Fresh() {
						t.Errorf("%s: a holds %v, b %v", what, a.holds(), b.holds())
					}
					want := map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour, "frozen": from - 100*time.Second}[what]
					if ahead, ok := a.Ahead(); !ok || (ahead-want).Abs() > 2*time.Second {
						t.Errorf("%s: ahead by %v (%v), want %v", what, ahead, ok, want)
					}
					if ahead, ok := b.Ahead(); !ok || ahead.Abs() > time.Second {
						t.Errorf("%s: the good clock is ahead by %v (%v)", what, ahead, ok)
					}
					// The holder freezes, whichever clock it has: the other takes over
					// in time, and not before the holder is silent.
					first, second := a, b
					if !holds {
						first, second = b, a
					}
					first.store.Freeze()
					froze := time.Now()
					for !second.holds() {
						if time.Since(froze) > 10*time.Second {
							t.Fatalf("%s: not taken over", what)
						}
						never2(25 * time.Millisecond)
					}
					if d := time.Since(froze); d < 1500*time.Millisecond {
						t.Errorf("%s: taken over after %v", what, d)
					}
					never2(20 * time.Second)
					first.store.Thaw()
					never2(20 * time.Second)
					if !second.holds() {
						t.Errorf("%s: lost to a holder that woke up", what)
					}
				})
				if t.Failed() {
					t.FailNow()
				}
			}
		}
	}
}

// TestSetBackWhileOneDies: a survivor whose clock is set back after a holder has died
// takes over as soon as any other would.
func TestSetBackWhileOneDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		bad := &testkit.Clock{}
		a := startHolder(t, srv, memory.Faults{})
		one(t, a)
		b := startHolderAt(t, srv, memory.Faults{}, bad.Now)
		time.Sleep(10 * time.Second)
		a.die()
		time.Sleep(time.Second)
		lies["an hour behind"](bad)
		one(t, b)
	})
}

// TestSuspendedMachine: a machine that slept says nothing from memory when it wakes
// up, though its monotonic clock has stood still.
func TestSuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		bad := &testkit.Clock{}
		a := startHolderAt(t, srv, memory.Faults{}, bad.Now)
		one(t, a)
		b := startHolder(t, srv, memory.Faults{})
		time.Sleep(10 * time.Second)
		a.store.Freeze()
		asleep := time.Now()
		for !b.holds() {
			// As a's clocks will tell it when it wakes up: nothing has passed.
			bad.Suspended(time.Since(asleep))
			if a.holds() && time.Since(asleep) > 2*time.Second {
				t.Fatalf("answers from memory after %v", time.Since(asleep))
			}
			time.Sleep(10 * time.Millisecond)
		}
		if a.holds() {
			t.Error("two hold the lease")
		}
		a.store.Thaw()
	})
}
