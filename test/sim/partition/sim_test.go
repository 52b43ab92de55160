package partition

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSimulation runs SIM_SEEDS seeds (default 200), or the one seed SIM_SEED.
func TestSimulation(t *testing.T) {
	// A run holds a few megabytes: by default a collection would follow the other.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	sim.Seeds(t, 200, func(t *testing.T, seed uint64) {
		sim.Bubble(t, func(t *testing.T) { newRun(t, seed).run() })
	})
}

const (
	logName = "kafka-s-0"
	subject = "kafka.s.0"
)

// run is one run of the simulation.
type run struct {
	t        *testing.T
	rng      *rand.Rand // of the run's own goroutine
	seed     uint64
	replicas int
	weather  *sim.Weather
	server   *memory.Server
	id       types.TopicID
	config   partition.Config
	kind     int // what lets go of records, see purges
	seats    []*seat
	ended    chan struct{} // closed when actors should finish
	healed   chan struct{} // closed when nothing goes wrong any more
	began    time.Time     // on the clock of the run
	stored   stored

	mu sync.Mutex // guards: all below
	// acked is one more than the largest offset acknowledged or shown.
	acked types.Offset
	log   []fact // what was submitted
	// deleted is the largest log start that was answered or shown, asked the
	// largest that somebody may have moved it to.
	deleted, asked types.Offset
	kills          int
	fates          map[string]bool // committed, by transaction: what was decided
}

// fact is one batch that was submitted.
type fact struct {
	id       string // its first record's value
	pid      int64  // 0: not idempotent
	seq      int32
	n        int
	base     types.Offset // where it was acknowledged; -1: it was not
	unknown  bool         // some answer left the outcome open
	attempts int
}

func newRun(t *testing.T, seed uint64) *run {
	rng := sim.Rand(seed, 1)
	s := &run{
		t: t, rng: rng, seed: seed, began: time.Now(), fates: map[string]bool{},
		weather: sim.NewWeather(sim.Rand(seed, 2), []float64{0, 0.02, 0.1, 0.25}[rng.IntN(4)]),
		ended:   make(chan struct{}), healed: make(chan struct{}),
		id: types.NewTopicID(),
		config: partition.Config{
			MaxMessageBytes: 1 << 20, MaxAheadMillis: 3600000, MaxBehindMillis: math.MaxInt64,
			LogAppendTime: rng.IntN(4) == 0,
			Retained:      true, RetentionMillis: -1, RetentionBytes: -1,
		},
	}
	s.purges(rng.IntN(4))
	s.replicas = 1 + 2*rng.IntN(2)
	s.server = memory.NewServer(memory.Config{MaxReplicas: 3, Remember: true, MaxPayload: []int{8 << 20, 16 << 10}[rng.IntN(2)]})
	c := s.server.Client(memory.Faults{})
	tab, err := c.Table(t.Context(), pubsub.TableConfig{Name: "kafka-partitions"})
	if err != nil {
		t.Fatal(err)
	}
	h := partition.NewHost(partition.Env{Store: c, Records: tab, Gateway: "maker"})
	if err := h.Create(t.Context(), partition.CreateSpec{ID: s.id, Log: pubsub.LogConfig{Name: logName, Subject: subject, Replicas: s.replicas}}); err != nil {
		t.Fatal(err)
	}
	h.Stop()
	c.Close()
	for i := range 1 + rng.IntN(3) {
		x := &seat{number: i}
		s.seats = append(s.seats, x)
		s.start(x, fmt.Sprintf("g%d", i))
	}
	return s
}

func (s *run) run() {
	var actors, troubles sync.WaitGroup
	actor := func(n uint64, fn func(r *rand.Rand)) {
		actors.Go(func() { fn(sim.Rand(s.seed, n)) })
	}
	for i := range 1 + s.rng.IntN(3) {
		actor(uint64(100+i), func(r *rand.Rand) { s.idempotent(r, int64(1+i)) })
	}
	for i := range s.rng.IntN(3) {
		actor(uint64(200+i), func(r *rand.Rand) { s.plain(r, i) })
	}
	if s.rng.IntN(3) == 0 {
		actor(300, s.publisher)
	}
	if s.rng.IntN(4) == 0 {
		for i := range 1 + s.rng.IntN(2) {
			actor(uint64(350+i), func(r *rand.Rand) { s.transactional(r, int64(50+i)) })
		}
	}
	s.deleters(actor)
	var readers sync.WaitGroup
	done := make(chan struct{})
	for i := range 1 + s.rng.IntN(3) {
		readers.Go(func() { s.reader(sim.Rand(s.seed, uint64(400+i)), done) })
	}
	readers.Go(func() { s.asker(sim.Rand(s.seed, 500), done) })
	if s.rng.IntN(4) > 0 {
		troubles.Go(func() { s.trouble(sim.Rand(s.seed, 600)) })
	}
	time.Sleep(time.Duration(2+s.rng.IntN(20)) * time.Second)
	close(s.ended)
	troubles.Wait()
	s.weather.Clear()
	close(s.healed)
	// Late copies and frozen calls of before may still arrive.
	actors.Wait()
	time.Sleep(10 * time.Second)
	s.verify()
	close(done)
	readers.Wait()
	for _, x := range s.seats {
		x.kill(s.rng.IntN(2) == 0)
	}
	time.Sleep(10 * time.Second) // timers of the memory store
}

// trace prints what happens, with SIM_TRACE set.
func (s *run) trace(format string, a ...any) {
	if os.Getenv("SIM_TRACE") != "" {
		s.t.Logf("%s "+format, append([]any{time.Now().Format("05.000000")}, a...)...)
	}
}

// shown notes that everything below an offset was shown to somebody.
func (s *run) shown(o types.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = max(s.acked, o)
}

// settled reports whether an error leaves nothing stored.
func settled(err error) bool { return !errors.Is(err, kerr.RequestTimedOut) }
