package coord

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// counter is the smallest State: a number, a timer and waiters.
type counter struct {
	rec struct {
		Envelope
		N int `json:"n"`
	}
	exists, dirty bool
	values        int
	deadline      time.Time
	expired       *atomic.Int32
	waiters       []func(error)
	due           []func(error)
}

func (c *counter) add(n int) { c.rec.N += n; c.exists, c.dirty = true, true }

func (c *counter) Decode(body []byte) error { c.exists = true; return json.Unmarshal(body, &c.rec) }
func (c *counter) Encode(e Envelope) ([]byte, pubsub.Header, error) {
	c.dirty = false
	c.rec.Envelope = e
	b, err := json.Marshal(c.rec)
	return b, nil, err
}
func (c *counter) Dirty() bool                           { return c.dirty }
func (c *counter) Value(pubsub.Value)                    { c.values++ }
func (c *counter) Start(now time.Time, _ Envelope)       { c.Restart(now) }
func (c *counter) Flush(context.Context, Envelope) error { return nil }
func (c *counter) Deliver(err error) {
	for _, fn := range c.due {
		fn(err)
	}
	c.due = nil
}
func (c *counter) Drop(err error) {
	for _, fn := range append(c.due, c.waiters...) {
		fn(err)
	}
}
func (c *counter) Next() time.Time { return c.deadline }
func (c *counter) Expire(now time.Time) {
	if !c.deadline.IsZero() && !c.deadline.After(now) {
		c.deadline = time.Time{}
		c.expired.Add(1)
	}
}
func (c *counter) Restart(now time.Time) {
	if c.exists {
		c.deadline = now.Add(10 * time.Second)
	}
}
func (c *counter) Idle() bool { return !c.exists }

type members struct {
	mu      sync.Mutex // guards: all below
	self    cluster.Identity
	stale   bool
	adopt   bool
	peers   []cluster.Peer
	changed chan struct{}
}

func (m *members) Self() cluster.Identity { m.mu.Lock(); defer m.mu.Unlock(); return m.self }
func (m *members) Fresh() bool            { m.mu.Lock(); defer m.mu.Unlock(); return !m.stale }
func (m *members) MayAdopt(cluster.Identity) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.adopt
}
func (m *members) Peers() []cluster.Peer    { m.mu.Lock(); defer m.mu.Unlock(); return m.peers }
func (m *members) Changed() <-chan struct{} { m.mu.Lock(); defer m.mu.Unlock(); return m.changed }

// set changes something without a signal: freshness ends and begins silently.
func (m *members) set(fn func()) { m.mu.Lock(); defer m.mu.Unlock(); fn() }

type host struct {
	*Runtime[*counter]
	members *members
	expired atomic.Int32
	stop    func()
}

func newHost(t *testing.T, srv *memory.Server, node int32, f memory.Faults, change func(*Config[*counter])) *host {
	t.Helper()
	client := srv.Client(f)
	table, err := client.Table(t.Context(), pubsub.TableConfig{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{members: &members{self: cluster.Identity{Node: node, Incarnation: "x"}, changed: make(chan struct{})}}
	c := Config[*counter]{Table: table, Members: h.members, New: func(string) *counter { return &counter{expired: &h.expired} }}
	if change != nil {
		change(&c)
	}
	h.Runtime = New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		client.Close()
	})
	t.Cleanup(h.stop)
	<-h.Ready()
	return h
}

func (h *host) add(t *testing.T, key string, n int) (sum int, err error) {
	err = h.Do(t.Context(), key, func(tn *Turn[*counter]) {
		tn.State.add(n)
		sum = tn.State.rec.N
	})
	return sum, err
}

