package cluster

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
)

func TestOneModeLivesAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, Config{Host: "a", Port: 9092})
		synctest.Wait()
		for range 2 { // a key of one that was refused is in nobody's way
			_, err := join(t, srv, Config{Mode: PerGateway})
			mode := (*ModeError)(nil)
			if !errors.As(err, &mode) || mode.Peer.Node != 1 || mode.Peer.Host != "a" || mode.Peer.Mode != Shared {
				t.Fatalf("beside a gateway of another mode: %v", err)
			}
		}
		b := start(t, srv, Config{})
		// Killed, not gone: their keys still say alive.
		a.stop()
		b.stop()
		c := start(t, srv, Config{Mode: PerGateway})
		if c.Self().Node != 1 {
			t.Errorf("node %d", c.Self().Node)
		}
		if _, err := join(t, srv, Config{Node: 7}); !errors.As(err, new(*ModeError)) {
			t.Errorf("the old mode beside the new one: %v", err)
		}
	})
}

// A frozen gateway may wake up in a cluster that was moved to the other mode.
func TestFrozenGatewayOfAnotherMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, Config{})
		synctest.Wait()
		a.store.Freeze()
		began := time.Now()
		b := start(t, srv, Config{Mode: PerGateway}) // waits for a sign of life
		if d := time.Since(began); d < 2*time.Second {
			t.Errorf("joined %v after a gateway froze", d)
		}
		for len(b.Peers()) != 1 { // until a is marked dead
			time.Sleep(100 * time.Millisecond)
		}
		a.store.Thaw()
		err := <-a.done
		a.done <- nil
		if !errors.As(err, new(*ModeError)) {
			t.Fatalf("it woke up and ended with %v", err)
		}
		time.Sleep(5 * time.Second)
		if ps := b.Peers(); len(ps) != 1 || ps[0].Mode != PerGateway {
			t.Errorf("peers %v", ps)
		}
	})
}

// Two that join at the same moment do not both live.
func TestModesThatJoinAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		type result struct {
			g   *gateway
			err error
		}
		results := make(chan result, 2)
		for _, m := range []Mode{Shared, PerGateway} {
			go func() {
				g, err := join(t, srv, Config{Mode: m})
				results <- result{g, err}
			}()
		}
		lived := 0
		for range 2 {
			r := <-results
			switch {
			case r.err == nil:
				lived++
			case !errors.As(r.err, new(*ModeError)):
				t.Error(r.err)
			}
		}
		if lived > 1 {
			t.Error("both modes live")
		}
	})
}

// A frozen gateway whose fixed id was given to another one does not take it back.
func TestFrozenGatewayWhoseNodeIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, Config{Node: 3})
		synctest.Wait()
		a.store.Freeze()
		b := start(t, srv, Config{Node: 3})
		life := b.Self()
		time.Sleep(5 * time.Second)
		a.store.Thaw()
		err := <-a.done
		a.done <- nil
		if !errors.Is(err, ErrNodeTaken) {
			t.Fatalf("it woke up and ended with %v", err)
		}
		time.Sleep(5 * time.Second)
		if b.Self() != life || !b.Fresh() {
			t.Errorf("the one in its place: %v, fresh %v", b.Self(), b.Fresh())
		}
	})
}
