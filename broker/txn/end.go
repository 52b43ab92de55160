package txn

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// end is EndTxn. fresh is as for init.
func (s *State) end(now time.Time, q EndRequest, by string, fresh int64) (Producer, error) {
	switch {
	case s.exists && by != "" && by == s.endBy: // decided, whatever came of it since
	case q.Bump && s.deciding():
		return NoProducer, kerr.ConcurrentTransactions
	case q.Bump:
		if err := s.endBumped(now, q, by, fresh); err != nil {
			return NoProducer, err
		}
	default:
		if err := s.endClassic(now, q, by); err != nil {
			return NoProducer, err
		}
	}
	if !q.Bump {
		return NoProducer, nil
	}
	return s.after(), nil
}

// endClassic is EndTxn below transaction.version 2: the epoch stays, so that a
// request for the transaction that ended cannot be told from one for the next.
func (s *State) endClassic(now time.Time, q EndRequest, by string) error {
	if err := s.check(q.Producer); err != nil {
		return err
	}
	switch {
	case s.deciding():
		return kerr.ConcurrentTransactions
	case s.state == Ongoing:
		s.decide(now, q.Commit, false, noID, by)
		return nil
	case s.state == CompleteCommit && q.Commit, s.state == CompleteAbort && !q.Commit:
		return nil
	}
	return kerr.InvalidTxnState
}

// endBumped is EndTxn of transaction.version 2. As the epoch changes with each
// transaction, one that is repeated names the epoch before, and one in the present
// epoch is about the present transaction, even if none was begun: then it may
// only be aborted.
func (s *State) endBumped(now time.Time, q EndRequest, by string, fresh int64) error {
	rotated := s.exists && s.previous == q.Producer.ID && q.Producer.Epoch == math.MaxInt16-1 && s.producer.Epoch == 0
	bumped := s.exists && int(s.producer.Epoch) == int(q.Producer.Epoch)+1
	complete := s.state == CompleteCommit || s.state == CompleteAbort
	switch {
	case !s.exists || s.producer.ID != q.Producer.ID && !rotated:
		return kerr.InvalidProducerIDMapping
	case s.producer.Epoch == q.Producer.Epoch:
	case complete && (bumped || rotated):
		if q.Commit != (s.state == CompleteCommit) {
			return kerr.InvalidTxnState
		}
		return nil // repeated
	default:
		return kerr.ProducerFenced
	}
	if s.state != Ongoing && q.Commit {
		return kerr.InvalidTxnState
	}
	next := int64(noID)
	if exhausted(s.producer.Epoch) {
		if fresh == noID {
			return errNeedsID
		}
		next = fresh
	}
	if s.state != Ongoing {
		s.start = s.stamp(now) // of a transaction that never was
	}
	s.decide(now, q.Commit, true, next, by)
	return nil
}
