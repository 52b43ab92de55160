package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// oldest is what retention knows of the first message of the log, so that it
// need not be read again before its time has come. Guarded by the partition's
// mu.
type oldest struct {
	seq  pubsub.Seq // 0: not known
	last types.Offset
	aged
}

// aged is what retention goes by of one message.
type aged struct {
	time   int64 // ms: the largest timestamp in it
	stored int64 // ms, the store's time
	size   uint64
}

// Retain lets go of what the topic's retention settings do not keep: the oldest
// messages, whole ones, while all their records are older than retention.ms or
// the stream without them still holds retention.bytes. now is the store's time, b
// what the store says of the log. It asks the store for nothing while nothing can
// be due. Only the holder of the maintenance lease does it (Env.Maintains): else
// ErrNotMaintainer or a *TermError, and nothing is let go.
//
// A message's age is that of its largest timestamp, as in Kafka's
// UnifiedLog.deleteRetentionMsBreachedSegments; without timestamps, that of its
// append. The last message stays in the stream, though its records may be let go.
func (p *Partition) Retain(ctx context.Context, now time.Time, b pubsub.Bounds) error {
	p.noteBounds(b)
	p.mu.Lock()
	refused, known, trims := p.refusedLocked(), p.recordRev > 0, p.trims
	p.mu.Unlock()
	if refused != nil {
		return nil // a stopped partition is left as it is
	}
	if trims {
		return nil // until that has ended the store tells too many bytes
	}
	if !known {
		if _, _, err := p.fetchRecord(ctx); err != nil {
			return err
		}
	}
	t := p.host.tenure() // before the settings are looked at
	if err := p.begin(ctx, t); err != nil {
		return err
	}
	p.mu.Lock()
	// Deleted, or half deleted, by somebody who did not come to the end.
	unfinished := p.start > p.base && p.start > p.purge.done || b.Messages > 0 && b.First < p.first || p.clean != nil && p.start >= p.clean.X
	p.mu.Unlock()
	if unfinished {
		if err := p.purgeNow(ctx); err != nil {
			return err
		}
		var err error
		if b, err = p.bounds(ctx); err != nil {
			return err
		}
	}
	l := p.limits(now)
	if left, err := p.retainSibling(ctx, t, &l, b); err != nil || left {
		return err
	}
	for {
		p.mu.Lock()
		due := p.stop == nil && b.Messages > 0 && l.any() && p.retainedLocked(&l, b)
		p.mu.Unlock()
		if !due {
			return nil
		}
		again, err := p.retain(ctx, t, &l, b)
		if err != nil || !again {
			return err
		}
		if b, err = p.bounds(ctx); err != nil {
			return err
		}
	}
}

// atLeast is how long a message stays at least, in ms, however old its records say
// they are. It is well within what retention may be late, and lets records of
// long ago be read once, as Kafka's segments do.
const atLeast = 20_000

// limits are what retention goes by.
type limits struct {
	now    int64 // ms
	before int64 // ms: older messages go; negative: none
	bytes  int64 // the stream keeps so many; negative: no limit
}

func (p *Partition) limits(now time.Time) limits {
	c := p.Config()
	l := limits{now.UnixMilli(), -1, -1}
	if c.Retained && c.RetentionMillis >= 0 {
		l.before = l.now - c.RetentionMillis
	}
	if c.Retained && c.RetentionBytes >= 0 {
		l.bytes = c.RetentionBytes
	}
	return l
}

func (l *limits) any() bool { return l.before >= 0 || l.bytes >= 0 }

// let reports whether a message may go from a stream that holds so many bytes:
// why names the limit.
func (l *limits) let(m aged, held uint64) (why string) {
	switch {
	case m.time < l.before && m.stored < l.now-atLeast:
		return "time"
	case l.bytes >= 0 && m.size <= held && held-m.size >= uint64(l.bytes):
		return "size"
	}
	return ""
}

