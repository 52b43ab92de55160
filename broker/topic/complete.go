package topic

import (
	"context"
	"errors"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// That there is no topic of a name, no id, no partition of a number is absence on
// which clients act. On several replicas the store's word is not enough: a leader
// that woke from a freeze denies what it has not seen, and a denial of before says
// nothing about now. So a "no" comes from memory, when it is complete: up to the end
// of the table as told by a server that is known to be awake.

// errUncertain: the server that answered may have woken from a freeze just now.
var errUncertain = errors.New("it is not certain where the table of topics ends")

// catchUp bounds the wait for news of what the leader has told of already.
const catchUp = time.Second

// reached notes that the watch, which delivers in order, has come to a revision.
func (ts *Topics) reached(r pubsub.Rev) {
	ts.mu.Lock()
	ts.upTo = max(ts.upTo, r)
	ts.mu.Unlock()
}

// complete reports whether what memory lacks now was lacking in the store at some
// moment after the call began, or after the request began that it belongs to. False
// is "not certain yet": what is asked a second later is certain.
func (ts *Topics) complete(ctx context.Context) (yes bool) {
	if ts.deps.Fresh != nil && !ts.deps.Fresh() {
		return false
	}
	if ts.config.Replicas <= 1 {
		return true // the store was asked, and there is nobody else
	}
	a, _ := ctx.Value(askedKey{}).(*asked)
	if a != nil {
		a.mu.Lock()
		known := a.complete
		a.mu.Unlock()
		if known != nil {
			return *known
		}
		defer func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			if ctx.Err() == nil { // else it was not the store that failed
				a.complete = &yes
			}
		}()
	}
	err := ts.flights.do(ctx, "\x00end", func(ctx context.Context) error { // nobody's key
		b, sure, err := ts.witness.Vouch(ctx, ts.deps.Table, ts.deps.Clock)
		if err != nil || !sure {
			return errors.Join(err, errUncertain)
		}
		end := pubsub.Rev(b.Last)
		ts.mu.RLock()
		from := ts.upTo
		ts.mu.RUnlock()
		if end <= from {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, catchUp)
		defer cancel()
		err = ts.deps.Table.Scan(ctx, pubsub.WatchOptions{After: from}, end, func(v pubsub.Value) error {
			ts.apply(v)
			return nil
		})
		if err == nil {
			ts.reached(end)
		}
		return err
	})
	// Cut off with a minority we would have found its leader awake.
	return err == nil && (ts.deps.Fresh == nil || ts.deps.Fresh())
}

// watchLeader asks the table's leader every second while somebody wants to know how
// long it has been awake.
func (ts *Topics) watchLeader(ctx context.Context) {
	tick := time.NewTicker(pubsub.SecondLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, ask := range ts.witness.Due(ts.deps.Clock()) {
				ask(ctx)
			}
		}
	}
}
