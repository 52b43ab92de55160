package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// heartbeat is Heartbeat.
func (s *State) heartbeat(now time.Time, r Membership) error {
	m, err := s.validate(r.Member, r.Instance)
	switch {
	case err != nil:
		return err
	case r.Generation != s.generation:
		return kerr.IllegalGeneration
	case s.phase == Empty:
		return kerr.UnknownMemberID
	}
	s.alive(now, m)
	if s.phase == PreparingRebalance {
		return kerr.RebalanceInProgress
	}
	// Between join and sync too: a member may begin with heartbeats as soon as
	// it knows its generation.
	return nil
}

// alive begins a member's session anew.
func (s *State) alive(now time.Time, m *member) {
	if m.isNew {
		return
	}
	m.deadline = now.Add(m.session)
	s.soon(m.deadline)
}
