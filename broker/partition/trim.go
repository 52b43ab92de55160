package partition

import (
	"context"
	"errors"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// A store removes messages while nobody can append: a file store deletes one file
// after the other meanwhile, 210 ms for 256 MB on a busy machine and 8 ms for 8 MB.
// What a run of compaction has replaced may be all of a large log, so it goes in
// steps. Kafka's cleaner leaves the old files for a minute (file.delete.delay.ms);
// the rests between steps are no longer than that together.
const (
	// trimStep is how many bytes go at a time, about a file.
	trimStep = 8 << 20
	// trimRest is how many times as long as a step took the next one waits: if
	// there is time, fewer than one append in a hundred meets one.
	trimRest   = 150
	trimWithin = time.Minute
)

// trim has the store remove the messages before the first one that the record
// names: at once if they are few, else in steps, which go on afterwards. What is not
// removed in the end is by retention, or by the next run.
func (p *Partition) trim(ctx context.Context) error {
	b, err := p.log.Bounds(ctx)
	if err != nil {
		return p.missingLog(own(err))
	}
	p.mu.Lock()
	first, busy := p.first, p.trims
	steps := stepsTo(b, first, p.host.trimStep)
	if steps > 1 && !busy {
		p.trims = p.host.spawn(func() { p.trimInSteps(steps) })
		busy = true
	}
	p.mu.Unlock()
	if busy {
		return nil // it goes on to what is the first message by then
	}
	return p.log.Trim(ctx, first)
}

// stepsTo estimates how many steps of so many bytes lie before first.
func stepsTo(b pubsub.Bounds, first pubsub.Seq, step int64) int64 {
	if b.First > b.Last || first <= b.First || step <= 0 {
		return 0
	}
	gone := int64(float64(b.Bytes) * float64(min(first, b.Last+1)-b.First) / float64(b.Last+1-b.First))
	return 1 + gone/step
}

// trimInSteps removes until the log begins with the first message.
func (p *Partition) trimInSteps(steps int64) {
	defer func() {
		p.mu.Lock()
		p.trims = false
		p.mu.Unlock()
	}()
	longest := trimWithin / time.Duration(steps)
	for {
		began := p.host.clock()
		more, err := p.trimOnce()
		if err != nil && p.host.ctx.Err() == nil && !errors.Is(err, pubsub.ErrNotFound) {
			p.host.warn(p, "what compaction replaced is not removed yet; it will be tried again", err)
		}
		if err != nil || !more || !sleep(p.host.ctx, min(trimRest*p.host.clock().Sub(began), longest)) {
			return
		}
	}
}

// trimOnce removes one step; more reports whether there is another one.
func (p *Partition) trimOnce() (more bool, err error) {
	ctx, cancel := context.WithTimeout(p.host.ctx, openTimeout)
	defer cancel()
	b, err := p.log.Bounds(ctx)
	if err != nil {
		return false, own(err)
	}
	p.mu.Lock()
	first, stopped := p.first, p.stop != nil
	p.mu.Unlock()
	steps := stepsTo(b, first, p.host.trimStep)
	if stopped || steps == 0 {
		return false, nil
	}
	to := first
	if steps > 1 {
		to = b.First + max(1, (first-b.First)/pubsub.Seq(steps))
	}
	return to < first, p.log.Trim(ctx, to)
}
