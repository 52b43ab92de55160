package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// sync is SyncGroup. The answer comes by ticket: at once, or when the leader
// has told the shares.
func (s *State) sync(now time.Time, r SyncRequest, t ticket) {
	refuse := func(err error) { s.answerSync(t, SyncResponse{Err: err}) }
	m, err := s.validate(r.Member, r.Instance)
	switch {
	case err != nil:
		refuse(err)
	case r.Generation != s.generation:
		refuse(kerr.IllegalGeneration)
	case r.ProtocolType != nil && *r.ProtocolType != s.protocolType,
		r.Protocol != nil && *r.Protocol != s.protocol:
		refuse(kerr.InconsistentGroupProtocol)
	case s.phase == Empty:
		refuse(kerr.UnknownMemberID)
	case s.phase == PreparingRebalance:
		refuse(kerr.RebalanceInProgress)
	case s.phase == Stable:
		s.synced(m)
		m.deadline = now.Add(m.session)
		s.soon(m.deadline)
		s.answerSync(t, s.share(m))
	case m.id == s.leader:
		s.assign(now, m, r.Assignments, t)
	default:
		s.answerSync(m.sync, SyncResponse{Err: kerr.RebalanceInProgress})
		m.sync = t
		s.synced(m)
	}
}

// synced notes that the member asked for its share of this generation.
func (s *State) synced(m *member) {
	m.unsynced = false
	for _, o := range s.members {
		if o.unsynced {
			return
		}
	}
	s.syncAt = time.Time{}
}

// assign takes the leader's word: the shares are part of the record, and only
// then of the answers.
func (s *State) assign(now time.Time, leader *member, as []Assignment, t ticket) {
	size := s.size
	for _, a := range as {
		size += len(a.Data)
	}
	if size > s.c.MaxStateBytes {
		s.answerSync(t, SyncResponse{Err: kerr.InvalidRequest})
		return
	}
	s.answerSync(leader.sync, SyncResponse{Err: kerr.RebalanceInProgress})
	leader.sync = t
	s.synced(leader)
	for _, a := range as {
		// Names that are not members are passed over; members left out get nothing.
		if m := s.byID[a.Member]; m != nil {
			m.assignment = a.Data
		}
	}
	s.dirty = true
	s.setPhase(now, Stable)
	for _, m := range s.members {
		if m.sync != 0 {
			s.answerSync(m.sync, s.share(m))
			m.sync = 0
			m.deadline = now.Add(m.session)
			s.soon(m.deadline)
		}
	}
}

func (s *State) share(m *member) SyncResponse {
	protocolType, protocol := s.protocolType, s.protocol
	return SyncResponse{ProtocolType: &protocolType, Protocol: &protocol, Assignment: m.assignment}
}
