package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

// Lease is the right to do what one gateway has to do for all. Whoever lives may
// take it, by compare-and-set, from a holder whose life has ended or that has
// released it; it is kept by staying alive and needs no writes of its own. Its
// term grows with every take-over: what the holder writes on its strength carries
// the term, so that a holder that froze and was replaced meanwhile is refused.
//
// Make it with Cluster.Lease, then Run; methods are safe for concurrent use.
type Lease struct {
	c     *Cluster
	table pubsub.Table
	name  string
	news  chan struct{} // capacity 1: the record has changed

	mu      sync.Mutex // guards: all below
	record  leaseRecord
	rev     pubsub.Rev
	synced  bool  // the record as it was at the start is known
	err     error // why it is unreadable: then nobody may overwrite it
	over    bool  // released for good
	changed chan struct{}
}

// leaseVersion is the version of a lease's record that this build writes.
const leaseVersion = 1

// leaseRecord is the stored value of a lease, key {name}. The zero value is free.
type leaseRecord struct {
	V           int    `json:"v"`
	Node        int32  `json:"node"`
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
	Released    bool   `json:"released,omitempty"`

	rest map[string]json.RawMessage // fields of later versions, carried through
}

var leaseFields = []string{"v", "node", "incarnation", "term", "released"}

func parseLease(v pubsub.Value) (r leaseRecord, err error) {
	if v.Deleted {
		return leaseRecord{}, nil
	}
	if err := json.Unmarshal(v.Data, &r); err != nil {
		return r, fmt.Errorf("lease %s: %w", v.Key, err)
	}
	if r.V != leaseVersion {
		return r, fmt.Errorf("lease %s: unknown format v%d", v.Key, r.V)
	}
	if err := json.Unmarshal(v.Data, &r.rest); err != nil {
		return r, fmt.Errorf("lease %s: %w", v.Key, err)
	}
	for _, f := range leaseFields {
		delete(r.rest, f)
	}
	return r, nil
}

