package cluster

import (
	"context"
	"fmt"

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
func (c *Cluster) agree(ctx context.Context) error {
	type other struct {
		Peer
		v pubsub.Value
	}
	var others []other
	self := c.Self()
	err := c.scan(ctx, func(p Peer, v pubsub.Value) {
		if p.State == Alive && p.Mode != c.cfg.Mode && p.Incarnation != self.Incarnation {
			others = append(others, other{p, v})
		}
	})
	if err != nil {
		return err
	}
	for _, o := range others {
		switch lives, _, err := c.living(ctx, o.Peer, o.v); {
		case err != nil:
			return err
		case lives:
			return &ModeError{c.cfg.Mode, o.Peer}
		}
	}
	return nil
}
