package gateway

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/test/history"
	"github.com/hanzoai/stream/test/sim"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // runs are short and small, and there are many
	goleak.VerifyTestMain(m)
}

// known are seeds that have found something; what it was has a test of its own
// where it was mended.
var known = []uint64{
	4,     // a topic whose creation failed was said to exist
	59,    // two gateways took a node id from each other
	699,   // a producer's second batch was stored as its first
	806,   // a failed creation left streams behind
	5164,  // a start that was denied the cluster's identity
	7015,  // a partition that had just been made was denied
	1587,  // a clock that was right again was held for wrong
	20070, // a deleted group left a commit behind
	20270, // a clock that was set back made everything uncertain for an hour
}

// TestKnownSeeds runs them again: a seed does not decide everything, so some
// times each.
func TestKnownSeeds(t *testing.T) {
	var total tally
	for _, seed := range known {
		for range 3 {
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { runSeed(t, seed, &total) })
		}
	}
}

// TestGateways runs SIM_SEEDS seeds (default 10), or the one seed SIM_SEED.
func TestGateways(t *testing.T) {
	var total tally
	many := sim.Seeds(t, 10, func(t *testing.T, seed uint64) { runSeed(t, seed, &total) })
	if many && !t.Failed() {
		total.check(t)
	}
}

// runSeed is one run: in virtual time what clients do, then what they saw.
func runSeed(t *testing.T, seed uint64, total *tally) {
	var r *run
	sim.Bubble(t, func(t *testing.T) {
		r = newRun(t, seed)
		r.run()
	})
	if r == nil {
		return
	}
	h := r.history()
	for _, p := range history.Check(h) {
		t.Error(p)
	}
	if t.Failed() {
		if dir := os.Getenv("SIM_HISTORY"); dir != "" {
			path := fmt.Sprintf("%s/%d.json.gz", dir, seed)
			t.Logf("history: %s (%v)", path, h.Save(path))
		}
	}
	total.add(&r.tally, h)
}

// run is one run of the simulation.
type run struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand // of the run's own goroutine
	replicas int
	fixed    bool // node ids are fixed, as in a StatefulSet
	mode     cluster.Mode
	weather  *sim.Weather
	server   *memory.Server
	seats    []*seat
	rec      history.Recorder
	names    []string            // topics that are never deleted
	fleeting []string            // topics that come and go
	groups   map[string][]string // consumer groups and the topics they read
	eager    map[string]bool     // groups whose members give everything up when they join again
	topics   lives
	tally    tally
	expires  bool // offsets expire at the end

	ended  chan struct{} // closed when clients should finish what they do
	healed chan struct{} // closed when nothing goes wrong any more
	done   chan struct{} // closed when consumers are to stop

	lying atomic.Bool
	mu    sync.Mutex // guards: all below
	lies  []span     // when leaders denied what is stored
	// touched are the partitions of which the group without members may have offsets.
	touched map[history.Log]bool
}

// span is a stretch of virtual time.
type span struct{ from, to time.Time }

func newRun(t *testing.T, seed uint64) *run {
	rng := sim.Rand(seed, 1)
	s := &run{
		t: t, seed: seed, rng: rng, replicas: 1 + 2*rng.IntN(2),
		weather: sim.NewWeather(sim.Rand(seed, 2), []float64{0, 0.005, 0.02, 0.08}[rng.IntN(4)]),
		names:   []string{"a", "b.c"}[:1+rng.IntN(2)],
		groups:  map[string][]string{}, eager: map[string]bool{},
		ended: make(chan struct{}), healed: make(chan struct{}), done: make(chan struct{}),
	}
	if rng.IntN(2) == 0 {
		s.fleeting = []string{"x", "y_z"}[:1+rng.IntN(2)]
	}
	s.fixed = rng.IntN(3) == 0
	s.mode = []cluster.Mode{cluster.Shared, cluster.Shared, cluster.PerGateway}[rng.IntN(3)]
	// The store's clock need not be right, nor ours.
	skew := []time.Duration{0, 0, 0, 40 * time.Second, -40 * time.Second}[rng.IntN(5)]
	s.server = memory.NewServer(memory.Config{
		MaxReplicas: 3, Remember: true, MaxPayload: []int{8 << 20, 64 << 10}[rng.IntN(2)],
		Clock: func() time.Time { return time.Now().Add(skew) },
	})
	s.expires = sim.Rand(seed, 3).IntN(32) == 0
	for i := range 1 + rng.IntN(5) {
		s.seats = append(s.seats, &seat{s: s, n: i})
	}
	return s
}

