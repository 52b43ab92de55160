package coord

import (
	"context"
	"time"

	"github.com/hanzoai/stream/broker/cluster"
)

// Records spread over the gateways by cluster.Choose, which is a hint and no
// right: whoever should have a record is the first to take it over, and gets it
// from its owner, gently, when it has come or come back.

const (
	// grace is how long others leave a record to the gateway that should take it
	// over first.
	grace = 1500 * time.Millisecond
	// settled is how long a gateway must have lived before it is given records.
	settled = 5 * time.Second
	// handOver is the time between two records given away.
	handOver = 200 * time.Millisecond
	// again is when a record is looked at again that could not be given away.
	again = time.Second
)

// first reports whether this gateway should be the first to take a record over,
// or that who should has had its time.
func (r *Runtime[S]) first(e Entry) bool {
	to, ok := cluster.Choose(e.heirs(r.c.Members.Peers()), e.Key)
	if !ok || to.Identity == r.c.Members.Self() {
		return true
	}
	return r.index.waited(e, grace)
}

// heirs are the peers that may be the first to take a record over that no peer
// owns: not the next life of its owner. That one has not seen for how long the life
// before it has been silent, so it may take over last, and clients that were sent to
// it would wait twice. If there is nobody else, it may.
func (e Entry) heirs(peers []cluster.Peer) []cluster.Peer {
	if !e.Known || e.Released {
		return peers
	}
	var out []cluster.Peer
	fit := false
	for _, p := range peers {
		if p.Node != e.Owner.Node {
			out = append(out, p)
			fit = fit || p.State == cluster.Alive && !p.Draining && !p.Suspect
		}
	}
	if !fit {
		return peers
	}
	return out
}

// spread gives records to the gateways that should have them, until ctx ends.
func (r *Runtime[S]) spread(ctx context.Context) {
	since := map[cluster.Identity]time.Time{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := r.c.Members.Changed()
		wait := r.give(since)
		timer.Stop()
		if wait > 0 {
			timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.misplaced:
		case <-timer.C:
		}
	}
}

// place has a record looked at that has come here.
func (r *Runtime[S]) place(key string) {
	if to, ok := cluster.Choose(r.c.Members.Peers(), key); ok && to.Identity != r.c.Members.Self() {
		select {
		case r.misplaced <- struct{}{}:
		default:
		}
	}
}

// give hands one record over, if one is due. It says when to look again: 0 for
// not before something changes.
func (r *Runtime[S]) give(since map[cluster.Identity]time.Time) (wait time.Duration) {
	now := time.Now()
	peers := r.c.Members.Peers()
	lives := map[cluster.Identity]bool{}
	for _, p := range peers {
		lives[p.Identity] = true
		if _, ok := since[p.Identity]; !ok {
			since[p.Identity] = now
		}
	}
	for id := range since {
		if !lives[id] {
			delete(since, id)
		}
	}
	soon := func(d time.Duration) {
		if wait == 0 || d < wait {
			wait = d
		}
	}
	self := r.c.Members.Self()
	if r.drained() || len(peers) < 2 {
		return 0
	}
	for _, c := range r.held() {
		to, ok := cluster.Choose(peers, c.key)
		if !ok || to.Identity == self {
			continue
		}
		if age := now.Sub(since[to.Identity]); age < settled {
			soon(settled - age)
			continue
		}
		ev := &event[S]{release: true, movable: true, done: make(chan error, 1)}
		if !c.enqueue(ev) {
			continue
		}
		if <-ev.done == nil {
			return handOver
		}
		soon(again)
	}
	return wait
}

// held are the cells of the records held at the moment.
func (r *Runtime[S]) held() []*cell[S] {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make([]*cell[S], 0, len(r.cells))
	for _, c := range r.cells {
		if c.held.Load() {
			held = append(held, c)
		}
	}
	return held
}
