package group

import (
	"bytes"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/coord"
)

// State is one group in memory: the record, what has not been decided yet
// (joins that wait), timers and due answers. Its methods are the rules: they
// know no store, no goroutine and no clock but the time they are given. It
// implements coord.State; the rules follow Kafka's GroupMetadataManager and
// ClassicGroup.
//
// What is stored is the last thing decided: members that belong to a generation,
// and no more. A member that waits in its first Join is in memory only; nobody
// was told of it, and its client asks again.
type State struct {
	c     *Config
	name  string
	newID func() string // unique suffix of a member id

	// The record.
	env          coord.Envelope
	exists       bool
	deleting     bool
	phase        string // one of the states of types.go but Dead
	protocolType string
	protocol     string
	generation   int32
	leader       string
	since        time.Time // when phase began
	members      []*member // in the order of joining
	byID         map[string]*member
	static       map[string]*member // by instance id
	ended        endings
	extra        rawFields

	dirty bool // the record differs from what is stored

	// In memory only.
	pending map[string]*pendingMember // ids handed out by MEMBER_ID_REQUIRED
	size    int                       // bytes that members offer
	initial bool                      // Preparing from Empty: wait a little for others
	added   bool                      // somebody came while initial
	left    time.Duration             // how much longer initial may be extended
	joinAt  time.Time                 // Preparing: when it completes at the latest
	syncAt  time.Time                 // when members that have not synced are dropped
	next    time.Time                 // no timer is due before

	lastTicket ticket
	answers    []answer
	waiters    map[ticket]waiter
	rebalances []string            // reasons of those begun in this turn
	rebalanced func(reason string) // told of each when it is stored; nil: nobody

	offsets offsets
	listed  listed
}

// member is one member.
type member struct {
	id           string
	instance     *string
	client, host string
	session      time.Duration
	rebalance    time.Duration
	protocols    []Protocol
	assignment   []byte
	size         int  // bytes of protocols
	stored       bool // belongs to a generation
	isNew        bool // has never got an answer to a join
	unsynced     bool // has not asked for its share of this generation
	join, sync   ticket
	deadline     time.Time // zero: none, it waits
}

type pendingMember struct {
	session  time.Duration
	deadline time.Time
}

// ticket names one waiting call; 0 is none.
type ticket uint64

// answer is due to a ticket when the turn is stored.
type answer struct {
	ticket ticket
	join   *JoinResponse
	sync   *SyncResponse
}

// waiter is who holds a ticket: exactly one field is set.
type waiter struct {
	join func(JoinResponse)
	sync func(SyncResponse)
}

func newState(name string, c *Config, newID func() string) *State {
	return &State{
		c: c, name: name, newID: newID,
		phase:   Empty,
		byID:    make(map[string]*member),
		static:  make(map[string]*member),
		pending: make(map[string]*pendingMember),
		waiters: make(map[ticket]waiter),
		offsets: makeOffsets(),
	}
}

// take hands out a ticket for w.
func (s *State) take(w waiter) ticket {
	s.lastTicket++
	s.waiters[s.lastTicket] = w
	return s.lastTicket
}

func (s *State) answerJoin(t ticket, r JoinResponse) {
	if t != 0 {
		s.answers = append(s.answers, answer{ticket: t, join: &r})
	}
}

func (s *State) refuseJoin(t ticket, id string, err error) {
	s.answerJoin(t, JoinResponse{Err: err, Member: id, Generation: -1})
}

func (s *State) answerSync(t ticket, r SyncResponse) {
	if t != 0 {
		s.answers = append(s.answers, answer{ticket: t, sync: &r})
	}
}

// create makes the record exist from the end of this turn on.
func (s *State) create(now time.Time) {
	if !s.exists {
		s.exists, s.dirty = true, true
		s.since = now
	}
}

func (s *State) setPhase(now time.Time, phase string) {
	s.phase, s.since = phase, now
	if s.anyStored() || phase == Empty {
		s.dirty = true
	}
}

