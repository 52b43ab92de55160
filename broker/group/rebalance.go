package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// prepareOrComplete begins a rebalance, or ends the one under way if this was
// the last member waited for.
func (s *State) prepareOrComplete(now time.Time, reason string) {
	if s.phase != PreparingRebalance {
		s.prepare(now, reason)
		return
	}
	s.maybeComplete(now)
}

// afterRemoval is what a member's going means for those who stay.
func (s *State) afterRemoval(now time.Time, reason string) {
	switch s.phase {
	case Stable, CompletingRebalance:
		s.prepare(now, reason)
	case PreparingRebalance:
		s.maybeComplete(now)
	}
}

// prepare begins a rebalance: members are told to join again, and the group
// waits for them.
func (s *State) prepare(now time.Time, reason string) {
	s.rebalances = append(s.rebalances, reason)
	for _, m := range s.members {
		if m.sync != 0 {
			s.answerSync(m.sync, SyncResponse{Err: kerr.RebalanceInProgress})
			m.sync = 0
			m.deadline = now.Add(m.session)
			s.soon(m.deadline)
		}
	}
	s.syncAt = time.Time{}
	s.initial, s.added = s.phase == Empty, false
	if !s.initial {
		s.setPhase(now, PreparingRebalance)
		s.waitOrComplete(now)
		return
	}
	s.phase, s.since = PreparingRebalance, now
	delay := s.c.InitialRebalanceDelay
	if delay == 0 {
		s.complete(now)
		return
	}
	s.left = max(s.rebalanceTimeout()-delay, 0)
	s.joinBy(now.Add(delay))
}

// extend ends the first rebalance of a group, or waits a little more if
// somebody came since the last look (KIP-134).
func (s *State) extend(now time.Time) {
	if !s.added || s.left <= 0 {
		s.complete(now)
		return
	}
	s.added = false
	delay := min(s.c.InitialRebalanceDelay, s.left)
	s.left = max(s.left-delay, 0)
	s.joinBy(now.Add(delay))
}

func (s *State) waitOrComplete(now time.Time) {
	if s.allJoined() {
		s.complete(now)
		return
	}
	s.joinBy(now.Add(s.rebalanceTimeout()))
}

func (s *State) joinBy(t time.Time) {
	s.joinAt = t
	s.soon(t)
}

func (s *State) maybeComplete(now time.Time) {
	if s.phase == PreparingRebalance && !s.initial && s.allJoined() {
		s.complete(now)
	}
}

func (s *State) allJoined() bool {
	if len(s.pending) > 0 {
		return false
	}
	for _, m := range s.members {
		if m.join == 0 {
			return false
		}
	}
	return true
}

// complete ends a rebalance with a new generation of those who joined. Static
// members keep their place until their session ends.
func (s *State) complete(now time.Time) {
	s.joinAt = time.Time{}
	for _, m := range append([]*member(nil), s.members...) {
		if m.join == 0 && m.instance == nil {
			s.remove(m)
		}
	}
	if len(s.members) > 0 && !s.electLeader() {
		// Only static members are left and none has joined: wait until one does or
		// their sessions end.
		s.joinBy(now.Add(s.rebalanceTimeout()))
		return
	}
	s.initial, s.added = false, false
	s.generation++
	s.dirty = true
	if len(s.members) == 0 {
		s.protocol, s.leader = "", ""
		s.setPhase(now, Empty)
		return
	}
	s.protocol = s.choose()
	for _, m := range s.members {
		m.stored, m.isNew, m.unsynced, m.assignment = true, false, true, nil
	}
	s.setPhase(now, CompletingRebalance)
	for _, m := range s.members {
		s.answerJoin(m.join, s.joined(m))
		m.join = 0
		m.deadline = now.Add(m.session)
		s.soon(m.deadline)
	}
	s.syncAt = now.Add(s.rebalanceTimeout())
	s.soon(s.syncAt)
}

// electLeader keeps the leader if it has joined, else takes the first who has.
func (s *State) electLeader() bool {
	if m := s.byID[s.leader]; m != nil && m.join != 0 {
		return true
	}
	for _, m := range s.members {
		if m.join != 0 {
			s.leader = m.id
			return true
		}
	}
	return false
}
