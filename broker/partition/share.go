package partition

import (
	"fmt"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// A partition whose stream is slow queues what its producers send, and the
// memory for requests is one for all partitions: left alone, the slow one would
// take it all and the others would not be read any more. So while an append
// takes longer than slowAfter, the queue is held to a share; what does not fit
// is refused with a retriable error, newest first. The bytes are given back at
// once and the answer comes late, else its producer would come again at once.
const (
	slowAfter = 2 * time.Second
	// refusalDelay is well below what clients wait for an answer.
	refusalDelay = 5 * time.Second
	// queueLimit is how long a batch may wait before it is sent, and inAll how
	// long until an attempt is its last, which takes 5 s: clients give up after 30 s, and what they gave
	// up they send again.
	queueLimit = 15 * time.Second
	inAll      = 24 * time.Second
	// defaultQueueBytes is the share of all slow partitions together.
	defaultQueueBytes = 64 << 20
)

// watchSlow is called when an append begins; the function returned when it has
// ended.
func (p *Partition) watchSlow() func() {
	t := time.AfterFunc(slowAfter, p.becameSlow)
	return func() {
		if !t.Stop() {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.setSlowLocked(false)
	}
}

func (p *Partition) setSlowLocked(slow bool) {
	switch {
	case slow && !p.slow:
		p.host.slow.Add(1)
	case !slow && p.slow:
		p.host.slow.Add(-1)
	}
	p.slow = slow
}

// overShareLocked reports whether the queue may not grow by n bytes.
func (p *Partition) overShareLocked(n int) bool {
	if !p.slow || len(p.queue) == 0 {
		return false
	}
	share := p.host.queueBytes / max(1, int(p.host.slow.Load()))
	return p.queueBytes+n > share
}

// becameSlow takes the newest out of a queue that is beyond its share.
func (p *Partition) becameSlow() {
	p.mu.Lock()
	p.setSlowLocked(p.appending)
	keep := len(p.queue)
	for keep > 1 && p.overShareLocked(0) {
		keep--
		p.queueBytes -= len(p.queue[keep].batch)
	}
	var shed []*pending
	if keep < len(p.queue) {
		shed = append(shed, p.queue[keep:]...)
		clear(p.queue[keep:])
		p.queue = p.queue[:keep]
	}
	for _, m := range shed {
		p.brokenLocked(&m.entry)
	}
	p.mu.Unlock()
	p.refuseSlow(shed)
}

// refuseSlow answers batches for which there is no room in the queue.
func (p *Partition) refuseSlow(ms []*pending) {
	if len(ms) == 0 {
		return
	}
	err := fmt.Errorf("append to %s: the store is slow and too much waits for it already: %w", p, pubsub.ErrUnavailable)
	for _, m := range ms {
		m.failLater(err, "the store is slow", refusalDelay)
	}
}

// agedLocked takes out of the queue what has waited so long that its client
// would not see the answer.
func (p *Partition) agedLocked(now time.Time) []*pending {
	n := 0
	for n < len(p.queue) && now.Sub(p.queue[n].at) > queueLimit {
		p.queueBytes -= len(p.queue[n].batch)
		p.brokenLocked(&p.queue[n].entry)
		n++
	}
	if n == 0 {
		return nil
	}
	aged := append([]*pending{}, p.queue[:n]...)
	p.queue = append([]*pending{}, p.queue[n:]...)
	return aged
}
