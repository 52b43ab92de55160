package partition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// The news of an append are lost, all of them or each with the gateway that sent
// it: who waits elsewhere is woken by the question that is asked every five
// seconds. Readers that wait less simply ask again.
func TestLostNewsAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		b := w.gateway(memory.Faults{News: func(string, pubsub.Message) bool { return true }})
		run(t, b)
		woken := make(chan struct{}, 1)
		defer b.p.Notify(woken)()
		for n := range types.Offset(20) {
			if got, err := b.p.Available(t.Context(), n, false); got != 0 || err != nil {
				t.Fatalf("%d bytes at %d: %v", got, n, err)
			}
			time.Sleep(time.Duration(n) * 371 * time.Millisecond)
			select {
			case <-woken:
			default:
			}
			a := w.gateway(memory.Faults{})
			a.mustProduce(batch(1))
			a.kill()
			began := time.Now()
			for {
				<-woken
				got, err := b.p.Available(t.Context(), n, false)
				if err != nil {
					t.Fatal(err)
				}
				if got > 0 {
					break
				}
			}
			if took := time.Since(began); took > checkEvery+time.Second {
				t.Errorf("append %d was seen after %v", n, took)
			}
		}
	})
}

// With news it takes no question at all.
func TestNewsWakeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		a, b := w.gateway(memory.Faults{}), w.gateway(memory.Faults{})
		run(t, b)
		woken := make(chan struct{}, 1)
		defer b.p.Notify(woken)()
		for n := range types.Offset(20) {
			if got, err := b.p.Available(t.Context(), n, false); got != 0 || err != nil {
				t.Fatalf("%d bytes at %d: %v", got, n, err)
			}
			time.Sleep(300 * time.Millisecond)
			a.mustProduce(batch(1))
			began := time.Now()
			for {
				<-woken
				if got, err := b.p.Available(t.Context(), n, false); err != nil {
					t.Fatal(err)
				} else if got > 0 {
					break
				}
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("append %d was seen after %v", n, took)
			}
		}
	})
}