// retainedLocked reports whether the first message may be due.
func (p *Partition) retainedLocked(l *limits, b pubsub.Bounds) bool {
	o := p.oldest
	if o.seq == b.Last && o.seq == p.first && o.last < p.start {
		return false // the last message, of which nothing is shown any more
	}
	return o.seq == 0 || o.seq != p.first || l.let(o.aged, b.Bytes) != ""
}

// storedSize is what a message takes in the store, at most: an estimate from
// above errs towards keeping.
func (p *Partition) storedSize(m *pubsub.Message) uint64 {
	const overhead = 48 // of a file store, the lines around headers included
	size := overhead + m.Size + len(p.log.Name())
	for k, vs := range m.Header {
		for _, v := range vs {
			size += len(k) + len(v) + 4
		}
	}
	return uint64(size)
}

// retainAtOnce bounds the messages that are let go by one purge.
const retainAtOnce = 100_000

// errEnough ends a walk.
var errEnough = errors.New("enough")

// retain walks over what is due, from the first message on, and lets it go. again
// says that there may be more.
func (p *Partition) retain(ctx context.Context, t tenure, l *limits, b pubsub.Bounds) (again bool, err error) {
	// Nothing of the state is needed: first message and base are in the record.
	p.mu.Lock()
	cuts, want, next, start, repaired := p.cuts, p.first, p.base, p.start, p.repaired
	p.mu.Unlock()
	if b.First < want {
		return false, nil // b is older than the last purge: it tells too many bytes
	}
	want, next = cuts.after(want, next)
	c := cleared{repaired: repaired, tenure: &t}
	first := oldest{}
	held, count := b.Bytes, 0
	let := map[string]uint64{}
	walk, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(openTimeout, cancel)
	defer silence.Stop()
	err = p.log.Headers(walk, want, b.Last, func(m pubsub.Message) error {
		if m.Seq < want {
			return nil
		}
		if m.Seq > b.Last {
			return errEnough
		}
		if m.Seq != want {
			return errGap
		}
		d, err := decodeHeader(p.idTxt, &m)
		if err != nil {
			return err
		}
		if d.plain {
			d.base, d.last = next, next
		} else if d.base != next {
			return errGap
		}
		a := aged{time: d.maxTime, stored: m.Time.UnixMilli(), size: p.storedSize(&m)}
		if a.time < 0 {
			a.time = d.appendTime
		}
		why := l.let(a, held)
		if why == "" || count == retainAtOnce {
			c.seq, c.base = d.seq, d.base
			first = oldest{d.seq, d.last, a}
			again = why != ""
			return errEnough
		}
		if count++; count%span == 0 {
			silence.Reset(openTimeout)
		}
		// The last message stays, whatever becomes of its records.
		c.seq, c.base, c.start = d.seq, d.base, d.last+1
		first = oldest{d.seq, d.last, a}
		held -= min(held, a.size)
		if d.last >= start {
			let[why] += a.size
		}
		want, next = cuts.after(d.seq+1, d.last+1)
		return nil
	})
	switch {
	case errors.Is(err, errEnough), err == nil && want > b.Last:
	case errors.Is(err, errGap), err == nil:
		// The log is not what the record says, or was changed under us: nothing is
		// deleted on that ground. Who reads or appends finds out what it is.
		return false, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	default:
		return false, fmt.Errorf("retention of %s: %w", p, p.missingLog(own(err)))
	}
	if count > 0 && (c.start > start || c.seq > b.First) {
		if err := p.claim(ctx, t); err != nil {
			return false, err
		}
		if err := p.forget(ctx, c); err != nil {
			return false, fmt.Errorf("retention: %w", err)
		}
		for why, n := range let {
			p.host.metrics.retained.WithLabelValues(why).Add(float64(n))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == first.seq {
		p.oldest = first
	}
	// Sizes are estimated from above: the store tells how much is left.
	return again || let["size"] > 0, nil
}
