package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// idempotence is a producer without transactions and the batches it has stored.
type idempotence struct {
	pid  int64
	next int32
	sent []sent
}

type sent struct {
	batch []byte
	base  types.Offset
}

// calls counts the store's calls of a gateway while armed, and makes trouble.
type calls struct {
	mu     sync.Mutex // guards: all below
	r      *rand.Rand
	client *memory.Client
	armed  bool
	n, at  int // calls so far; which one the trouble comes at, 0: none
	kind   int // 0: freeze before it; 1: freeze behind it; 2: its answer is lost
	noisy  int // one of so many writes has an unknown outcome; 0: none
	frozen bool
}

func (c *calls) call(write bool) (f memory.WriteFault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed {
		return f
	}
	if c.n++; c.n == c.at {
		switch {
		case c.kind == 2 && write:
			f.LoseAck = true
		case c.kind == 1 && write:
			f.After = 2 * time.Millisecond
			c.frozen = true
			client := c.client
			time.AfterFunc(time.Millisecond, client.Freeze)
		default:
			c.client.Freeze()
			c.frozen = true
		}
		return f
	}
	if write && c.noisy > 0 && c.r.IntN(c.noisy) == 0 {
		switch c.r.IntN(4) {
		case 0:
			f.LoseAck = true
		case 1:
			f.Drop = true
		case 2:
			f.Late = time.Duration(1+c.r.IntN(30)) * time.Millisecond
		case 3:
			f.Err = pubsub.ErrUnavailable
		}
	}
	if c.r.IntN(4) == 0 {
		f.Before = time.Duration(c.r.IntN(3)) * time.Millisecond
	}
	return f
}

func (c *calls) faults() memory.Faults {
	w := func(memory.Op) memory.WriteFault { return c.call(true) }
	r := func(memory.Op) memory.ReadFault { return memory.ReadFault{Delay: c.call(false).Before} }
	return memory.Faults{Append: w, Set: w, Trim: w, Create: w, Delete: w, Read: r, Get: r, Bounds: r, Headers: r, TableGet: r, Scan: r, Find: r}
}

func (c *calls) arm(client *memory.Client, at, kind, noisy int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client, c.armed, c.n, c.at, c.kind, c.noisy = client, true, 0, at, kind, noisy
}

func (c *calls) isFrozen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frozen
}

func (c *calls) disarm() (n int, frozen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	return c.n, c.frozen
}

// keyedHistory is a random history of records with keys through two gateways, of
// which one holds the maintenance lease.
type keyedHistory struct {
	*history
	calls   []*calls
	leases  []*holding
	term    uint64
	plainly []*idempotence
	keys    int
	options CompactOptions
	runs    map[string]int // how compactions ended
	written truths
}

func newKeyedHistory(t *testing.T, seed uint64) *keyedHistory {
	h := &keyedHistory{history: &history{t: t, r: rand.New(rand.NewPCG(seed, 11)), w: newWorld(t, memory.Config{Remember: true}), commits: map[string]bool{}}, runs: map[string]int{}}
	h.w.config.Retained, h.w.config.Compacted = true, true
	h.keys = 1 + h.r.IntN(6)
	for i := range 2 {
		h.gs, h.calls, h.leases = append(h.gs, nil), append(h.calls, nil), append(h.leases, nil)
		h.boot(i)
	}
	h.hold(0)
	for i := range 1 + h.r.IntN(2) {
		h.writers = append(h.writers, &writer{pid: int64(i + 1), bumps: h.r.IntN(2) == 0})
		h.plainly = append(h.plainly, &idempotence{pid: int64(100 + i)})
	}
	h.options = CompactOptions{Ratio: 0, MaxLag: 1 << 62, DeleteRetention: time.Duration(h.r.IntN(3)) * 50 * time.Millisecond, Memory: []int{1, 100, 1 << 16}[h.r.IntN(3)]}
	if h.r.IntN(3) == 0 {
		h.options.MinLag = 20 * time.Millisecond
	}
	return h
}

// small has siblings of many messages and many parts, and passes over single
// messages.
func small(g *gateway, r *rand.Rand) {
	g.host.sibling = siblingSizes{1 + r.IntN(400), 1 + r.IntN(3)}
	g.host.trimStep = int64(8 * g.host.sibling.target) // so that some go in steps
	g.host.stretch = int64(g.host.sibling.target)
}

