package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/hanzoai/stream/pubsub"
)

// retainSibling lets go of what the settings do not keep of a sibling, which holds
// the oldest records: the log start moves over its messages, by the largest
// timestamp in each, or while what comes behind them holds retention.bytes. left: it
// still holds records that are not due, so that nothing of the main stream is.
func (p *Partition) retainSibling(ctx context.Context, t tenure, l *limits, b pubsub.Bounds) (left bool, err error) {
	p.mu.Lock()
	m, start, repaired := p.clean, p.start, p.repaired
	p.mu.Unlock()
	if m == nil || start >= m.X || p.stopMessage() != "" {
		return false, nil
	}
	if !l.any() {
		return true, nil
	}
	to := start
	var why string
	err = p.steady(ctx, func() error {
		to = start
		i := m.part(start)
		held := b.Bytes
		for _, part := range m.Parts[i+1:] {
			held += uint64(part.Bytes)
		}
		for first := true; i < len(m.Parts); i, first = i+1, false {
			ts, err := p.tiles(ctx, m, i)
			if err != nil {
				return err
			}
			from := 0
			if first {
				from = tileIndex(ts, start)
				for _, x := range ts[from:] {
					held += uint64(x.size)
				}
			}
			for _, x := range ts[from:] {
				// Without records it goes with the one behind it.
				a := aged{time: x.maxTime, stored: m.stored(x.last), size: uint64(x.size)}
				if a.time < 0 {
					a.time, a.stored = 0, 0
				}
				w := l.let(a, held)
				if w == "" {
					return nil
				}
				if x.maxTime >= 0 {
					why = w
				}
				held -= min(held, a.size)
				to = x.last + 1
			}
		}
		return nil
	})
	if errors.Is(err, errMoved) {
		return true, nil // it is another one by now: the next pass
	}
	if err == nil && why == "" && to >= m.X {
		return false, nil // no record is left in it: it goes with the main stream's first
	}
	if err != nil || why == "" || to <= start {
		return true, err
	}
	before, err := p.siblingBytes(ctx, m, start)
	if err == nil {
		err = p.claim(ctx, t)
	}
	if err == nil {
		err = p.forget(ctx, cleared{start: to, repaired: repaired, tenure: &t})
	}
	if err != nil {
		return true, fmt.Errorf("retention: %w", err)
	}
	after := 0
	if to < m.X {
		if after, err = p.siblingBytes(ctx, m, to); err != nil {
			after = before
		}
	}
	p.host.metrics.retained.WithLabelValues(why).Add(float64(max(before-after, 0)))
	return to < m.X, nil
}
