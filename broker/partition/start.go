package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
	"github.com/hanzoai/stream/utils/killpoint"
)

// HighWatermark, as the offset of DeleteRecords, takes everything there is.
const HighWatermark types.Offset = -1

// Size is what the partition's stream and its sibling hold, in bytes as the store
// counts them: payloads, headers and the store's own overhead, of one replica. It
// asks the leaders; a stopped partition has a size as well. Errors are failures of
// the store.
func (p *Partition) Size(ctx context.Context) (bytes int64, err error) {
	err = p.steady(ctx, func() error {
		b, err := p.bounds(ctx)
		if err != nil {
			return own(err)
		}
		bytes = int64(b.Bytes)
		p.mu.Lock()
		m, known := p.clean, p.recordRev > 0
		p.mu.Unlock()
		if !known {
			r, _, err := p.fetchRecord(ctx)
			if err != nil {
				return err
			}
			m = r.Clean
		}
		if m == nil {
			return nil
		}
		bound, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if b, err = p.siblingLog(m.Stream).Bounds(bound); err != nil {
			return fmt.Errorf("size of %s: %w", p, own(err))
		}
		bytes += int64(b.Bytes)
		return nil
	})
	return bytes, err
}

// DeleteRecords moves the log start up to offset and returns the log start,
// which is larger if the log begins later already. It answers once the partition
// record says so; the store forgets the messages afterwards, whole ones only.
// Errors: POLICY_VIOLATION (cleanup.policy without delete), OFFSET_OUT_OF_RANGE
// (beyond the high watermark, or negative), failures of the store.
func (p *Partition) DeleteRecords(ctx context.Context, offset types.Offset) (types.Offset, error) {
	if !p.Config().Retained {
		return types.NoOffset, kerr.PolicyViolation
	}
	if offset < HighWatermark {
		return types.NoOffset, kerr.OffsetOutOfRange
	}
	to, start, err := p.deletable(ctx, offset)
	if err != nil || to <= start {
		return start, err
	}
	stopped := false
	err = p.updateRecord(ctx, func(r *record) bool {
		if stopped = r.Stop != nil; stopped || r.Start >= to {
			return false
		}
		r.Start = to
		return true
	})
	if err == nil && stopped {
		err = kerr.KafkaStorageError
	}
	if err != nil {
		return types.NoOffset, err
	}
	p.purgeSoon()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start, nil
}

// deletable finds out where the log start is to go, and where it is. Where the log
// ends, and that the offset lies beyond, must be certain (weigh).
func (p *Partition) deletable(ctx context.Context, offset types.Offset) (to, start types.Offset, err error) {
	var pr proof
	for {
		said, err := p.synced(ctx)
		if err != nil {
			return 0, types.NoOffset, err
		}
		p.mu.Lock()
		if p.st == nil {
			p.mu.Unlock()
			continue
		}
		to, start = offset, p.start
		if offset == HighWatermark {
			to = p.st.next
		}
		within, beyond := offset != HighWatermark && to <= p.st.next, to > p.st.next
		p.mu.Unlock()
		if within {
			return to, start, nil
		}
		wait, err := p.weigh(&pr, said)
		switch {
		case err != nil:
			return 0, types.NoOffset, err
		case wait > 0:
			if !sleep(ctx, wait) {
				return 0, types.NoOffset, ctx.Err()
			}
		case beyond:
			return 0, types.NoOffset, kerr.OffsetOutOfRange
		default:
			return to, start, nil
		}
	}
}

// purging is a partition's work to have the store forget what lies before the
// log start. Guarded by the partition's mu.
type purging struct {
	running, again bool
	// done: for this log start everything is done, so far as we know.
	done types.Offset
}

// purgeSoon purges in the background. What fails, or is cut off by the end of
// this process, is done by the next retention pass.
func (p *Partition) purgeSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.purge.running {
		p.purge.again = true
		return
	}
	p.purge.running = p.host.spawn(func() {
		for {
			ctx, cancel := context.WithTimeout(p.host.ctx, openTimeout)
			err := p.purgeNow(ctx)
			cancel()
			if err != nil && p.host.ctx.Err() == nil {
				p.host.warn(p, "deleted records are not removed from the stream yet; it will be tried again", err)
			}
			p.mu.Lock()
			if !p.purge.again {
				p.purge.running = false
				p.mu.Unlock()
				return
			}
			p.purge.again = false
			p.mu.Unlock()
		}
	})
}

// purgeNow removes from the store what lies before the log start.
func (p *Partition) purgeNow(ctx context.Context) error {
	r, _, err := p.fetchRecord(ctx)
	if err != nil || r.Stop != nil {
		return err
	}
	if r.Start <= r.Base { // whole messages up to it are explained already
		return p.forget(ctx, cleared{start: r.Start, repaired: r.Repaired})
	}
	if err := p.sync(ctx); err != nil {
		return err
	}
	seq, base, err := p.kept(ctx, r.Start)
	if err != nil {
		return err
	}
	return p.forget(ctx, cleared{start: r.Start, seq: seq, base: base, repaired: r.Repaired})
}

