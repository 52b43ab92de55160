package coord

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// Config says what a Runtime hosts.
type Config[S State] struct {
	Table   pubsub.Table
	Members Membership
	Logger  *slog.Logger
	// New makes the state of a key without a record.
	New func(key string) S
	// Replicated says that the table has several replicas: a leader that woke
	// from a freeze may then deny a record for a moment, so that absence is
	// asked for twice.
	Replicated bool
	// WriteTimeout bounds what one turn waits for the store. Default 5 s.
	WriteTimeout time.Duration
	// LoadTimeout bounds one attempt to take over and read a record. Default 10 s.
	LoadTimeout time.Duration
	// LoadWait is how long an event waits for its record to be loaded before it
	// is answered with ErrLoading. Default 3 s.
	LoadWait time.Duration
	// RouteWait is how long Route waits for somebody to serve a record. Default
	// 5 s: a dead owner's time-to-live, and what taking over takes.
	RouteWait time.Duration
	// Movable says that a held state may go to another gateway without anybody
	// noticing: nothing is lost that only memory has. nil: always.
	Movable func(S) bool
	// Adopt says which records are taken over as soon as their owner is dead,
	// without being asked for; nil means none.
	Adopt func(Entry) bool
}

// Runtime hosts the records of one table. Make it with New, keep it going with
// Run. Methods are safe for concurrent use.
type Runtime[S State] struct {
	c      Config[S]
	ctx    context.Context // ends when Run does: everything in flight stops
	cancel context.CancelFunc
	index  index
	ready  chan struct{} // closed by Run when the index is complete

	leaving context.Context // ends when Drain begins, or with Run
	leave   context.CancelFunc

	mu        sync.Mutex // guards: cells, stalled, stopped; and what leaving's end means for cells
	cells     map[string]*cell[S]
	stalled   map[*cell[S]]struct{}
	stopped   bool
	wg        sync.WaitGroup // turns in progress
	wake      chan struct{}  // capacity 1: something stalled, or became an orphan
	misplaced chan struct{}  // capacity 1: a record came here that another gateway should have
	orphans   atomic.Bool    // there may be records to adopt
	loads     chan struct{}  // capacity 64: records being loaded at a time
}

// New makes a Runtime. Nothing happens before Run.
func New[S State](c Config[S]) *Runtime[S] {
	if c.WriteTimeout <= 0 {
		c.WriteTimeout = 5 * time.Second
	}
	if c.LoadTimeout <= 0 {
		c.LoadTimeout = 10 * time.Second
	}
	if c.LoadWait <= 0 {
		c.LoadWait = 3 * time.Second
	}
	if c.RouteWait <= 0 {
		c.RouteWait = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runtime[S]{
		c:         c,
		ready:     make(chan struct{}),
		cells:     make(map[string]*cell[S]),
		stalled:   make(map[*cell[S]]struct{}),
		wake:      make(chan struct{}, 1),
		misplaced: make(chan struct{}, 1),
		loads:     make(chan struct{}, 64),
	}
	r.index.init()
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.leaving, r.leave = context.WithCancel(r.ctx)
	return r
}

// Ready is closed when every record of the table is known to List.
func (r *Runtime[S]) Ready() <-chan struct{} { return r.ready }

// Run watches the table, adopts what dead gateways owned, gives to others what
// they should have and keeps timers going, until ctx ends; then it drops every record without a word to the store
// (see Drain) and waits until all turns have ended. It is called once.
func (r *Runtime[S]) Run(ctx context.Context) error {
	defer r.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { watch <- r.watch(ctx) })
	wg.Go(func() { r.spread(ctx) })
	return r.tend(ctx, watch)
}

// tend resumes stalled records and adopts orphans.
func (r *Runtime[S]) tend(ctx context.Context, watch <-chan error) error {
	// Adoption depends on time as well as on news, and news of a record may come
	// after that of its owner's death.
	const patrol = time.Second
	// While records stand still, freshness is looked for more often than
	// membership may signal it.
	const resume = 100 * time.Millisecond
	timer := time.NewTimer(patrol)
	defer timer.Stop()
	ready, look := r.ready, false
	self := r.c.Members.Self()
	for {
		changed := r.c.Members.Changed()
		if now := r.c.Members.Self(); now != self {
			self = now
			for _, c := range r.held() { // of the life before: let them see it
				c.enqueue(&event[S]{tick: true})
			}
		}
		stalled := r.resume()
		if look && ready == nil {
			r.adopt()
		}
		// Nothing to wait for is nothing to wake up for.
		timer.Stop()
		switch {
		case stalled:
			timer.Reset(resume)
		case r.orphans.Load():
			timer.Reset(patrol)
		}
		look = true
		select {
		case <-ctx.Done():
			return nil
		case err := <-watch:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch %s: %w", r.c.Table.Name(), err)
		case <-ready:
			ready = nil
		case <-changed:
		case <-timer.C:
		case <-r.wake:
			look = false
		}
	}
}

// resume lets stalled records go on if answers may leave again; it reports
// whether any still stand.
func (r *Runtime[S]) resume() bool {
	r.mu.Lock()
	n := len(r.stalled)
	r.mu.Unlock()
	if n == 0 {
		return false
	}
	if !r.c.Members.Fresh() {
		return true
	}
	r.mu.Lock()
	cells := r.stalled
	r.stalled = make(map[*cell[S]]struct{})
	r.mu.Unlock()
	for c := range cells {
		c.enqueue(&event[S]{tick: true})
	}
	return false
}

