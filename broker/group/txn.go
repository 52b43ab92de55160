package group

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/logging"
)

const (
	// endingsKept is how long a group remembers that a transaction has ended. By
	// then no request that was let pass before the end is on its way any more, nor a
	// write of an owner that was frozen: its connection has been closed.
	endingsKept = time.Hour
	// maxEndings is how many of them it remembers beyond those that are needed, so
	// that its record fits one value.
	maxEndings = 2000
	// overdueAfter is how long a commit may be pending before it is asked whether
	// its transaction is open at all.
	overdueAfter = 15 * time.Second
)

// hasEnded reports that a transaction is known to have ended: itself, or a later
// one of its producer.
func (s *State) hasEnded(producer, n int64) bool {
	if n <= s.ended.last(producer) {
		return true
	}
	for tp := range s.offsets.loose {
		if v := s.current(s.offsets.m[tp]); v != nil && slices.ContainsFunc(v.Pending, func(p pendingCommit) bool {
			return p.ProducerID == producer && p.N > n
		}) {
			return true
		}
	}
	return false
}

// end is the end of a transaction up to the store: it returns the plans that have
// to succeed before it may be told that the group has heard of it. The record is
// the decision's place, and is stored first; whoever finds a commit of the
// transaction later treats it as the record says.
func (s *State) end(now time.Time, e TxnEnd) (plans []*op, err error) {
	if !s.exists {
		return nil, nil
	}
	last := s.ended.last(e.ProducerID)
	for tp := range s.offsets.loose {
		for _, p := range s.offsets.m[tp].value.Pending {
			if p.ProducerID != e.ProducerID || p.N > e.N {
				continue
			}
			plans = append(plans, s.offsets.touch(tp))
			if last < e.N && p.N == last {
				// An earlier end has not been carried out here altogether, nor acknowledged.
				// This one would make void what that one committed: first things first.
				err = kerr.CoordinatorLoadInProgress
			}
		}
	}
	if err != nil {
		return nil, err
	}
	for _, p := range s.offsets.ops {
		plans = append(plans, p) // of this turn: it may be of the transaction
	}
	if last < e.N {
		s.forgetEndings(now)
		s.ended.note(ending{ProducerID: e.ProducerID, N: e.N, Commit: e.Commit, At: now.UnixMilli()})
		s.dirty = true
	}
	return plans, nil
}

// forgetEndings drops what need not be remembered any more, and reports whether
// there was something.
func (s *State) forgetEndings(now time.Time) bool {
	needed := map[int64]bool{}
	for tp := range s.offsets.loose {
		for _, p := range s.offsets.m[tp].value.Pending {
			needed[p.ProducerID] = true
		}
	}
	return s.ended.forget(now, endingsKept, maxEndings, func(producer int64) bool { return needed[producer] })
}

// overdue are the transactions that have committed offsets long ago and have not
// ended, each once.
func (s *State) overdue(now time.Time) []pendingCommit {
	var l []pendingCommit
	for tp := range s.offsets.loose {
		v := s.current(s.offsets.m[tp])
		if v == nil {
			continue
		}
		for _, p := range v.Pending {
			same := func(o pendingCommit) bool { return o.ProducerID == p.ProducerID && o.N == p.N }
			if now.Sub(time.UnixMilli(p.Timestamp)) >= overdueAfter && !slices.ContainsFunc(l, same) {
				l = append(l, p)
			}
		}
	}
	return l
}

// EndTransaction is the Forwarder's, for a group that this gateway owns or may
// take over.
func (co *Coordinator) EndTransaction(ctx context.Context, group string, e TxnEnd) error {
	var (
		failed  error
		refused error
	)
	err := co.do(ctx, group, func(t *turn) {
		var plans []*op
		plans, refused = t.State.end(t.Now, e)
		t.After(func() {
			for _, p := range plans {
				failed = errors.Join(failed, p.err)
			}
		})
	})
	switch {
	case err != nil:
		return err
	case refused != nil:
		return refused
	}
	return coord.Refusal(failed)
}

// inquire has it found out, in the background, whether the transactions that are
// open in a group for long are open at all. A commit that was on its way while its
// transaction ended may have come when the group had forgotten that, or had not
// been there to hear of it; nobody would ever end it again.
func (co *Coordinator) inquire(group string) {
	if co.d.Open == nil {
		return
	}
	co.mu.Lock()
	defer co.mu.Unlock()
	co.doubts[group] = struct{}{}
	select {
	case co.doubting <- struct{}{}:
	default:
	}
}

func (co *Coordinator) inquiries(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-co.doubting:
		}
		co.mu.Lock()
		groups := co.doubts
		co.doubts = map[string]struct{}{}
		co.mu.Unlock()
		for group := range groups {
			if err := co.settleOverdue(ctx, group); err != nil && ctx.Err() == nil {
				// Whoever meets it next has it asked again.
				co.d.Logger.Warn("it is not known whether transactions with offsets of a group are open", logging.Group, group, logging.Error, err)
			}
		}
	}
}

// settleOverdue asks of a group's overdue transactions, and makes void what
// belongs to none. That is safe: a transaction's coordinator calls it complete
// only after all its groups have heard of the end, so that whatever is pending of
// it then came later, and was acknowledged to nobody who could have counted on it.
func (co *Coordinator) settleOverdue(ctx context.Context, group string) error {
	var overdue []pendingCommit
	if err := co.do(ctx, group, func(t *turn) { overdue = t.State.overdue(t.Now) }); err != nil {
		return err
	}
	for _, p := range overdue {
		open, err := co.d.Open(ctx, group, TxnCommit{TransactionalID: p.Transactional, ProducerID: p.ProducerID, N: p.N})
		if err == nil && !open {
			err = co.EndTransaction(ctx, group, TxnEnd{ProducerID: p.ProducerID, N: p.N})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
