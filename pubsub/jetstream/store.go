package jetstream

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// Store implements pubsub.Store. Make one with Connect.
type Store struct {
	cfg       Config
	apiPrefix string
	newsRoot  string
	info      pubsub.Info
	clustered bool
	warnings  []string
	metrics   *metrics

	appends []*conn
	reads   []*conn
	control *conn // API calls, tables, news, requests
	seed    maphash.Seed

	runs     atomic.Int64 // consumers of sequential reads
	ahead    atomic.Int64 // bytes that these read ahead
	runAfter int          // set by tests before the first read, as runIdle
	runIdle  time.Duration
	runFresh time.Duration

	apiSlots chan struct{} // one per API call in flight

	life      context.Context // ends with Close; for what has no caller's ctx
	end       context.CancelFunc
	closeOnce sync.Once
	wg        sync.WaitGroup // goroutines of the store itself

	mu       sync.Mutex // guards: all below
	down     map[*conn]bool
	up       bool
	events   []bool
	wake     chan struct{} // capacity 1: events is not empty
	watchers []func(up bool)
	follows  map[*follow]struct{}
	serves   map[*serve]struct{}
}

var _ pubsub.Store = (*Store)(nil)

func (st *Store) conns() []*conn {
	all := append([]*conn{st.control}, st.appends...)
	return append(all, st.reads...)
}

// appendConn and readConn spread logs over connections; one log always has the
// same ones.
func (st *Store) appendConn(name string) *conn {
	return st.appends[maphash.String(st.seed, name)%uint64(len(st.appends))]
}

func (st *Store) readConn(name string) *conn {
	return st.reads[maphash.String(st.seed, name)%uint64(len(st.reads))]
}

// Info implements pubsub.Store.
func (st *Store) Info() pubsub.Info { return st.info }

// Warnings lists what an operator should know about the server, in sentences;
// it may be empty.
func (st *Store) Warnings() []string { return st.warnings }

// Connected implements pubsub.Store: all connections are up.
func (st *Store) Connected() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.up
}

// OnConnection implements pubsub.Store. fn runs on a goroutine of the store and
// must not block for long.
func (st *Store) OnConnection(fn func(up bool)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.watchers = append(st.watchers, fn)
}

// setState notes the loss or return of one connection. Several connections make
// one state: up means that all are.
func (st *Store) setState(c *conn, up bool) {
	if up {
		st.metrics.reconnects.Inc()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if up {
		delete(st.down, c)
	} else {
		st.down[c] = true
	}
	if now := len(st.down) == 0; now != st.up {
		st.up = now
		st.events = append(st.events, now)
		select {
		case st.wake <- struct{}{}:
		default:
		}
	}
}

// run delivers connection events in order and measures the round trip.
func (st *Store) run() {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-st.life.Done():
			return
		case <-tick.C:
			ctx, cancel := context.WithTimeout(st.life, 2*time.Second)
			if begin := time.Now(); st.control.nc.FlushWithContext(ctx) == nil {
				st.metrics.rtt.Observe(time.Since(begin).Seconds())
			}
			cancel()
		case <-st.wake:
			st.mu.Lock()
			events, fns := st.events, st.watchers
			st.events = nil
			st.mu.Unlock()
			for _, up := range events {
				for _, fn := range fns {
					fn(up)
				}
			}
		}
	}
}

// Ping implements pubsub.Store.
func (st *Store) Ping(ctx context.Context) error {
	begin := time.Now()
	if err := st.ask(ctx, st.cfg.APITimeout, "INFO", nil, nil); err != nil {
		return fmt.Errorf("ping jetstream: %w", readError(err))
	}
	st.metrics.rtt.Observe(time.Since(begin).Seconds())
	return nil
}

// Close implements pubsub.Store. It waits for the running callbacks of follows
// and for handlers of served requests, so it must not be called from one.
func (st *Store) Close() {
	st.closeOnce.Do(func() {
		st.end()
		st.mu.Lock()
		var cancels []func()
		for f := range st.follows {
			cancels = append(cancels, f.cancel)
		}
		for s := range st.serves {
			cancels = append(cancels, s.cancel)
		}
		st.up = false
		st.mu.Unlock()
		for _, cancel := range cancels {
			cancel()
		}
		st.wg.Wait()
		st.closeConns()
		st.metrics.close()
	})
}

func (st *Store) closeConns() {
	for _, c := range st.conns() {
		if c != nil && c.nc != nil {
			c.nc.Close()
			c.down()
		}
	}
}

func (st *Store) isClosed() bool { return st.life.Err() != nil }

// Request implements pubsub.Store.
func (st *Store) Request(ctx context.Context, subject string, request []byte) ([]byte, error) {
	// No timeout of ours: the caller's ctx is the only one.
	a, err := st.control.call(ctx, &nats.Msg{Subject: subject, Data: request}, 24*time.Hour, nil)
	switch {
	case err == nil:
		return a.Data, nil
	case errors.Is(err, errNoResponders):
		return nil, fmt.Errorf("request %s: %w: %w", subject, pubsub.ErrNotFound, err)
	}
	return nil, fmt.Errorf("request %s: %w", subject, writeError(err))
}

// serve is one subject served.
type serve struct {
	st   *Store
	sub  *nats.Subscription
	ctx  context.Context
	end  context.CancelFunc
	once sync.Once

	mu   sync.Mutex // guards: done, and wg.Add against wg.Wait
	done bool
	wg   sync.WaitGroup
}

// maxHandlers bounds the concurrent handlers of one served subject; beyond it
// requests wait in the subscription. A handler may wait for minutes, so whoever
// serves such requests bounds them below this.
const maxHandlers = 16 << 10

// Serve implements pubsub.Store. The handler's ctx ends with cancel and Close.
func (st *Store) Serve(subject string, fn func(ctx context.Context, request []byte) []byte) (func(), error) {
	s := &serve{st: st}
	s.ctx, s.end = context.WithCancel(st.life)
	slots := make(chan struct{}, maxHandlers)
	sub, err := st.control.nc.Subscribe(subject, func(m *nats.Msg) {
		select {
		case slots <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.done {
			return
		}
		s.wg.Go(func() {
			defer func() { <-slots }()
			answer := fn(s.ctx, m.Data)
			if err := m.Respond(answer); err != nil {
				st.logError("answer to a request not sent", err)
			}
		})
	})
	if err == nil {
		err = st.control.nc.FlushTimeout(st.cfg.APITimeout)
	}
	if err != nil {
		s.end()
		if sub != nil {
			_ = sub.Unsubscribe()
		}
		return nil, fmt.Errorf("serve %s: %w: %w", subject, pubsub.ErrUnavailable, err)
	}
	s.sub = sub
	st.mu.Lock()
	st.serves[s] = struct{}{}
	st.mu.Unlock()
	return s.cancel, nil
}

func (s *serve) cancel() {
	s.once.Do(func() {
		_ = s.sub.Unsubscribe() // fails only on a closed connection
		s.mu.Lock()
		s.done = true
		s.mu.Unlock()
		s.end()
		s.st.mu.Lock()
		delete(s.st.serves, s)
		s.st.mu.Unlock()
	})
	s.wg.Wait()
}
