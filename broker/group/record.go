package group

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
)

// rawFields are fields of a stored object that this version does not know; they
// are written back as they came.
type rawFields map[string]json.RawMessage

// classic is the only type of group that this package serves.
const classic = "classic"

// record is a group as stored under Token(group).
type record struct {
	coord.Envelope
	Name         string         `json:"name"`
	Type         string         `json:"type"`
	State        string         `json:"state"`
	Deleting     bool           `json:"deleting,omitempty"`
	ProtocolType string         `json:"protocol_type"`
	Protocol     string         `json:"protocol,omitempty"`
	Generation   int32          `json:"generation"`
	Leader       string         `json:"leader,omitempty"`
	Since        int64          `json:"since"` // ms; when the state began
	Members      []memberRecord `json:"members,omitempty"`
	// Ended are the last transactions of producers that committed offsets, in the
	// order in which the group heard of their ends.
	Ended []ending `json:"ended,omitempty"`
}

// memberRecord is a member of a generation as stored.
type memberRecord struct {
	ID         string           `json:"id"`
	Instance   *string          `json:"instance,omitempty"`
	ClientID   string           `json:"client_id"`
	Host       string           `json:"host"`
	Session    int64            `json:"session_timeout_ms"`
	Rebalance  int64            `json:"rebalance_timeout_ms"`
	Protocols  []protocolRecord `json:"protocols"`
	Assignment []byte           `json:"assignment,omitempty"`
}

type protocolRecord struct {
	Name     string `json:"name"`
	Metadata []byte `json:"metadata"`
}

// Headers of a record, for listing without payload.
const (
	nameHeader         = "Group" // percent-encoded; only where the key is a hash
	typeHeader         = "Type"
	stateHeader        = "State"
	protocolTypeHeader = "Protocol-Type" // percent-encoded
	membersHeader      = "Members"       // how many
	sinceHeader        = "Since"         // ms
	deletingHeader     = "Deleting"
)

// Encode implements coord.State.
func (s *State) Encode(e coord.Envelope) ([]byte, pubsub.Header, error) {
	r := record{
		Envelope: e, Name: s.name, Type: classic, State: s.storedPhase(), Deleting: s.deleting,
		ProtocolType: s.protocolType, Protocol: s.protocol, Generation: s.generation,
		Since: s.since.UnixMilli(),
	}
	for _, m := range s.members {
		if !m.stored {
			continue
		}
		mr := memberRecord{
			ID: m.id, Instance: m.instance, ClientID: m.client, Host: m.host,
			Session: m.session.Milliseconds(), Rebalance: m.rebalance.Milliseconds(),
			Assignment: m.assignment,
		}
		for _, p := range m.protocols {
			mr.Protocols = append(mr.Protocols, protocolRecord(p))
		}
		r.Members = append(r.Members, mr)
		if s.leader == m.id {
			r.Leader = m.id
		}
	}
	for _, d := range s.ended.list {
		r.Ended = append(r.Ended, *d)
	}
	body, err := coord.Marshal(r, s.extra)
	if err != nil {
		return nil, nil, err
	}
	h := pubsub.Header{
		typeHeader:         {classic},
		stateHeader:        {r.State},
		protocolTypeHeader: {url.QueryEscape(s.protocolType)},
		membersHeader:      {strconv.Itoa(len(r.Members))},
		sinceHeader:        {strconv.FormatInt(r.Since, 10)},
	}
	if _, ok := pubsub.Name(pubsub.Token(s.name)); !ok {
		h[nameHeader] = []string{url.QueryEscape(s.name)}
	}
	if s.deleting {
		h[deletingHeader] = []string{"true"}
	}
	s.dirty = false
	return body, h, nil
}

// Decode implements coord.State.
func (s *State) Decode(body []byte) error {
	var r record
	extra, err := coord.Unmarshal(body, &r)
	if err != nil {
		return err
	}
	if r.Type != classic {
		return fmt.Errorf("group of type %q: %w", r.Type, coord.ErrVersion)
	}
	s.exists, s.extra, s.name = true, extra, r.Name
	s.phase, s.deleting = r.State, r.Deleting
	s.protocolType, s.protocol, s.generation, s.leader = r.ProtocolType, r.Protocol, r.Generation, r.Leader
	s.since = time.UnixMilli(r.Since)
	switch s.phase {
	case Empty, PreparingRebalance, CompletingRebalance, Stable:
	default:
		return fmt.Errorf("group in state %q: %w", r.State, coord.ErrVersion)
	}
	s.ended = endings{}
	for _, d := range r.Ended {
		s.ended.note(d)
	}
	for _, mr := range r.Members {
		m := &member{
			id: mr.ID, instance: mr.Instance, client: mr.ClientID, host: mr.Host,
			session:    time.Duration(mr.Session) * time.Millisecond,
			rebalance:  time.Duration(mr.Rebalance) * time.Millisecond,
			assignment: mr.Assignment, stored: true,
			unsynced: s.phase == CompletingRebalance,
		}
		for _, p := range mr.Protocols {
			m.protocols = append(m.protocols, Protocol(p))
		}
		leader := s.leader
		s.add(m)
		if leader != "" {
			s.leader = leader
		}
	}
	return nil
}

// Dirty implements coord.State.
func (s *State) Dirty() bool { return s.dirty }

// Start implements coord.State. A rebalance that was under way goes on: members
// that have not joined, or not synced, ask again.
func (s *State) Start(now time.Time, e coord.Envelope) {
	s.env = e
	switch s.phase {
	case PreparingRebalance:
		s.joinAt = now
	case CompletingRebalance:
		s.syncAt = now
	}
	s.Restart(now)
}

// Idle implements coord.State.
func (s *State) Idle() bool { return !s.exists }

// Deliver implements coord.State.
func (s *State) Deliver(err error) {
	for _, a := range s.answers {
		w, ok := s.waiters[a.ticket]
		if !ok {
			continue
		}
		delete(s.waiters, a.ticket)
		switch {
		case err != nil:
			w.fail(err)
		case a.join != nil:
			w.join(*a.join)
		case a.sync != nil:
			w.sync(*a.sync)
		}
	}
	s.answers = s.answers[:0]
	for _, reason := range s.rebalances {
		if s.rebalanced != nil {
			s.rebalanced(reason)
		}
	}
	s.rebalances = s.rebalances[:0]
	s.listed.show(s)
}

// Drop implements coord.State.
func (s *State) Drop(err error) {
	for t, w := range s.waiters {
		delete(s.waiters, t)
		w.fail(err)
	}
	s.answers = nil
}

func (w waiter) fail(err error) {
	err = coord.Refusal(err)
	if w.join != nil {
		w.join(JoinResponse{Err: err, Generation: -1})
	}
	if w.sync != nil {
		w.sync(SyncResponse{Err: err})
	}
}

// groupName is the name that a record's key stands for; false if only the value
// has it.
func groupName(e coord.Entry) (string, bool) {
	if name, ok := pubsub.Name(e.Key); ok {
		return name, true
	}
	if h := e.Header.Get(nameHeader); h != "" {
		if name, err := url.QueryUnescape(h); err == nil {
			return name, true
		}
	}
	return "", false
}

// stateOf is the stored state of a listed record, in Kafka's spelling.
func stateOf(h pubsub.Header) string {
	for _, st := range []string{Empty, PreparingRebalance, CompletingRebalance, Stable} {
		if strings.EqualFold(h.Get(stateHeader), st) {
			return st
		}
	}
	return h.Get(stateHeader)
}
