package group

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
)

// TestSimulationForward is TestSimulation with gateways that live by a real
// membership and pass requests on to each other, by messages that are lost,
// late and repeated. One costs as much as four of the others.
func TestSimulationForward(t *testing.T) { simulations(t, *simCount/4, simulateSites) }

func simulateSites(t *testing.T, seed uint64) {
	s := newSim(t, seed)
	s.sites = make([]*site, 3)
	for i := range s.sites {
		s.settle(i)
	}
	s.play(s.disturb)
}

// settle puts a new site in place i.
func (s *sim) settle(i int) {
	var joined atomic.Bool // a start that fails is a start again, which is not the point
	table := func(op memory.Op) memory.WriteFault {
		if !joined.Load() {
			return memory.WriteFault{}
		}
		if op.Name != bucket { // renewals fail less often, or nobody would live
			if s.intn(4) > 0 {
				return memory.WriteFault{}
			}
			f := s.fault(op)
			f.Late = 0
			return f
		}
		return s.fault(op)
	}
	request := func(op memory.Op) memory.WriteFault {
		f := s.fault(op)
		f.Late = 0
		if !strings.HasSuffix(op.Name, ".call") {
			f.Err = nil
		}
		return f
	}
	g := begin(s.t, s.srv, memory.Faults{Set: table, Request: request}, newTestConfig())
	joined.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sites[i] = g
}

// disturb does something bad to a site and mends it.
func (s *sim) disturb() {
	i := s.intn(len(s.sites))
	s.mu.Lock()
	g := s.sites[i]
	s.mu.Unlock()
	switch s.intn(5) {
	case 0: // killed, restarted at once
		g.kill()
		s.settle(i)
	case 1: // frozen
		g.client.Freeze()
		time.Sleep(time.Duration(s.intn(8000)) * time.Millisecond)
		g.client.Thaw()
	case 2: // cut off from the store, not from its clients
		g.client.Disconnect()
		time.Sleep(time.Duration(s.intn(8000)) * time.Millisecond)
		g.client.Reconnect()
	case 3: // cut off, and does not notice
		g.client.Isolate()
		time.Sleep(time.Duration(s.intn(8000)) * time.Millisecond)
		g.client.Rejoin()
	case 4: // drained, restarted
		ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
		_ = g.Drain(ctx)
		cancel()
		g.kill()
		s.settle(i)
	}
}
