package cluster

import (
	"fmt"
	"time"
)

// Config is the membership's section of the configuration.
type Config struct {
	// Prefix of all names in the store.
	Prefix string
	// Node is a fixed node id, or 0 to lease the lowest free one (from 1).
	Node int32
	// Host and Port are where clients reach this gateway.
	Host string
	Port int32
	// Alone says that no other gateway can be alive on this store (embedded
	// store, whose folder lock this process holds): predecessors are dead.
	Alone bool
	// Mode must be that of all gateways that live; default Shared.
	Mode Mode
	// Formats that this build knows; default only version 1.
	Formats Formats
	// TTL is how long a gateway lives without renewal; default 2 s.
	TTL time.Duration
	// Renew is the time between renewals, and how long each may take; 500 ms.
	Renew time.Duration
}

func (c *Config) defaults() {
	if c.Mode == "" {
		c.Mode = Shared
	}
	if c.Formats == (Formats{}) {
		c.Formats = Formats{1, 1}
	}
	if c.TTL == 0 {
		c.TTL = 2 * time.Second
	}
	if c.Renew == 0 {
		c.Renew = 500 * time.Millisecond
	}
}

// Validate reports what is wrong with the values given.
func (c Config) Validate() error {
	c.defaults()
	if c.Node < 0 {
		return fmt.Errorf("node id %d is negative", c.Node)
	}
	if c.TTL < 3*c.Renew {
		return fmt.Errorf("time-to-live %v is less than three renewals of %v", c.TTL, c.Renew)
	}
	return nil
}

// margin is what Fresh gives up of the time-to-live: a peer may count it from
// the store's receipt, we count from sending, and clocks drift a little.
func (c Config) margin() time.Duration { return c.TTL / 8 }
