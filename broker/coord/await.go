package coord

import (
	"context"
	"errors"
	"time"

	"github.com/hanzoai/stream/broker/cluster"
)

// Seat names the gateway that clients should be sent to for a key where requests
// do not travel: the owner of its record, or, if nobody has it or the owner is
// about to go or seems to be gone, the gateway that should take it over first. It
// answers from memory, and may be behind. ok is false if no gateway is known to
// live.
func (r *Runtime[S]) Seat(key string) (id cluster.Identity, ok bool) {
	peers := r.c.Members.Peers()
	if r.drained() {
		peers = others(peers, r.c.Members.Self())
	}
	fit := cluster.Fit(peers)
	e, _ := r.index.get(key)
	if e.Known && !e.Released {
		for _, p := range fit {
			if p.Identity == e.Owner.Identity() {
				return p.Identity, true
			}
		}
	}
	p, ok := cluster.Choose(e.heirs(fit), key)
	return p.Identity, ok
}

// Await runs a request about a key here, if this gateway holds its record or is
// the key's Seat; else it is ErrNotOwner at once. At the seat it waits, RouteWait at
// most, until the record can be taken over from an owner that died or is about to
// let go: clients that ask again meanwhile do so ever more slowly. So what local
// does must bear repetition.
func (r *Runtime[S]) Await(ctx context.Context, key string, local func(context.Context) error) error {
	began, self := time.Now(), r.c.Members.Self()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		if !r.c.Members.Fresh() || r.c.Members.Self() != self {
			return ErrStale // we may have stood still for long, see Route
		}
		changed := r.c.Members.Changed()
		if to, ok := r.Seat(key); ok && to != self && !r.Holds(key) {
			return ErrNotOwner
		}
		err := local(ctx)
		switch {
		case !errors.Is(err, ErrNotOwner), r.drained(), time.Since(began) >= r.c.RouteWait:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.leaving.Done():
			return ErrNotOwner
		case <-changed:
		case <-time.After(pause):
		}
	}
}
