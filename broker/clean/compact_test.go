package clean

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// part is a partition of which only the outside is there.
type part struct {
	name string

	mu    sync.Mutex // guards: all below
	cfg   partition.Config
	state partition.CleanState
	runs  []partition.CompactOptions
	at    []time.Time
	swept int
	err   error
	read  int64 // bytes that a run reads; 0: 1000
	more  bool  // a run leaves the rest to the next one
	soon  bool  // a run leaves a tombstone that may go a second later
	left  bool  // a run could not remove what it replaced
	// work is what a run does.
	work func(ctx context.Context, o partition.CompactOptions) error
}

func (p *part) Stream() string { return p.name }
func (p *part) String() string { return p.name }
func (p *part) Config() *partition.Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.cfg
	return &c
}
func (p *part) Clean() partition.CleanState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}
func (p *part) SweepClean(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swept++
	p.state.Known = true
	return nil
}
func (p *part) Compact(ctx context.Context, o partition.CompactOptions) (partition.CompactResult, error) {
	p.mu.Lock()
	p.runs, p.at = append(p.runs, o), append(p.at, time.Now())
	work, err := p.work, p.err
	p.mu.Unlock()
	if work != nil {
		if err := work(ctx, o); err != nil {
			return partition.CompactResult{}, err
		}
	}
	if err != nil {
		return partition.CompactResult{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.X, p.state.Last, p.state.Horizon = 100, o.Now, time.Time{}
	if p.soon {
		p.state.Horizon = o.Now.Add(time.Second)
	}
	return partition.CompactResult{Upto: 100, RecordsIn: 10, RecordsOut: 4, BytesIn: max(p.read, 1000), BytesOut: 400, Passes: 1, More: p.more, Left: p.left}, nil
}

func (p *part) set(fn func(p *part)) { p.mu.Lock(); defer p.mu.Unlock(); fn(p) }
func (p *part) times() int           { p.mu.Lock(); defer p.mu.Unlock(); return len(p.runs) }

// made are the runs so far.
func (p *part) made() []partition.CompactOptions {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.runs)
}

// lists is a store that only lists.
type lists struct {
	mu        sync.Mutex // guards: all below
	logs      map[string]pubsub.Bounds
	kin       []string
	calls     int
	err       error
	destroyed []string
}

// called is how often it has listed.
func (s *lists) called() int { s.mu.Lock(); defer s.mu.Unlock(); return s.calls }

// gone are the filters of sweeps after destroyed partitions.
func (s *lists) gone() []string { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.destroyed) }

func (s *lists) SweepDestroyed(_ context.Context, filter string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.destroyed = append(s.destroyed, filter)
	return nil
}

func (s *lists) Logs(_ context.Context, filter string) (logs []pubsub.LogInfo, missing []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.err != nil {
		return nil, nil, s.err
	}
	if filter == "clean.>" {
		for _, n := range s.kin {
			logs = append(logs, pubsub.LogInfo{LogConfig: pubsub.LogConfig{Name: n}})
		}
		return logs, nil, nil
	}
	for n, b := range s.logs {
		logs = append(logs, pubsub.LogInfo{LogConfig: pubsub.LogConfig{Name: n}, Bounds: b})
	}
	return logs, nil, nil
}

// bench is a Compactor with all around it.
type bench struct {
	*Compactor
	t     *testing.T
	store *lists
	mu    sync.Mutex // guards: all below
	held  bool
	known bool
	in    Settings
	ahead time.Duration
	ps    []Compacted
	told  []bool // by Busy
}

func (b *bench) set(fn func()) { b.mu.Lock(); defer b.mu.Unlock(); fn() }

// Holds implements Lease.
func (b *bench) Holds() (uint64, bool) { b.mu.Lock(); defer b.mu.Unlock(); return 1, b.held }

// Outgrow implements Lease.
func (b *bench) Outgrow(context.Context, uint64) error { return nil }

