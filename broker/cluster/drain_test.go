package cluster

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
)

func fitNodes(c *Cluster) (nodes []int32) {
	for _, p := range Fit(c.Peers()) {
		nodes = append(nodes, p.Node)
	}
	return nodes
}

func TestDrainingGatewayLivesAndGetsNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b := start(t, srv, Config{}), start(t, srv, Config{})
		time.Sleep(time.Second)
		changed := b.Changed()
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-changed:
		default:
			t.Error("the peer was not told")
		}
		for _, c := range []*gateway{a, b} {
			if got := fitNodes(c.Cluster); len(got) != 1 || got[0] != 2 {
				t.Errorf("fit %v", got)
			}
		}
		for range 20 { // through renewals
			time.Sleep(500 * time.Millisecond)
			if ps := b.Peers(); len(ps) != 2 || !ps[0].Draining || b.MayAdopt(a.Self()) || !a.Fresh() {
				t.Fatalf("while it drains: %v, adoptable %v, fresh %v", ps, b.MayAdopt(a.Self()), a.Fresh())
			}
		}
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			if p, ok := Choose(b.Peers(), key); !ok || p.Node != 2 {
				t.Errorf("%s goes to %d", key, p.Node)
			}
		}
		// When all drain, somebody has to.
		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := fitNodes(a.Cluster); len(got) != 2 {
			t.Errorf("all drain: fit %v", got)
		}
		if _, ok := Choose(a.Peers(), "a"); !ok {
			t.Error("all drain: nobody is chosen")
		}
	})
}

// A killed gateway is out of the hints soon, its time-to-live notwithstanding; a
// frozen one later; and nobody is suspect while the store is away from all.
func TestDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b, c := start(t, srv, Config{}), start(t, srv, Config{}), start(t, srv, Config{})
		gone := func(what string, g *gateway, limit time.Duration) {
			t.Helper()
			began := time.Now()
			for time.Since(began) < 20*time.Second {
				if len(fitNodes(b.Cluster)) == 2 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if d := time.Since(began); d > limit {
				t.Errorf("%s: in the hints for %v", what, d)
			}
			if time.Since(began) < 1400*time.Millisecond && b.MayAdopt(g.Self()) {
				t.Errorf("%s: what it owns was free before its time-to-live", what)
			}
		}
		time.Sleep(10 * time.Second)
		if got := fitNodes(b.Cluster); len(got) != 3 {
			t.Fatalf("at first %v", got)
		}
		c.store.Freeze()
		gone("frozen", c, 2500*time.Millisecond)
		c.store.Thaw()
		time.Sleep(3 * time.Second)
		if got := fitNodes(b.Cluster); len(got) != 3 {
			t.Fatalf("after it woke up: %v", got)
		}
		a.stop()
		gone("killed", a, 1250*time.Millisecond)
	})
}

// Who asks is told of a kill at once, and peers are not asked all the time.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b, c := start(t, srv, Config{}), start(t, srv, Config{}), start(t, srv, Config{})
		time.Sleep(10*time.Second + 100*time.Millisecond) // between renewals
		a.Probe(0)
		if got := fitNodes(a.Cluster); len(got) != 3 {
			t.Fatalf("all live: %v", got)
		}
		c.stop()
		changed := a.Changed()
		a.Probe(time.Second) // the last round is young enough
		if got := fitNodes(a.Cluster); len(got) != 3 {
			t.Errorf("asked again: %v", got)
		}
		var all sync.WaitGroup
		for range 20 { // they share rounds, and none of before
			all.Go(func() { a.Probe(0) })
		}
		all.Wait()
		if got := fitNodes(a.Cluster); len(got) != 2 || got[1] != b.Self().Node {
			t.Errorf("killed: %v", got)
		}
		select {
		case <-changed:
		default:
			t.Error("nobody was told")
		}
		if a.MayAdopt(c.Self()) {
			t.Error("what it owned was free at once")
		}
		b.store.Freeze()
		began := time.Now()
		a.Probe(0)
		if d := time.Since(began); d > probeWait {
			t.Errorf("waited %v for a frozen one", d)
		}
		if got := fitNodes(a.Cluster); len(got) != 2 {
			t.Errorf("frozen: %v", got) // silence says nothing yet
		}
		b.store.Thaw()
	})
}
