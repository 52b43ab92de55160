package group

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// fault happens to all of a gateway's writes while it is true.
type fault struct {
	atomic.Bool
	what memory.WriteFault
}

func (f *fault) faults() memory.Faults {
	return memory.Faults{Set: func(memory.Op) memory.WriteFault {
		if f.Load() {
			return f.what
		}
		return memory.WriteFault{}
	}}
}

// crashing is a gateway that ends, once it is armed, at its at-th write, which is
// not stored, nor is a later one.
type crashing struct {
	atomic.Bool
	at int32
	n  atomic.Int32
}

func (c *crashing) faults() memory.Faults {
	return memory.Faults{Set: func(memory.Op) memory.WriteFault {
		if c.Load() && c.n.Add(1) >= c.at {
			return memory.WriteFault{Drop: true}
		}
		return memory.WriteFault{}
	}}
}

// everyOther write has the fault, from the first on. n counts writes, and may be nil.
func everyOther(f memory.WriteFault, n *atomic.Int32) memory.Faults {
	if n == nil {
		n = new(atomic.Int32)
	}
	return memory.Faults{Set: func(memory.Op) memory.WriteFault {
		if n.Add(1)%2 == 1 {
			return f
		}
		return memory.WriteFault{}
	}}
}

// heir starts a gateway that holds another one for dead.
func heir(t *testing.T, srv *memory.Server, node int32, incarnation string, of *gateway) *gateway {
	t.Helper()
	g := start(t, srv, node, incarnation, memory.Faults{}, newTestConfig())
	g.members.died(of.members.Self())
	return g
}

// freezing starts an owner, whose writes are on their way for so long once delay is
// true, and a gateway that may take over.
func freezing(t *testing.T, srv *memory.Server, d time.Duration) (a, b *gateway, delay *fault) {
	t.Helper()
	delay = &fault{what: memory.WriteFault{Before: d}}
	a = start(t, srv, 1, "a", delay.faults(), newTestConfig())
	return a, start(t, srv, 2, "b", memory.Faults{}, newTestConfig()), delay
}

// commitLate commits at a gateway that freezes, all in one, and returns a second
// later.
func commitLate(t *testing.T, g *gateway, r CommitRequest, more ...CommitRequest) <-chan CommitResponse {
	for _, m := range more {
		r.Partitions = append(r.Partitions, m.Partitions...)
	}
	late := make(chan CommitResponse, 1)
	go func() { late <- g.Commit(t.Context(), r) }()
	time.Sleep(time.Second)
	return late
}

// commitOfAll commits the same offset of n partitions.
func commitOfAll(m Membership, topic string, id types.TopicID, offset types.Offset, n int32) CommitRequest {
	r := commitOf(m, topic, id, offset)
	for i := int32(1); i < n; i++ {
		p := r.Partitions[0]
		p.Partition = i
		r.Partitions = append(r.Partitions, p)
	}
	return r
}