func newBench(t *testing.T, ps ...*part) *bench {
	b := &bench{t: t, held: true, known: true, in: Settings{Enabled: true, Memory: 1 << 20, Backoff: 15 * time.Second}, store: &lists{logs: map[string]pubsub.Bounds{}}}
	for _, p := range ps {
		b.ps = append(b.ps, p)
		b.store.logs[p.name] = pubsub.Bounds{First: 1, Last: 10, Messages: 10, Bytes: 1000}
	}
	b.Compactor = NewCompactor(CompactDeps{
		Store: b.store, Subjects: "all.>", Siblings: "clean.>", Lease: b,
		Partitions: func() []Compacted { b.mu.Lock(); defer b.mu.Unlock(); return append([]Compacted{}, b.ps...) },
		Known:      func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.known },
		Settings:   func() Settings { b.mu.Lock(); defer b.mu.Unlock(); return b.in },
		Ahead:      func() (time.Duration, bool) { b.mu.Lock(); defer b.mu.Unlock(); return b.ahead, true },
		Busy:       func(on bool) { b.mu.Lock(); defer b.mu.Unlock(); b.told = append(b.told, on) },
		Registerer: prometheus.NewPedanticRegistry(),
	})
	return b
}

// start runs it until the returned func is called.
func (b *bench) start() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	}
}

func compacted(name string) *part {
	return &part{name: name, cfg: partition.Config{Compacted: true, MinDirtyRatio: 0.5, MaxLagMillis: math.MaxInt64, DeleteRetentionMillis: 5000},
		state: partition.CleanState{Known: true, Dirty: -1}}
}

func wait(d time.Duration) { time.Sleep(d); synctest.Wait() }

// TestDirtiestFirst: what operators wait for comes first, then the dirtiest; below
// its ratio a partition is left alone, one without compact is never touched, and the
// settings in force are what a run gets.
func TestDirtiestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		note := func(p *part) *part {
			p.work = func(context.Context, partition.CompactOptions) error {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, p.name)
				return nil
			}
			return p
		}
		half, most, asked, clean, plain, one := note(compacted("half")), note(compacted("most")), note(compacted("asked")), note(compacted("clean")), note(compacted("plain")), note(compacted("one"))
		half.state.Bytes = 900 // 1000 of 1900
		most.state.Bytes = 100
		asked.state.Bytes, asked.state.Want = 1<<20, 50
		clean.state.Bytes = 1000 // exactly half is not more than half
		plain.cfg.Compacted = false
		b := newBench(t, half, most, asked, clean, plain, one)
		b.store.logs["one"] = pubsub.Bounds{First: 1, Last: 1, Messages: 1, Bytes: 1000} // the last message stays
		b.in.Memory = 12345
		b.ahead = 20 * time.Second
		most.cfg.MinLagMillis, most.cfg.MaxLagMillis = 7000, 9000
		defer b.start()()
		wait(2 * time.Second)
		mu.Lock()
		got := strings.Join(order, " ")
		mu.Unlock()
		if got != "asked most half" {
			t.Errorf("order: %s", got)
		}
		o := most.made()[0]
		if o.Ratio != 0.5 || o.MinLag != 7*time.Second || o.MaxLag != 9*time.Second || o.DeleteRetention != 5*time.Second || o.Memory != 12345 || o.Force {
			t.Errorf("options %+v", o)
		}
		if d := most.at[0].Sub(o.Now); d != 20*time.Second {
			t.Errorf("now is %v ago, our clock is 20 s ahead of the store's", d)
		}
		if !asked.made()[0].Force || half.made()[0].MaxLag != math.MaxInt64 {
			t.Errorf("forced %v, no lag %v", asked.made()[0].Force, half.made()[0].MaxLag)
		}
	})
}

