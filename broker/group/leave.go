package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// leave is LeaveGroup: each member for itself, then one rebalance for all.
func (s *State) leave(now time.Time, ms []LeaveMember) LeaveResponse {
	r := LeaveResponse{Members: make([]LeaveResult, len(ms))}
	left := false
	for i, lm := range ms {
		err := s.leaveOne(lm)
		r.Members[i] = LeaveResult{LeaveMember: lm, Err: err}
		left = left || err == nil
	}
	if left {
		s.afterRemoval(now, "leave")
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