// Two runtimes that count in one record: each number is given out once.
func TestOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		slow := memory.Faults{Set: func(memory.Op) memory.WriteFault { return memory.WriteFault{After: 5 * time.Millisecond} }}
		a, b := newHost(t, srv, 1, slow, nil), newHost(t, srv, 2, slow, nil)
		a.members.set(func() { a.members.adopt = true }) // each takes it from the other
		b.members.set(func() { b.members.adopt = true })
		var mu sync.Mutex
		seen := map[int]bool{}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				h := []*host{a, b}[i%2]
				for range 20 {
					sum, err := h.add(t, "k", 1)
					if err == nil {
						mu.Lock()
						if seen[sum] {
							t.Errorf("%d given out twice", sum)
						}
						seen[sum] = true
						mu.Unlock()
						return
					}
					time.Sleep(time.Duration(i) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if len(seen) < 50 {
			t.Errorf("only %d of 100 succeeded", len(seen))
		}
	})
}

// Events that queue up while a write is under way share the next.
func TestEventsShareWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var writes atomic.Int32
		h := newHost(t, srv, 1, memory.Faults{Set: func(memory.Op) memory.WriteFault {
			writes.Add(1)
			return memory.WriteFault{After: 10 * time.Millisecond}
		}}, nil)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := h.add(t, "k", 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := writes.Load(); n > 2 {
			t.Errorf("%d writes", n)
		}
		if sum, err := h.add(t, "k", 0); sum != 100 || err != nil {
			t.Errorf("%d, %v", sum, err)
		}
	})
}

// Who waits too long for a record that is being loaded hears that, and what it
// asked for does not happen after all.
func TestLoadWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := newHost(t, srv, 1, memory.Faults{}, nil)
		if _, err := a.add(t, "k", 1); err != nil {
			t.Fatal(err)
		}
		a.stop()
		b := newHost(t, srv, 2, memory.Faults{Scan: func(memory.Op) memory.ReadFault { return memory.ReadFault{Delay: 5 * time.Second} }}, nil)
		b.members.set(func() { b.members.adopt = true })
		began := time.Now()
		if _, err := b.add(t, "k", 10); !errors.Is(err, ErrLoading) || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Do(ctx, "k", func(tn *Turn[*counter]) { tn.State.add(100) }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its own time was over: %v", err)
		}
		if sum, err := b.add(t, "k", 1); err != nil || sum != 2 {
			t.Errorf("%d, %v", sum, err)
		}
	})
}

// Memory never runs ahead of the store: after a failed write it is read anew.
func TestFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var fail atomic.Bool
		h := newHost(t, srv, 1, memory.Faults{Set: func(memory.Op) memory.WriteFault {
			if fail.Load() {
				return memory.WriteFault{Err: pubsub.ErrUnavailable}
			}
			return memory.WriteFault{}
		}}, nil)
		if _, err := h.add(t, "k", 1); err != nil {
			t.Fatal(err)
		}
		told := make(chan error, 1)
		if err := h.Do(t.Context(), "k", func(tn *Turn[*counter]) {
			tn.State.waiters = append(tn.State.waiters, func(err error) { told <- err })
		}); err != nil {
			t.Fatal(err)
		}
		fail.Store(true)
		if _, err := h.add(t, "k", 10); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		if err := <-told; !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("who waited was told %v", err)
		}
		fail.Store(false)
		if sum, err := h.add(t, "k", 1); err != nil || sum != 2 {
			t.Errorf("%d, %v", sum, err)
		}
	})
}

// Timers stand still while stale, also when nobody says that it is over, and
// nobody asks.
func TestTimersStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		h := newHost(t, srv, 1, memory.Faults{}, nil)
		if err := h.Do(t.Context(), "k", func(tn *Turn[*counter]) {
			tn.State.add(1)
			tn.State.Restart(tn.Now)
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		h.members.set(func() { h.members.stale = true })
		if _, err := h.add(t, "k", 1); !errors.Is(err, ErrStale) {
			t.Errorf("%v", err)
		}
		time.Sleep(30 * time.Second)
		h.members.set(func() { h.members.stale = false })
		time.Sleep(9 * time.Second)
		if n := h.expired.Load(); n != 0 {
			t.Errorf("%d timers ran out", n)
		}
		time.Sleep(2 * time.Second)
		if n := h.expired.Load(); n != 1 {
			t.Errorf("%d timers ran out", n)
		}
	})
}