// TestRests: without anything to do the streams are listed once per backoff, and not
// without compacted topics; an operator and a changed setting are heard
// within a second.
func TestRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, plain := compacted("p"), compacted("plain")
		p.state.Bytes = 1 << 30
		plain.cfg.Compacted = false
		b := newBench(t, p, plain)
		b.set(func() { b.in.Backoff = 30 * time.Second })
		calls := b.store.called
		defer b.start()()
		wait(90 * time.Second)
		if n := calls(); n != 3+1 { // siblings once
			t.Errorf("%d listings in 90 s", n)
		}
		p.set(func(p *part) { p.state.Want = 7 })
		wait(time.Second)
		if p.times() != 1 {
			t.Errorf("%d runs a second after an operator asked", p.times())
		}
		plain.set(func(p *part) { p.cfg.Compacted = true })
		wait(time.Second)
		if plain.times() != 1 {
			t.Errorf("%d runs a second after a topic became compacted", plain.times())
		}
		plain.set(func(p *part) { p.cfg.Compacted = false })
		p.set(func(p *part) { p.cfg.MinDirtyRatio = 0 })
		wait(time.Second)
		if p.times() != 2 {
			t.Errorf("%d runs a second after the ratio became 0", p.times())
		}
		p.set(func(p *part) { p.cfg.Compacted = false })
		wait(time.Second)
		before := calls()
		wait(4 * time.Minute)
		if n := calls() - before; n > 1 { // siblings
			t.Errorf("%d listings without a compacted topic", n)
		}
	})
}

// TestRatioZero: a partition that is always dirty is compacted once per backoff.
func TestRatioZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := compacted("p")
		p.cfg.MinDirtyRatio, p.state.Bytes = 0, 1<<30
		b := newBench(t, p)
		defer b.start()()
		wait(61 * time.Second)
		if n := p.times(); n < 3 || n > 5 {
			t.Errorf("%d runs in a minute, the backoff is 15 s", n)
		}
	})
}

// TestHorizon: tombstones whose time has come have a clean log compacted again, a
// minute later so that several go together; a maximal lag has the run itself look.
func TestHorizon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, lag := compacted("p"), compacted("lag")
		for _, x := range []*part{p, lag} {
			x.state.Bytes = 1 << 30
		}
		p.state.Horizon = time.Now().Add(10 * time.Second)
		lag.cfg.MaxLagMillis, lag.err = 1000, partition.ErrNothing
		b := newBench(t, p, lag)
		defer b.start()()
		wait(68 * time.Second)
		if p.times() != 0 {
			t.Errorf("%d runs before the horizon", p.times())
		}
		if n := lag.times(); n < 3 || n > 5 || lag.made()[0].Force {
			t.Errorf("%d runs for the maximal lag, forced: %v", n, lag.made())
		}
		wait(30 * time.Second)
		if p.times() != 1 || !p.made()[0].Force {
			t.Errorf("runs after the horizon: %+v", p.made())
		}
		wait(5 * time.Minute)
		if p.times() != 1 {
			t.Errorf("%d runs for one horizon", p.times())
		}
	})
}

// TestMayNot: nothing happens on a gateway that does not hold the lease, while one
// that lives does not know compacted logs, while it is switched off, and while the
// clock is off; the state says which.
func TestMayNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := compacted("p")
		b := newBench(t, p)
		b.held = false
		defer b.start()()
		for _, c := range []struct {
			state string
			set   func()
		}{
			{Elsewhere, func() {}},
			{OlderGateways, func() { b.held, b.known = true, false }},
			{Off, func() { b.known, b.in.Enabled = true, false }},
			{ClockOff, func() { b.in.Enabled, b.ahead = true, -61*time.Second }},
		} {
			b.set(c.set)
			wait(20 * time.Second)
			if s := b.State().State; s != c.state || p.times() != 0 || b.store.called() != 0 {
				t.Errorf("%s: state %s, %d runs, %d listings", c.state, s, p.times(), b.store.called())
			}
		}
		b.set(func() { b.ahead = 0 })
		wait(2 * time.Second)
		if s := b.State(); s.State != Idle || p.times() != 1 || s.Last == nil || s.Last.Partition != "p" || s.Last.Result.RecordsOut != 4 {
			t.Errorf("at last: %d runs, %+v", p.times(), s)
		}
	})
}

