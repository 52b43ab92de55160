package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/hanzoai/stream/test/history"
)

// Ends of a worker. A successor takes its place.
const (
	leave  = "leaves"                        // between two transactions
	die    = "dies"                          // with one open; the successor has its transactional id
	vanish = "dies and its id is never used" // with one open, which has to time out
	wake   = "sleeps and wakes up"           // with one open, and ends it when its successor works
)

var fates = []string{die, wake, vanish, leave}

// worker is one place among those that carry records over; workers succeed each
// other in it.
type worker struct {
	e      *etl
	place  int
	random *rand.Rand
	orders chan string // capacity 1: how the present one is to end
	names  int         // transactional ids so far
	begun  int         // transactions so far
}

// run has one worker after the other work, until the load ends.
func (w *worker) run() {
	var asleep sync.WaitGroup
	defer asleep.Wait()
	for w.e.rest.Err() == nil {
		w.live(&asleep)
	}
}

// id is the place's transactional id.
func (w *worker) id() string { return fmt.Sprintf("%s-%d-%d", w.e.group, w.place, w.names) }

// old reports that the place speaks as clients did before the second version of
// transactions: half of them do.
func (w *worker) old() bool { return w.place%2 == 1 }

// session begins to work.
func (w *worker) session() (*kgo.GroupTransactSession, error) {
	opts := []kgo.Opt{
		kgo.TransactionalID(w.id()), kgo.TransactionTimeout(txnTimeout),
		kgo.ConsumerGroup(w.e.group), kgo.ConsumeTopics(w.e.in), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.SessionTimeout(45 * time.Second), kgo.RebalanceTimeout(20 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
	}
	if w.old() {
		opts = append(opts, kgo.MaxVersions(kversion.V3_8_0()))
	}
	return kgo.NewGroupTransactSession(clientOpts(w.e.w, opts...)...)
}

// live is the time of one worker: until it is told to end, or its session fails.
func (w *worker) live(asleep *sync.WaitGroup) {
	s, err := w.session()
	if err != nil {
		w.e.t.Errorf("worker %d: %v", w.place, err)
		w.e.endRest()
		return
	}
	sleeps := false
	defer func() {
		if !sleeps {
			s.CloseAllowingRebalance()
		}
	}()
	for w.e.rest.Err() == nil {
		fetches := s.PollRecords(w.e.rest, 100)
		fetchErrors(w.e.t, w.e.watch, w.e.rest, fmt.Sprintf("worker %d", w.place), fetches)
		if fetches.NumRecords() == 0 {
			continue
		}
		fate := ""
		select {
		case fate = <-w.orders:
		default:
		}
		began := time.Now()
		a, id, written, err := w.write(s, fetches)
		if err != nil { // its producer is fenced for good; a successor reads again
			w.e.ended(a, history.Failed, "not begun")
			return
		}
		w.e.watch.note(opWrite, began, time.Since(began), id, nil)
		switch fate {
		case die, vanish:
			w.e.ended(a, history.Unknown, "left open")
			if fate == vanish {
				w.names++
			}
			return
		case wake:
			// The successor works under the same id before this one goes on.
			w.e.ended(a, history.Unknown, "left open for a while")
			sleeps = true
			next, err := w.session()
			if err != nil {
				w.e.t.Errorf("worker %d: %v", w.place, err)
				s.CloseAllowingRebalance()
				return
			}
			_, _, err = next.Client().ProducerID(w.e.rest)
			asleep.Go(func() {
				defer s.CloseAllowingRebalance()
				committed, cerr := s.End(w.e.rest, kgo.TryCommit)
				if err == nil && committed {
					w.e.t.Errorf("%s was committed after its worker had been replaced: %v", id, cerr)
				}
			})
			next.CloseAllowingRebalance()
			return
		}
		try := kgo.TransactionEndTry(written && w.random.IntN(100) >= abortPercent)
		committed, err := s.End(w.e.rest, try)
		switch {
		case err != nil:
			w.e.ended(a, history.Unknown, "failed")
			w.failed(id, err)
			return
		case committed:
			w.e.ended(a, history.OK, "committed")
		case bool(try):
			w.e.ended(a, history.Failed, "aborted instead")
		default:
			w.e.ended(a, history.Failed, "aborted")
		}
		w.e.watch.note(opTxn, began, time.Since(began), id, nil)
	}
}

// write begins a transaction and writes what was read into it. An error: it was not
// begun, and this producer can begin none any more.
func (w *worker) write(s *kgo.GroupTransactSession, fetches kgo.Fetches) (a *attempt, id string, all bool, err error) {
	w.begun++
	id = fmt.Sprintf("%d.%d", w.place, w.begun)
	a = &attempt{Wrote: map[int32][]int64{}, Acked: map[int32][]copied{}, Outcome: history.Unknown}
	w.e.mu.Lock()
	w.e.ledger.Attempts[id] = a
	fetches.EachRecord(func(r *kgo.Record) {
		a.Wrote[r.Partition] = append(a.Wrote[r.Partition], r.Offset)
	})
	w.e.mu.Unlock()
	if err := s.Begin(); err != nil {
		w.failed(id, err)
		return a, id, false, err
	}
	all = true
	var sent sync.WaitGroup
	fetches.EachRecord(func(r *kgo.Record) {
		sent.Add(1)
		input := r.Offset
		s.Produce(w.e.rest, &kgo.Record{Topic: w.e.out, Partition: r.Partition, Value: value(id, input)}, func(r *kgo.Record, err error) {
			defer sent.Done()
			w.e.mu.Lock()
			defer w.e.mu.Unlock()
			if err != nil {
				all = false
				w.failedLocked(id, err)
				return
			}
			a.Acked[r.Partition] = append(a.Acked[r.Partition], copied{r.Offset, input, id})
		})
	})
	sent.Wait()
	return a, id, all, nil
}

// ended notes how a transaction ended.
func (e *etl) ended(a *attempt, o history.Outcome, how string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a.Outcome = o
	e.ends[how]++
}

func (w *worker) failed(id string, err error) {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.failedLocked(id, err)
}

// failedLocked counts what ended a transaction. A worker that was slow or cut off
// may find that the cluster has ended its transaction, or that it was replaced,
// and franz-go does not always ask again where a coordinator is, or at a place that
// answers. A commit of transaction.version 2 that the cluster has aborted meanwhile
// gets INVALID_TXN_STATE: it names the epoch before, as a repeated request does
// (recorded from Apache Kafka in test/e2e/txn, "timed out, version 2"). Whatever else
// it is told is a mistake.
func (w *worker) failedLocked(id string, err error) {
	if w.e.rest.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	w.e.errs[err.Error()]++
	if !errors.As(err, new(*kerr.Error)) || kerr.IsRetriable(err) && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return
	}
	for _, fine := range []error{kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.TransactionAbortable} {
		if errors.Is(err, fine) {
			return
		}
	}
	if errors.Is(err, kerr.InvalidTxnState) && !w.old() {
		return
	}
	w.e.t.Errorf("transaction %s: %v", id, err)
}

const opWrite = "transactional produce" // of all records of one transaction
