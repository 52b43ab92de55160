package cluster

import (
	"context"
	"time"
)

// unbrokenWait is how long Unbroken's function waits for a renewal at most.
const unbrokenWait = 5 * time.Second

// Unbroken marks a moment in the life of this gateway. The function that it
// returns reports whether that life goes on, so that nobody can have held this
// gateway for dead since the mark: it waits until the answer is certain, 5 s at
// most, or until ctx ends, and then says no.
//
// It is for changes that name something which may be another one by now: whoever
// asked a gateway that stood still has asked another one since, and gone on.
func (c *Cluster) Unbroken() func(ctx context.Context) bool {
	life := c.Self().Incarnation
	return func(ctx context.Context) bool {
		if c.freshAs(life) {
			return true
		}
		ctx, cancel := context.WithTimeout(ctx, unbrokenWait)
		defer cancel()
		tick := time.NewTicker(c.cfg.Renew / 10)
		defer tick.Stop()
		for c.Self().Incarnation == life {
			select {
			case <-ctx.Done():
				return false
			case <-tick.C:
			}
			if c.freshAs(life) {
				return true
			}
		}
		return false
	}
}