func (h *keyedHistory) boot(i int) {
	if h.gs[i] != nil {
		h.gs[i].kill()
	}
	h.calls[i] = &calls{r: rand.New(rand.NewPCG(h.r.Uint64(), 3))}
	h.leases[i] = &holding{}
	h.gs[i] = h.w.gateway(h.calls[i].faults())
	h.gs[i].host.maintains = h.leases[i].holds
	small(h.gs[i], h.r)
}

// hold gives the lease to a gateway, under a new term.
func (h *keyedHistory) hold(i int) {
	h.term++
	for j, l := range h.leases {
		l.set(h.term, i == j)
	}
}

func (h *keyedHistory) holder() int {
	for i, l := range h.leases {
		if _, held := l.holds(); held {
			return i
		}
	}
	return -1
}

func (h *keyedHistory) some(of string) []serde.NewRecord {
	rs := make([]serde.NewRecord, 1+h.r.IntN(4))
	for i := range rs {
		rs[i] = serde.NewRecord{TimestampMillis: time.Now().UnixMilli() - int64(h.r.IntN(30)), Key: fmt.Appendf(nil, "k%d", h.r.IntN(h.keys))}
		if h.r.IntN(4) > 0 {
			rs[i].Value = h.value(of)
		}
	}
	return rs
}

// codec is any but zstd, which is made anew each time in virtual time and costs too
// much. TestCompactionKeepsCodecs has them all.
func (h *keyedHistory) codec() compress.Codec { return compress.Codec(h.r.IntN(4)) }

func (h *keyedHistory) produce() {
	switch h.r.IntN(4) {
	case 0: // without an id
		for range 5 {
			b := keyed(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, h.codec(), h.some("none"))
			if a := <-h.submit(h.gateway(), b, nil); a.Err == nil {
				return
			}
		}
	case 1:
		header := pubsub.Header{headerKey: {fmt.Sprintf("k%d", h.r.IntN(h.keys))}}
		if h.r.IntN(3) == 0 {
			header = nil // no key: it goes
		}
		_, _ = h.w.server.Publish(testSubject, header, h.value("nats"))
	default:
		p := h.plainly[h.r.IntN(len(h.plainly))]
		rs := h.some("idempotent")
		b := keyed(serde.BatchFields{ProducerID: p.pid, BaseSequence: p.next}, h.codec(), rs)
		for try := 0; ; try++ {
			a := <-h.submit(h.gateway(), b, nil)
			if a.Err == nil {
				p.next += int32(len(rs))
				p.sent = append(p.sent, sent{b, a.BaseOffset})
				return
			}
			if try == 20 {
				h.t.Fatalf("producer %d: %v (%s)", p.pid, a.Err, a.Message)
			}
		}
	}
}

func (h *keyedHistory) transact() {
	w := h.writers[h.r.IntN(len(h.writers))]
	if w.open && h.r.IntN(3) > 0 {
		m := Marker{ProducerID: w.pid, N: w.n, Commit: h.r.IntN(2) == 0}
		w.mu.Lock()
		w.open = false
		if w.bumps {
			w.epoch, w.seq = w.epoch+1, 0
		}
		w.mu.Unlock()
		m.Epoch = w.epoch
		h.end(m)
		return
	}
	if !w.open {
		w.mu.Lock()
		w.n, w.open = w.n+1, true
		w.mu.Unlock()
	}
	b := keyed(serde.BatchFields{ProducerID: w.pid, ProducerEpoch: w.epoch, BaseSequence: w.seq, Attributes: transactional}, h.codec(), h.some("txn"))
	h.store(w, b, 0)
}

