package cluster

import "context"

// Drain tells the peers that this gateway is about to leave, so that nothing new
// is sent to it, and returns when that is stored. It stays a member, and
// everything that it owns stays its own, until Leave. Run must be running.
func (c *Cluster) Drain(ctx context.Context) error {
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	select {
	case c.kick <- struct{}{}:
	default:
	}
	select {
	case <-c.drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// toldLocked notes what was stored of us. The caller holds mu.
func (c *Cluster) toldLocked(r record) {
	if !r.Draining {
		return
	}
	select {
	case <-c.drained:
	default:
		close(c.drained)
	}
}