func (s *State) anyStored() bool {
	return slices.ContainsFunc(s.members, func(m *member) bool { return m.stored })
}

// storedPhase is the phase as the record tells it: a first rebalance that
// nobody was told of has not begun.
func (s *State) storedPhase() string {
	if s.phase == PreparingRebalance && !s.anyStored() {
		return Empty
	}
	return s.phase
}

// add puts a new member in; the first one decides the protocol type and leads.
func (s *State) add(m *member) {
	if len(s.members) == 0 {
		s.leader = m.id
	}
	m.size = protocolBytes(m.protocols)
	s.size += m.size
	s.members = append(s.members, m)
	s.byID[m.id] = m
	if m.instance != nil {
		s.static[*m.instance] = m
	}
	delete(s.pending, m.id)
}

// remove takes a member out; calls of its that wait are told that it is unknown,
// so that a client that is alive joins anew.
func (s *State) remove(m *member) {
	s.members = slices.DeleteFunc(s.members, func(o *member) bool { return o == m })
	delete(s.byID, m.id)
	if m.instance != nil && s.static[*m.instance] == m {
		delete(s.static, *m.instance)
	}
	s.size -= m.size
	if s.leader == m.id {
		s.leader = ""
		if len(s.members) > 0 {
			s.leader = s.members[0].id
		}
	}
	if m.stored {
		s.dirty = true
	}
	s.refuseJoin(m.join, m.id, kerr.UnknownMemberID)
	s.answerSync(m.sync, SyncResponse{Err: kerr.UnknownMemberID})
	m.join, m.sync = 0, 0
}

// validate finds the member that a request names.
func (s *State) validate(id string, instance *string) (*member, error) {
	if instance != nil {
		m := s.static[*instance]
		if m == nil {
			return nil, kerr.UnknownMemberID
		}
		if m.id != id {
			return nil, kerr.FencedInstanceID
		}
	}
	m := s.byID[id]
	if m == nil {
		return nil, kerr.UnknownMemberID
	}
	return m, nil
}

// rebalanceTimeout is the longest that any member asks for.
func (s *State) rebalanceTimeout() time.Duration {
	var d time.Duration
	for _, m := range s.members {
		d = max(d, m.rebalance)
	}
	return d
}

// supports reports whether a member with these protocols can be in the group.
func (s *State) supports(protocolType string, ps []Protocol) bool {
	if len(s.members) == 0 {
		return protocolType != "" && len(ps) > 0
	}
	if protocolType != s.protocolType {
		return false
	}
	return slices.ContainsFunc(ps, func(p Protocol) bool { return s.allSupport(p.Name) })
}

func (s *State) allSupport(protocol string) bool {
	for _, m := range s.members {
		if m.metadata(protocol) == nil {
			return false
		}
	}
	return true
}

// choose lets every member vote for the first of its protocols that all
// support. A tie goes to the protocol that was voted for first.
func (s *State) choose() string {
	votes := make(map[string]int)
	var order []string
	common := make(map[string]bool)
	for _, m := range s.members {
		for _, p := range m.protocols {
			ok, known := common[p.Name]
			if !known {
				ok = s.allSupport(p.Name)
				common[p.Name] = ok
			}
			if ok {
				if votes[p.Name] == 0 {
					order = append(order, p.Name)
				}
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, name := range order {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// metadata of a protocol; nil if the member does not offer it.
func (m *member) metadata(protocol string) *[]byte {
	for i := range m.protocols {
		if m.protocols[i].Name == protocol {
			return &m.protocols[i].Metadata
		}
	}
	return nil
}

func (m *member) matches(ps []Protocol) bool {
	return slices.EqualFunc(m.protocols, ps, func(a, b Protocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

func protocolBytes(ps []Protocol) int {
	n := 0
	for _, p := range ps {
		n += len(p.Name) + len(p.Metadata)
	}
	return n
}
