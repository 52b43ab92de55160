package partition

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/types"
)

// Others are the other gateways, as far as partitions need them. Safe for
// concurrent use.
type Others interface {
	// Appender reaches the gateway that all hold for the partition's hinted
	// appender; nil if that is this one, or nobody is known to live.
	Appender(id types.TopicID, partition int32) Send
	// All reaches every other gateway.
	All() []Send
}

// Send passes a request to another gateway's Host.TakeOver and returns its
// answer. Errors: ErrNotHanded (nothing ran there, and nothing will); any other
// leaves open what did.
type Send func(ctx context.Context, request []byte) ([]byte, error)

// ErrNotHanded is what Send returns if the request had no effect and will have
// none.
var ErrNotHanded = errors.New("hand-over was not delivered")

// handLimit is how long a hand-over is waited for. After that nobody knows here:
// what can be stored twice is not tried again by us.
const handLimit = 2 * time.Second

func (p *Partition) handContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.host.ctx, handLimit)
}

// handOver gives the group to the hinted appender, as this partition's one
// append in flight, and answers the members of which it tells what became. It
// returns true if those were all. What is left is ours to append: it is not
// stored there, or is of an idempotent producer, whose batches the log tells
// apart however late one comes.
func (p *Partition) handOver(g *group) (done bool) {
	send := p.host.others.Appender(p.id, p.n)
	h := handOver{kind: handBatches, id: p.id, n: p.n, members: make([]handedBatch, len(g.members))}
	p.mu.Lock()
	r := &p.rivals
	if send == nil { // by now it is us
		r.handed = false
		p.mu.Unlock()
		return false
	}
	r.busy = true
	for i, m := range g.members {
		h.members[i] = handedBatch{batch: m.batch, acksAll: m.acksAll, logAppendTime: m.entry.flags&flagLogAppendTime != 0, after: -1, txn: m.entry.txn, fromZero: m.entry.fromZero}
		// The other gateway has not seen the failure of the producer's first batch.
		if b, ok := p.broken[m.entry.pid]; ok && b.epoch == m.entry.epoch {
			h.members[i].after = b.first
		}
	}
	p.mu.Unlock()
	ctx, cancel := p.handContext()
	b, err := send(ctx, encodeHandOver(h))
	cancel()
	var a handAnswer
	if err == nil {
		a, err = decodeHandAnswer(b, len(g.members))
	}
	now := p.host.clock()
	result := "answered"
	p.mu.Lock()
	r.busy = false
	switch {
	case errors.Is(err, ErrNotHanded):
		result = "undelivered"
		r.pause = now.Add(handPause)
	case err != nil:
		result = "unanswered"
		r.pause = now.Add(handSilence)
	case a.end >= 0: // else it has declined at once, and tells nothing of others
		r.seen = now.Add(-a.quiet)
		r.newest = max(r.newest, a.end)
	}
	p.mu.Unlock()
	p.host.metrics.handed.WithLabelValues(result).Inc()
	switch {
	case errors.Is(err, ErrNotHanded):
		return false
	case err != nil:
		p.host.warn(p, "a hand-over to another gateway was not answered", err)
		g.failPlain()
		return len(g.members) == 0
	}
	return p.handedOver(g, a.verdicts, now)
}

// handedOver answers members as the hinted appender said.
func (p *Partition) handedOver(g *group, vs []handVerdict, now time.Time) (done bool) {
	p.mu.Lock()
	if len(p.broken) > 0 {
		for i, m := range g.members {
			if b, ok := p.broken[m.entry.pid]; ok && vs[i].kind == handStored && b.first == m.entry.first {
				delete(p.broken, m.entry.pid)
			}
		}
	}
	for i, m := range g.members {
		if m.entry.txn != 0 && vs[i].kind == handStored && !m.marker() {
			if p.rivals.txns == nil || len(p.rivals.txns) >= maxHandedTxns {
				p.rivals.txns = map[int64]handedTxn{}
			}
			p.rivals.txns[m.entry.pid] = handedTxn{m.entry.epoch, m.entry.txn}
		}
	}
	p.mu.Unlock()
	kept := g.members[:0]
	for i, m := range g.members {
		switch v := &vs[i]; {
		case v.kind == handStored:
			m.done(AppendResult{BaseOffset: v.base, LogStart: v.start, AppendTime: v.time})
		case v.kind == handRefused && len(kept) == 0:
			m.fail(v.refusal(), v.text)
		case v.kind == handUnknown && m.entry.pid < 0:
			m.fail(kerr.RequestTimedOut, v.text)
		default:
			// A refusal too, once a batch before it is open: it may be its cause.
			m.unsure = m.unsure || v.kind == handUnknown
			kept = append(kept, m)
		}
	}
	g.members = kept
	if len(kept) == 0 {
		return true
	}
	p.mu.Lock()
	p.rivals.pause = now.Add(handPause)
	p.mu.Unlock()
	p.host.metrics.handed.WithLabelValues("declined").Inc()
	return false
}
