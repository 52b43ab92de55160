package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func number(t *testing.T, name string, otherwise int) int {
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, v)
	}
	return n
}

// TestSimulation runs SIM_SEEDS seeds (default 200), or the one seed SIM_SEED.
func TestSimulation(t *testing.T) {
	if one := number(t, "SIM_SEED", -1); one >= 0 {
		for range number(t, "SIM_REPEAT", 1) {
			run(t, uint64(one))
		}
		return
	}
	seeds := number(t, "SIM_SEEDS", 200)
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		t.Run(fmt.Sprintf("worker %d", w), func(t *testing.T) {
			t.Parallel()
			for seed := 1 + w; seed <= seeds && !t.Failed(); seed += workers {
				run(t, uint64(seed))
			}
		})
	}
}

func run(t *testing.T, seed uint64) {
	t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("failing seed: SIM_SEED=%d", seed)
				}
			}()
			newSim(t, seed).run()
		})
	})
}

const (
	logName = "kafka-s-0"
	subject = "kafka.s.0"
)

// sim is one run.
type sim struct {
	t        *testing.T
	rng      *rand.Rand // of the run's own goroutine
	seed     uint64
	replicas int
	weather  *weather
	server   *memory.Server
	id       types.TopicID
	config   partition.Config
	kind     int // what lets go of records, see purges
	seats    []*seat
	ended    chan struct{} // closed when actors should finish
	healed   chan struct{} // closed when nothing goes wrong any more

	mu sync.Mutex // guards: all below
	// acked is one more than the largest offset acknowledged or shown.
	acked types.Offset
	log   []fact // what was submitted
	// deleted is the largest log start that was answered or shown, asked the
	// largest that somebody may have moved it to.
	deleted, asked types.Offset
	kills          int
	lied           bool // a leader has denied stored messages
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

// seat is a place for a gateway; whoever sits there may be killed and replaced.
type seat struct {
	mu     sync.Mutex // guards: all below
	client *memory.Client
	host   *partition.Host
	p      *partition.Partition
	cancel context.CancelFunc
	ran    chan struct{}
}

func (s *seat) now() (*partition.Partition, *memory.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p, s.client
}

func newSim(t *testing.T, seed uint64) *sim {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := &sim{
		t: t, rng: rng, seed: seed,
		weather: &weather{rng: rand.New(rand.NewPCG(seed, 2)), rate: []float64{0, 0.02, 0.1, 0.25}[rng.IntN(4)]},
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
		x := &seat{}
		s.seats = append(s.seats, x)
		s.start(x, fmt.Sprintf("g%d", i))
	}
	return s
}

// start puts a new gateway on a seat.
func (s *sim) start(x *seat, name string) {
	c := s.server.Client(s.weather.faults())
	var tab pubsub.Table
	for {
		var err error
		if tab, err = c.Table(context.Background(), pubsub.TableConfig{Name: "kafka-partitions"}); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	h := partition.NewHost(partition.Env{Store: c, Records: tab, Gateway: name, CacheBytes: 32 << 10})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		for ctx.Err() == nil {
			if err := h.Run(ctx); err == nil {
				return
			}
		}
	}()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.client, x.host, x.cancel, x.ran = c, h, cancel, ran
	x.p = h.Open(partition.OpenSpec{Topic: "s", ID: s.id, Log: c.Log(logName, subject), Config: s.config})
}

// kill ends a gateway as kill -9 does: its connection breaks in the middle of
// whatever it does.
func (x *seat) kill(drain bool) {
	x.mu.Lock()
	c, h, cancel, ran := x.client, x.host, x.cancel, x.ran
	x.mu.Unlock()
	if drain {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		_ = h.Drain(ctx)
		stop()
	} else {
		c.Disconnect()
	}
	cancel()
	c.Thaw()
	<-ran
	h.Stop()
	c.Close()
}

func (s *sim) run() {
	var actors, troubles sync.WaitGroup
	actor := func(n uint64, fn func(r *rand.Rand)) {
		actors.Go(func() { fn(rand.New(rand.NewPCG(s.seed, n))) })
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
	s.deleters(actor)
	var readers sync.WaitGroup
	done := make(chan struct{})
	for i := range 1 + s.rng.IntN(3) {
		readers.Go(func() { s.reader(rand.New(rand.NewPCG(s.seed, uint64(400+i))), done) })
	}
	readers.Go(func() { s.asker(rand.New(rand.NewPCG(s.seed, 500)), done) })
	if s.rng.IntN(4) > 0 {
		troubles.Go(func() { s.trouble(rand.New(rand.NewPCG(s.seed, 600))) })
	}
	time.Sleep(time.Duration(2+s.rng.IntN(20)) * time.Second)
	close(s.ended)
	troubles.Wait()
	s.weather.clear()
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
func (s *sim) trace(format string, a ...any) {
	if os.Getenv("SIM_TRACE") != "" {
		s.t.Logf("%s "+format, append([]any{time.Now().Format("05.000000")}, a...)...)
	}
}

// over reports whether actors should finish.
func over(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func pause(ch chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ch:
	}
}

func (s *sim) seat(r *rand.Rand) *seat { return s.seats[r.IntN(len(s.seats))] }

// records makes a batch whose first value is its id.
func records(pid int64, seq int32, id string, n, pad int) []byte {
	f := serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	if pid > 0 {
		f.ProducerID, f.ProducerEpoch, f.BaseSequence = pid, 0, seq
	}
	rs := make([]serde.NewRecord, n)
	for i := range rs {
		rs[i] = serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Key: []byte("k"), Value: append([]byte(id), make([]byte, pad)...)}
	}
	return serde.Build(f, rs)
}

// shown notes that everything below an offset was shown to somebody.
func (s *sim) shown(o types.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = max(s.acked, o)
}

// settled reports whether an error leaves nothing stored.
func settled(err error) bool { return !errors.Is(err, kerr.RequestTimedOut) }

// idempotent is a producer with up to five batches in flight, which resends
// what failed, in order, perhaps through another gateway.
func (s *sim) idempotent(r *rand.Rand, pid int64) {
	type batch struct {
		f    fact
		pad  int
		done bool
	}
	var window []*batch
	seq := int32(0)
	if r.IntN(4) == 0 {
		seq = math.MaxInt32 - 20 // wraps
	}
	made, calm := 0, 0
	for !over(s.ended) || len(window) > 0 {
		for n := 1 + r.IntN(5); len(window) < n && !over(s.ended); {
			b := &batch{f: fact{id: fmt.Sprintf("i%d-%d.", pid, made), pid: pid, seq: seq, n: 1 + r.IntN(4), base: -1}, pad: r.IntN(2000)}
			made++
			seq = int32((int64(seq) + int64(b.f.n)) & math.MaxInt32)
			window = append(window, b)
		}
		p, _ := s.seat(r).now()
		results := make([]chan partition.AppendResult, len(window))
		for i, b := range window {
			results[i] = make(chan partition.AppendResult, 1)
			b.f.attempts++
			p.Submit(partition.AppendRequest{Records: records(pid, b.f.seq, b.f.id, b.f.n, b.pad)}, func(a partition.AppendResult) { results[i] <- a })
		}
		for i, b := range window {
			a := <-results[i]
			s.trace("%s seq %d of window %d, try %d: base %d, %v", b.f.id, b.f.seq, len(window), b.f.attempts, a.BaseOffset, a.Err)
			switch {
			case a.Err == nil && b.done && a.BaseOffset != b.f.base:
				s.t.Errorf("%s acknowledged at %d and at %d", b.f.id, b.f.base, a.BaseOffset)
			case a.Err == nil:
				b.f.base, b.done = a.BaseOffset, true
				s.shown(a.BaseOffset + types.Offset(b.f.n))
			case errors.Is(a.Err, kerr.OutOfOrderSequenceNumber) && i == 0:
				// The first of the window follows what was acknowledged.
				s.t.Errorf("%s (sequence %d): %v (%s)", b.f.id, b.f.seq, a.Err, a.Message)
				return
			case errors.Is(a.Err, kerr.InvalidProducerEpoch), errors.Is(a.Err, kerr.InvalidRecord), errors.Is(a.Err, kerr.MessageTooLarge), errors.Is(a.Err, kerr.CorruptMessage):
				s.t.Errorf("%s: %v (%s)", b.f.id, a.Err, a.Message)
				return
			default:
				b.f.unknown = b.f.unknown || !settled(a.Err)
			}
		}
		for len(window) > 0 && window[0].done {
			s.mu.Lock()
			s.log = append(s.log, window[0].f)
			s.mu.Unlock()
			window = window[1:]
		}
		if over(s.healed) {
			if s.t.Failed() {
				return
			}
			if calm++; calm > 500 && len(window) > 0 {
				s.t.Errorf("%s is not acknowledged although nothing fails any more", window[0].f.id)
				return
			}
		}
		switch {
		case len(window) > 0:
			time.Sleep(ms(r, 100))
		case r.IntN(30) == 0:
			pause(s.ended, 7*time.Second) // long enough for a snapshot
		default:
			pause(s.ended, ms(r, 300))
		}
	}
}

// plain is a producer without idempotence that does not resend.
func (s *sim) plain(r *rand.Rand, who int) {
	for i := 0; !over(s.ended); i++ {
		f := fact{id: fmt.Sprintf("p%d-%d.", who, i), n: 1 + r.IntN(4), base: -1, attempts: 1}
		p, _ := s.seat(r).now()
		ch := make(chan partition.AppendResult, 1)
		p.Submit(partition.AppendRequest{Records: records(0, 0, f.id, f.n, r.IntN(3000))}, func(a partition.AppendResult) { ch <- a })
		a := <-ch
		if a.Err == nil {
			f.base = a.BaseOffset
			s.shown(a.BaseOffset + types.Offset(f.n))
		}
		f.unknown = a.Err != nil && !settled(a.Err)
		s.mu.Lock()
		s.log = append(s.log, f)
		s.mu.Unlock()
		pause(s.ended, ms(r, 300))
	}
}

// publisher is a plain NATS client: it always wins.
func (s *sim) publisher(r *rand.Rand) {
	for i := 0; !over(s.ended); i++ {
		if _, err := s.server.Publish(subject, pubsub.Header{"X": {"y"}}, fmt.Appendf(nil, "n-%d.", i)); err != nil {
			s.t.Error(err)
		}
		pause(s.ended, ms(r, 1000))
	}
}

// trouble kills, freezes and cuts off gateways.
func (s *sim) trouble(r *rand.Rand) {
	for n := 0; !over(s.ended); n++ {
		x := s.seat(r)
		_, c := x.now()
		switch r.IntN(5) {
		case 0, 1:
			x.kill(r.IntN(3) == 0)
			pause(s.ended, ms(r, 2000))
			s.start(x, fmt.Sprintf("k%d", n))
			s.mu.Lock()
			s.kills++
			s.mu.Unlock()
		case 2:
			c.Disconnect()
			pause(s.ended, ms(r, 3000))
			c.Reconnect()
		case 3:
			c.Freeze()
			pause(s.ended, ms(r, 8000))
			c.Thaw()
		case 4:
			// A leader that woke from a freeze denies what was acknowledged,
			// for less than the second between two questions.
			s.mu.Lock()
			s.lied = s.replicas > 1
			s.mu.Unlock()
			s.weather.lie(s.replicas > 1)
			pause(s.ended, ms(r, 800))
			s.weather.lie(false)
		}
		pause(s.ended, ms(r, 3000))
	}
}

// end is one more than the last offset stored at this moment, by the server's
// own account.
func (s *sim) end() types.Offset { return endOf(s.server.History(logName)) }

func endOf(ms []pubsub.Message) types.Offset {
	next := types.Offset(0)
	for _, m := range ms {
		if m.Header.Get("Stream-Log") == "" {
			next++
			continue
		}
		b, rest, _ := serde.ParseBatch(m.Data)
		for len(rest) > 0 {
			b, rest, _ = serde.ParseBatch(rest)
		}
		next = types.Offset(b.LastOffset()) + 1
	}
	return next
}

// reader reads the log from its beginning through a gateway, until all is read.
func (s *sim) reader(r *rand.Rand, done chan struct{}) {
	next := types.Offset(0)
	hw := map[*partition.Partition]types.Offset{}
	for !over(done) && !s.t.Failed() {
		p, _ := s.seat(r).now()
		// One gateway for a while.
		ch := make(chan struct{}, 1)
		cancel := p.Notify(ch)
		for range 1 + r.IntN(8) {
			ctx, stop := context.WithTimeout(context.Background(), ms(r, 3000))
			got, err := p.Read(ctx, partition.ReadRequest{Offset: next, MaxBytes: 1 + r.IntN(8000), Whole: r.IntN(2) == 0, Committed: r.IntN(2) == 0})
			stop()
			switch {
			case errors.Is(err, kerr.OffsetOutOfRange):
				start := s.earliest(p, done)
				if start >= 0 && start <= next {
					s.t.Errorf("offset %d, which was shown, is out of range; the log starts at %d", next, start)
				}
				next = max(next, start)
				continue
			case err != nil:
				pause(done, ms(r, 200))
				continue
			}
			if end := s.end(); got.HighWatermark > end {
				s.t.Errorf("high watermark %d, the log ends at %d", got.HighWatermark, end)
			}
			if got.LogStart > got.HighWatermark {
				s.t.Errorf("log start %d, high watermark %d", got.LogStart, got.HighWatermark)
			}
			if got.HighWatermark < hw[p] {
				s.t.Errorf("high watermark fell from %d to %d", hw[p], got.HighWatermark)
			}
			hw[p] = got.HighWatermark
			s.shown(got.HighWatermark)
			for _, data := range got.Batches {
				for len(data) > 0 {
					b, rest, err := serde.ParseBatch(data)
					if err != nil || !b.ChecksumOK() {
						s.t.Errorf("batch at %d: unreadable (%v)", next, err)
						return
					}
					data = rest
					if b.BaseOffset() > int64(next) || b.LastOffset() < int64(next) {
						s.t.Errorf("read at %d: batch %d to %d", next, b.BaseOffset(), b.LastOffset())
						return
					}
					next = types.Offset(b.LastOffset()) + 1
				}
			}
			if len(got.Batches) == 0 && next == got.HighWatermark {
				t := time.NewTimer(ms(r, 1000))
				select {
				case <-ch:
				case <-t.C:
				case <-done:
				}
				t.Stop()
			}
		}
		cancel()
	}
}

// asker asks for the end of the log: it never falls, never lies below what was
// shown before the question, and is there to be read.
func (s *sim) asker(r *rand.Rand, done chan struct{}) {
	latest := map[*partition.Partition]types.Offset{}
	for !over(done) {
		s.mu.Lock()
		least := s.acked
		s.mu.Unlock()
		p, _ := s.seat(r).now()
		ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
		a, err := p.Lookup(ctx, partition.LookupRequest{Timestamp: partition.Latest})
		stop()
		if err == nil {
			if end := s.end(); a.Offset > end {
				s.t.Errorf("latest offset %d, the log ends at %d", a.Offset, end)
			}
			// While a leader lies, a gateway that knows less than others cannot
			// know that it does. Its own answers still never fall.
			s.mu.Lock()
			if s.lied {
				least = latest[p]
			}
			s.mu.Unlock()
			latest[p] = max(latest[p], a.Offset)
			if a.Offset < least {
				s.t.Errorf("latest offset %d, %d was shown before the question", a.Offset, least)
			}
			s.shown(a.Offset)
		}
		pause(done, ms(r, 500))
	}
}

// verify reads the whole log through every gateway and a new one, and compares
// it with what was stored and with what was submitted.
func (s *sim) verify() {
	t := s.t
	s.mu.Lock()
	least, log, kills := s.acked, s.log, s.kills
	s.mu.Unlock()
	fresh := &seat{}
	s.start(fresh, "fresh")
	defer fresh.kill(false)
	var first []byte
	start := types.NoOffset
	for i, x := range append([]*seat{fresh}, s.seats...) {
		p, _ := x.now()
		begin, all := s.readAll(p)
		if i == 0 {
			start, first = begin, all
		} else if begin != start || !bytes.Equal(first, all) {
			t.Errorf("gateway %d reads another log than a new one (from %d and %d, %d and %d bytes)", i, begin, start, len(all), len(first))
		}
	}
	stored := storedOf(t, s.server.History(logName))
	found := map[string][]batch{}
	next := types.Offset(0)
	for _, b := range stored {
		if b.base != next {
			t.Fatalf("batch at %d, expected %d", b.base, next)
		}
		next += types.Offset(b.n)
		found[b.id] = append(found[b.id], b)
	}
	if next < least {
		t.Errorf("the log ends at %d, %d was shown", next, least)
	}
	s.verifyStart(start, next)
	// What is read is the end of what was stored.
	rest := stored[len(stored):]
	for i, b := range stored {
		if b.base+types.Offset(b.n) > start {
			rest = stored[i:]
			break
		}
	}
	for data := first; len(data) > 0; rest = rest[1:] {
		b, more, err := serde.ParseBatch(data)
		if err != nil {
			t.Fatal(err)
		}
		data = more
		if got := batchOf(t, b); len(rest) == 0 || got != rest[0] {
			t.Fatalf("read %+v, stored are %+v", got, rest[:min(1, len(rest))])
		}
	}
	if len(rest) > 0 {
		t.Errorf("the last %d batches are not read", len(rest))
	}
	t.Logf("%d submitted, offsets %d to %d, %d messages, %d kills, faults %v, %d gateways", len(log), start, next, len(s.server.Messages(logName)), kills, s.weather.rate, len(s.seats))
	last := map[int64]types.Offset{}
	for _, f := range log {
		at := found[f.id]
		switch {
		case f.base >= 0 && len(at) == 0:
			t.Errorf("%s was acknowledged at %d and is not there", f.id, f.base)
		case f.base < 0 && len(at) > 0 && !f.unknown:
			t.Errorf("%s was refused and is stored at %d", f.id, at[0].base)
		case len(at) > f.attempts || f.pid > 0 && len(at) > 1:
			t.Errorf("%s is stored %d times", f.id, len(at))
		case f.base >= 0 && (at[0].base != f.base || at[0].n != f.n):
			t.Errorf("%s was acknowledged at %d, stored at %d", f.id, f.base, at[0].base)
		case f.pid > 0:
			if f.base < last[f.pid] {
				t.Errorf("%s is stored before its predecessor", f.id)
			}
			last[f.pid] = f.base
		}
	}
}

// batch is a stored batch as checks want it.
type batch struct {
	id   string // of its first record
	base types.Offset
	n    int
	seq  int32
}

func batchOf(t *testing.T, b serde.Batch) batch {
	it := serde.NewRecords(b.Records(), b.Count())
	if !it.Next() {
		t.Fatalf("batch at %d: %v", b.BaseOffset(), it.Err())
	}
	id, _, _ := bytes.Cut(it.Record.Value, []byte("."))
	return batch{string(id) + ".", types.Offset(b.BaseOffset()), int(b.Count()), b.BaseSequence()}
}

// storedOf lists the batches of messages from the first of a log on.
func storedOf(t *testing.T, ms []pubsub.Message) (bs []batch) {
	next := types.Offset(0)
	for i, m := range ms {
		if m.Seq != pubsub.Seq(i+1) {
			t.Fatalf("message %d of the log is number %d", m.Seq, i+1)
		}
		if m.Header.Get("Stream-Log") == "" {
			bs = append(bs, batch{string(m.Data), next, 1, -1})
			next++
			continue
		}
		for data := m.Data; len(data) > 0; {
			b, rest, err := serde.ParseBatch(data)
			if err != nil {
				t.Fatal(err)
			}
			data = rest
			bs = append(bs, batchOf(t, b))
			next = types.Offset(b.LastOffset()) + 1
		}
	}
	return bs
}

// readAll reads from the log start to the end, however often a read fails.
func (s *sim) readAll(p *partition.Partition) (start types.Offset, all []byte) {
	start = s.earliest(p, nil)
	next := start
	for deadline := time.Now().Add(time.Minute); ; {
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		got, err := p.Read(ctx, partition.ReadRequest{Offset: next, MaxBytes: 1 << 20, Whole: true})
		stop()
		if err != nil {
			if time.Now().After(deadline) {
				s.t.Errorf("read at %d: %v", next, err)
				return start, all
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for _, data := range got.Batches {
			all = append(all, data...)
			for len(data) > 0 {
				b, rest, err := serde.ParseBatch(data)
				if err != nil {
					s.t.Error(err)
					return start, all
				}
				next, data = types.Offset(b.LastOffset())+1, rest
			}
		}
		if len(got.Batches) == 0 {
			if next != got.HighWatermark {
				s.t.Errorf("an empty read at %d, high watermark %d", next, got.HighWatermark)
			}
			return start, all
		}
	}
}
