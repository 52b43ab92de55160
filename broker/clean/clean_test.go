package clean

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// retained notes what a partition was asked for.
type retained struct {
	stream string
	err    error

	mu   sync.Mutex // guards: all below
	now  []time.Time
	last pubsub.Bounds
}

func (r *retained) Stream() string { return r.stream }
func (r *retained) String() string { return r.stream }
func (r *retained) Retain(_ context.Context, now time.Time, b pubsub.Bounds) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now, r.last = append(r.now, now), b
	return r.err
}

// lease is one without terms.
type lease func() bool

func (l lease) Holds() (uint64, bool)                 { return 1, l() }
func (l lease) Outgrow(context.Context, uint64) error { return nil }

func (r *retained) times() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.now)
}

// outgrown is a lease whose term is raised when a later one is met.
type outgrown struct {
	mu   sync.Mutex
	term uint64
}

func (l *outgrown) Holds() (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term, true
}

func (l *outgrown) Outgrow(_ context.Context, met uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = max(l.term, met+1)
	return nil
}

// TestTermsBeginAnew: a holder whose lease's table was lost meets later terms in
// partitions; it raises its own above all of them, and the next pass goes on.
func TestTermsBeginAnew(t *testing.T) {
	store := memory.NewServer(memory.Config{}).Client(memory.Faults{})
	defer store.Close()
	var ps []Partition
	for i, name := range []string{"a", "b", "c"} {
		if err := store.CreateLog(t.Context(), pubsub.LogConfig{Name: "kafka-" + name + "-0", Subject: "kafka." + name + ".0"}); err != nil {
			t.Fatal(err)
		}
		ps = append(ps, &retained{stream: "kafka-" + name + "-0", err: fmt.Errorf("retention: %w", &partition.TermError{Term: uint64(40 + i)})})
	}
	l := &outgrown{term: 2}
	c := New(Deps{
		Store: store, Subjects: "kafka.>", Lease: l,
		Partitions: func() []Partition { return ps },
		Ahead:      func() (time.Duration, bool) { return 0, true },
	})
	c.Pass(t.Context())
	if term, _ := l.Holds(); term != 43 {
		t.Errorf("term %d, a partition has 42", term)
	}
}

// TestPasses: every partition is asked each 15 s with the store's time and its own
// bounds, one that fails does not hold up the others, one without a stream is left
// out; nothing happens while another gateway cleans, while the store's time is not
// known or the clock is off by more than a minute, or while the store is away.
func TestPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer(memory.Config{})
		var away atomic.Bool
		store := server.Client(memory.Faults{Find: func(memory.Op) memory.ReadFault {
			if away.Load() {
				return memory.ReadFault{Err: pubsub.ErrUnavailable}
			}
			return memory.ReadFault{}
		}})
		defer store.Close()
		var mu sync.Mutex // guards: mine, ahead, known, ps
		mine, ahead, known := true, 20*time.Second, true
		set := func(fn func()) { mu.Lock(); defer mu.Unlock(); fn() }
		var all []*retained
		var ps []Partition
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			if err := store.CreateLog(t.Context(), pubsub.LogConfig{Name: "kafka-" + name + "-0", Subject: "kafka." + name + ".0"}); err != nil {
				t.Fatal(err)
			}
			r := &retained{stream: "kafka-" + name + "-0"}
			all, ps = append(all, r), append(ps, r)
		}
		if _, err := server.Publish("kafka.b.0", nil, []byte("x")); err != nil {
			t.Fatal(err)
		}
		all[0].err = errors.New("not today")
		gone := &retained{stream: "kafka-gone-0"}
		ps = append(ps, gone)

		c := New(Deps{
			Store: store, Subjects: "kafka.>",
			Partitions: func() []Partition { mu.Lock(); defer mu.Unlock(); return ps },
			Lease:      lease(func() bool { mu.Lock(); defer mu.Unlock(); return mine }),
			Ahead:      func() (time.Duration, bool) { mu.Lock(); defer mu.Unlock(); return ahead, known },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		want := 0
		pass := func(what string, happens bool) {
			t.Helper()
			time.Sleep(Every)
			synctest.Wait()
			if happens {
				want++
			}
			for _, r := range all {
				if n := r.times(); n != want {
					t.Errorf("%s: %s was asked %d times, want %d", what, r.stream, n, want)
				}
			}
		}
		pass("the first", true)
		if got := time.Since(all[3].now[0]); got != 20*time.Second {
			t.Errorf("the time given is %v ago, our clock is 20 s ahead of the store", got)
		}
		if all[0].last.Messages != 0 || all[1].last.Messages != 1 {
			t.Errorf("bounds: %+v, %+v", all[0].last, all[1].last)
		}
		set(func() { mine = false })
		pass("another gateway cleans", false)
		set(func() { mine, known = true, false })
		pass("the store's time is not known", false)
		set(func() { known, ahead = true, 61*time.Second })
		pass("the clock is ahead", false)
		set(func() { ahead = -61 * time.Second })
		pass("the clock is behind", false)
		set(func() { ahead = -time.Minute })
		pass("a minute is allowed", true)
		away.Store(true)
		pass("the store is away", false)
		away.Store(false)
		pass("it is back", true)
		set(func() { ps = nil })
		pass("no topics", false)
		if gone.times() != 0 {
			t.Error("a partition without a stream was asked")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
