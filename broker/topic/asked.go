package topic

import (
	"context"
	"sync"

	"github.com/hanzoai/stream/pubsub"
)

// What is not known is asked of the store before it is denied. A request can name
// a hundred thousand topics that do not exist, ids of none, or partitions beyond
// a topic's last: each would cost a question, an id even a scan of the whole
// table. The store needs to be asked only after the request came, not for each
// name anew; so a request that may name many carries what was asked for it.

// manyNames is how many questions one request asks before it takes in the whole
// table instead.
const manyNames = 16

type askedKey struct{}

// asked is what the store was asked on behalf of one request.
type asked struct {
	mu   sync.Mutex // guards: all below
	keys map[string]bool
	all  bool  // the whole table was taken in
	err  error // a question failed: the store is not asked again
	// complete says whether memory is certainly complete; nil: not found out yet.
	complete *bool
}

// ForMany is a context for one request that names many topics or partitions: what
// it has asked the store once, it does not ask again, and once a question has
// failed all others have.
func ForMany(ctx context.Context) context.Context {
	return context.WithValue(ctx, askedKey{}, &asked{keys: map[string]bool{}})
}

// before says what is to be asked for a key: nothing (done, with the outcome), the
// key, or the whole table. A nil asked remembers nothing.
func (a *asked) before(key string) (done bool, all bool, err error) {
	if a == nil {
		return false, key == "", nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != nil || a.all || a.keys[key], key == "" || len(a.keys) >= manyNames, a.err
}

func (a *asked) after(key string, err error) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err != nil:
		a.err = err
	case key == "":
		a.all = true
	default:
		a.keys[key] = true
	}
}

// ask takes in what the store has under a key now, or had when it was asked before
// on behalf of the same request.
func (ts *Topics) ask(ctx context.Context, key string) error {
	a, _ := ctx.Value(askedKey{}).(*asked)
	done, all, err := a.before(key)
	switch {
	case done:
		return err
	case all:
		key = "" // nobody's key
		err = ts.flights.do(ctx, key, func(ctx context.Context) error {
			return ts.deps.Table.Scan(ctx, pubsub.WatchOptions{}, 0, func(v pubsub.Value) error {
				ts.apply(v)
				return nil
			})
		})
	default:
		err = ts.flights.do(ctx, key, func(ctx context.Context) error {
			_, _, err := ts.load(ctx, key)
			return err
		})
	}
	if ctx.Err() == nil { // else it was not the store that failed
		a.after(key, err)
	}
	return err
}

// askAll takes in the whole table likewise.
func (ts *Topics) askAll(ctx context.Context) error { return ts.ask(ctx, "") }
