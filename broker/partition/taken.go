package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

const (
	// handHold is how long after its arrival a batch that was handed over is still
	// appended. It is less than handLimit, which began before, so that most often
	// the other gateway learns that it is to append it itself.
	handHold = 1500 * time.Millisecond
	// handSlow is the duration of an append from which hand-overs are declined: two
	// of them would not be answered in time.
	handSlow = 900 * time.Millisecond
	// slowFor is how long one slow append counts.
	slowFor = 5 * time.Second
)

var (
	errDeclined = fmt.Errorf("not taken over: %w", pubsub.ErrUnavailable)
	errTooOld   = fmt.Errorf("it waited here for %v: %w", handHold, errDeclined)
)

// taken is a group of batches that another gateway handed over. Its batches
// queue like those of our clients, are never passed on, and are dropped after
// handHold.
type taken struct {
	from string // the gateway

	mu       sync.Mutex // guards: verdicts, left
	verdicts []handVerdict
	left     int
	done     chan struct{} // closed when left is 0
}

// TakeOver answers a request of another gateway's partitions. from names the
// gateway, open opens a partition. An error means that nothing was or will be
// appended.
func (h *Host) TakeOver(ctx context.Context, from string, request []byte, open func(ctx context.Context, id types.TopicID, partition int32) (*Partition, error)) ([]byte, error) {
	r, err := decodeHandOver(request)
	if err != nil {
		return nil, err
	}
	if r.kind == handTell {
		if p := h.Find(r.id, r.n); p != nil && h.others != nil {
			p.toldToHand()
		}
		return nil, nil
	}
	p, err := open(ctx, r.id, r.n)
	if err != nil {
		return decline(r.members, err), nil
	}
	return p.takeOver(ctx, from, r.members), nil
}

// decline answers that nothing of a hand-over is or will be appended here. It is
// an answer and no error: the caller may not see the error of a handler that is
// being ended.
func decline(batches []handedBatch, why error) []byte {
	a := handAnswer{end: -1, verdicts: make([]handVerdict, len(batches))}
	for i := range a.verdicts {
		a.verdicts[i].kind = handDeclined
	}
	a.verdicts[0].text = why.Error()
	return encodeHandAnswer(a)
}

// takeOver appends batches for another gateway, behind those that wait already.
func (p *Partition) takeOver(ctx context.Context, from string, batches []handedBatch) []byte {
	// A load that takes long must not hold batches where they cannot be withdrawn.
	bound, cancel := context.WithTimeout(ctx, handHold)
	defer cancel()
	if err := p.ready(bound); err != nil {
		return decline(batches, err)
	}
	t := &taken{from: from, verdicts: make([]handVerdict, len(batches)), left: len(batches), done: make(chan struct{})}
	ms := make([]*pending, len(batches))
	now, size := p.host.clock(), 0
	for i := range batches {
		b := &batches[i]
		m := &pending{at: now, acksAll: b.acksAll, taken: t, told: b.txn}
		m.batch, m.entry = b.batch, entryOf(b.batch)
		if b.batch.Control() {
			kind, coordinator, err := serde.ParseControl(b.batch)
			if err != nil {
				return decline(batches, err)
			}
			m.entry = markerEntry(b.batch, kind, coordinator)
		}
		m.entry.fromZero = b.fromZero
		if b.logAppendTime {
			m.entry.flags |= flagLogAppendTime
		}
		m.done = func(a AppendResult) { t.answer(i, a) }
		ms[i], size = m, size+len(b.batch)
	}
	p.mu.Lock()
	if err := p.declinesLocked(now, size); err != nil {
		p.mu.Unlock()
		return decline(batches, err)
	}
	if p.rivals.sources == nil {
		p.rivals.sources = map[string]time.Time{"": now}
	}
	p.forgetBrokenLocked(now)
	for i, m := range ms {
		if first := batches[i].after; first >= 0 && m.entry.pid >= 0 {
			p.brokenLocked(&entry{pid: m.entry.pid, epoch: m.entry.epoch, first: first})
		}
	}
	p.queue = append(p.queue, ms...)
	p.queueBytes += size
	ok := p.wakeAppenderLocked()
	p.mu.Unlock()
	if !ok {
		return decline(batches, errClosed)
	}
	p.host.metrics.taken.Add(float64(len(ms)))
	select {
	case <-t.done:
	case <-bound.Done():
		// Too late, or nobody waits for it any more. What is being appended cannot
		// be called back.
		p.withdraw(t)
		rest := time.NewTimer(handLimit - handHold)
		defer rest.Stop()
		select {
		case <-t.done:
		case <-rest.C:
		}
	}
	p.mu.Lock()
	a := handAnswer{quiet: p.rivals.quiet(from, p.host.clock()), end: -1}
	if p.st != nil {
		a.end = p.st.next
	}
	p.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	a.verdicts = slices.Clone(t.verdicts)
	for i := range a.verdicts {
		if a.verdicts[i].kind == 0 {
			a.verdicts[i] = handVerdict{kind: handUnknown, text: "another gateway has not appended it in time"}
		}
	}
	return encodeHandAnswer(a)
}

