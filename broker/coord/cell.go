package coord

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/utils/killpoint"
)

// event is one thing to happen to a record, in its turn.
type event[S State] struct {
	ctx  context.Context // of a request; nil for our own
	fn   func(*Turn[S])
	done chan error // capacity 1; nil for our own

	tick    bool // timers may be due
	load    bool // only take the record over
	ifHeld  bool // do not load for this
	release bool // let go of it
	movable bool // release only if nobody would notice; else errInUse
	drop    bool // forget it

	started atomic.Bool // set once, by the turn or by who gave up waiting
}

// start claims the event for a turn; false if its waiter has given up.
func (e *event[S]) start() bool { return e.started.CompareAndSwap(false, true) }

// abandon claims the event for a waiter that gives up; false if it runs already.
func (e *event[S]) abandon() bool { return e.started.CompareAndSwap(false, true) }

func (e *event[S]) finish(err error) {
	if e.done != nil {
		e.done <- err
	}
}

// cell is one record: a queue, and a goroutine while the queue is not empty.
// All events that queued up during a turn's writes share the next turn and its
// one write, so that the store's round trip bounds latency and not throughput.
type cell[S State] struct {
	r   *Runtime[S]
	key string

	mu      sync.Mutex // guards: queue, running, gone
	queue   []*event[S]
	running bool
	gone    bool // removed from the runtime: look the key up again

	held  atomic.Bool       // state is loaded and ours
	shown atomic.Pointer[S] // state while held

	// Owned by the running turn.
	state  S
	has    bool // state is set (held, or fresh without a record)
	exists bool // the record is stored
	rev    pubsub.Rev
	env    Envelope
	stall  bool // timers stand still
	timer  *time.Timer
	armed  time.Time // when timer fires; zero if it does not
}

// enqueue adds an event and sees that somebody runs it. False: the cell is
// gone, look it up again.
func (c *cell[S]) enqueue(ev *event[S]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	c.queue = append(c.queue, ev)
	if !c.running {
		c.r.mu.Lock()
		ok := !c.r.stopped || ev.drop
		if ok {
			c.r.wg.Add(1)
		}
		c.r.mu.Unlock()
		if !ok {
			c.queue = c.queue[:len(c.queue)-1]
			ev.finish(ErrNotOwner)
			return true
		}
		c.running = true
		go c.run()
	}
	return true
}

// run takes turns until the queue is empty.
func (c *cell[S]) run() {
	defer c.r.wg.Done()
	for {
		c.mu.Lock()
		batch := c.queue
		c.queue = nil
		if len(batch) == 0 {
			if !c.has && c.forgetLocked() {
				c.gone = true
			} else {
				c.arm()
			}
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.turn(batch)
	}
}

// forgetLocked takes the cell out of the runtime. Lock order: cell, runtime.
func (c *cell[S]) forgetLocked() bool {
	c.disarm()
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	delete(c.r.cells, c.key)
	delete(c.r.stalled, c)
	return true
}

// arm sets the timer for the state's next deadline.
func (c *cell[S]) arm() {
	if !c.has || c.stall {
		c.disarm()
		return
	}
	next := c.state.Next()
	if next.IsZero() {
		c.disarm()
		return
	}
	if next.Equal(c.armed) {
		return
	}
	c.disarm()
	c.armed = next
	c.timer = time.AfterFunc(time.Until(next), func() { c.enqueue(&event[S]{tick: true}) })
}

func (c *cell[S]) disarm() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.armed = time.Time{}
}

// standStill stops the timers until answers may leave again.
func (c *cell[S]) standStill() {
	if !c.has || !c.exists {
		return
	}
	c.stall = true
	c.r.mu.Lock()
	c.r.stalled[c] = struct{}{}
	c.r.mu.Unlock()
	c.r.nudge()
}

