package group

import (
	"time"
)

// soon makes sure that Expire is called at t or before.
func (s *State) soon(t time.Time) {
	if s.next.IsZero() || t.Before(s.next) {
		s.next = t
	}
}

// Next implements coord.State.
func (s *State) Next() time.Time { return s.next }

// patience is how long a member may be silent.
func (s *State) patience(m *member) time.Duration {
	if m.isNew {
		return s.c.NewMemberTimeout
	}
	return m.session
}

func due(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// Expire implements coord.State: silent members go, rebalances end.
func (s *State) Expire(now time.Time) {
	for id, p := range s.pending {
		if due(p.deadline, now) {
			delete(s.pending, id)
		}
	}
	s.maybeComplete(now) // it may have waited for those alone
	dropped := false
	for _, m := range append([]*member(nil), s.members...) {
		if !due(m.deadline, now) {
			continue
		}
		if !m.isNew && (m.join != 0 || m.sync != 0) {
			// Whoever waits for us is alive; its time begins anew with the answer.
			m.deadline = time.Time{}
			continue
		}
		s.remove(m)
		dropped = true
	}
	if dropped {
		s.afterRemoval(now, "session_timeout")
	}
	if due(s.joinAt, now) {
		if s.initial {
			s.extend(now)
		} else {
			s.complete(now)
		}
	}
	if due(s.syncAt, now) {
		s.expireSync(now)
	}
	s.reckon()
}

// expireSync drops the members that never asked for their share: they joined,
// and their clients may never have learnt it.
func (s *State) expireSync(now time.Time) {
	s.syncAt = time.Time{}
	dropped := false
	for _, m := range append([]*member(nil), s.members...) {
		if m.unsynced {
			s.remove(m)
			dropped = true
		}
	}
	if dropped {
		s.afterRemoval(now, "sync_timeout")
	}
}

// reckon makes next exact.
func (s *State) reckon() {
	s.next = time.Time{}
	look := func(t time.Time) {
		if !t.IsZero() {
			s.soon(t)
		}
	}
	for _, p := range s.pending {
		look(p.deadline)
	}
	for _, m := range s.members {
		look(m.deadline)
	}
	look(s.joinAt)
	look(s.syncAt)
}

// Restart implements coord.State.
func (s *State) Restart(now time.Time) {
	for _, p := range s.pending {
		p.deadline = now.Add(p.session)
	}
	for _, m := range s.members {
		m.deadline = now.Add(s.patience(m))
	}
	if !s.joinAt.IsZero() {
		s.joinAt = now.Add(s.rebalanceTimeout())
		if s.initial {
			s.joinAt = now.Add(s.c.InitialRebalanceDelay)
		}
	}
	if !s.syncAt.IsZero() {
		s.syncAt = now.Add(s.rebalanceTimeout())
	}
	s.reckon()
}

// movable reports that nothing would be lost with this state but what the record
// has: nobody waits for an answer or for an id to be used.
func (s *State) movable() bool {
	return len(s.pending) == 0 && len(s.waiters) == 0 && (s.phase == Stable || s.phase == Empty)
}
