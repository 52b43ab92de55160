package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// ModeError says that a gateway of another address mode lives.
type ModeError struct {
	Mode Mode // ours
	Peer Peer // the other
}

// Error implements error.
func (e *ModeError) Error() string {
	return fmt.Sprintf("this gateway is to run in address mode %s, but node %d at %s:%d runs in %s", e.Mode, e.Peer.Node, e.Peer.Host, e.Peer.Port, e.Peer.Mode)
}

// agree refuses to live beside gateways of another address mode: clients would
// be told different brokers by each. It is asked before and after we register, so
// that of two that join at once the later one, or both, give way.
func (c *Cluster) agree(ctx context.Context, written pubsub.Rev) error {
	keys, err := c.scan(ctx, written)
	if err != nil {
		return err
	}
	self := c.Self()
	for _, v := range keys {
		p, err := decode(v.Key, nil2json(v))
		if err != nil || p.State != Alive || p.Mode == c.cfg.Mode || p.Incarnation == self.Incarnation {
			continue
		}
		switch lives, _, err := c.living(ctx, p, v); {
		case err != nil:
			return err
		case lives:
			return &ModeError{c.cfg.Mode, p}
		}
	}
	return nil
}

// written is the revision of our own key.
func (c *Cluster) written() pubsub.Rev {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rev
}

// Living reads who is a member from the store: all who registered before it was
// called and are not written off, also those that have been silent for a while.
func (c *Cluster) Living(ctx context.Context) (peers []Peer, err error) {
	// A renewal of ours that is sent from now on comes after all of them.
	began := c.now()
	var rev pubsub.Rev
	for rev == 0 {
		c.mu.Lock()
		if c.sent.After(began) {
			rev = c.rev
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(c.cfg.Renew / 10):
		}
	}
	keys, err := c.scan(ctx, rev)
	if err != nil {
		return nil, err
	}
	for _, v := range keys {
		if p, err := decode(v.Key, nil2json(v)); err == nil && p.State == Alive {
			peers = append(peers, p)
		}
	}
	sortPeers(peers)
	return peers, nil
}
