package cluster

import (
	"context"
	"sync"
	"time"
)

// probeWait bounds how long Probe waits for answers: a peer that is gone is known
// at once, as nobody listens.
const probeWait = 50 * time.Millisecond

// probe is one round of asking all peers.
type probe struct {
	began time.Time
	done  chan struct{} // closed at its end
}

// Probe asks all peers whether they are there, so that who is about to tell
// clients where to go does not name one that was killed a moment ago: those that
// nobody listens for are suspect. A round that began at most age ago is enough.
// There is one at a time, which all who wait share.
func (c *Cluster) Probe(age time.Duration) {
	c.mu.Lock()
	if r := c.probed; r != nil && age > 0 && time.Since(r.began) <= age {
		c.mu.Unlock()
		<-r.done
		return
	}
	r := c.probing
	if r == nil {
		r = &probe{done: make(chan struct{})}
		c.probing = r
		if c.probed == nil || c.probed.over() {
			go c.probeAll()
		}
	}
	c.mu.Unlock()
	<-r.done
}

func (p *probe) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// probeAll runs rounds as long as somebody waits for one.
func (c *Cluster) probeAll() {
	for {
		c.mu.Lock()
		r := c.probing
		if r == nil {
			c.mu.Unlock()
			return
		}
		c.probed, c.probing = r, nil
		r.began = time.Now()
		var peers []*seen
		for node, s := range c.peers {
			if node != c.self.Node && s.State == Alive && !s.Suspect {
				peers = append(peers, s)
			}
		}
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), probeWait)
		var asking sync.WaitGroup
		for _, s := range peers {
			asking.Go(func() {
				if alive, _ := c.ask(ctx, s.Peer); alive == no {
					c.suspect(s)
				}
			})
		}
		asking.Wait()
		cancel()
		c.mu.Lock()
		close(r.done)
		if c.probing == nil { // under the lock: who comes next begins a round
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// suspect notes that nobody listens for a peer.
func (c *Cluster) suspect(s *seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[s.Node]; p.Identity == s.Identity && p.State == Alive && !p.Suspect {
		p.Suspect = true
		c.announceLocked()
		c.deps.Logger.Info("nobody listens for a peer", "node", s.Node, "incarnation", s.Incarnation)
	}
}
