package txn

import (
	"time"

	"github.com/hanzoai/stream/broker/coord"
)

// await sets the timer of the open transaction.
func (s *State) await(now time.Time) {
	s.deadline = time.UnixMilli(s.start).Add(s.timeout + time.Millisecond + s.ahead())
	for _, t := range []time.Time{now, s.grace} {
		if s.deadline.Before(t) {
			s.deadline = t
		}
	}
}

// Start implements coord.State.
func (s *State) Start(now time.Time, e coord.Envelope) {
	s.env = e
	if s.deciding() {
		s.ended = make(chan struct{})
	}
	s.Restart(now)
}

// Restart implements coord.State. An open transaction is as old as it is, but its
// client gets some time to end it, once.
func (s *State) Restart(now time.Time) {
	if s.adopted || s.graced != s.n {
		s.grace, s.graced, s.adopted = now.Add(graceful), s.n, false
	}
	s.overdue, s.begun = false, chore{}
	if s.state == Ongoing {
		s.await(now)
	}
	if s.unstored {
		s.storeAt = now.Add(s.c.CompletionDelay)
	}
}

// Next implements coord.State.
func (s *State) Next() time.Time {
	switch {
	case s.state == Ongoing && !s.overdue:
		return s.deadline
	case s.unstored:
		return s.storeAt
	}
	return time.Time{}
}

// Expire implements coord.State.
func (s *State) Expire(now time.Time) {
	switch {
	case s.old(now):
		s.overdue = true
	case s.state == Ongoing && !s.deadline.After(now): // the store's clock went slower than ours
		s.await(now.Add(time.Millisecond))
	case s.unstored && !s.storeAt.After(now):
		s.dirty = true
	}
}

// Idle implements coord.State.
func (s *State) Idle() bool { return !s.exists }

// Deliver implements coord.State.
func (s *State) Deliver(err error) {
	if err != nil {
		return
	}
	if !s.deciding() {
		s.release()
	}
	s.listed.show(s)
	switch c := (chore{id: s.id, n: s.n, abort: s.overdue}); {
	case !s.deciding() && !s.overdue, c.same(s.begun):
	default:
		s.begun = c
		if !s.overdue {
			c.producer, c.commit, c.term = s.producer, s.state == PrepareCommit, s.env.Owner.Term
			c.partitions, c.groups = s.listPartitions(), s.listGroups()
		}
		s.do(c)
	}
}

// Drop implements coord.State.
func (s *State) Drop(error) { s.release() }

// release lets those go on who wait for the decided transaction.
func (s *State) release() {
	if s.ended != nil {
		close(s.ended)
		s.ended = nil
	}
}
