package partition

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
)

type outcome int

const (
	outcomeUnresolved outcome = iota // nobody knows; nothing more was sent
	outcomeStored                    // our message is stored at its sequence
	outcomeAgain                     // it is not and never will be: decide again
	outcomeRebuilt                   // it was or it was not, and is purged by now
)

// resolve finds out what became of an append whose acknowledgement did not come
// (design §8). Nothing else is appended meanwhile, and nothing joins it:
//
//   - The leader's last sequence is below ours: the append may still be on its
//     way. The byte-identical message with the same append id is sent again. Of
//     two copies only one can be stored, as both expect the same sequence; which
//     one does not matter.
//   - A message stands at our sequence: its append id tells whether it is ours.
//   - It was purged meanwhile: the state is rebuilt; the producer table decides
//     about idempotent batches, for the others there is no proof.
func (p *Partition) resolve(g *group, e pubsub.Entry) (o outcome) {
	ctx := p.host.ctx
	defer func() {
		result := "unresolved"
		switch o {
		case outcomeStored:
			result = "stored"
		case outcomeAgain:
			result = "absent"
		}
		p.host.metrics.unknown.WithLabelValues(result).Inc()
	}()
	ours := g.meta.seq
	for wait := time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		if ctx.Err() != nil || p.host.clock().Sub(g.began) > giveUp || p.stopMessage() != "" {
			return outcomeUnresolved
		}
		b, err := p.bounds(ctx)
		switch {
		case err != nil:
		case b.Last+1 < ours:
			// The leader denies what we have applied: it woke from a freeze, or
			// the log went back. Not a moment to send anything.
		case b.Last < ours:
			switch err := p.appendOnce(ctx, g, e); {
			case err == nil:
				return outcomeStored
			case errors.Is(err, pubsub.ErrTooLarge):
				return outcomeAgain
			case errors.Is(err, pubsub.ErrFull):
				// No use in waiting. That this copy was refused proves nothing
				// about the first one, which may be on its way still.
				return outcomeUnresolved
			}
			// A conflict means that a message has arrived at our sequence,
			// perhaps the first copy: the next round reads it.
		case b.First > ours:
			p.mu.Lock()
			p.unloadLocked()
			p.mu.Unlock()
			if p.ready(ctx) == nil {
				return outcomeRebuilt
			}
		default:
			m, err := p.log.Get(ctx, ours)
			if err == nil {
				d, derr := decodeHeader(p.idTxt, &m)
				if derr == nil && d.id == g.meta.id {
					return outcomeStored
				}
				if _, err := p.take([]pubsub.Message{m}, true); err == nil {
					return outcomeAgain
				}
				return outcomeAgain // stopped or unavailable: ready will say so
			}
		}
		if !sleep(ctx, wait) {
			return outcomeUnresolved
		}
	}
}

// failPlain answers the members that no producer table can vouch for. The others
// are decided again from the log.
func (g *group) failPlain() {
	kept := g.members[:0]
	for _, m := range g.members {
		if m.entry.pid >= 0 {
			m.unsure = true
			kept = append(kept, m)
			continue
		}
		m.fail(kerr.RequestTimedOut, "the store did not say whether the append was stored")
	}
	g.members = kept
}
