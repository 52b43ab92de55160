package topic

import (
	"context"
	"fmt"
	"time"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

// What is known here is believed without asking, because news come within
// milliseconds. Where they do not, there are signs: the store denies what belongs to
// a topic (Recheck), or this gateway was found dead (confirm).

// confirm compares all of memory with the store once in each life of this gateway
// after the first: it was frozen or cut off for so long that others held it for
// dead, and what happened to topics meanwhile may not have come here yet.
func (ts *Topics) confirm(ctx context.Context) error {
	self := ts.deps.Incarnation()
	if was := ts.confirmed.Load(); was == nil || *was == self {
		return nil // nil: the first news are on their way, and nothing is served
	}
	if err := ts.askAll(ctx); err != nil {
		return fmt.Errorf("compare topics with the store in a new life: %w", err)
	}
	ts.confirmed.Store(&self)
	return nil
}

// Recheck asks the store about a topic soon, in the background, because something
// speaks against what is known of it. It never blocks.
func (ts *Topics) Recheck(name string) {
	select {
	case ts.doubts <- name:
	default: // many are being asked about; the next sign comes
	}
}

func (ts *Topics) recheck(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-ts.doubts:
			if ts.cached(name) == nil {
				continue // it is asked about anyway
			}
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			err := ts.ask(bounded, pubsub.Token(name))
			cancel()
			if err != nil && ctx.Err() == nil {
				ts.deps.Logger.Debug("a topic in doubt could not be asked about", logging.Topic, name, logging.Error, err)
			}
		}
	}
}