// adopt looks at all records.
func (r *Runtime[S]) adopt() {
	orphans := false
	for _, e := range r.index.list() {
		orphans = r.consider(e) || orphans
	}
	r.orphans.Store(orphans)
}

// consider takes over a record whose owner is dead, or one of our own that we
// lost hold of in a failed write, where somebody may be waiting for its timers.
// It reports whether the record needs to be looked at again.
func (r *Runtime[S]) consider(e Entry) bool {
	if r.c.Adopt == nil || e.unreadable || !r.c.Adopt(e) || r.Holds(e.Key) {
		return false
	}
	ours := e.Owner.Identity() == r.c.Members.Self()
	if r.c.Members.Fresh() && r.Adoptable(e) && (ours || r.first(e)) {
		if c := r.cell(e.Key); c != nil {
			c.enqueue(&event[S]{load: true})
		}
	}
	return true
}

// Adoptable reports whether this gateway might take the record over now.
func (r *Runtime[S]) Adoptable(e Entry) bool {
	return e.Known && (e.Released || e.Owner.Identity() == r.c.Members.Self() || r.c.Members.MayAdopt(e.Owner.Identity()))
}

// Do runs fn in turn on the key's record, which is loaded, and taken over if
// its owner is dead, first. It returns when everything that the turn wrote is
// stored: nil, or why fn did not run or its outcome must not leave: ErrNotOwner,
// ErrStale, ErrLoading, ErrVersion, a failure of the store, or ctx's error. Only
// after nil may what fn computed be used.
//
// A key without a record gets a fresh state that is kept only if fn makes it
// dirty; the record is then created.
func (r *Runtime[S]) Do(ctx context.Context, key string, fn func(*Turn[S])) error {
	ev := &event[S]{ctx: ctx, fn: fn, done: make(chan error, 1)}
	for {
		c := r.cell(key)
		if c == nil {
			return ErrNotOwner
		}
		if c.enqueue(ev) {
			break
		}
	}
	var loading <-chan time.Time
	if !r.Holds(key) {
		t := time.NewTimer(r.c.LoadWait)
		defer t.Stop()
		loading = t.C
	}
	for {
		select {
		case err := <-ev.done:
			return err
		case <-ctx.Done():
			ev.abandon()
			return ctx.Err()
		case <-loading:
			loading = nil
			if ev.abandon() {
				return ErrLoading
			}
		}
	}
}

// Each runs fn in turn on every record that this gateway holds at the moment,
// one after the other, and returns the first error that concerns them all.
func (r *Runtime[S]) Each(ctx context.Context, fn func(*Turn[S])) error {
	for _, c := range r.held() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		ev := &event[S]{ctx: ctx, fn: fn, done: make(chan error, 1), ifHeld: true}
		if !c.enqueue(ev) {
			continue
		}
		select {
		case <-ev.done: // one record's trouble is not the next one's
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Held lists the states of the records held at the moment. What it returns
// belongs to running turns: only what a State declares safe may be used.
func (r *Runtime[S]) Held() map[string]S {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[string]S, len(r.cells))
	for key, c := range r.cells {
		if s := c.shown.Load(); s != nil {
			m[key] = *s
		}
	}
	return m
}

// Drain lets go of all records, so that others adopt them at once: whoever
// waits gets ErrNotOwner, in Route too, and so does every later event. It returns when all
// are released, or ctx's error with the rest kept until somebody may adopt them.
func (r *Runtime[S]) Drain(ctx context.Context) error {
	r.mu.Lock()
	r.leave()
	evs := make([]*event[S], 0, len(r.cells))
	cells := make([]*cell[S], 0, len(r.cells))
	for _, c := range r.cells {
		cells = append(cells, c)
	}
	r.mu.Unlock()
	for _, c := range cells {
		ev := &event[S]{release: true, done: make(chan error, 1)}
		if c.enqueue(ev) {
			evs = append(evs, ev)
		}
	}
	var failed error
	for _, ev := range evs {
		select {
		case err := <-ev.done:
			if err != nil && failed == nil {
				failed = err
			}
		case <-ctx.Done():
			return fmt.Errorf("drain %s: %w", r.c.Table.Name(), ctx.Err())
		}
	}
	return failed
}

// stop ends all turns and drops all states.
func (r *Runtime[S]) stop() {
	r.mu.Lock()
	r.leave()
	r.stopped = true
	cells := make([]*cell[S], 0, len(r.cells))
	for _, c := range r.cells {
		cells = append(cells, c)
	}
	r.mu.Unlock()
	r.cancel()
	for _, c := range cells {
		c.enqueue(&event[S]{drop: true})
	}
	r.wg.Wait()
}

// cell finds or makes the key's cell; nil when draining.
func (r *Runtime[S]) cell(key string) *cell[S] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drained() {
		return nil
	}
	c := r.cells[key]
	if c == nil {
		c = &cell[S]{r: r, key: key}
		r.cells[key] = c
	}
	return c
}

// nudge lets tend reckon anew when it has to wake up.
func (r *Runtime[S]) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Runtime[S]) drained() bool { return r.leaving.Err() != nil }

// Holds reports whether this gateway holds the key's record at the moment.
func (r *Runtime[S]) Holds(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cells[key]
	return c != nil && c.held.Load()
}
