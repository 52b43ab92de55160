package gateway

import (
	"math/rand/v2"
	"time"

	"github.com/hanzoai/stream/test/sim"
)

// trouble does something bad to a gateway, or to all, and mends it, until the
// end. What it leaves broken is healed then.
func (s *run) trouble(r *rand.Rand) {
	sim.Pause(s.ended, sim.Millis(r, 5000))
	for !sim.Over(s.ended) {
		x := s.seats[r.IntN(len(s.seats))]
		if x.busy.CompareAndSwap(false, true) {
			s.harm(r, x)
			x.busy.Store(false)
		}
		sim.Pause(s.ended, sim.Millis(r, 4000))
	}
}

// harm does one bad thing.
func (s *run) harm(r *rand.Rand, x *seat) {
	dies := time.Duration(0) // of the next gateway in its place
	if r.IntN(4) == 0 {
		dies = sim.Millis(r, 30)
	}
	p := x.now()
	if p == nil {
		x.start("k", dies)
		return
	}
	switch r.IntN(10) {
	case 0, 1:
		s.trace("kill %s", p.name)
		s.tally.note(kills)
		x.stop(p, false)
		sim.Pause(s.ended, []time.Duration{0, sim.Millis(r, 1000), sim.Millis(r, 10_000)}[r.IntN(3)])
		x.start("k", dies)
	case 2:
		s.trace("drain %s", p.name)
		s.tally.note(drains)
		x.stop(p, true)
		sim.Pause(s.ended, []time.Duration{0, sim.Millis(r, 4000)}[r.IntN(2)])
		x.start("d", dies)
	case 3, 4:
		d := s.long(r)
		s.trace("freeze %s for %v", p.name, d)
		s.tally.note(freezes)
		p.freeze()
		sim.Pause(s.ended, d)
		if r.IntN(8) == 0 { // and never wakes up
			x.stop(p, false)
			x.start("f", dies)
		}
		p.thaw()
	case 5, 6:
		d := s.long(r)
		s.trace("isolate %s for %v", p.name, d)
		s.tally.note(isolations)
		p.client.Isolate()
		sim.Pause(s.ended, d)
		if r.IntN(2) == 0 { // noticed in the end: a new connection
			p.client.Disconnect()
		}
		p.client.Rejoin()
		p.client.Reconnect()
	case 7:
		s.trace("cut %s off", p.name)
		s.tally.note(cuts)
		p.client.Disconnect()
		sim.Pause(s.ended, sim.Millis(r, 6000))
		p.client.Reconnect()
	case 8:
		s.outage(r)
	case 9:
		if s.replicas > 1 {
			s.lie(r)
		}
	}
}

// long is how long something lasts: mostly some time-to-lives, at times a minute.
func (s *run) long(r *rand.Rand) time.Duration {
	return sim.Millis(r, []int{1500, 5000, 5000, 15_000, 60_000}[r.IntN(5)])
}

// clocks sets the wall clock of one machine after the other an hour ahead or back, and
// right again.
func (s *run) clocks(r *rand.Rand) {
	for !sim.Over(s.ended) {
		sim.Pause(s.ended, sim.Millis(r, 8000))
		p := s.any(r)
		if p == nil {
			continue
		}
		by := []time.Duration{time.Hour, -time.Hour}[r.IntN(2)]
		s.trace("the clock of %s is set by %v", p.name, by)
		s.tally.note(clocksSet)
		p.clock.Move(by)
		sim.Pause(s.ended, sim.Millis(r, 10_000))
		p.clock.Mend()
	}
}

// outage takes the store away from everybody: all connections break.
func (s *run) outage(r *rand.Rand) {
	s.trace("outage")
	s.tally.note(outages)
	for _, x := range s.seats {
		if p := x.now(); p != nil {
			p.client.Disconnect()
		}
	}
	sim.Pause(s.ended, sim.Millis(r, 8000))
	for _, x := range s.seats {
		if p := x.now(); p != nil {
			p.client.Reconnect()
		}
	}
}

// lie lets leaders that woke from a freeze deny what was acknowledged, for less
// than the second between two questions.
func (s *run) lie(r *rand.Rand) {
	if !s.lying.CompareAndSwap(false, true) {
		return
	}
	s.tally.note(lies)
	from := time.Now()
	s.weather.Lie(true)
	sim.Pause(s.ended, sim.Millis(r, 800))
	s.weather.Lie(false)
	s.lied(from)
	sim.Pause(s.ended, 2*time.Second)
	s.lying.Store(false)
}