// compact has the holder make a run, with trouble of some kind.
func (h *keyedHistory) compact() {
	i := h.holder()
	g, c := h.gs[i], h.calls[i]
	o := h.options
	o.Now = time.Now()
	o.Force = h.r.IntN(2) == 0
	kind, at, noisy := h.r.IntN(6), 0, 0
	switch {
	case kind < 3:
		at = 1 + h.r.IntN(60)
	case kind == 3:
		noisy = 2 + h.r.IntN(8)
	}
	c.arm(g.client, at, min(kind, 2), noisy)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _, err := g.p.Compact(ctx, o); ended <- err }()
	for n := 0; ; n++ {
		select {
		case err := <-ended:
			if _, frozen := c.disarm(); frozen { // behind its last call
				h.boot(i)
				h.hold(h.r.IntN(2))
				return
			}
			h.ended(err)
			return
		case <-time.After(5 * time.Millisecond):
		}
		// One that was frozen before, and is not now, is overtaken while it runs.
		if c.isFrozen() {
			c.disarm() // nothing freezes it after it was thawed
			time.Sleep(2 * time.Millisecond)
			break
		}
		if n == 20_000 {
			h.t.Fatal("a run of compaction does not end")
		}
	}
	if h.r.IntN(4) == 0 {
		time.Sleep(2 * askTimeout) // its calls fail
	}
	if h.r.IntN(2) == 0 { // it was killed
		cancel()
		g.kill()
		<-ended
		h.boot(i)
		h.hold(h.r.IntN(2))
		return
	}
	// It is frozen, another takes over, and it wakes up.
	other := 1 - i
	h.hold(other)
	h.gs[i] = h.gs[other]
	if h.r.IntN(3) > 0 {
		if err := h.gs[other].p.SweepClean(h.t.Context()); err != nil {
			h.t.Fatalf("sweep: %v", err)
		}
	}
	for range h.r.IntN(4) {
		h.produce()
	}
	if h.r.IntN(3) > 0 {
		o.Now = time.Now()
		if _, err := h.gs[other].p.Compact(h.t.Context(), o); err != nil && !errors.Is(err, ErrNothing) {
			h.t.Fatalf("the next holder: %v", err)
		}
	}
	h.gs[i] = g
	g.client.Thaw()
	select {
	case err := <-ended:
		h.ended(err)
	case <-time.After(5 * time.Minute):
		h.t.Fatal("a holder that woke up does not end its run")
	}
	if h.r.IntN(2) == 0 {
		h.boot(i)
	}
	h.hold(h.r.IntN(2))
}

// ended counts how a run ended, and refuses what is no way to end.
func (h *keyedHistory) ended(err error) {
	switch {
	case err == nil:
		h.runs["done"]++
	case errors.Is(err, ErrNothing):
		h.runs["nothing"]++
	case errors.Is(err, ErrNotMaintainer), errors.As(err, new(*TermError)), errors.Is(err, errAbandoned),
		errors.Is(err, pubsub.ErrUnavailable), errors.Is(err, pubsub.ErrNotFound), errors.Is(err, context.DeadlineExceeded), errors.Is(err, pubsub.ErrOutcomeUnknown), errors.Is(err, context.Canceled):
		h.runs["failed"]++
	default:
		h.t.Fatalf("a run of compaction: %v", err)
	}
}

func (h *keyedHistory) step() {
	switch h.r.IntN(12) {
	case 0, 1, 2, 3:
		for range 1 + h.r.IntN(4) {
			h.produce()
		}
	case 4, 5, 6:
		h.transact()
	case 7, 8, 9:
		h.compact()
	case 10:
		switch h.r.IntN(4) {
		case 0:
			g := h.gateway()
			l, err := g.p.Lookup(h.t.Context(), LookupRequest{Timestamp: Latest})
			if err != nil {
				h.t.Fatal(err)
			}
			if _, err := g.p.DeleteRecords(h.t.Context(), types.Offset(h.r.Int64N(int64(l.Offset)+1))); err != nil {
				h.t.Fatal(err)
			}
		case 1:
			g := h.gs[h.holder()]
			b, err := g.p.log.Bounds(h.t.Context())
			if err == nil {
				g.configure(func(c *Config) { c.RetentionBytes, c.RetentionMillis = int64(500+h.r.IntN(3000)), -1 })
				if h.r.IntN(6) == 0 { // by time
					g.configure(func(c *Config) { c.RetentionBytes, c.RetentionMillis = -1, int64(h.r.IntN(25_000)) })
					time.Sleep(time.Duration(h.r.IntN(atLeast+5000)) * time.Millisecond)
				}
				err = g.p.Retain(h.t.Context(), time.Now(), b)
			}
			if err != nil {
				h.t.Fatal(err)
			}
		case 2:
			_ = h.gateway().p.writeSnapshot(h.t.Context())
		case 3:
			h.boot(1 - h.holder())
		}
	case 11:
		time.Sleep(time.Duration(h.r.IntN(60)) * time.Millisecond)
	}
}