func (s *run) run() {
	// All start at once, on an empty store.
	var starting sync.WaitGroup
	for _, x := range s.seats {
		starting.Go(func() { x.start("g", 0) })
	}
	starting.Wait()

	var clients, readers, troubles sync.WaitGroup
	actor := func(wg *sync.WaitGroup, n uint64, fn func(r *rand.Rand)) {
		wg.Go(func() { fn(sim.Rand(s.seed, n)) })
	}
	s.makeTopics()
	// What was added later is decided apart, so that seeds mean what they meant.
	more := sim.Rand(s.seed, 4)
	groups := 1 + s.rng.IntN(2)
	for g := range groups {
		topics := s.names
		if s.rng.IntN(2) == 0 {
			topics = append(topics[:len(topics):len(topics)], s.fleeting...)
		}
		name := fmt.Sprintf("group%d", g)
		s.groups[name], s.eager[name] = topics, more.IntN(4) > 0
	}
	for i := range 1 + s.rng.IntN(3) {
		actor(&clients, uint64(100+i), func(r *rand.Rand) { s.producer(r, fmt.Sprintf("p%d", i)) })
	}
	if s.rng.IntN(2) == 0 {
		actor(&clients, 200, func(r *rand.Rand) { s.plain(r, "q") })
	}
	for i, name := range s.fleeting {
		for k := range 1 + s.rng.IntN(2) {
			actor(&clients, uint64(300+10*i+k), func(r *rand.Rand) { s.admin(r, name) })
		}
	}
	if s.rng.IntN(3) == 0 {
		actor(&clients, 350, s.grower)
	}
	if s.rng.IntN(3) == 0 {
		actor(&clients, 360, s.deleter)
	}
	if more.IntN(3) == 0 {
		for i := range 1 + more.IntN(2) {
			actor(&clients, uint64(370+i), s.loose)
		}
	}
	if more.IntN(4) == 0 {
		actor(&troubles, 650, s.clocks)
	}
	for g := range groups {
		topics := s.groups[fmt.Sprintf("group%d", g)]
		for i := range 1 + s.rng.IntN(3) {
			c := &consumer{s: s, group: fmt.Sprintf("group%d", g), name: fmt.Sprintf("c%d.%d", g, i), topics: topics, cooperative: !s.eager[fmt.Sprintf("group%d", g)]}
			if s.rng.IntN(3) == 0 {
				c.instance = &c.name
			}
			actor(&readers, uint64(400+10*g+i), c.run)
		}
	}
	actor(&readers, 500, s.asker)
	for i := range []int{0, 1, 1, 2, 2}[s.rng.IntN(5)] {
		actor(&troubles, uint64(600+i), s.trouble)
	}
	time.Sleep(time.Duration(5+s.rng.IntN(25)) * time.Second)
	close(s.ended)
	troubles.Wait()
	s.weather.Clear()
	for _, x := range s.seats {
		x.heal()
	}
	close(s.healed)
	clients.Wait()
	// Late copies, held calls and dead members of before.
	time.Sleep(15 * time.Second)
	s.verifyProgress()
	s.verifyGone()
	close(s.done)
	readers.Wait()
	s.verify()
	s.verifyExpired()
	for _, x := range s.seats {
		x.stop(x.now(), s.rng.IntN(2) == 0)
	}
	time.Sleep(30 * time.Second) // timers of the memory store, calls that were given up
}

// lied notes that leaders denied what is stored, until now.
func (s *run) lied(from time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lies = append(s.lies, span{from, time.Now()})
}

// history is what clients saw. While leaders deny what is stored, a gateway that
// knows less than others cannot know that it does: what was told of ends then is
// left out.
func (s *run) history() *history.History {
	h := s.rec.History()
	kept := h.Ends[:0:0]
	for _, e := range h.Ends {
		lie := false
		for _, l := range s.lies {
			lie = lie || e.Began.Before(l.to) && l.from.Before(e.Ended)
		}
		if !lie {
			kept = append(kept, e)
		}
	}
	h.Ends = kept
	return h
}

// trace prints what happens, with SIM_TRACE set.
func (s *run) trace(format string, a ...any) {
	if tracing {
		s.t.Logf("%s "+format, append([]any{time.Now().Format("04:05.000000")}, a...)...)
	}
}

var tracing = os.Getenv("SIM_TRACE") != ""

// logger is what gateways log: nothing, or all with SIM_TRACE.
func (s *run) logger(name string) *slog.Logger {
	if !tracing {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(writer{s.t}, &slog.HandlerOptions{Level: slog.LevelDebug})).With("gateway", name)
}

type writer struct{ t *testing.T }

func (w writer) Write(p []byte) (int, error) {
	w.t.Logf("%s %s", time.Now().Format("04:05.000000"), p)
	return len(p), nil
}
