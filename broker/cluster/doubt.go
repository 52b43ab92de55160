package cluster

import (
	"context"
	"sync"
)

// doubt asks the peers that let one of our own renewals pass without one of
// theirs. One that nobody listens for, or that is silent through two, is suspect
// until it renews: clients and hints are led elsewhere within a second of a kill,
// while what it owns is nobody's for a time-to-live. Silence of the watch itself
// doubts nobody: it is measured by our own renewals in it.
func (c *Cluster) doubt(ctx context.Context, asking *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for node, s := range c.peers {
		if node == c.self.Node || s.State != Alive || s.Suspect || s.since.IsZero() || c.asking[node] {
			continue
		}
		// Somewhat longer than between two renewals: they need not alternate.
		if atLeast(s.since, c.settled) < c.cfg.Renew/2 || atLeast(c.lives[s.Incarnation], now) < c.cfg.Renew+c.cfg.Renew/4 {
			continue
		}
		c.asking[node] = true
		asking.Go(func() {
			attempt, cancel := context.WithTimeout(ctx, c.cfg.Renew)
			alive, _ := c.ask(attempt, s.Peer) // no answer in time is silence
			cancel()
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.asking, node)
			gone := alive == no || alive == silent && atLeast(s.since, c.settled) >= 2*c.cfg.Renew-c.cfg.Renew/4
			if gone && ctx.Err() == nil && c.peers[node] == s { // no renewal came meanwhile
				s.Suspect = true
				c.announceLocked()
				c.deps.Logger.Info("peer is silent", "node", node, "incarnation", s.Incarnation)
			}
		})
	}
}