// kept finds the message that a log with this start begins with: the one that
// contains it or, at the end, the last one, because a stream is never emptied.
// 0 if none can be named, at a break of the log.
func (p *Partition) kept(ctx context.Context, start types.Offset) (pubsub.Seq, types.Offset, error) {
	p.mu.Lock()
	if p.st == nil {
		p.mu.Unlock()
		return 0, 0, p.unloaded()
	}
	at := p.cuts.forward(start)
	if at >= p.st.next {
		if p.st.id == "" { // nothing, or a break, is the last thing there
			p.mu.Unlock()
			return 0, 0, nil
		}
		at = p.st.next - 1
	}
	p.mu.Unlock()
	return p.locate(ctx, at)
}

// cleared is a log start and the message that the stream begins with then; seq 0
// leaves it where it is. repaired is the record's when it was found out.
type cleared struct {
	start    types.Offset
	seq      pubsub.Seq
	base     types.Offset
	repaired int64
	// tenure under which retention has decided it; nil: a client has said so, and
	// the record has it already.
	tenure *tenure
}

// forget writes a log start and what the stream begins with into the partition
// record and then has the store remove what comes before. All of it only grows,
// so that several may do it, and do it again: a process that ends in between
// leaves a log that is explained and messages that nobody shows.
func (p *Partition) forget(ctx context.Context, c cleared) error {
	// What is removed can be rebuilt from a snapshot only.
	r, _, err := p.fetchRecord(ctx)
	if err != nil {
		return err
	}
	if c.seq > r.First && (r.Snapshot == nil || r.Snapshot.Seq < c.seq) {
		if err := p.sync(ctx); err != nil { // our state may not have come so far
			return err
		}
		if err := p.snapshotNow(ctx); err != nil {
			return err
		}
	}
	var first pubsub.Seq
	whole := true
	var refused error
	var over, cut *manifest // a sibling that nothing is left of, or a part
	err = p.updateRecord(ctx, func(r *record) bool {
		first, whole, over, cut = r.First, true, nil, nil
		if c.tenure != nil {
			if refused = c.tenure.check(r.Term); refused != nil {
				return false
			}
		}
		if r.Stop != nil || r.Repaired != c.repaired {
			whole = false
			return false
		}
		changed := c.start > r.Start
		if changed {
			r.Start = c.start
		}
		if c.seq > r.First {
			if whole = r.Snapshot != nil && r.Snapshot.Seq >= c.seq; whole {
				r.First, r.Base = c.seq, c.base
				first, changed = r.First, true
			}
		}
		if cut = r.Clean; cut != nil && r.Start >= cut.X {
			over, cut, r.Clean, changed = cut, nil, nil, true
			if r.Want <= r.Start {
				r.Want = 0
			}
		}
		return changed
	})
	if err = errors.Join(err, refused); err != nil {
		return err
	}
	p.mu.Lock()
	stopped := p.stop != nil
	p.mu.Unlock()
	if stopped {
		return nil // whoever looks for what is wrong should find all there is
	}
	if c.tenure != nil {
		if err := c.tenure.check(0); err != nil {
			return err // whoever holds the lease finishes this
		}
	}
	killpoint.At("logstart.stored")
	if over != nil {
		if err := p.host.deleteSibling(ctx, p.key, over.Stream); err != nil {
			return fmt.Errorf("partition %s: %w", p, err)
		}
	}
	if cut != nil {
		if err := p.trimSibling(ctx, cut, c.start); err != nil {
			return fmt.Errorf("partition %s: %w", p, err)
		}
	}
	if err := p.log.Trim(ctx, first); err != nil {
		return fmt.Errorf("partition %s: %w", p, p.missingLog(err))
	}
	if whole {
		p.mu.Lock()
		p.purge.done = max(p.purge.done, c.start)
		p.mu.Unlock()
	}
	return nil
}

// snapshotNow writes a snapshot of the state as it is now, or a newer one.
func (p *Partition) snapshotNow(ctx context.Context) error {
	for {
		if err := p.ready(ctx); err != nil {
			return err
		}
		done := make(chan struct{})
		if p.startSnapshot(func() { close(done) }) {
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-p.host.ctx.Done():
				return errClosed
			}
		}
		p.mu.Lock()
		err, running := p.refusedLocked(), p.snap.running
		p.mu.Unlock()
		if err != nil {
			return err
		}
		if !running && p.host.ctx.Err() != nil {
			return errClosed
		}
		if !sleep(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
}