// turn runs a batch of events: load, decide, store, answer.
func (c *cell[S]) turn(batch []*event[S]) {
	var release, drop, tick bool
	run := batch[:0]
	var releases, moves []*event[S]
	wanted := false
	for _, ev := range batch {
		switch {
		case ev.drop:
			drop = true
		case ev.release && ev.movable:
			moves = append(moves, ev)
		case ev.release:
			release = true
			releases = append(releases, ev)
		case ev.tick:
			tick = true
			c.armed = time.Time{} // it fired, or whoever asks wants it looked at
		default:
			run = append(run, ev)
			wanted = wanted || !ev.ifHeld
		}
	}
	answer := func(err error) {
		for _, ev := range run {
			ev.finish(err)
		}
	}
	switch {
	case drop || release:
	case len(moves) > 0 && len(run) == 0 && c.movable():
		releases, release = append(releases, moves...), true
		moves = nil
	}
	for _, ev := range moves {
		ev.finish(errInUse)
	}
	switch {
	case drop:
		c.drop(ErrNotOwner)
		answer(ErrNotOwner)
		for _, ev := range releases {
			ev.finish(ErrNotOwner)
		}
		return
	case release:
		err := c.release()
		answer(ErrNotOwner)
		for _, ev := range releases {
			ev.finish(err)
		}
		return
	}
	if !c.has && !wanted {
		answer(ErrNotOwner)
		return
	}
	if !c.r.c.Members.Fresh() {
		// Others may have adopted the record: say nothing, and let no timer judge
		// members that could not reach us.
		c.standStill()
		answer(ErrStale)
		return
	}
	if c.has && c.exists && c.env.Owner.Identity() != c.r.c.Members.Self() {
		// This gateway was found dead and came back: nothing it remembers counts.
		c.drop(ErrNotOwner)
		if !wanted {
			answer(ErrNotOwner)
			return
		}
	}
	if !c.has {
		if c.r.drained() {
			answer(ErrNotOwner)
			return
		}
		if err := c.load(); err != nil {
			answer(err)
			return
		}
	}
	c.step(run, tick, answer)
}

// step runs the events on the loaded state, stores what they changed and lets
// the answers go.
func (c *cell[S]) step(run []*event[S], tick bool, answer func(error)) {
	now := time.Now()
	if c.stall {
		c.stall = false
		c.r.mu.Lock()
		delete(c.r.stalled, c)
		c.r.mu.Unlock()
		c.state.Restart(now)
	}
	t := &Turn[S]{State: c.state, Now: now}
	for _, ev := range run {
		// One that was given up must not run: its caller was told so.
		if ev.fn != nil && ev.start() {
			ev.fn(t)
		}
	}
	if tick {
		// After the requests: one that waited in the queue was not silent.
		c.state.Expire(now)
	}
	ctx, cancel := context.WithTimeout(c.r.ctx, c.r.c.WriteTimeout)
	defer cancel()
	proven := false
	absent := !c.exists
	if c.state.Dirty() {
		if err := c.save(ctx, false); err != nil {
			c.lose(err, answer)
			return
		}
		proven = true
		killpoint.At("record.stored")
	}
	if err := c.state.Flush(ctx, c.env); err != nil {
		c.lose(err, answer)
		return
	}
	killpoint.At("turn.stored")
	if t.remove && c.exists {
		if err := c.delete(ctx); err != nil {
			c.lose(err, answer)
			return
		}
		proven = true
	}
	if absent && !proven {
		if err := c.confirm(ctx); err != nil {
			c.drop(err)
			answer(err)
			return
		}
	}
	if !proven && !c.r.c.Members.Fresh() {
		c.standStill()
		c.state.Deliver(ErrStale)
		answer(ErrStale)
		return
	}
	for _, fn := range t.after {
		fn()
	}
	c.state.Deliver(nil)
	answer(nil)
	if !c.exists && (t.remove || c.state.Idle()) {
		c.drop(ErrNotOwner)
	}
}

// save stores the record, created if it is not there, by compare-and-set.
func (c *cell[S]) save(ctx context.Context, release bool) error {
	env := c.env
	env.V = Version
	env.Released = release
	if !c.exists {
		env.Owner = c.self(1)
		env.Birth = 0
	}
	body, more, err := c.state.Encode(env)
	if err != nil {
		return fmt.Errorf("encode record %s: %w", c.key, err)
	}
	data, err := pack(body)
	if err != nil {
		return fmt.Errorf("encode record %s: %w", c.key, err)
	}
	h := header(env, more)
	rev, err := pubsub.Put(ctx, c.r.c.Table, pubsub.Write{Key: c.key, Data: data, Header: h, Expect: c.rev})
	if err != nil {
		return fmt.Errorf("store record %s: %w", c.key, err)
	}
	c.rev = rev
	if !c.exists {
		env.Birth = rev
		c.exists = true
		c.r.place(c.key)
	}
	c.env = env
	c.show()
	c.r.index.put(pubsub.Value{Key: c.key, Header: h, Rev: rev}, false)
	return nil
}