// TestOneAtATime: a run is seen while it goes on, no second one begins, and it ends
// when the lease is lost or the topic is not compacted any more.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := compacted("p"), compacted("q")
		endless := func(ctx context.Context, o partition.CompactOptions) error {
			for i := int64(0); ; i++ {
				if err := o.Pace(ctx, 100); err != nil {
					return fmt.Errorf("run: %w", err)
				}
				o.Progress(i, 1000)
				time.Sleep(100 * time.Millisecond)
			}
		}
		p.work, q.work, q.state.Bytes = endless, endless, 500
		b := newBench(t, p, q)
		stop := b.start()
		defer func() { stop() }()
		wait(12050 * time.Millisecond)
		if s := b.State(); s.State != Busy || s.Running == nil || s.Running.Partition != "p" || s.Running.Done != 110 || s.Running.Of != 1000 {
			t.Errorf("%+v, %+v", s, s.Running)
		}
		b.set(func() {
			if !slices.Equal(b.told, []bool{true}) {
				t.Errorf("of one run that is under way was told %v", b.told)
			}
		})
		if q.times() != 0 {
			t.Error("two at a time")
		}
		p.set(func(p *part) { p.cfg.Compacted = false })
		wait(2 * time.Second)
		b.set(func() {
			if !slices.Equal(b.told, []bool{true, false, true}) {
				t.Errorf("of a run that has ended and one that is under way was told %v", b.told)
			}
		})
		if q.times() != 1 {
			t.Errorf("q has %d runs after p was let go", q.times())
		}
		b.set(func() { b.held = false })
		wait(2 * time.Second)
		if s := b.State(); s.State != Elsewhere || s.Running != nil || len(s.Failing) > 0 {
			t.Errorf("after the lease went: %+v", s)
		}
		b.set(func() { b.held = true })
		wait(2 * time.Second)
		if q.times() != 2 {
			t.Errorf("q has %d runs after the lease came back", q.times())
		}
		stop() // in the middle of a run
		stop = func() {}
	})
}

// TestFailures: a partition that cannot be compacted is tried less and less often,
// is told of, and does not hold up others; it is tried at once when an operator asks.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := compacted("bad"), compacted("good")
		bad.err, good.state.Bytes = errors.New("batch 7 cannot be read"), 500
		b := newBench(t, bad, good)
		defer b.start()()
		wait(2 * time.Second)
		if s := b.State(); s.Failing["bad"].Error != "batch 7 cannot be read" || s.Failing["bad"].Again.Before(time.Now()) || good.times() != 1 {
			t.Errorf("%+v, good has %d runs", s, good.times())
		}
		wait(10 * time.Minute)
		if n := bad.times(); n < 5 || n > 8 {
			t.Errorf("tried %d times in ten minutes", n)
		}
		n := bad.times()
		bad.set(func(p *part) { p.state.Want, p.err = 5, nil })
		wait(time.Second)
		if bad.times() != n+1 || len(b.State().Failing) > 0 {
			t.Errorf("after an operator asked: %d runs, %v", bad.times()-n, b.State().Failing)
		}
		bad.set(func(p *part) { p.err = errors.New("again"); p.cfg.MinDirtyRatio = 0 })
		wait(10 * time.Minute)
		// Nothing has changed but that somebody asks again: it is tried again, what it
		// failed of before is not told of, and who does well is left in peace.
		good.set(func(p *part) { p.state.Bytes = 1 << 20 })
		n, ok := bad.times(), good.times()
		b.Retry([]string{"bad", "good", "nope"})
		if s := b.State(); len(s.Failing) > 0 {
			t.Errorf("to be tried again: %v", s.Failing)
		}
		bad.set(func(p *part) { p.state.Want = 200 })
		wait(time.Second)
		if s := b.State(); bad.times() != n+1 || good.times() != ok || s.Failing["bad"].Error != "again" || time.Since(s.Failing["bad"].At) > time.Second {
			t.Errorf("asked again: %d and %d runs, %v", bad.times()-n, good.times()-ok, s.Failing)
		}
		b.set(func() { b.ps = b.ps[1:] })
		wait(20 * time.Second)
		if s := b.State(); len(s.Failing) > 0 {
			t.Errorf("a deleted partition is told of: %v", s.Failing)
		}
	})
}

