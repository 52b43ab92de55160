package partition

import (
	"context"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

const (
	// followFor is how long news is followed after the last interest in the end
	// of the log. A partition that is only written to is not followed: its
	// appender learns of others by conflicts.
	followFor = time.Minute
	// checkEvery is how often the leader is asked while someone waits: news may
	// be lost.
	checkEvery = 5 * time.Second
)

// following is the subscription to news of the log.
type following struct {
	on     bool
	cancel func() // nil while starting
	// sure: everything stored before some moment after news began is applied,
	// so that the end of the log as we know it is the end but for news in flight.
	sure  bool
	begun bool // news comes; set by the first call of news
	lost  int  // counts the times that news may have been lost
}

// Notify sends on ch, without blocking, whenever what can be read changes or
// reading begins to fail.
func (p *Partition) Notify(ch chan<- struct{}) (cancel func()) {
	p.mu.Lock()
	if p.waiters == nil {
		p.waiters = map[int]chan<- struct{}{}
	}
	p.waiter++
	id := p.waiter
	p.waiters[id] = ch
	p.mu.Unlock()
	p.interested()
	return func() {
		p.mu.Lock()
		delete(p.waiters, id)
		p.mu.Unlock()
	}
}

// interested notes that someone wants to know the end of the log, and follows
// the news of it. It reports whether the end as known is up to date.
func (p *Partition) interested() (sure bool) {
	now := p.host.clock()
	p.mu.Lock()
	p.interest = now
	if p.follow.on || p.closed || p.stop != nil || p.host.ctx.Err() != nil {
		sure = p.follow.sure && p.st != nil
		p.mu.Unlock()
		return sure
	}
	p.follow.on, p.follow.sure = true, false
	p.mu.Unlock()
	cancel, err := p.log.Follow(p.news)
	p.mu.Lock()
	if err != nil {
		p.follow.on = false
		p.mu.Unlock()
		return false
	}
	late := p.closed || p.host.ctx.Err() != nil
	if !late {
		p.follow.cancel = cancel
	}
	p.mu.Unlock()
	if late {
		cancel()
	}
	return false
}

// unfollow ends following, unless it is just beginning.
func (p *Partition) unfollow() {
	p.mu.Lock()
	cancel := p.follow.cancel
	if cancel != nil {
		p.follow = following{lost: p.follow.lost}
	}
	p.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// news is called with each append that this gateway hears of.
func (p *Partition) news(m pubsub.Message) {
	if m.Seq != 0 && !m.Time.IsZero() {
		gap, err := p.take([]pubsub.Message{m}, false)
		if !gap && err == nil {
			return
		}
	}
	p.mu.Lock()
	p.follow.sure, p.follow.begun = false, true
	p.follow.lost++
	p.mu.Unlock()
	p.refresh()
}

// refresh asks the leader in the background. It is enough to have one question
// under way and one to follow.
func (p *Partition) refresh() {
	p.mu.Lock()
	idle := p.st == nil || p.syncNext != nil || p.stop != nil || p.closed
	p.mu.Unlock()
	if idle {
		return
	}
	p.host.spawn(func() {
		if err := p.sync(p.host.ctx); err != nil {
			p.mu.Lock()
			p.wakeLocked() // reading begins to fail
			p.mu.Unlock()
		}
	})
}

// tick is called by the host about once a second. It reports whether the leader
// should be asked for news that may have been lost.
func (p *Partition) tick(now time.Time) (check bool) {
	p.mu.Lock()
	waiting := len(p.waiters) > 0
	idle := p.follow.on && !waiting && now.Sub(p.interest) > followFor
	check = waiting && p.stop == nil && p.st != nil && (!p.follow.sure || now.Sub(p.checked) >= checkEvery)
	check = check || p.stop == nil && p.st != nil && p.watchesCopiesLocked(now)
	start := waiting && !p.follow.on
	if p.st != nil && len(p.st.aborted.tail) > abortedLimit && !p.snap.mine && p.snapshot > p.snap.seq {
		p.unloadLocked() // a newer snapshot has most of it in stored parts
	}
	snapshot := p.snap.due(now)
	p.rivals.forget(now)
	old := len(p.snap.old) > 0 && !now.Before(p.snap.old[0].at)
	p.mu.Unlock()
	if snapshot {
		p.startSnapshot(nil)
	}
	if old {
		p.host.spawn(func() {
			ctx, cancel := context.WithTimeout(p.host.ctx, askTimeout)
			defer cancel()
			p.removeOld(ctx, now)
		})
	}
	if idle {
		p.unfollow()
	}
	if start {
		p.interested()
	}
	return check
}
