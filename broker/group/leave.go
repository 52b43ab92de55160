package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// leave is LeaveGroup: each member for itself, then one rebalance for all.
func (s *State) leave(now time.Time, ms []LeaveMember) LeaveResponse {
	r := LeaveResponse{Members: make([]LeaveResult, len(ms))}
	before := len(s.members)
	for i, lm := range ms {
		r.Members[i] = LeaveResult{LeaveMember: lm, Err: s.leaveOne(lm)}
	}
	if len(s.members) < before {
		s.afterRemoval(now, "leave")
	} else {
		s.maybeComplete(now) // it may have waited for an id that was given back
	}
	return r
}

func (s *State) leaveOne(lm LeaveMember) error {
	if lm.Member == "" {
		// Tools remove static members by instance id alone (KIP-345).
		if lm.Instance != nil && s.static[*lm.Instance] != nil {
			s.remove(s.static[*lm.Instance])
			return nil
		}
		return kerr.UnknownMemberID
	}
	if _, ok := s.pending[lm.Member]; ok {
		delete(s.pending, lm.Member)
		return nil
	}
	m, err := s.validate(lm.Member, lm.Instance)
	if err != nil {
		return err
	}
	s.remove(m)
	return nil
}
