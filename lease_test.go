package main

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// TestLeaseMovesWithItsHolder: whole gateways; the maintenance lease is handed over
// at once by one that is stopped in order, and taken from one that was killed.
func TestLeaseMovesWithItsHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	store := w.server.Client(memory.Faults{})
	defer store.Close()
	table, err := store.Table(t.Context(), pubsub.TableConfig{Name: "kafka-leases"})
	if err != nil {
		t.Fatal(err)
	}
	type lease struct {
		Node     int
		Term     uint64
		Released bool
	}
	var now lease
	held := func(not int) bool {
		v, err := table.Get(t.Context(), "maintenance")
		if err != nil {
			return false
		}
		var l lease
		if err := json.Unmarshal(v.Data, &l); err != nil {
			t.Fatal(err)
		}
		if l.Released || l.Node == not {
			return false
		}
		if not != 0 && l.Term <= now.Term {
			t.Errorf("term %d after %d", l.Term, now.Term)
		}
		now = l
		return true
	}
	eventually(t, "somebody holds it", func() bool { return held(0) })
	first := w.nodes[now.Node-1] // node ids are leased in the order of the start
	first.gateway.Shutdown(context.Background())
	v, err := table.Get(t.Context(), "maintenance")
	if err != nil {
		t.Fatal(err)
	}
	var let lease
	if err := json.Unmarshal(v.Data, &let); err != nil || !let.Released && let.Node == now.Node {
		t.Errorf("a gateway that was stopped in order still holds the lease: %s, %v", v.Data, err)
	}
	eventually(t, "handed over", func() bool { return held(now.Node) })
	w.nodes[now.Node-1].kill()
	eventually(t, "taken from the dead", func() bool { return held(now.Node) })
}
