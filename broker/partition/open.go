package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/utils/killpoint"
)

// openTimeout is the longest silence of the store while a partition is loaded.
// The load as a whole has no bound: without its snapshot a long partition is
// read anew, header by header, and an attempt that was cut off would have to
// begin at the start.
const openTimeout = 30 * time.Second

// open loads the partition: the record, the snapshot it names, and the headers
// of the messages after it. It never reads the whole log unless no snapshot
// counts.
func (p *Partition) open(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(openTimeout, cancel)
	defer silence.Stop()
	heard := func() { silence.Reset(openTimeout) }
	for attempt := 0; ; attempt++ {
		heard()
		r, _, err := p.fetchRecord(ctx)
		if err != nil {
			return err
		}
		p.mu.Lock()
		err = p.refusedLocked()
		p.mu.Unlock()
		if err != nil {
			return err
		}
		again, err := p.openFrom(ctx, r, heard)
		if err != nil {
			return fmt.Errorf("open partition %s: %w", p, err)
		}
		if !again {
			return nil
		}
		// Purged, or the snapshot replaced, between our reads: the record
		// tells the newer state.
		if attempt == 3 {
			return fmt.Errorf("open partition %s: record and stream keep changing: %w", p, pubsub.ErrUnavailable)
		}
		if !sleep(ctx, 50*time.Millisecond<<attempt) {
			return ctx.Err()
		}
	}
}