// compare compares all that a gateway shows with the truth.
func (h *keyedHistory) compare(what string, g *gateway) {
	t := h.t
	if err := g.p.sync(t.Context()); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	tr := h.written.of(t, h.w.server)
	var all seen
	for _, committed := range []bool{true, false} {
		s, err := readAll(t, h.r, g, committed, nil)
		if err == nil {
			err = tr.check(s)
		}
		limit := tr.end
		if committed {
			limit = tr.stable
		}
		if want := max(limit, s.start); err == nil && s.end != want {
			err = fmt.Errorf("the reader ends at %d, not at %d", s.end, want)
		}
		if err != nil {
			t.Fatalf("%s, committed %v: %v", what, committed, err)
		}
		all = s
	}
	lookup := func(r LookupRequest) LookupResult {
		res, err := g.p.Lookup(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: %+v: %v", what, r, err)
		}
		return res
	}
	if o := lookup(LookupRequest{Timestamp: Earliest}).Offset; o != all.start {
		t.Fatalf("%s: the log begins at %d, and at %d", what, o, all.start)
	}
	if o := lookup(LookupRequest{Timestamp: Latest}).Offset; o != tr.end {
		t.Fatalf("%s: the log ends at %d, not at %d", what, o, tr.end)
	}
	newest, times := shown{offset: -1, time: -1}, []int64{0, 1 << 60}
	for _, x := range all.records {
		if x.time > newest.time {
			newest = x
		}
		times = append(times, x.time, x.time+1)
	}
	if r := lookup(LookupRequest{Timestamp: MaxTimestamp}); r.Offset != newest.offset || r.Timestamp != newest.time {
		t.Fatalf("%s: the newest record is %+v, want %+v", what, r, newest)
	}
	for range 6 {
		at := times[h.r.IntN(len(times))]
		want := shown{offset: -1, time: -1}
		if i := slices.IndexFunc(all.records, func(x shown) bool { return x.time >= at }); i >= 0 {
			want = all.records[i]
		}
		if r := lookup(LookupRequest{Timestamp: at}); r.Offset != want.offset || r.Timestamp != want.time {
			t.Fatalf("%s: the first record from %d on is %+v, want %+v", what, at, r, want)
		}
	}
	for range 4 {
		from := all.start + types.Offset(h.r.Int64N(int64(tr.end-all.start)+1))
		committed := h.r.IntN(2) == 0
		n, err := g.p.Available(t.Context(), from, committed)
		r, rerr := g.p.Read(t.Context(), ReadRequest{Offset: from, MaxBytes: 1, Whole: true, Committed: committed})
		if err != nil || rerr != nil || (n > 0) != (r.Bytes > 0) {
			t.Fatalf("%s: at %d, committed %v, %d bytes are available (%v), %d were read (%v)", what, from, committed, n, err, r.Bytes, rerr)
		}
		if bs := split(t, r); len(bs) > 0 && types.Offset(bs[0].LastOffset()) < from {
			t.Fatalf("%s: read at %d begins with the batch up to %d", what, from, bs[0].LastOffset())
		}
	}
	if n, err := g.p.Size(t.Context()); err != nil || n <= 0 && tr.end > 0 {
		t.Fatalf("%s: size %d, %v", what, n, err)
	}
	for _, p := range h.plainly { // what was stored is known again
		for _, s := range p.sent[max(0, len(p.sent)-5):] {
			if a := <-h.submit(g, s.batch, nil); a.Err != nil || a.BaseOffset != s.base {
				t.Fatalf("%s: a batch that was stored at %d comes again: %d, %v", what, s.base, a.BaseOffset, a.Err)
			}
		}
		if len(p.sent) > 0 {
			b := keyed(serde.BatchFields{ProducerID: p.pid, BaseSequence: p.next + 7}, 0, h.some("gap"))
			if a := <-h.submit(g, b, nil); !errors.Is(a.Err, kerr.OutOfOrderSequenceNumber) {
				t.Fatalf("%s: a batch with a gap before it: %v", what, a.Err)
			}
		}
	}
}

