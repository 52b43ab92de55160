package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
)

// TestUnbroken: a life that goes on after a short silence is unbroken, as soon as
// that is certain; one that others have ended is not, though the gateway lives
// again; nothing is certain while the store is away.
func TestUnbroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, Config{})
		start(t, srv, Config{})
		lives := a.Unbroken()
		if !lives(t.Context()) {
			t.Error("broken at once")
		}
		time.Sleep(time.Hour)
		if !lives(t.Context()) {
			t.Error("broken after an hour")
		}

		// Too long without a renewal to be sure, and too short to be held for dead.
		a.store.Freeze()
		for a.Fresh() {
			time.Sleep(time.Millisecond)
		}
		said := make(chan bool, 1)
		go func() { said <- lives(t.Context()) }()
		synctest.Wait()
		a.store.Thaw()
		if !<-said {
			t.Error("broken by a short silence")
		}

		a.store.Freeze()
		for a.Fresh() {
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		if lives(t.Context()) || time.Since(began) > 10*time.Second {
			t.Errorf("it is certain after %v", time.Since(began))
		}
		time.Sleep(30 * time.Second)
		in := a.Unbroken() // marked before it knows that it is dead
		a.store.Thaw()
		if lives(t.Context()) || in(t.Context()) {
			t.Error("unbroken after it was held for dead")
		}
		for !a.Fresh() {
			time.Sleep(time.Millisecond)
		}
		if lives(t.Context()) || in(t.Context()) {
			t.Error("unbroken in another life")
		}
		if again := a.Unbroken(); !again(t.Context()) {
			t.Error("the new life is broken")
		}

		a.store.Freeze()
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { said <- a.Unbroken()(ctx) }()
		synctest.Wait()
		cancel()
		if <-said {
			t.Error("unbroken, says one that could not wait")
		}
		a.store.Thaw()
	})
}