// TestSweepSoon: what a run could not remove, or left when it failed, does not wait for
// five minutes.
func TestSweepSoon(t *testing.T) {
	for name, run := range map[string]func(p *part){"replaced": func(p *part) { p.left = true }, "failed": func(p *part) { p.err = errors.New("no answer") }, "fine": func(*part) {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := compacted("kafka-p-0")
				p.state.Stream = "kafka-p-0=kab"
				run(p)
				b := newBench(t, p)
				b.store.kin = []string{"kafka-p-0=kab", "kafka-p-0=kcd"}
				swept := func() (n int) { p.set(func(p *part) { n = p.swept }); return n }
				defer b.start()()
				wait(3 * time.Second)
				if p.times() != 1 || swept() != 1 {
					t.Fatalf("%d runs, swept %d times at first", p.times(), swept())
				}
				wait(17 * time.Second)
				want := 2
				if name == "fine" {
					want = 1
				}
				if swept() != want {
					t.Errorf("swept %d times, want %d", swept(), want)
				}
			})
		})
	}
}

// TestSweep: siblings that nobody reads are looked for when the lease comes and
// every five minutes; a partition with the one it reads is left alone. A record that
// was not read yet is.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fine, left, crashed, plain := compacted("kafka-fine-0"), compacted("kafka-left-0"), compacted("kafka-crashed-0"), compacted("kafka-plain-0")
		fine.state.Stream = "kafka-fine-0=kab"
		left.state.Stream = "kafka-left-0=kcd"
		crashed.state.Known = false
		plain.cfg.Compacted = false
		for _, p := range []*part{fine, left, crashed} {
			p.state.Bytes = 1 << 30
		}
		b := newBench(t, fine, left, crashed, plain)
		b.store.kin = []string{"kafka-fine-0=kab", "kafka-left-0=kcd", "kafka-left-0=kef", "kafka-plain-0=kgh", "kafka-gone-0=kij"}
		swept := func() (n [4]int) {
			for i, p := range []*part{fine, left, crashed, plain} {
				p.set(func(p *part) { n[i] = p.swept })
			}
			return n
		}
		defer b.start()()
		wait(4 * time.Minute)
		if got := swept(); got != [4]int{0, 1, 1, 1} {
			t.Errorf("swept %v", got)
		}
		wait(2 * time.Minute)
		if got := swept(); got != [4]int{0, 2, 1, 2} {
			t.Errorf("after five minutes: %v", got)
		}
		// One is of a topic that is gone.
		if got := b.store.gone(); !slices.Equal(got, []string{"clean.>", "clean.>"}) {
			t.Errorf("of deleted topics swept %v", got)
		}
	})
}

// TestSweepWithoutCompactedTopics: what was left of one that is not compacted any more
// goes too, without hurry; with no topic nothing is listed.
func TestSweepWithoutCompactedTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := compacted("kafka-plain-0")
		plain.cfg.Compacted = false
		b := newBench(t, plain)
		b.store.kin = []string{"kafka-plain-0=kgh"}
		swept := func() (n int) { plain.set(func(p *part) { n = p.swept }); return n }
		defer b.start()()
		wait(55 * time.Second)
		if swept() != 0 || b.store.called() != 0 {
			t.Errorf("swept %d times at once, %d listings", swept(), b.store.called())
		}
		wait(30 * time.Second)
		if swept() != 1 {
			t.Errorf("swept %d times after a minute", swept())
		}
		b.set(func() { b.ps = nil })
		wait(10 * time.Minute)
		if b.store.called() != 1 {
			t.Errorf("%d listings without a topic", b.store.called())
		}
		// The last one may have been deleted under somebody who was frozen.
		if got := len(b.store.gone()); got != 3 {
			t.Errorf("swept %d times what is left of deleted topics, want every five minutes", got)
		}
	})
}