// swept checks that nothing is left but what the record names.
func (h *keyedHistory) swept() {
	if err := h.gs[h.holder()].p.SweepClean(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	r := h.w.stored()
	if r.Run != nil {
		h.t.Fatalf("a run is left: %+v", r.Run)
	}
	want := []string{testLog}
	parts := ""
	if r.Clean != nil {
		want = append(want, r.Clean.Stream)
		parts = siblingKeys(recordKey(h.w.id, 0), r.Clean.Stream)
	}
	if got := h.w.server.Logs(); !slices.Equal(got, want) {
		h.t.Fatalf("streams %v, want %v", got, want)
	}
	n := 0
	for _, k := range h.w.server.Keys("kafka-partitions") {
		if strings.Contains(k, ".k.") {
			if n++; parts == "" || !strings.HasPrefix(k, parts) {
				h.t.Fatalf("key %s is left", k)
			}
		}
	}
	if r.Clean != nil && n != len(r.Clean.Parts) {
		h.t.Fatalf("%d parts of the index, want %d", n, len(r.Clean.Parts))
	}
}

// TestCompactionAsTheModel: random histories of records with keys, tombstones,
// transactions, idempotent producers, all codecs and plain messages, without keys
// too; compaction at random moments, crashes, lost acknowledgements and freezes of its
// holder at any call of the store, retention by size and time and DeleteRecords
// between. At the end, and to readers
// that go from the start to the end all the time, the log shows the last value of
// each key and nothing that was not stored.
//
// SIM_SEEDS is how many, SIM_FROM the first of them, SIM_SEED one.
func TestCompactionAsTheModel(t *testing.T) {
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return otherwise
	}
	first, seeds := number("SIM_FROM", 0), number("SIM_SEEDS", 100)
	if testing.Short() {
		seeds = min(seeds, 25)
	}
	if one := number("SIM_SEED", -1); one >= 0 {
		first, seeds = one, 1
	}
	var mu sync.Mutex // guards: runs
	runs := map[string]int{}
	t.Run("seeds", func(t *testing.T) {
		for seed := first; seed < first+seeds; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				own := map[string]int{}
				synctest.Test(t, func(t *testing.T) {
					defer func() {
						if t.Failed() {
							t.Logf("failing seed: SIM_SEED=%d", seed)
						}
					}()
					compactionSeed(t, uint64(seed), own)
				})
				mu.Lock()
				defer mu.Unlock()
				for k, n := range own {
					runs[k] += n
				}
			})
		}
	})
	t.Logf("%d seeds: runs %v", seeds, runs)
	if seeds >= 200 && (runs["done"] < seeds/2 || runs["failed"] == 0 || runs["nothing"] == 0) {
		t.Errorf("too few runs of each kind: %v", runs)
	}
}

// behind reports whether the gateway has not heard yet of the sibling that the record
// names; news lets it hear. A real one does within milliseconds, this one watches
// nothing, and what it serves from memory meanwhile counts as a reader's time.
func (g *gateway) behind(news bool) (stale bool, err error) {
	if news {
		_, _, err := g.p.fetchRecord(g.w.t.Context())
		return false, err
	}
	v, err := g.host.records.Get(g.w.t.Context(), recordKey(g.w.id, 0))
	if errors.Is(err, pubsub.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	stored, err := parseRecord(v.Data)
	if err != nil {
		return false, err
	}
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	return !sameSibling(stored.Clean, g.p.clean), nil
}

func compactionSeed(t *testing.T, seed uint64, runs map[string]int) {
	h := newKeyedHistory(t, seed)
	reader := h.w.gateway(memory.Faults{})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r := rand.New(rand.NewPCG(seed, 5))
		var written truths
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			time.Sleep(time.Duration(1+r.IntN(60)) * time.Millisecond)
			stale, err := reader.behind(r.IntN(2) == 0)
			if err != nil {
				t.Errorf("reader, pass %d: %v", n, err)
				return
			}
			began := time.Now()
			s, err := readAll(t, r, reader, r.IntN(2) == 0, func() { time.Sleep(time.Millisecond) })
			s.slow = stale || time.Since(began) >= h.options.DeleteRetention
			if err == nil {
				err = written.of(t, h.w.server).check(s)
			}
			if err != nil {
				t.Errorf("reader, pass %d, committed %v: %v", n, s.committed, err)
				return
			}
		}
	}()
	for range 6 + h.r.IntN(14) {
		h.step()
		if t.Failed() {
			break
		}
		time.Sleep(time.Duration(h.r.IntN(4)) * time.Millisecond)
	}
	close(stop)
	<-done
	if t.Failed() {
		return
	}
	h.swept()
	h.compare("the reader", reader)
	h.compare("a fresh gateway", h.w.gateway(memory.Faults{}))
	h.compare("the holder", h.gs[h.holder()])
	for k, n := range h.runs {
		runs[k] += n
	}
}