// declinesLocked is why batches of so many bytes are better not taken.
func (p *Partition) declinesLocked(now time.Time, size int) error {
	if err := p.refusedLocked(); err != nil {
		return err
	}
	switch r := &p.rivals; {
	case r.busy:
		// We hold the other one for the hinted appender, and must not wait for each
		// other.
		return fmt.Errorf("%w: this gateway hands over itself", errDeclined)
	case p.slow || r.took > handSlow && now.Sub(r.tookAt) < slowFor:
		return fmt.Errorf("%w: the store is slow", errDeclined)
	case p.overShareLocked(size):
		return fmt.Errorf("%w: too much waits already", errDeclined)
	}
	return nil
}

// answer notes what became of one batch.
func (t *taken) answer(i int, a AppendResult) {
	v := handVerdict{kind: handDeclined, text: a.Message}
	var refusal *kerr.Error
	switch {
	case a.Err == nil:
		v = handVerdict{kind: handStored, base: a.BaseOffset, start: a.LogStart, time: a.AppendTime}
	case errors.Is(a.Err, kerr.RequestTimedOut), errors.Is(a.Err, pubsub.ErrOutcomeUnknown):
		v.kind = handUnknown
	case errors.Is(a.Err, kerr.OutOfOrderSequenceNumber), errors.Is(a.Err, kerr.InvalidProducerEpoch):
		// The log says so. All else may be this gateway's trouble alone.
		errors.As(a.Err, &refusal)
		v.kind, v.code = handRefused, refusal.Code
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verdicts[i] = v
	if t.left--; t.left == 0 {
		close(t.done)
	}
}

// withdraw takes back what is not being appended yet.
func (p *Partition) withdraw(t *taken) {
	var back []*pending
	p.mu.Lock()
	p.queue = slices.DeleteFunc(p.queue, func(m *pending) bool {
		if m.taken != t {
			return false
		}
		p.queueBytes -= len(m.batch)
		back = append(back, m)
		return true
	})
	p.mu.Unlock()
	for _, m := range back {
		m.fail(errTooOld, "")
	}
}

// dropLate lets go of members that were handed over too long ago, before another
// attempt. It returns true if nothing is left.
func (p *Partition) dropLate(g *group) bool {
	now := p.host.clock()
	kept := g.members[:0]
	for _, m := range g.members {
		if m.taken != nil && now.Sub(m.at) >= handHold {
			m.fail(errTooOld, "")
		} else {
			kept = append(kept, m)
		}
	}
	g.members = kept
	return len(kept) == 0
}

// entryOf is what a checked batch's own header tells.
func entryOf(b serde.Batch) entry {
	e := entry{
		length: int32(len(b)), count: b.Count(), maxTime: b.MaxTimestamp(),
		pid: b.ProducerID(), epoch: b.ProducerEpoch(), first: b.BaseSequence(),
	}
	if b.Transactional() {
		e.flags |= flagTransactional
	}
	if e.pid < 0 {
		e.pid, e.epoch, e.first = -1, -1, -1
	}
	return e
}
