package txn

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/coord"
)

// State is one transactional id in memory: the record, and what follows from it.
// Its methods are the rules: functions of the record, a request and the time, which
// know no store and no goroutine. They follow Kafka's TransactionCoordinator and
// TransactionMetadata. It implements coord.State.
//
// What Kafka calls a pending transition, a write that is on its way, has no place
// here: requests queue behind it. One is left: a transaction that is decided waits
// for all partitions and groups to know, and that is asked for before anything else.
type State struct {
	c *Config

	// The record.
	env    coord.Envelope
	exists bool
	id     string
	// producer is who may write now; previous had the id before the last change of
	// whatever kind, −1 none; lastEpoch is the epoch that a repeated request may
	// still name.
	producer  Producer
	previous  int64
	lastEpoch int16
	// next is the producer id that takes over, in epoch 0, when the transaction is
	// complete, because the epochs of this one are used up; noID: none.
	next    int64
	timeout time.Duration
	state   string
	// n counts transactions, from 1: the number of the one that is open, or was last.
	n          int64
	partitions map[Partition]struct{}
	groups     map[string]struct{}
	start      int64 // ms, the store's clock: of the one that is open, or was last; −1 none
	updated    int64 // ms, the store's clock
	bumps      bool  // whoever decided it is of transaction.version 2
	// initBy and endBy name the requests that gave out the producer and that decided
	// last: another copy of them changes nothing.
	initBy, endBy string
	// graced is the number of the transaction whose client got the moment that it
	// gets once.
	graced int64
	extra  map[string]json.RawMessage

	dirty bool // the record differs from what is stored
	// unstored: it differs in that the transaction is complete, which need not be
	// stored soon.
	unstored bool

	// In memory only.
	ended    chan struct{} // closed when the decided transaction is complete, or the state gone; nil: none is decided
	grace    time.Time     // no timeout before: clients could not reach us
	adopted  bool          // whoever had the record before gave no such moment
	deadline time.Time     // when the open transaction may have lasted too long; zero: none is open
	overdue  bool          // it has
	storeAt  time.Time     // when the completion is stored at last
	begun    chore         // what was given to do last

	ahead  func() time.Duration // of the store's clock is ours
	do     func(chore)          // has it done outside of turns; does not block
	listed listed
}

// graceful is how long a client has to end its transaction after nobody could
// reach its coordinator, however old the transaction is. It gets that once: its
// partitions' readers wait, also where one owner after the other is lost.
const graceful = 2 * time.Second

// noID stands for no producer id.
const noID = -1

// errNeedsID: the rule needs a producer id that nobody was ever given, and has
// changed nothing.
var errNeedsID = errors.New("a new producer id is needed")

func newState(id string, c *Config, ahead func() time.Duration, do func(chore)) *State {
	return &State{
		c: c, id: id, ahead: ahead, do: do, state: Empty,
		producer: NoProducer, previous: noID, lastEpoch: -1, next: noID, start: -1,
		partitions: map[Partition]struct{}{}, groups: map[string]struct{}{},
	}
}

// exhausted reports that an epoch is not given to clients any more: one is kept
// back by which its owner can be fenced.
func exhausted(epoch int16) bool { return epoch >= math.MaxInt16-1 }

// deciding reports that the transaction is decided and not complete.
func (s *State) deciding() bool { return s.state == PrepareCommit || s.state == PrepareAbort }

// stamp is the store's time at now, in ms.
func (s *State) stamp(now time.Time) int64 { return now.Add(-s.ahead()).UnixMilli() }

// old reports that the open transaction has lasted longer than it may.
func (s *State) old(now time.Time) bool {
	return s.state == Ongoing && s.stamp(now)-s.start > s.timeout.Milliseconds() && !now.Before(s.grace)
}

// become moves on to a producer.
func (s *State) become(p Producer, lastEpoch int16) {
	s.previous, s.producer, s.lastEpoch = s.producer.ID, p, lastEpoch
}

// changed notes that the record has to be stored.
func (s *State) changed(now time.Time) {
	s.updated = s.stamp(now)
	s.dirty = true
}

// decide ends the open transaction (or none) one way or the other. bump is what
// transaction.version 2 adds: the producer goes on in the next epoch or, if they
// are used up, as producer id next.
func (s *State) decide(now time.Time, commit, bump bool, next int64, by string) {
	s.state = PrepareAbort
	if commit {
		s.state = PrepareCommit
	}
	p, last := s.producer, s.lastEpoch
	if bump {
		last = p.Epoch
		if p.Epoch != math.MaxInt16 {
			p.Epoch++
		}
	}
	s.become(p, last)
	s.bumps, s.next, s.endBy = bump, next, by
	s.overdue, s.deadline = false, time.Time{}
	s.changed(now)
	if len(s.partitions) == 0 && len(s.groups) == 0 {
		s.finish(now)
		return
	}
	s.ended = make(chan struct{})
}

// finish makes a decided transaction a complete one.
func (s *State) finish(now time.Time) {
	p := s.after()
	if s.state == PrepareCommit {
		s.state = CompleteCommit
	} else {
		s.state = CompleteAbort
	}
	s.become(p, s.lastEpoch)
	s.next = noID
	clear(s.partitions)
	clear(s.groups)
	s.updated = s.stamp(now)
}

// after is the producer that goes on when the transaction is complete.
func (s *State) after() Producer {
	if s.deciding() && s.bumps && s.next != noID {
		return Producer{ID: s.next}
	}
	return s.producer
}

// complete notes that every partition and group knows how transaction n ended.
// That is stored with what comes next, or a little later: whoever adopts the
// record as it is tells them all again, which changes nothing.
func (s *State) complete(now time.Time, n int64) {
	if !s.deciding() || s.n != n {
		return
	}
	s.finish(now)
	s.unstored, s.storeAt = true, now.Add(s.c.CompletionDelay)
}

// check is what every request about a transaction is asked first.
func (s *State) check(p Producer) error {
	switch {
	case !s.exists || s.producer.ID != p.ID:
		return kerr.InvalidProducerIDMapping
	case s.producer.Epoch != p.Epoch:
		return kerr.ProducerFenced
	}
	return nil
}

// listPartitions and listGroups are what is in the transaction, in order.
func (s *State) listPartitions() []Partition {
	ps := make([]Partition, 0, len(s.partitions))
	for p := range s.partitions {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b Partition) int {
		return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.N, b.N))
	})
	return ps
}

func (s *State) listGroups() []string {
	gs := make([]string, 0, len(s.groups))
	for g := range s.groups {
		gs = append(gs, g)
	}
	slices.Sort(gs)
	return gs
}

// movable reports that nothing would be lost with this state but what the record
// has.
func (s *State) movable() bool { return !s.deciding() && !s.overdue }

// expired reports that nobody has used the id for so long that it is let go of.
func (s *State) expired(now time.Time) bool {
	switch s.state {
	case Empty, CompleteCommit, CompleteAbort:
		return s.exists && s.stamp(now)-s.updated >= s.c.IDExpiration.Milliseconds()
	}
	return false
}
