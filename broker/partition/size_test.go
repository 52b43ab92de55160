package partition

import (
	"errors"
	"testing"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// TestSize: what the store says, at the moment of asking, also of a partition
// that is not loaded; a store that does not answer is a failure, not 0.
func TestSize(t *testing.T) {
	w := newWorld(t, memory.Config{})
	down := false
	g := w.gateway(memory.Faults{Bounds: func(memory.Op) memory.ReadFault {
		if down {
			return memory.ReadFault{Err: pubsub.ErrUnavailable}
		}
		return memory.ReadFault{}
	}})
	if n, err := g.p.Size(t.Context()); n != 0 || err != nil {
		t.Errorf("empty: %d, %v", n, err)
	}
	last := int64(0)
	for range 3 {
		b := batch(10)
		g.mustProduce(b)
		n, err := w.gateway(memory.Faults{}).p.Size(t.Context())
		if err != nil || n < last+int64(len(b)) {
			t.Errorf("after %d bytes more: %d, before %d, %v", len(b), n, last, err)
		}
		last = n
	}
	down = true
	if n, err := g.p.Size(t.Context()); !errors.Is(err, pubsub.ErrUnavailable) {
		t.Errorf("store away: %d, %v", n, err)
	}
}