// openFrom loads the state as the record describes it. heard is called when the
// store has said something. again asks for a newer record.
func (p *Partition) openFrom(ctx context.Context, r *record, heard func()) (again bool, err error) {
	bound, cancel := context.WithTimeout(ctx, askTimeout)
	b, err := p.leaderBounds(bound)
	cancel()
	if err != nil {
		return false, p.missingLog(err)
	}
	p.mu.Lock()
	p.replicas = b.Replicas
	reached := p.reached
	p.mu.Unlock()
	if b.Last < reached {
		return false, p.behind(b, reached)
	}
	st, ix := newState(), index{}
	restored := false
	var lost error
	if h := r.Snapshot; h != nil {
		if b.Last < h.Seq {
			return false, p.behind(b, h.Seq)
		}
		st, ix, err = p.loadSnapshot(ctx, h)
		switch {
		case err == nil:
			restored = true
		case errors.Is(err, errSnapshotLost):
			newer, _, rerr := p.fetchRecord(ctx)
			if rerr != nil {
				return false, rerr
			}
			if newer.Snapshot == nil || newer.Snapshot.Seq != h.Seq {
				return true, nil // replaced while we read it
			}
			lost = err
			st, ix = newState(), index{}
		default:
			return false, err
		}
	}
	if restored && st.seq >= r.First && st.seq >= b.First {
		// The snapshot belongs to this log only if its last message says so.
		m, err := p.log.Get(ctx, st.seq)
		switch {
		case errors.Is(err, pubsub.ErrNotFound):
			return p.hole(ctx, st.seq, b)
		case err != nil:
			return false, err
		}
		d, derr := decodeHeader(p.idTxt, &m)
		if derr != nil {
			p.contradiction(derr, true)
			return false, p.afterContradiction(derr)
		}
		if d.id != r.Snapshot.ID {
			c := &corruption{kind: "order", seq: st.seq, why: "the snapshot is of another log: the stream was restored or written anew"}
			p.stopFor(c)
			return false, p.afterContradiction(c)
		}
	}
	st.cuts = r.Resume
	if restored {
		st.skip()
	} else {
		st.seq, st.next = r.First-1, r.Base
		st.skip()
		if lost != nil {
			p.host.warn(p, "snapshot is lost; rebuilding from the headers of the whole log", lost)
		}
	}
	if b.First > st.seq+1 && b.Last > st.seq {
		// Purged beyond what the record said when we read it. A purge is written
		// into the record first.
		newer, _, err := p.fetchRecord(ctx)
		if err != nil {
			return false, err
		}
		if newer.First > r.First || newer.Snapshot != nil && (r.Snapshot == nil || newer.Snapshot.Seq > r.Snapshot.Seq) {
			return true, nil
		}
		return p.hole(ctx, st.seq+1, b)
	}
	killpoint.At("state.loading")
	// Whatever comes after b.Last arrives as news or by the next question.
	heard()
	snapshotSeq := st.seq
	messages := 0
	bytes, headers := 0, 0
	if b.Last > st.seq {
		var stop *corruption
		err := p.log.Headers(ctx, st.seq+1, b.Last, func(m pubsub.Message) error {
			if m.Seq <= st.seq {
				return nil
			}
			if m.Seq != st.seq+1 {
				stop = &corruption{kind: "gap", seq: st.seq + 1}
				return stop
			}
			d, err := decodeHeader(p.idTxt, &m)
			if err != nil {
				return err
			}
			if c := st.verify(&d); c != nil {
				return c
			}
			st.apply(&d)
			ix.add(&d)
			if messages++; messages%span == 0 {
				heard()
			}
			bytes += d.size
			headers += d.headers
			return nil
		})
		if stop != nil {
			return p.hole(ctx, stop.seq, b)
		}
		var c *corruption
		if errors.As(err, &c) || errors.Is(err, errUnknownFormat) {
			p.contradiction(err, true)
			return false, p.afterContradiction(err)
		}
		if err != nil {
			return false, p.missingLog(err)
		}
		if st.seq < b.Last {
			return p.hole(ctx, st.seq+1, b)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Repaired != p.repaired {
		return true, nil // repaired while we read
	}
	if p.st == nil || p.st.seq < st.seq {
		p.st, p.ix = st, ix
		p.checked = p.host.clock()
		p.wentBack = time.Time{}
		p.snap.loaded(snapshotSeq, messages, bytes, headers)
		p.wakeLocked()
	}
	return false, nil
}

// afterContradiction is what the caller of a load gets.
func (p *Partition) afterContradiction(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.refusedLocked(); r != nil {
		return r
	}
	return fmt.Errorf("%w (%w)", err, pubsub.ErrUnavailable)
}

// missingLog turns "no such log" into a failure: the stream of an active topic
// is not absent, it is damaged or its leader does not answer. Or the topic is not
// there any more, and we have not heard of it.
func (p *Partition) missingLog(err error) error {
	if errors.Is(err, pubsub.ErrNotFound) {
		p.host.missing(p)
		return fmt.Errorf("the stream is missing: %v (%w)", err, pubsub.ErrUnavailable)
	}
	return err
}

// absent asks the leader about a message that should be there and was not
// delivered. nil: it is there, or was purged.
func (p *Partition) absent(ctx context.Context, seq pubsub.Seq) error {
	b, err := p.bounds(ctx)
	if err != nil {
		return err
	}
	if b.Last < seq {
		return p.behind(b, seq)
	}
	_, err = p.hole(ctx, seq, b)
	return err
}

// hole decides about a sequence that should be there and was not delivered.
// Absence is believed from the leader only, on more than one replica twice, a
// second apart, and not while we may be cut off with it (design rule 7). A stream
// without it has lost acknowledged records: the partition stops.
func (p *Partition) hole(ctx context.Context, seq pubsub.Seq, b pubsub.Bounds) (again bool, err error) {
	times := 1
	if b.Replicas > 1 {
		times = 2
	}
	for i := range times {
		if i > 0 && !sleep(ctx, time.Second) {
			return false, ctx.Err()
		}
		_, err := p.log.Get(ctx, seq)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, pubsub.ErrNotFound) {
			return false, err
		}
		if b, err = p.leaderBounds(ctx); err != nil {
			return false, p.missingLog(err)
		}
		if b.Last < seq {
			return false, p.behind(b, seq)
		}
	}
	for i := range times {
		// A leader that woke from a freeze may know an old record only.
		if i > 0 && !sleep(ctx, time.Second) {
			return false, ctx.Err()
		}
		if r, _, err := p.fetchRecord(ctx); err != nil || r.First > seq {
			return err == nil, err // purged, as the record says
		}
	}
	if err := p.cutOff(b.Replicas); err != nil {
		return false, err
	}
	c := &corruption{kind: "gap", seq: seq, why: "the stream lacks a message that was stored"}
	p.stopFor(c)
	return false, p.afterContradiction(c)
}
