package broker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// startPatience is how long a start puts up with a store that does not answer:
// streams that another gateway has just made have no leader yet, and an
// election takes 4 to 9 seconds.
const startPatience = 20 * time.Second

// sayEvery is how often a start that waits says so.
const sayEvery = 5 * time.Second

// patiently repeats a step of the start while the store does not answer.
func (b *Broker) patiently(ctx context.Context, step func() error) error {
	patience := cmp.Or(b.cfg.Patience, startPatience)
	began := time.Now()
	var said time.Time
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := step()
		if !errors.Is(err, pubsub.ErrUnavailable) && !errors.Is(err, pubsub.ErrOutcomeUnknown) || time.Since(began) > patience {
			if !said.IsZero() {
				b.cfg.Waiting("")
			}
			return err
		}
		if b.cfg.Waiting != nil && time.Since(began) > sayEvery/2 && time.Since(said) > sayEvery {
			said = time.Now()
			b.cfg.Waiting("waiting for the store: " + err.Error())
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
