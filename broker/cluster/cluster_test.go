package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway is a running Cluster over a client of its own.
type gateway struct {
	*Cluster
	store *memory.Client
	kill  context.CancelFunc
	done  chan error
}

func start(t *testing.T, srv *memory.Server, cfg Config) *gateway {
	t.Helper()
	return startWith(t, srv, cfg, memory.Faults{})
}

func startWith(t *testing.T, srv *memory.Server, cfg Config, faults memory.Faults) *gateway {
	t.Helper()
	g, err := joinWith(t, srv, cfg, faults)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func join(t *testing.T, srv *memory.Server, cfg Config) (*gateway, error) {
	t.Helper()
	return joinWith(t, srv, cfg, memory.Faults{})
}

func joinWith(t *testing.T, srv *memory.Server, cfg Config, faults memory.Faults) (*gateway, error) {
	t.Helper()
	return joinAt(t, srv, cfg, faults, nil)
}

func joinAt(t *testing.T, srv *memory.Server, cfg Config, faults memory.Faults, clock func() time.Time) (*gateway, error) {
	t.Helper()
	store := srv.Client(faults)
	table, err := store.Table(t.Context(), pubsub.TableConfig{Name: "kafka-gateways", Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Prefix = "kafka"
	c := New(cfg, Deps{Table: table, Store: store, Logger: slog.New(slog.DiscardHandler), Clock: clock})
	if err := c.Join(t.Context()); err != nil {
		store.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	g := &gateway{Cluster: c, store: store, kill: cancel, done: make(chan error, 1)}
	go func() { g.done <- c.Run(ctx) }()
	t.Cleanup(g.stop)
	return g, nil
}

// stop ends a gateway without a word, as a kill does.
func (g *gateway) stop() {
	g.kill()
	<-g.done
	g.done <- nil
	g.store.Close()
}

func TestKilledGatewayIsAdoptedAfterItsTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b := start(t, srv, Config{}), start(t, srv, Config{})
		synctest.Wait()
		if a.Self().Node != 1 || b.Self().Node != 2 {
			t.Fatalf("leased nodes %d and %d, want 1 and 2", a.Self().Node, b.Self().Node)
		}
		time.Sleep(10 * time.Second)
		if !a.Fresh() || !b.Fresh() || b.MayAdopt(a.Self()) || len(b.Peers()) != 2 {
			t.Fatalf("both alive: fresh %v %v, peers %v", a.Fresh(), b.Fresh(), b.Peers())
		}
		dead := a.Self()
		a.stop()
		killed := time.Now()
		for !b.MayAdopt(dead) {
			time.Sleep(50 * time.Millisecond)
			if time.Since(killed) > 10*time.Second {
				t.Fatal("never adoptable")
			}
		}
		// The last renewal was at most 500 ms before the kill.
		if d := time.Since(killed); d < 1500*time.Millisecond {
			t.Fatalf("adopted %v after the kill: the time-to-live is 2 s", d)
		}
		time.Sleep(5 * time.Second)
		if len(b.Peers()) != 1 {
			t.Fatalf("peers %v: the dead one was not marked", b.Peers())
		}
	})
}

func TestRestartTakesTheNodeOfASilentPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, Config{})
		synctest.Wait()
		dead := a.Self()
		a.stop()
		b := start(t, srv, Config{})
		if b.Self().Node != dead.Node {
			t.Fatalf("node %d, want %d again", b.Self().Node, dead.Node)
		}
		if b.MayAdopt(dead) {
			t.Fatal("adopted at once: the dead one may have answered a moment ago")
		}
		time.Sleep(2100 * time.Millisecond)
		if !b.MayAdopt(dead) {
			t.Fatal("not adoptable after the time-to-live")
		}
	})
}

func TestAloneAdoptsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, Config{})
		synctest.Wait()
		dead := a.Self()
		a.stop()
		b := start(t, srv, Config{Alone: true})
		if !b.MayAdopt(dead) || b.MayAdopt(b.Self()) {
			t.Fatal("the folder lock proves the predecessor dead")
		}
	})
}

func TestLeaveIsAdoptedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b := start(t, srv, Config{}), start(t, srv, Config{})
		synctest.Wait()
		id := a.Self()
		a.kill()
		<-a.done
		a.done <- nil
		if err := a.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a.Fresh() {
			t.Fatal("fresh after leaving")
		}
		synctest.Wait()
		if !b.MayAdopt(id) {
			t.Fatal("a gateway that left in order is not adoptable at once")
		}
	})
}

func TestFixedNodeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		start(t, srv, Config{Node: 7})
		synctest.Wait()
		if _, err := join(t, srv, Config{Node: 7}); !errors.Is(err, ErrNodeTaken) {
			t.Fatalf("got %v, want ErrNodeTaken", err)
		}
	})
}

