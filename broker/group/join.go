package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// checkJoin is what can be refused without knowing the group.
func checkJoin(c *Config, r JoinRequest) error {
	switch {
	case r.Group == "" || len(r.Group) > maxName:
		return kerr.InvalidGroupID
	case r.SessionTimeout < c.MinSessionTimeout || r.SessionTimeout > c.MaxSessionTimeout:
		return kerr.InvalidSessionTimeout
	case len(r.Protocols) > c.MaxProtocols:
		return kerr.InvalidRequest
	}
	return nil
}

// join is JoinGroup. The answer comes by ticket, now or when the rebalance
// completes.
func (s *State) join(now time.Time, r JoinRequest, t ticket) {
	if r.RebalanceTimeout <= 0 {
		r.RebalanceTimeout = r.SessionTimeout
	}
	old := s.byID[r.Member]
	switch {
	case r.Member != "" && !s.exists:
		s.refuseJoin(t, r.Member, kerr.UnknownMemberID)
	case !s.accepts(r.Member):
		if old != nil {
			s.remove(old)
			s.afterRemoval(now, "full")
		}
		s.refuseJoin(t, "", kerr.GroupMaxSizeReached)
	case !s.supports(r.ProtocolType, r.Protocols):
		s.refuseJoin(t, r.Member, kerr.InconsistentGroupProtocol)
	case !s.fits(old, r):
		s.refuseJoin(t, r.Member, kerr.InvalidRequest)
	case r.Member == "":
		s.joinNew(now, r, t)
	default:
		s.joinKnown(now, r, t)
	}
}

// accepts applies group.max.size. While members rejoin only those that did
// count: the last ones may be too many after the limit was lowered.
func (s *State) accepts(id string) bool {
	m := s.byID[id]
	switch s.phase {
	case Empty:
		return true
	case PreparingRebalance:
		if m != nil && m.join != 0 {
			return true
		}
		waiting := 0
		for _, m := range s.members {
			if m.join != 0 {
				waiting++
			}
		}
		return waiting < s.c.MaxSize
	default:
		return m != nil || len(s.members) < s.c.MaxSize
	}
}

// fits keeps the record small enough to be stored.
func (s *State) fits(old *member, r JoinRequest) bool {
	size := s.size + protocolBytes(r.Protocols)
	if old == nil && r.Instance != nil {
		old = s.static[*r.Instance]
	}
	if old != nil {
		size -= old.size
	}
	return size <= s.c.MaxStateBytes
}

func (s *State) joinNew(now time.Time, r JoinRequest, t ticket) {
	prefix := r.ClientID
	if r.Instance != nil {
		prefix = *r.Instance
	}
	id := prefix + "-" + s.newID()
	switch {
	case r.Instance != nil && s.static[*r.Instance] != nil:
		s.replaceStatic(now, s.static[*r.Instance], id, r, t)
	case r.Instance == nil && r.RequireMemberID:
		// The client joins again with the id; until then the group waits for it,
		// but no longer than a member may be silent (KIP-394).
		s.create(now)
		p := &pendingMember{session: r.SessionTimeout, deadline: now.Add(r.SessionTimeout)}
		s.pending[id] = p
		s.soon(p.deadline)
		s.refuseJoin(t, id, kerr.MemberIDRequired)
	default:
		s.addMember(now, id, r, t)
	}
}

func (s *State) joinKnown(now time.Time, r JoinRequest, t ticket) {
	if _, ok := s.pending[r.Member]; ok && r.Instance == nil {
		s.addMember(now, r.Member, r, t)
		return
	}
	m, err := s.validate(r.Member, r.Instance)
	if err != nil {
		s.refuseJoin(t, r.Member, err)
		return
	}
	same := m.matches(r.Protocols)
	switch {
	case s.phase == Empty:
		s.refuseJoin(t, r.Member, kerr.UnknownMemberID)
	case s.phase == CompletingRebalance && same,
		s.phase == Stable && same && s.leader != m.id:
		// It may have missed the answer, or has nothing new: the generation
		// stands. A leader that joins again asks for a rebalance.
		m.deadline = now.Add(m.session)
		s.soon(m.deadline)
		s.answerJoin(t, s.joined(m))
	default:
		s.updateMember(m, r)
		s.park(m, t)
		reason := "metadata"
		if same {
			reason = "leader"
		}
		s.prepareOrComplete(now, reason)
	}
}

