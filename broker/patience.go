package broker

import (
	"context"
	"errors"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// startPatience is how long a start puts up with a store that does not answer:
// streams that another gateway has just made have no leader yet, and an
// election takes 4 to 9 seconds.
const startPatience = 20 * time.Second

// patiently repeats a step of the start while the store does not answer.
func patiently(ctx context.Context, step func() error) error {
	began := time.Now()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := step()
		if !errors.Is(err, pubsub.ErrUnavailable) || time.Since(began) > startPatience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