// A key without a record leaves nothing behind if nothing was made of it.
func TestNothingKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		h := newHost(t, srv, 1, memory.Faults{}, nil)
		for range 3 {
			if err := h.Do(t.Context(), "k", func(*Turn[*counter]) {}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.cells) != 0 || len(srv.Keys("b")) != 0 {
			t.Errorf("%d cells, keys %v", len(h.cells), srv.Keys("b"))
		}
	})
}

// TestRouteStandsStill: what a gateway that may have stood still, or has begun
// another life since, was asked before is not passed on.
func TestRouteStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memory.NewServer(memory.Config{}), 1, memory.Faults{}, func(c *Config[*counter]) { c.RouteWait = time.Minute })
		other := cluster.Identity{Node: 2, Incarnation: "other"}
		h.members.set(func() { h.members.peers = []cluster.Peer{{Identity: other, State: cluster.Alive}} })
		calls := 0
		route := func() error {
			return h.Route(t.Context(), "k", false, func(context.Context) error { return ErrNotOwner }, func(context.Context, cluster.Identity) error {
				calls++
				return cluster.ErrNotDelivered
			})
		}
		h.members.set(func() { h.members.stale = true })
		if err := route(); !errors.Is(err, ErrStale) || calls != 0 {
			t.Errorf("not fresh: %v, passed on %d times", err, calls)
		}
		h.members.set(func() { h.members.stale = false })
		done := make(chan error)
		go func() { done <- route() }()
		synctest.Wait() // passed on, and waits before it tries again
		before := calls
		h.members.set(func() { h.members.self.Incarnation = "next" })
		if err := <-done; !errors.Is(err, ErrStale) || before == 0 || calls != before {
			t.Errorf("another life: %v, passed on %d times after %d", err, calls, before)
		}
	})
}

func TestRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		h := newHost(t, srv, 1, memory.Faults{}, nil)
		if _, err := h.add(t, "k", 5); err != nil {
			t.Fatal(err)
		}
		if err := h.Do(t.Context(), "k", func(tn *Turn[*counter]) { tn.Remove() }); err != nil {
			t.Fatal(err)
		}
		if keys := srv.Keys("b"); len(keys) != 0 {
			t.Errorf("keys %v", keys)
		}
		if l := h.List(); len(l) != 0 {
			t.Errorf("listed: %v", l)
		}
		if sum, err := h.add(t, "k", 1); err != nil || sum != 1 {
			t.Errorf("made anew: %d, %v", sum, err)
		}
	})
}

// When Run ends everybody who waits is told, nothing is written, and later
// calls end at once.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		h := newHost(t, srv, 1, memory.Faults{Set: func(op memory.Op) memory.WriteFault {
			if op.Key == "slow" {
				return memory.WriteFault{After: time.Hour}
			}
			return memory.WriteFault{}
		}}, nil)
		told := make(chan error, 1)
		if err := h.Do(t.Context(), "k", func(tn *Turn[*counter]) {
			tn.State.add(1)
			tn.State.waiters = append(tn.State.waiters, func(err error) { told <- err })
		}); err != nil {
			t.Fatal(err)
		}
		stuck := make(chan error, 1)
		go func() {
			_, err := h.add(t, "slow", 1)
			stuck <- err
		}()
		synctest.Wait()
		h.stop()
		if err := <-told; !errors.Is(err, ErrNotOwner) {
			t.Errorf("who waited was told %v", err)
		}
		if err := <-stuck; err == nil {
			t.Error("a write without an answer was believed")
		}
		if _, err := h.add(t, "k", 1); !errors.Is(err, ErrNotOwner) {
			t.Errorf("after the end: %v", err)
		}
	})
}