// TestPace: a run gets its bytes a second and its share of a core, whichever is
// less, as they are in force; a long rest ends when the run must.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in Settings
		var lost atomic.Bool
		p := &pacer{settings: func() Settings { return in }, now: time.Now, check: func() error {
			if lost.Load() {
				return errLostLease
			}
			return nil
		}}
		run := func(steps, bytes int, work time.Duration) time.Duration {
			began := time.Now()
			for range steps {
				time.Sleep(work)
				if err := p.pace(t.Context(), bytes); err != nil {
					t.Fatal(err)
				}
			}
			return time.Since(began)
		}
		about := func(what string, got, want time.Duration) {
			t.Helper()
			if got < want*9/10 || got > want*11/10 {
				t.Errorf("%s: %v, want about %v", what, got, want)
			}
		}
		about("no limit", run(100, 1<<20, 10*time.Millisecond), time.Second)
		in.Share = 0.5
		about("half a core", run(300, 1<<20, 10*time.Millisecond), 6*time.Second)
		in = Settings{Rate: 1e6}
		run(100, 0, 10*time.Millisecond)
		about("a megabyte a second", run(1000, 10_000, time.Millisecond), 10*time.Second)
		in.Share = 0.05
		run(100, 0, 10*time.Millisecond)
		about("a twentieth of a core", run(1000, 10_000, time.Millisecond), 20*time.Second)
		in = Settings{Rate: 1}
		time.Sleep(time.Second)
		time.AfterFunc(3*time.Second, func() { lost.Store(true) })
		began := time.Now()
		if err := p.pace(t.Context(), 3600); !errors.Is(err, errLostLease) || time.Since(began) > 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		lost.Store(false)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := p.pace(ctx, 3600); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestEstimates: what a stream holds that is compacted already, and not cut off yet,
// is not dirty.
func TestEstimates(t *testing.T) {
	for _, c := range []struct {
		state partition.CleanState
		b     pubsub.Bounds
		ratio float64
	}{
		{partition.CleanState{}, pubsub.Bounds{First: 1, Last: 100, Messages: 100, Bytes: 1000}, 1},
		{partition.CleanState{Seq: 51, Bytes: 500}, pubsub.Bounds{First: 1, Last: 100, Messages: 100, Bytes: 1000}, 0.5},
		{partition.CleanState{Seq: 51, Bytes: 500, Dirty: -1}, pubsub.Bounds{First: 51, Last: 100, Messages: 50, Bytes: 500}, 0.5},
		{partition.CleanState{Seq: 51, Bytes: 500, Dirty: 1500}, pubsub.Bounds{First: 51, Last: 100, Messages: 50, Bytes: 2000}, 0.75},
		{partition.CleanState{Seq: 100, Bytes: 500}, pubsub.Bounds{First: 1, Last: 100, Messages: 100, Bytes: 1000}, 0},
		{partition.CleanState{Seq: 101, Bytes: 500}, pubsub.Bounds{First: 1, Last: 100, Messages: 100, Bytes: 1000}, 0},
	} {
		p := compacted("p")
		p.state = c.state
		p.state.X = types.Offset(c.state.Seq)
		if x, _ := consider(p, c.b, time.Now()); math.Abs(x.ratio-c.ratio) > 0.001 {
			t.Errorf("%+v %+v: %v, want %v", c.state, c.b, x.ratio, c.ratio)
		}
	}
}
