package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/pubsub"
)

// Caller carries requests to other gateways; cluster.Cluster is the real one.
type Caller interface {
	// Call is as cluster.Cluster's.
	Call(ctx context.Context, to cluster.Identity, method string, request []byte) ([]byte, error)
	// Handle is as cluster.Cluster's.
	Handle(method string, fn func(ctx context.Context, from cluster.Identity, request []byte) ([]byte, error)) (cancel func())
}

// Owner names the gateway that requests about a key should go to: the living
// owner of its record or, if nobody has it, the gateway that should take it over
// first. It answers from memory, and may be behind. ok is false if no gateway is
// known to live.
func (r *Runtime[S]) Owner(key string) (id cluster.Identity, ok bool) {
	id, _, ok = r.owner(key)
	return id, ok
}

// LivingOwner names the gateway that owns the record, as last heard; false if it
// does not live, or nobody owns it.
func (r *Runtime[S]) LivingOwner(key string) (id cluster.Identity, ok bool) {
	id, owned, ok := r.owner(key)
	return id, owned && ok
}

// owner also tells whether the gateway owns the record.
func (r *Runtime[S]) owner(key string) (id cluster.Identity, owned, ok bool) {
	peers := r.c.Members.Peers()
	e, _ := r.index.get(key)
	if e.Known && !e.Released {
		for _, p := range peers {
			if p.Identity == e.Owner.Identity() {
				return p.Identity, true, true
			}
		}
	}
	if r.drained() { // whoever may act, it is not us
		peers = others(peers, r.c.Members.Self())
	}
	p, ok := cluster.Choose(e.heirs(peers), key)
	return p.Identity, false, ok
}

func others(peers []cluster.Peer, self cluster.Identity) []cluster.Peer {
	var out []cluster.Peer
	for _, p := range peers {
		if p.Identity != self {
			out = append(out, p)
		}
	}
	return out
}

// Route runs a request about a key where its record is owned: local here, or
// remote at the gateway named, which runs it as local and passes it on to nobody.
// Both may run several times, one after the other, until one of them says
// something else than ErrNotOwner, or in remote's case what Call says of a
// request that was not answered; so what they do must bear repetition. While
// nobody serves the record, because its owner died or is about to let go, Route
// waits for the next one, RouteWait at most.
//
// parks says that the request waits at the owner for what others do. One that
// does not is given up when this gateway can no longer tell who owns what, which
// may be long before it is known that no answer will come.
//
// It returns what local or remote did last; ErrStale if this gateway cannot tell
// who owns what; ErrNotOwner also when Drain begins while remote waits.
func (r *Runtime[S]) Route(ctx context.Context, key string, parks bool, local func(context.Context) error, remote func(context.Context, cluster.Identity) error) error {
	away := func(to cluster.Identity) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(r.leaving, cancel)()
		if !parks {
			go r.whileFresh(ctx, cancel)
		}
		err := remote(ctx, to)
		if err != nil && ctx.Err() != nil {
			err = cluster.ErrNotDelivered // for all we can tell
		}
		return err
	}
	var failing time.Time // since when nobody has served it
	pause := 20 * time.Millisecond
	self := r.c.Members.Self()
	for {
		if !r.c.Members.Fresh() || r.c.Members.Self() != self {
			// We may have stood still for long. Whoever asked has gone elsewhere
			// since, and on: a commit passed on now would take back a later one.
			return ErrStale
		}
		changed := r.c.Members.Changed()
		began := time.Now()
		var err error
		served := false
		to, owned, ok := r.owner(key)
		here := !ok || to == r.c.Members.Self() || r.Holds(key)
		if !here {
			err = away(to)
			served = !errors.Is(err, ErrNotOwner) && !errors.Is(err, cluster.ErrNotDelivered) && !errors.Is(err, pubsub.ErrOutcomeUnknown)
			// If it only should have taken the record over: perhaps it does not see
			// yet that it may, or lives no more.
			here = !served && !owned
		}
		if here && ctx.Err() == nil {
			err = local(ctx)
			served = !errors.Is(err, ErrNotOwner)
		}
		switch {
		case ctx.Err() != nil && err != nil:
			return ctx.Err()
		case r.drained() && err != nil:
			return ErrNotOwner
		case served:
			return err
		case !r.c.Members.Fresh():
			return ErrStale
		}
		now := time.Now()
		if failing.IsZero() || now.Sub(began) > r.c.RouteWait {
			failing = now // until now it was served
		}
		if now.Sub(failing) >= r.c.RouteWait {
			if errors.Is(err, ErrNotOwner) {
				return err
			}
			return fmt.Errorf("owner of record %s: %w: %w", key, pubsub.ErrUnavailable, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-time.After(pause):
		}
		pause = min(2*pause, 200*time.Millisecond)
	}
}

// whileFresh calls end when this gateway can no longer tell who owns what, or
// returns when ctx ends.
func (r *Runtime[S]) whileFresh(ctx context.Context, end func()) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for r.c.Members.Fresh() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	end()
}