func (r leaseRecord) encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil || len(r.rest) == 0 {
		return b, err
	}
	all := maps.Clone(r.rest)
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// Lease makes the lease of a name, a token, kept in table; nobody asks for it
// before Run.
func (c *Cluster) Lease(table pubsub.Table, name string) *Lease {
	return &Lease{c: c, table: table, name: name, news: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Holds reports, from memory, whether this gateway holds the lease at this
// moment, and its term: the record names this very life, and nobody can have
// taken it over yet (see Cluster.Fresh). What takes time asks again before each
// step that others would see.
func (l *Lease) Holds() (term uint64, ok bool) {
	l.mu.Lock()
	r, over := l.record, l.over
	l.mu.Unlock()
	return r.Term, r.V != 0 && !r.Released && !over && l.c.freshAs(r.Incarnation)
}

// Holder is the life that the record names, perhaps one that has ended since; ok is
// false while it names none, or is not known or not readable. It may be this one
// although Holds denies that: then its renewals are not acknowledged.
func (l *Lease) Holder() (holder Identity, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.record
	return Identity{r.Node, r.Incarnation}, r.V != 0 && !r.Released
}

// freshAs is Fresh for one life: one that came after it is not meant.
func (c *Cluster) freshAs(incarnation string) bool {
	return c.Self().Incarnation == incarnation && c.Fresh() && c.Self().Incarnation == incarnation
}

// Changed returns a channel that is closed when the lease gets another holder,
// or none.
func (l *Lease) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Run follows the lease and takes it whenever it may, until ctx ends (nil) or the
// table cannot be followed. It lets go of nothing: see Release.
func (l *Lease) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	watch := make(chan error, 1)
	go func() {
		watch <- l.table.Watch(ctx, pubsub.WatchOptions{Patterns: []string{l.name}, Synced: l.known}, func(v pubsub.Value) error {
			l.observe(v)
			return nil
		})
	}()
	defer func() { <-watch }()
	defer cancel()
	for {
		changed := l.c.Changed()
		// While a life ends nothing may change that would call us: look again.
		var again <-chan time.Time
		timer := time.NewTimer(l.c.cfg.Renew)
		if l.free() {
			if err := l.take(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, pubsub.ErrConflict) {
				l.c.deps.Logger.Warn("could not take a lease; it is tried again", "lease", l.name, logging.Error, err)
			}
			again = timer.C
		} else if !l.settled() {
			again = timer.C
		}
		select {
		case <-ctx.Done():
		case err := <-watch:
			watch <- nil
			if ctx.Err() == nil {
				timer.Stop()
				return fmt.Errorf("watch lease %s: %w", l.name, err)
			}
		case <-changed:
		case <-l.news:
		case <-again:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// known: the record, or that there is none, was delivered.
func (l *Lease) known() {
	l.mu.Lock()
	l.synced = true
	l.mu.Unlock()
	l.wake()
}

func (l *Lease) wake() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// observe takes in a value, from wherever it came; older ones change nothing.
func (l *Lease) observe(v pubsub.Value) {
	r, err := parseLease(v)
	if err != nil {
		l.c.deps.Logger.Error("a lease is unreadable; nobody takes it", logging.Error, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.Rev <= l.rev {
		return
	}
	was := l.record
	l.record, l.rev, l.err = r, v.Rev, err
	if err != nil {
		l.record = leaseRecord{}
	}
	if was.Incarnation != l.record.Incarnation || was.Released != l.record.Released {
		close(l.changed)
		l.changed = make(chan struct{})
	}
	l.wake()
}

// free reports that the lease may be taken now.
func (l *Lease) free() bool {
	l.mu.Lock()
	r, synced, err := l.record, l.synced, l.err
	l.mu.Unlock()
	switch {
	case !synced || err != nil || !l.c.Fresh():
		return false
	case r.V == 0 || r.Released:
		return true
	}
	return l.c.MayAdopt(Identity{r.Node, r.Incarnation})
}

// settled reports that the holder lives as far as the membership shows, so that
// its end would be announced.
func (l *Lease) settled() bool {
	l.mu.Lock()
	r := l.record
	l.mu.Unlock()
	for _, p := range l.c.Peers() {
		if p.Incarnation == r.Incarnation {
			return !r.Released
		}
	}
	return false
}

// take makes this gateway the holder.
func (l *Lease) take(ctx context.Context) error {
	l.mu.Lock()
	old, rev := l.record, l.rev
	l.mu.Unlock()
	self := l.c.Self()
	next := old
	next.V, next.Node, next.Incarnation, next.Released = leaseVersion, self.Node, self.Incarnation, false
	// Revisions grow with every write: terms do even if somebody deletes the key.
	next.Term = max(old.Term, uint64(rev)) + 1
	if err := l.put(ctx, next, rev); err != nil {
		return err
	}
	l.c.deps.Logger.Info("holds a lease", "lease", l.name, "term", next.Term)
	return nil
}

// put writes the record. What becomes of a write without an acknowledgement the
// watch will show.
func (l *Lease) put(ctx context.Context, r leaseRecord, expect pubsub.Rev) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.c.cfg.TTL)
	defer cancel()
	rev, err := pubsub.Put(ctx, l.table, pubsub.Write{Key: l.name, Data: data, Expect: expect})
	if err != nil {
		return fmt.Errorf("write lease %s: %w", l.name, err)
	}
	l.observe(pubsub.Value{Key: l.name, Data: data, Rev: rev})
	return nil
}

// Outgrow raises the term of a lease that this gateway holds above one that it
// met although it holds the lease: its table was lost and terms began anew.
func (l *Lease) Outgrow(ctx context.Context, term uint64) error {
	if now, ok := l.Holds(); !ok || now > term {
		return nil
	}
	l.mu.Lock()
	next, rev := l.record, l.rev
	l.mu.Unlock()
	next.Term = term + 1
	return l.put(ctx, next, rev)
}

// Release lets go of the lease for good, so that others take it without waiting.
// What this gateway did on the lease's strength, and Run, must have ended.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	l.over = true
	next, rev := l.record, l.rev
	l.mu.Unlock()
	for range 3 {
		if next.V == 0 || next.Released || next.Incarnation != l.c.Self().Incarnation {
			return nil
		}
		next.Released = true
		err := l.put(ctx, next, rev)
		if !errors.Is(err, pubsub.ErrConflict) {
			return err
		}
		// Another's by now, or a write of our own that nobody followed any more.
		v, err := l.table.Get(ctx, l.name)
		if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
			return fmt.Errorf("read lease %s: %w", l.name, err)
		}
		v.Key, v.Deleted = l.name, err != nil
		if next, err = parseLease(v); err != nil {
			return err
		}
		rev = v.Rev
	}
	return fmt.Errorf("release lease %s: %w", l.name, pubsub.ErrConflict)
}