// A gateway that is cut off stops answering from memory before anyone may take
// over from it, is marked dead, and begins a new life when it comes back.
func TestCutOffGatewayStopsAnsweringAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b := start(t, srv, Config{}), start(t, srv, Config{})
		time.Sleep(3 * time.Second)
		was := a.Self()
		a.store.Disconnect()
		for !b.MayAdopt(was) {
			time.Sleep(10 * time.Millisecond)
		}
		if a.Fresh() {
			t.Fatal("the old owner answers while a new one may")
		}
		time.Sleep(5 * time.Second)
		a.store.Reconnect()
		time.Sleep(5 * time.Second)
		if a.Self() == was {
			t.Fatal("found dead, and yet the same life goes on")
		}
		if a.Self().Node != was.Node || !a.Fresh() || len(b.Peers()) != 2 {
			t.Fatalf("self %v, fresh %v, peers %v", a.Self(), a.Fresh(), b.Peers())
		}
		if a.MayAdopt(b.Self()) || b.MayAdopt(a.Self()) {
			t.Fatal("a living gateway is adoptable")
		}
		if !a.MayAdopt(was) {
			t.Fatal("one's own former life is not adoptable")
		}
	})
}

// A life that the watch never showed is adoptable only after a renewal sent
// after the question was seen: the watch may be behind.
// TestNodeTakenWhileCutOff: who comes while a gateway is cut off finds nobody
// under its node id and takes it. Back again, the gateway takes another one, and
// the two do not take turns (simulation of gateways, seed 59).
func TestNodeTakenWhileCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var failing atomic.Bool
		a := startWith(t, srv, Config{}, memory.Faults{Scan: func(memory.Op) memory.ReadFault {
			if failing.Load() {
				return memory.ReadFault{Err: pubsub.ErrUnavailable}
			}
			return memory.ReadFault{}
		}})
		time.Sleep(3 * time.Second)
		former := a.Self()
		a.store.Disconnect()
		b := start(t, srv, Config{})
		if b.Self().Node != former.Node {
			t.Fatalf("node %d, want %d, which nobody answers for", b.Self().Node, former.Node)
		}
		failing.Store(true) // the first tries fail
		a.store.Reconnect()
		time.Sleep(3 * time.Second)
		if a.Fresh() {
			t.Error("a gateway without node id answers")
		}
		failing.Store(false)
		time.Sleep(3 * time.Second)
		now, other := a.Self(), b.Self()
		if now.Node != 2 || other.Node != 1 || now.Incarnation == former.Incarnation {
			t.Errorf("%+v and %+v, was %+v", now, other, former)
		}
		time.Sleep(10 * time.Second)
		if a.Self() != now || b.Self() != other || !a.Fresh() || !b.Fresh() || len(a.Peers()) != 2 || len(b.Peers()) != 2 {
			t.Errorf("%+v and %+v: %v and %v", a.Self(), b.Self(), a.Peers(), b.Peers())
		}
		if !b.MayAdopt(former) || b.MayAdopt(now) {
			t.Errorf("former life adoptable: %v, present one: %v", b.MayAdopt(former), b.MayAdopt(now))
		}
		if got, err := a.ask(t.Context(), Peer{Identity: other}); got != yes || err != nil {
			t.Errorf("the one that stayed is asked: %v, %v", got, err)
		}
		if got, err := b.ask(t.Context(), Peer{Identity: now}); got != yes || err != nil {
			t.Errorf("the one that moved is asked: %v, %v", got, err)
		}

		// A fixed id is not given up for another: it ends.
		c := start(t, srv, Config{Node: 7})
		time.Sleep(3 * time.Second)
		c.store.Disconnect()
		d := start(t, srv, Config{Node: 7})
		c.store.Reconnect()
		err := <-c.done
		c.done <- nil
		if !errors.Is(err, ErrNodeTaken) || !d.Fresh() {
			t.Errorf("Run: %v, the other is fresh: %v", err, d.Fresh())
		}
	})
}

func TestUnknownLifeNeedsProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, Config{})
		time.Sleep(3 * time.Second)
		ghost := Identity{Node: 9, Incarnation: "GHOST"}
		if a.MayAdopt(ghost) {
			t.Fatal("adopted unasked")
		}
		time.Sleep(3 * time.Second)
		if !a.MayAdopt(ghost) {
			t.Fatal("never adoptable")
		}
	})
}

// Our clock against the store's, as far as sending and delivery bracket it, and
// whether the acknowledgement or the watch comes first.
func TestFault14ClockAheadOfTheStores(t *testing.T) {
	for _, late := range []time.Duration{0, 5 * time.Millisecond} {
		for _, skew := range []time.Duration{-time.Hour, 0, 90 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				srv := memory.NewServer(memory.Config{Clock: func() time.Time { return time.Now().Add(-skew) }})
				a := startWith(t, srv, Config{}, memory.Faults{Set: func(memory.Op) memory.WriteFault { return memory.WriteFault{After: late} }})
				time.Sleep(3 * time.Second)
				if d, ok := a.Ahead(); !ok || d != skew {
					t.Fatalf("ahead by %v (%v), want %v, acknowledgements %v late", d, ok, skew, late)
				}
			})
		}
	}
}
