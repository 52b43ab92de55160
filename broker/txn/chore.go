package txn

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/utils/killpoint"
)

// chore is something that follows from a stored record and that its turn cannot
// do: to tell all partitions and groups of a decision or, with abort, to decide that
// transaction n has lasted too long.
type chore struct {
	id    string
	n     int64
	abort bool

	commit     bool
	producer   Producer // of the markers
	term       uint64
	partitions []Partition
	groups     []string
}

// same reports that two chores are the same one: a decision is never changed.
func (c chore) same(o chore) bool { return c.key() == o.key() }

type choreKey struct {
	id    string
	n     int64
	abort bool
}

func (c chore) key() choreKey { return choreKey{c.id, c.n, c.abort} }

// chores are those under way: each once, whatever becomes of the record meanwhile.
type chores struct {
	mu      sync.Mutex // guards: all below
	running map[choreKey]struct{}
	ctx     context.Context // ends with Run and when Drain begins; nil before Run
	end     context.CancelFunc
	wg      sync.WaitGroup
}

const (
	// triesAtOnce bounds what partitions and groups are told at a time: NATS drops
	// all calls in flight if there are too many.
	triesAtOnce = 256
	// tryFor bounds one attempt to tell one of them.
	tryFor = 15 * time.Second
	// Between two attempts.
	firstPause, longestPause = 20 * time.Millisecond, time.Second
	// sayAfter is how long something is tried in silence.
	sayAfter = 10 * time.Second
)

// begin has a chore done, unless it is under way. It does not block.
func (co *Coordinator) begin(c chore) {
	w := &co.chores
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.running[c.key()]; ok || w.ctx == nil || w.ctx.Err() != nil {
		return
	}
	w.running[c.key()] = struct{}{}
	ctx := w.ctx
	w.wg.Go(func() {
		for !co.carryOut(ctx, c) && !co.leave(c) {
		}
	})
}

// stop ends all chores, and lets none begin any more.
func (w *chores) stop() {
	w.mu.Lock()
	if w.end != nil {
		w.end()
	}
	w.mu.Unlock()
	w.wg.Wait()
}

// leave takes a chore that was given up out of those under way; false if it is
// wanted after all.
func (co *Coordinator) leave(c chore) bool {
	w := &co.chores
	w.mu.Lock()
	defer w.mu.Unlock()
	// A record that was let go of and came back meanwhile relied on this one: it is
	// held before its first turn ends, which would have begun another.
	if w.ctx.Err() == nil && co.rt.Holds(pubsub.Token(c.id)) {
		return false
	}
	delete(w.running, c.key())
	return true
}

// carryOut does a chore. It gives up, with false, when the record is not held here
// any more: whoever holds it does the same.
func (co *Coordinator) carryOut(ctx context.Context, c chore) (done bool) {
	log := co.d.Logger.With("transactional_id", logging.Printable(c.id), "n", c.n)
	if c.abort {
		done = co.insist(ctx, c, log, func(ctx context.Context) error { return co.abort(ctx, c, log) })
	} else {
		done = co.finish(ctx, c, log)
	}
	if done {
		co.chores.mu.Lock()
		defer co.chores.mu.Unlock()
		delete(co.chores.running, c.key())
	}
	return done
}

// finish tells every partition and group of a decision, and then the record.
func (co *Coordinator) finish(ctx context.Context, c chore, log *slog.Logger) (done bool) {
	co.metrics.unfinished.Inc()
	defer co.metrics.unfinished.Dec()
	m := partition.Marker{ProducerID: c.producer.ID, Epoch: c.producer.Epoch, N: c.n, Commit: c.commit, CoordinatorEpoch: int32(c.term)}
	e := group.TxnEnd{ProducerID: c.producer.ID, N: c.n, Commit: c.commit}
	var told atomic.Int32
	tell := func(log *slog.Logger, try func(context.Context) error) {
		if co.insist(ctx, c, log, func(ctx context.Context) error { return co.inTurn(ctx, try) }) {
			told.Add(1)
		}
	}
	var wg sync.WaitGroup
	for _, p := range c.partitions {
		wg.Go(func() {
			tell(log.With("topic_id", p.Topic, logging.Partition, p.N), func(ctx context.Context) error { return co.d.Markers.End(ctx, p, m) })
			killpoint.At("txn.marker")
		})
	}
	for _, g := range c.groups {
		wg.Go(func() {
			tell(log.With(logging.Group, g), func(ctx context.Context) error { return co.d.Groups.EndTransaction(ctx, g, e) })
		})
	}
	wg.Wait()
	if int(told.Load()) != len(c.partitions)+len(c.groups) {
		return false
	}
	killpoint.At("txn.told")
	return co.insist(ctx, c, log, func(ctx context.Context) error {
		return co.rt.Do(ctx, pubsub.Token(c.id), func(t *turn) { t.State.complete(t.Now, c.n) })
	})
}

// abort ends a transaction that has lasted too long.
func (co *Coordinator) abort(ctx context.Context, c chore, log *slog.Logger) error {
	aborted, err := act(ctx, co, c.id, noID, false, func(t *turn, fresh int64) (bool, error) { return t.State.tooLong(t.Now, c.n, fresh) })
	if aborted && err == nil {
		co.metrics.ended.WithLabelValues("timeout").Inc()
		log.Info("transaction aborted: it was open for longer than its timeout")
	}
	return err
}

// insist repeats try until it succeeds; false if ctx ends or the record is not held
// here before.
func (co *Coordinator) insist(ctx context.Context, c chore, log *slog.Logger, try func(context.Context) error) bool {
	began, quiet := time.Now(), sayAfter
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		bounded, cancel := context.WithTimeout(ctx, tryFor)
		err := try(bounded)
		cancel()
		if err == nil {
			return true
		}
		if ctx.Err() != nil || !co.rt.Holds(pubsub.Token(c.id)) {
			return false
		}
		if since := time.Since(began); since >= quiet {
			quiet = 2 * since
			log.Warn("not everybody knows yet how a transaction ended; it is tried again", "for", since.Round(time.Second), logging.Error, err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// inTurn runs try when not too many others run.
func (co *Coordinator) inTurn(ctx context.Context, try func(context.Context) error) error {
	select {
	case co.slots <- struct{}{}:
		defer func() { <-co.slots }()
		return try(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}