// addMember lets a new member wait for the next generation.
func (s *State) addMember(now time.Time, id string, r JoinRequest, t ticket) {
	s.create(now)
	if s.phase == PreparingRebalance && s.initial {
		s.added = true
	}
	if len(s.members) == 0 {
		s.protocolType = r.ProtocolType
	}
	m := &member{id: id, instance: r.Instance, isNew: true}
	s.setMember(m, r)
	s.add(m)
	s.park(m, t)
	// It cannot send heartbeats before it knows its id, and nobody tells us when
	// its client gives up: it asks again, and this one must not stay for ever.
	m.deadline = now.Add(s.patience(m))
	s.soon(m.deadline)
	s.prepareOrComplete(now, "join")
}

func (s *State) setMember(m *member, r JoinRequest) {
	m.client, m.host = r.ClientID, r.Host
	m.session, m.rebalance = r.SessionTimeout, r.RebalanceTimeout
	m.protocols = r.Protocols
}

func (s *State) updateMember(m *member, r JoinRequest) {
	s.setMember(m, r)
	s.size -= m.size
	m.size = protocolBytes(m.protocols)
	s.size += m.size
}

// park lets a join wait; one of the same member that waits already, on a
// connection that is probably dead, is told to ask again.
func (s *State) park(m *member, t ticket) {
	s.refuseJoin(m.join, m.id, kerr.RebalanceInProgress)
	m.join = t
}

// replaceStatic gives a returning static member its place under a new id: old
// generation, old share, no rebalance if it offers what it did (KIP-345).
func (s *State) replaceStatic(now time.Time, old *member, id string, r JoinRequest, t ticket) {
	led := s.leader
	// Whoever still waits under the old id is not the holder of the place any more.
	s.refuseJoin(old.join, old.id, kerr.FencedInstanceID)
	s.answerSync(old.sync, SyncResponse{Err: kerr.FencedInstanceID})
	old.join, old.sync = 0, 0
	delete(s.byID, old.id)
	if s.leader == old.id {
		s.leader = id
	}
	m := old // keeps its place in the order, its assignment and its instance id
	m.id = id
	s.byID[id] = m
	if m.stored {
		s.dirty = true
	}
	s.updateMember(m, r)
	m.deadline = now.Add(s.patience(m))
	s.soon(m.deadline)
	switch s.phase {
	case Stable:
		if s.choose() != s.protocol {
			s.park(m, t)
			s.prepareOrComplete(now, "static")
			return
		}
		resp := s.joined(m)
		switch {
		case r.CanSkipAssignment:
			// KIP-814: it leads, but the shares stand.
			resp.SkipAssignment = s.leader == m.id
		default:
			// An older client that reads its own name as leader would assign anew:
			// it is told the name that it had.
			resp.Leader, resp.Members = led, nil
		}
		s.answerJoin(t, resp)
	case CompletingRebalance:
		// The leader was told the old id and will assign to that.
		s.park(m, t)
		s.prepare(now, "static")
	default:
		s.park(m, t)
		s.maybeComplete(now)
	}
}

// joined is the answer to a member of the present generation.
func (s *State) joined(m *member) JoinResponse {
	protocolType, protocol := s.protocolType, s.protocol
	r := JoinResponse{
		Generation:   s.generation,
		ProtocolType: &protocolType,
		Protocol:     &protocol,
		Leader:       s.leader,
		Member:       m.id,
	}
	if s.leader == m.id {
		for _, o := range s.members {
			jm := JoinMember{Member: o.id, Instance: o.instance}
			if b := o.metadata(s.protocol); b != nil {
				jm.Metadata = *b
			}
			r.Members = append(r.Members, jm)
		}
	}
	return r
}
