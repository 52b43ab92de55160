package group

import (
	"errors"
	"fmt"
	"time"
)

// Config are the broker's settings for classic groups and committed offsets.
type Config struct {
	// MinSessionTimeout and MaxSessionTimeout bound what members may ask for
	// (group.min.session.timeout.ms, group.max.session.timeout.ms).
	MinSessionTimeout, MaxSessionTimeout time.Duration
	// InitialRebalanceDelay is how long a group without members waits for more
	// of them after the first has come (group.initial.rebalance.delay.ms). 0
	// waits for nobody.
	InitialRebalanceDelay time.Duration
	// NewMemberTimeout drops a member that has never got an answer: its client
	// may be gone, or may have joined again under another id.
	NewMemberTimeout time.Duration
	// MaxSize is the largest number of members (group.max.size).
	MaxSize int
	// MaxProtocols is the largest number of protocols one member offers.
	MaxProtocols int
	// MaxStateBytes bounds what all members of one group offer and are assigned,
	// so that its record fits one value of the store: at most 70 % of the
	// largest payload.
	MaxStateBytes int
	// MaxMetadataBytes bounds the metadata of one commit (offset.metadata.max.bytes).
	MaxMetadataBytes int
	// Forward lets requests that reach a gateway which does not own their group
	// travel to the owner. Without it they are refused with NOT_COORDINATOR, and
	// clients look for the coordinator, which must then have an address of its own.
	Forward bool
	// OffsetsRetention is how long offsets outlive their group's last member,
	// or their commit if there never was one (offsets.retention.minutes).
	OffsetsRetention time.Duration
	// RetentionInterval is the time between two looks for expired offsets
	// (offsets.retention.check.interval.ms).
	RetentionInterval time.Duration
}

// DefaultConfig are Kafka's defaults, with limits where Kafka has none.
func DefaultConfig() Config {
	return Config{
		MinSessionTimeout:     6 * time.Second,
		MaxSessionTimeout:     30 * time.Minute,
		InitialRebalanceDelay: 3 * time.Second,
		NewMemberTimeout:      5 * time.Minute,
		MaxSize:               5000,
		MaxProtocols:          100,
		MaxStateBytes:         700 << 10,
		MaxMetadataBytes:      4096,
		Forward:               true,
		OffsetsRetention:      7 * 24 * time.Hour,
		RetentionInterval:     10 * time.Minute,
	}
}

// Validate names everything that is wrong with c, nil if nothing is.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.MinSessionTimeout > 0, "group.min.session.timeout.ms must be positive, not %v", c.MinSessionTimeout)
	check(c.MaxSessionTimeout >= c.MinSessionTimeout, "group.max.session.timeout.ms (%v) is below group.min.session.timeout.ms (%v)", c.MaxSessionTimeout, c.MinSessionTimeout)
	check(c.InitialRebalanceDelay >= 0, "group.initial.rebalance.delay.ms must not be negative, but is %v", c.InitialRebalanceDelay)
	check(c.NewMemberTimeout > 0, "the time a new member may wait must be positive, not %v", c.NewMemberTimeout)
	check(c.MaxSize > 0, "group.max.size must be positive, not %d", c.MaxSize)
	check(c.MaxProtocols > 0, "the number of protocols of a member must be positive, not %d", c.MaxProtocols)
	check(c.MaxStateBytes > 0, "the size of a group must be positive, not %d", c.MaxStateBytes)
	check(c.MaxMetadataBytes >= 0, "offset.metadata.max.bytes must not be negative, but is %d", c.MaxMetadataBytes)
	check(c.OffsetsRetention > 0, "offsets.retention.minutes must be positive, not %v", c.OffsetsRetention)
	check(c.RetentionInterval > 0, "offsets.retention.check.interval.ms must be positive, not %v", c.RetentionInterval)
	return errors.Join(errs...)
}