func (c *cell[S]) delete(ctx context.Context) error {
	rev, err := pubsub.Put(ctx, c.r.c.Table, pubsub.Write{Key: c.key, Expect: c.rev, Delete: true})
	if err != nil {
		return fmt.Errorf("delete record %s: %w", c.key, err)
	}
	c.rev, c.exists = rev, false
	c.r.index.put(pubsub.Value{Key: c.key, Rev: rev, Deleted: true}, false)
	return nil
}

// lose handles a failed turn: the state is forgotten, with all that it decided
// since the store last agreed, and everybody asks again. Only the record itself
// says whether ownership has ended.
func (c *cell[S]) lose(err error, answer func(error)) {
	if errors.Is(err, pubsub.ErrConflict) || errors.Is(err, ErrNotOwner) {
		err = c.whoOwns(err)
	}
	lvl := slog.LevelWarn
	if errors.Is(err, ErrNotOwner) || c.r.ctx.Err() != nil {
		lvl = slog.LevelInfo
	}
	c.r.c.Logger.Log(context.Background(), lvl, "record let go of after a failed write", "key", c.key, logging.Error, err)
	c.drop(err)
	answer(err)
	c.r.orphans.Store(true) // it may be ours still, with members whose time runs
	c.r.nudge()
}

// whoOwns reads the record back after a conflict.
func (c *cell[S]) whoOwns(cause error) error {
	ctx, cancel := context.WithTimeout(c.r.ctx, c.r.c.WriteTimeout)
	defer cancel()
	v, err := c.r.c.Table.Get(ctx, c.key)
	switch {
	case errors.Is(err, pubsub.ErrNotFound):
		return ErrNotOwner
	case err != nil:
		return fmt.Errorf("read record %s back after a conflict: %w", c.key, err)
	}
	_, env, err := open(v)
	if err != nil {
		return err
	}
	c.r.index.put(v, false)
	if !c.exists || env.Owner != c.env.Owner {
		return ErrNotOwner
	}
	// Still ours, changed by other hands: take it over anew.
	return fmt.Errorf("record %s was changed by somebody else (%w): %w", c.key, pubsub.ErrUnavailable, cause)
}

// drop forgets the state.
func (c *cell[S]) drop(err error) {
	c.disarm()
	c.held.Store(false)
	c.shown.Store(nil)
	if c.has {
		c.state.Drop(err)
	}
	var zero S
	c.state, c.has, c.exists, c.stall = zero, false, false, false
	c.rev, c.env = 0, Envelope{}
}

// release tells everybody that the record may be taken over.
func (c *cell[S]) release() error {
	var err error
	if c.has && c.exists && c.env.Owner.Identity() == c.r.c.Members.Self() {
		ctx, cancel := context.WithTimeout(c.r.ctx, c.r.c.WriteTimeout)
		defer cancel()
		if err = c.save(ctx, true); errors.Is(err, pubsub.ErrConflict) {
			err = nil // somebody else has it already
		}
	}
	c.drop(ErrNotOwner)
	if err != nil {
		c.r.orphans.Store(true) // it may be ours still
		c.r.nudge()
	}
	return err
}

// movable reports that the record may go to another gateway now.
func (c *cell[S]) movable() bool {
	return c.has && c.exists && !c.stall && (c.r.c.Movable == nil || c.r.c.Movable(c.state))
}

func (c *cell[S]) show() {
	s := c.state
	c.shown.Store(&s)
	c.held.Store(true)
}

func (c *cell[S]) self(term uint64) Owner {
	id := c.r.c.Members.Self()
	return Owner{Node: id.Node, Incarnation: id.Incarnation, Term: term}
}
