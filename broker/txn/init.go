package txn

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// init is InitProducerId. fresh is a producer id that nobody was ever given, or
// noID: then errNeedsID may be the answer.
func (s *State) init(now time.Time, q InitRequest, by string, fresh int64) (Producer, error) {
	first := !s.exists
	current := s.producer
	if first {
		if fresh == noID {
			return NoProducer, errNeedsID
		}
		current = Producer{ID: fresh, Epoch: -1}
	}
	expects := q.Producer != NoProducer
	switch {
	case by != "" && by == s.initBy:
		return s.producer, nil
	case s.deciding():
		return NoProducer, kerr.ConcurrentTransactions
	// Whoever has the id now, in an epoch that is looked at below, or had the one
	// before up to its last epoch: that one may not have got our answer.
	case expects && !first && q.Producer.ID != current.ID && !(q.Producer.ID == s.previous && exhausted(q.Producer.Epoch)):
		return NoProducer, kerr.ProducerFenced
	case s.state == Ongoing:
		// The epoch by which the transaction is aborted is never given to anybody:
		// the client asks again and gets the next one.
		if err := s.fence(now, fresh); err != nil {
			return NoProducer, err
		}
		return NoProducer, kerr.ConcurrentTransactions
	}
	next, last := Producer{ID: current.ID, Epoch: current.Epoch + 1}, int16(-1)
	switch {
	case exhausted(current.Epoch) && (!expects || q.Producer.Epoch == current.Epoch):
		if fresh == noID {
			return NoProducer, errNeedsID
		}
		next = Producer{ID: fresh}
		if expects {
			last = current.Epoch
		}
	case exhausted(current.Epoch):
		return NoProducer, kerr.UnknownServerError // as Kafka, which throws
	case !expects:
	case first || q.Producer.Epoch == current.Epoch:
		last = current.Epoch
	case q.Producer.Epoch == s.lastEpoch:
		next, last = current, s.lastEpoch // repeated
	default:
		return NoProducer, kerr.ProducerFenced
	}
	s.producer = current
	s.become(next, last)
	s.exists, s.state, s.timeout, s.start, s.initBy = true, Empty, q.Timeout, -1, by
	s.changed(now)
	return s.producer, nil
}

// fence aborts the open transaction in the name of nobody: its producer, which may
// live, cannot go on in its epoch.
func (s *State) fence(now time.Time, fresh int64) error {
	next := int64(noID)
	if exhausted(s.producer.Epoch) {
		if fresh == noID {
			return errNeedsID
		}
		next = fresh
	}
	s.decide(now, false, true, next, "")
	return nil
}

// errEarly: the transaction has not lasted too long after all.
var errEarly = errors.New("the transaction may go on")

// tooLong aborts transaction n, if it has not ended, because it has lasted too
// long; aborted reports that.
func (s *State) tooLong(now time.Time, n, fresh int64) (aborted bool, err error) {
	switch {
	case s.state != Ongoing || s.n != n:
		return false, nil
	case !s.old(now):
		return false, errEarly // clients could not reach us meanwhile
	}
	err = s.fence(now, fresh)
	return err == nil, err
}
