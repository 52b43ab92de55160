package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
)

// A transactional batch is stored only while its transaction goes on (KIP-890).
// Where the state shows it open, nobody need be asked: no marker is stored, so it
// has not ended. Else the coordinator is, by AppendRequest.Verify. Meanwhile the
// batch is parked, and whatever of the same producer comes behind it, so that the
// producer's order stays; others go on. Markers are never parked: a transaction
// that was decided ends.

// verifyLimit is how long the coordinator may take.
const verifyLimit = 5 * time.Second

var errNotVerified = fmt.Errorf("its transaction is not open here: %w", errDeclined)

// errEarlierFormat refuses what gateways of an earlier version would misread.
// Clients ask again.
var errEarlierFormat = kerr.NotLeaderForPartition

// parked are the batches of one producer that wait for the coordinator's answer
// about the first.
type parked struct {
	members []*pending
	cancel  context.CancelFunc
}

// parkLocked takes the members that are not decided out of the group. Those that
// another gateway handed over are returned: it is to ask itself.
func (p *Partition) parkLocked(g *group) (declined []*pending) {
	kept := g.members[:0]
	for _, m := range g.members {
		switch {
		case !m.verdict.verify:
			kept = append(kept, m)
		case m.taken != nil || m.verify == nil:
			declined = append(declined, m)
		default:
			p.queueBytes += len(m.batch)
			if k := p.parked[m.entry.pid]; k != nil {
				k.members = append(k.members, m)
				continue
			}
			if p.parked == nil {
				p.parked = map[int64]*parked{}
			}
			ctx, cancel := context.WithTimeout(p.host.ctx, verifyLimit)
			k := &parked{members: []*pending{m}, cancel: cancel}
			p.parked[m.entry.pid] = k
			ask := func() {
				n, err := int64(0), ctx.Err()
				if err == nil {
					n, err = m.verify(ctx)
				}
				cancel()
				p.unpark(m.entry.pid, k, n, err)
			}
			if !p.host.spawn(ask) { // we shut down
				cancel()
				delete(p.parked, m.entry.pid)
				p.queueBytes -= len(m.batch)
				declined = append(declined, m)
			}
		}
	}
	clear(g.members[len(kept):])
	g.members = kept
	return declined
}

// joinParkedLocked parks what was queued behind parked batches of its producer.
func (p *Partition) joinParkedLocked() {
	if len(p.parked) == 0 {
		return
	}
	p.queue = slices.DeleteFunc(p.queue, func(m *pending) bool {
		k := p.parked[m.entry.pid]
		if k == nil || m.entry.pid < 0 || m.marker() || m.taken != nil {
			return false
		}
		k.members = append(k.members, m)
		return true
	})
}

// unpark takes what the coordinator said of the first of the parked batches. They
// are queued again, before all others, or answered: an error stands for all
// transactional ones of the epoch.
func (p *Partition) unpark(pid int64, k *parked, n int64, err error) {
	if err == nil && n < 1 {
		err = fmt.Errorf("transaction number %d", n)
	}
	var refused []*pending
	message := ""
	p.mu.Lock()
	delete(p.parked, pid)
	first, back := k.members[0], k.members
	switch gone := p.refusedLocked(); {
	case gone != nil:
		err, message = gone, p.stopMessageLocked()
		back, refused = nil, back
	case p.host.ctx.Err() != nil:
		err = errClosed
		back, refused = nil, back
	case err == nil:
		first.told = n
		first.asked++
	default:
		if refusal := (*kerr.Error)(nil); errors.As(err, &refusal) {
			err, message = refusal, "its transaction does not go on"
		} else {
			err = fmt.Errorf("append to %s: ask for the transaction of a batch: %w: %w", p, pubsub.ErrUnavailable, err)
		}
		back = nil
		for _, m := range k.members {
			if m == first || m.entry.epoch == first.entry.epoch && m.entry.flags&flagTransactional != 0 {
				refused = append(refused, m)
				p.brokenLocked(&m.entry)
			} else {
				back = append(back, m)
			}
		}
	}
	for _, m := range refused {
		p.queueBytes -= len(m.batch)
	}
	if len(back) > 0 {
		p.queue = append(back, p.queue...)
		if !p.wakeAppenderLocked() {
			refused, err = append(refused, back...), errClosed
		}
	}
	p.unparking++
	p.mu.Unlock()
	for _, m := range refused {
		m.fail(err, message)
	}
	p.mu.Lock()
	p.unparking--
	p.mu.Unlock()
}

// cancelParkedLocked ends the wait of all that is parked.
func (p *Partition) cancelParkedLocked() {
	for _, k := range p.parked {
		k.cancel()
	}
}

// settled decides a group that is to be handed over, as far as transactions go:
// it may go if the number of each is known.
func (p *Partition) settled(g *group) bool {
	if !slices.ContainsFunc(g.members, func(m *pending) bool { return m.entry.flags&flagTransactional != 0 }) {
		return true
	}
	if !p.decide(g) || len(g.members) == 0 {
		return false
	}
	return !slices.ContainsFunc(g.members, func(m *pending) bool {
		return m.entry.flags&flagTransactional != 0 && m.entry.txn == 0 && !m.marker()
	})
}
