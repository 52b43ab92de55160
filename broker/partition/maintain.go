package partition

import (
	"context"
	"errors"
	"fmt"
)

// Retention is what one gateway does for all, the holder of the maintenance lease.
// One that froze and was replaced meanwhile must not go on with what it had
// decided: the settings it went by may have been changed since. So
//   - what is let go of is decided under one term, and before it is, the record
//     takes that term and the holder asks whether it is still that;
//   - a new holder's pass raises the term of every record that an earlier one has
//     claimed: what that one still has under way meets a conflict, and then a term
//     beyond its own.
//
// A partition with nothing to let go of is never claimed and costs no write.

// ErrNotMaintainer: this gateway does not hold the maintenance lease any more.
var ErrNotMaintainer = errors.New("this gateway does not hold the maintenance lease")

// TermError: a partition is maintained under a later term of the lease than ours.
type TermError struct {
	Term uint64 // of the partition's record
}

func (e *TermError) Error() string {
	return fmt.Sprintf("the partition is maintained under term %d of the lease", e.Term)
}

// tenure is one term of the lease, the one under which a pass began.
type tenure struct {
	holds func() (term uint64, held bool) // nil: there is no lease
	term  uint64
}

// tenure is the present one.
func (h *Host) tenure() tenure {
	t := tenure{holds: h.maintains}
	if t.holds != nil {
		t.term, _ = t.holds()
	}
	return t
}

// check refuses once the tenure is over, and where the record has a later term.
func (t tenure) check(record uint64) error {
	if t.holds == nil {
		return nil
	}
	term, held := t.holds()
	switch {
	case !held || term != t.term:
		return ErrNotMaintainer
	case record > term:
		return &TermError{record}
	}
	return nil
}

// begin checks, and takes a partition over from an earlier holder.
func (p *Partition) begin(ctx context.Context, t tenure) error {
	p.mu.Lock()
	now := p.term
	p.mu.Unlock()
	if err := t.check(now); err != nil || now == 0 {
		return err
	}
	return p.claim(ctx, t)
}

// claim makes the record carry the term.
func (p *Partition) claim(ctx context.Context, t tenure) error {
	p.mu.Lock()
	now := p.term
	p.mu.Unlock()
	if now == t.term || t.holds == nil {
		return nil
	}
	var refused error
	err := p.updateRecord(ctx, func(r *record) bool {
		if refused = t.check(r.Term); refused != nil || r.Term == t.term {
			return false
		}
		r.Term = t.term
		return true
	})
	return errors.Join(err, refused)
}
