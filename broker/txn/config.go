package txn

import (
	"errors"
	"fmt"
	"time"
)

// Config are the broker's settings for transactions.
type Config struct {
	// MaxTimeout is the longest timeout that a client may ask for
	// (transaction.max.timeout.ms).
	MaxTimeout time.Duration
	// IDExpiration is how long a transactional id is kept that nobody uses
	// (transactional.id.expiration.ms).
	IDExpiration time.Duration
	// ExpirationInterval is the time between two looks for ids to let go of
	// (transaction.remove.expired.transaction.cleanup.interval.ms).
	ExpirationInterval time.Duration
	// CompletionWait is how long something that is added implicitly waits for the end
	// of the transaction before it, which is decided and being carried out, until it
	// is told CONCURRENT_TRANSACTIONS (add.partitions.to.txn.retry.backoff.max.ms).
	// Other requests are told at once, as in Kafka.
	CompletionWait time.Duration
	// CompletionDelay is how long the completion of a transaction stays in memory
	// in the hope that the next one begins and is stored with it.
	CompletionDelay time.Duration
}

// DefaultConfig are Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		MaxTimeout:         15 * time.Minute,
		IDExpiration:       7 * 24 * time.Hour,
		ExpirationInterval: time.Hour,
		CompletionWait:     100 * time.Millisecond,
		CompletionDelay:    250 * time.Millisecond,
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
	check(c.MaxTimeout >= time.Millisecond, "transaction.max.timeout.ms must be positive, not %v", c.MaxTimeout)
	check(c.IDExpiration >= time.Millisecond, "transactional.id.expiration.ms must be positive, not %v", c.IDExpiration)
	check(c.ExpirationInterval > 0, "the time between two looks for expired transactional ids must be positive, not %v", c.ExpirationInterval)
	check(c.CompletionWait >= 0, "the wait for a transaction's end must not be negative, but is %v", c.CompletionWait)
	check(c.CompletionDelay >= 0, "the delay of a transaction's completion must not be negative, but is %v", c.CompletionDelay)
	return errors.Join(errs...)
}
