package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
)

// TestLeasedIDStaysWithItsAddress: clients that have an address for a node id go
// there, so with an address per gateway no other address gets an id that they may
// remember, whoever died, was frozen or came first.
func TestLeasedIDStaysWithItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		at := func(host string) Config { return Config{Mode: PerGateway, Host: host, Port: 9092} }
		want := func(g *gateway, node int32) {
			t.Helper()
			if got := g.Self().Node; got != node {
				t.Errorf("node %d, want %d", got, node)
			}
		}
		a, b, c := start(t, srv, at("a")), start(t, srv, at("b")), start(t, srv, at("c"))
		synctest.Wait()
		want(a, 1)
		want(b, 2)
		want(c, 3)
		// Two are killed; one is marked dead meanwhile, the other one is not yet.
		a.stop()
		time.Sleep(5 * time.Second)
		b.stop()
		synctest.Wait()
		b = start(t, srv, at("b"))
		want(b, 2)
		d := start(t, srv, at("d"))
		want(d, 4)
		a = start(t, srv, at("a"))
		want(a, 1)
		// Two under one address: the second is another broker.
		second := start(t, srv, at("a"))
		want(second, 5)
		second.stop()
		d.stop()
		time.Sleep(clientMemory + 10*time.Second)
		want(start(t, srv, at("e")), 4)
		want(start(t, srv, at("f")), 5)
		// Behind one address ids are nobody's business, and stay low.
		one := memory.NewServer(memory.Config{})
		x := start(t, one, Config{Host: "front", Port: 9092})
		y := start(t, one, Config{Host: "front", Port: 9092})
		want(x, 1)
		want(y, 2)
		x.stop()
		want(start(t, one, Config{Host: "front", Port: 9092}), 1)
	})
}
