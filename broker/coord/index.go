package coord

import (
	"context"
	"sync"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// Entry is a record as its headers show it to every gateway.
type Entry struct {
	Key      string
	Owner    Owner
	Released bool
	// Known is false for a record whose headers say no owner: somebody else's.
	Known  bool
	Header pubsub.Header
	Rev    pubsub.Rev

	unreadable bool // tried, and left to a newer version
}

// index is what the watch has shown: it lags, and nothing is decided by it but
// what to look at.
type index struct {
	mu      sync.Mutex // guards: all below
	entries map[string]Entry
	// gone keeps the revisions of delete markers of our own that the watch has
	// not shown yet, so that a deleted record does not come back for a moment.
	gone map[string]pubsub.Rev
	// orphan has when records were first found that another gateway should have
	// taken over, as of a revision.
	orphan map[string]since
	// seen, while a watch starts over, has the keys it delivered.
	seen map[string]struct{}
}

type since struct {
	rev pubsub.Rev
	at  time.Time
}

func (x *index) init() {
	x.orphan = make(map[string]since)
	x.entries = make(map[string]Entry)
	x.gone = make(map[string]pubsub.Rev)
}

// put takes a value as written or watched, and returns its entry; ok is false
// for deleted ones, and for older ones than known, which are ignored.
func (x *index) put(v pubsub.Value, watched bool) (e Entry, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if watched && x.seen != nil {
		x.seen[v.Key] = struct{}{}
	}
	if rev, ok := x.gone[v.Key]; ok {
		if v.Rev < rev {
			return e, false
		}
		delete(x.gone, v.Key)
	}
	if v.Rev < x.entries[v.Key].Rev {
		return e, false
	}
	delete(x.orphan, v.Key)
	if v.Deleted {
		delete(x.entries, v.Key)
		if !watched {
			x.gone[v.Key] = v.Rev
		}
		return e, false
	}
	o, released, known := ownerOf(v.Header)
	e = Entry{Key: v.Key, Owner: o, Released: released, Known: known, Header: v.Header, Rev: v.Rev}
	x.entries[v.Key] = e
	return e, true
}

func (x *index) get(key string) (Entry, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[key]
	return e, ok
}

// waited reports that d has passed since it was first asked for this record as
// it is.
func (x *index) waited(e Entry, d time.Duration) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	o, ok := x.orphan[e.Key]
	if !ok || o.rev != e.Rev {
		x.orphan[e.Key] = since{e.Rev, time.Now()}
		return false
	}
	return time.Since(o.at) >= d
}

// unreadable notes that nobody here need try to adopt the record as it is.
func (x *index) unreadable(key string, rev pubsub.Rev) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.entries[key]; ok && e.Rev <= rev {
		e.unreadable = true
		x.entries[key] = e
	}
}

func (x *index) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = make(map[string]struct{})
}

// synced forgets what a watch that started over did not deliver again.
func (x *index) synced() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen != nil {
		for key := range x.entries {
			if _, ok := x.seen[key]; !ok {
				delete(x.entries, key)
				delete(x.orphan, key)
			}
		}
		x.seen = nil
	}
}

func (x *index) list() []Entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := make([]Entry, 0, len(x.entries))
	for _, e := range x.entries {
		l = append(l, e)
	}
	return l
}

// List is every record of the table as last heard of, in no order. Before Ready
// it is incomplete.
func (r *Runtime[S]) List() []Entry { return r.index.list() }

// watch feeds the index: records are the keys of one token.
func (r *Runtime[S]) watch(ctx context.Context) error {
	first := true
	return r.c.Table.Watch(ctx, pubsub.WatchOptions{
		Patterns:    []string{"*"},
		HeadersOnly: true,
		Reset:       r.index.reset,
		Synced: func() {
			r.index.synced()
			if first {
				first = false
				close(r.ready)
			}
		},
	}, func(v pubsub.Value) error {
		if e, ok := r.index.put(v, true); ok && !first && r.consider(e) {
			r.orphans.Store(true)
			r.nudge()
		}
		return nil
	})
}
