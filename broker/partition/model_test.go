package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// writer is a producer with transactions, and what its coordinator knows of it.
type writer struct {
	pid int64
	seq int32

	mu    sync.Mutex // guards: epoch, n and open, for verify; only one goroutine changes them
	epoch int16
	n     int64
	open  bool

	bumps bool // each transaction ends with a new epoch
	ended []Marker
	sent  [][]byte // batches that were stored
}

// verify answers as the coordinator does, for a batch of an epoch. stale is told
// first, if positive: an answer of before.
func (w *writer) verify(epoch int16, stale int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case stale > 0:
			n := stale
			stale = 0
			return n, nil
		case epoch != w.epoch:
			return 0, kerr.InvalidProducerEpoch
		case !w.open:
			return 0, kerr.InvalidTxnState
		}
		return w.n, nil
	}
}

// history is one random history of several producers through two gateways.
type history struct {
	t       *testing.T
	r       *rand.Rand
	w       *world
	gs      []*gateway
	writers []*writer
	commits map[string]bool // what the coordinator decided, by "pid n"
	values  int
	plain   int32 // next sequence of a producer without transactions
}

func (h *history) faults() memory.Faults {
	deaf := h.r.IntN(2) == 0
	r := rand.New(rand.NewPCG(h.r.Uint64(), 1))
	return memory.Faults{
		News: memoryNews(deaf),
		Append: func(memory.Op) (f memory.WriteFault) {
			switch r.IntN(12) {
			case 0:
				f.LoseAck = true
			case 1:
				f.Drop = true
			case 2:
				f.Late = time.Duration(r.IntN(50)) * time.Millisecond
			case 3, 4, 5:
				f.Before = time.Duration(r.IntN(20)) * time.Millisecond
			}
			return f
		},
	}
}

func (h *history) gateway() *gateway { return h.gs[h.r.IntN(len(h.gs))] }

func (h *history) value(of string) []byte {
	h.values++
	return fmt.Appendf(nil, "%s %d.", of, h.values)
}

func (h *history) batch(w *writer, n int) []byte {
	s := batchSpec{pid: w.pid, epoch: w.epoch, seq: w.seq, attrs: transactional}
	for range n {
		s.times = append(s.times, time.Now().UnixMilli())
		s.values = append(s.values, h.value(fmt.Sprintf("%d %d", w.pid, w.n)))
	}
	return s.bytes()
}

// submit sends a batch once; the result comes later.
func (h *history) submit(g *gateway, b []byte, verify func(context.Context) (int64, error)) chan AppendResult {
	ch := make(chan AppendResult, 1)
	g.p.Submit(AppendRequest{Records: slices.Clone(b), Transactional: verify != nil, Verify: verify}, func(a AppendResult) { ch <- a })
	return ch
}

// store sends a batch until it is stored.
func (h *history) store(w *writer, b []byte, stale int64) {
	for try := range 20 {
		a := <-h.submit(h.gateway(), b, w.verify(w.epoch, stale))
		if a.Err == nil {
			w.sent = append(w.sent, b)
			w.seq = addSequence(serde.Batch(b).BaseSequence(), serde.Batch(b).Count())
			return
		}
		if refusal := (*kerr.Error)(nil); errors.As(a.Err, &refusal) && !refusal.Retriable || try == 19 {
			h.t.Fatalf("producer %d epoch %d sequence %d in transaction %d: %v (%s)", w.pid, w.epoch, w.seq, w.n, a.Err, a.Message)
		}
	}
}

func (h *history) step() {
	w := h.writers[h.r.IntN(len(h.writers))]
	switch h.r.IntN(16) {
	case 0, 1, 2, 3, 4, 5: // several producers at once, so that batches share messages
		var others []chan AppendResult
		for range h.r.IntN(4) {
			b := batchSpec{pid: 99, seq: h.plain, times: []int64{time.Now().UnixMilli()}, values: [][]byte{h.value("plain")}}
			if h.r.IntN(2) == 0 {
				b.pid, b.seq = 0, 0
			} else {
				h.plain++
			}
			others = append(others, h.submit(h.gs[0], b.bytes(), nil))
		}
		stale := int64(0)
		if !w.open {
			stale = w.n
			w.mu.Lock()
			w.n, w.open = w.n+1, true
			w.mu.Unlock()
			if h.r.IntN(2) == 0 {
				stale = 0
			}
		}
		h.store(w, h.batch(w, 1+h.r.IntN(3)), stale)
		for _, ch := range others {
			// Those of the idempotent producer may fail for good after a loss.
			if a := <-ch; a.Err != nil {
				h.plain = 0
			}
		}
		if h.plain == 0 {
			h.restart(h.r.IntN(len(h.gs)), false)
		}
	case 6, 7, 8, 9:
		if !w.open {
			return
		}
		m := Marker{ProducerID: w.pid, Epoch: w.epoch, N: w.n, Commit: h.r.IntN(2) == 0, CoordinatorEpoch: int32(h.r.IntN(3))}
		// One more batch may be on its way when the transaction ends.
		var late chan AppendResult
		b, before := h.batch(w, 1), w.epoch
		if h.r.IntN(3) == 0 {
			late = h.submit(h.gateway(), b, w.verify(before, w.n))
		}
		w.mu.Lock()
		w.open = false
		if w.bumps {
			w.epoch, w.seq = w.epoch+1, 0
		}
		w.mu.Unlock()
		m.Epoch = w.epoch
		h.commits[fmt.Sprintf("%d %d", w.pid, w.n)] = m.Commit
		h.end(m)
		w.ended = append(w.ended, m)
		if late != nil {
			if a := <-late; a.Err == nil && !w.bumps {
				w.seq = addSequence(w.seq, 1)
			} else if errors.Is(a.Err, kerr.RequestTimedOut) {
				h.t.Fatal(a.Err)
			}
		}
	case 10:
		if len(w.ended) > 0 {
			h.end(w.ended[h.r.IntN(len(w.ended))])
		}
	case 11:
		if len(w.sent) > 0 { // what was stored comes again
			b := w.sent[h.r.IntN(len(w.sent))]
			<-h.submit(h.gateway(), b, w.verify(serde.Batch(b).ProducerEpoch(), int64(h.r.IntN(2))*w.n))
		}
	case 12:
		if _, err := h.w.server.Publish(testSubject, nil, h.value("nats")); err != nil {
			h.t.Fatal(err)
		}
	case 13:
		h.restart(h.r.IntN(len(h.gs)), h.r.IntN(2) == 0)
	case 14:
		_ = h.gateway().p.writeSnapshot(h.t.Context())
	case 15:
		h.compare(h.gateway(), 3)
	}
}

func (h *history) end(m Marker) {
	for try := 0; ; try++ {
		err := h.gateway().p.EndTransaction(h.t.Context(), m)
		if err == nil {
			return
		}
		if try == 20 {
			h.t.Fatalf("%+v: %v", m, err)
		}
	}
}

func (h *history) restart(i int, drain bool) {
	if drain {
		if err := h.gs[i].host.Drain(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
	}
	h.gs[i].kill()
	h.gs[i] = h.w.gateway(h.faults())
}

// naive is what the stored bytes alone say, headers aside: a transactional batch
// opens, a control batch ends what its producer has open.
type naive struct {
	end, stable types.Offset
	aborted     []abortedTxn
	data        []naiveBatch // of records
	markers     map[string]int
}

type naiveBatch struct {
	base   types.Offset
	values []string
	txn    *bool // nil: none; else whether it was committed, of an open one false
}

func (h *history) naive() naive {
	n := naive{markers: map[string]int{}}
	open := map[int64]types.Offset{}
	fates := map[int64]*bool{}
	seen := map[string]bool{}
	for _, m := range h.w.server.Messages(testLog) {
		if m.Header.Get(headerLog) == "" {
			n.data = append(n.data, naiveBatch{base: n.end, values: []string{string(m.Data)}})
			n.end++
			continue
		}
		for data := m.Data; len(data) > 0; {
			b, rest, err := serde.ParseBatch(data)
			if err != nil || b.BaseOffset() != int64(n.end) {
				h.t.Fatalf("batch at %d, expected at %d: %v", b.BaseOffset(), n.end, err)
			}
			data, n.end = rest, types.Offset(b.LastOffset())+1
			base, pid := types.Offset(b.BaseOffset()), b.ProducerID()
			if b.Control() {
				kind, _, err := serde.ParseControl(b)
				if err != nil {
					h.t.Fatal(err)
				}
				if first, ok := open[pid]; ok && kind == serde.ControlAbort {
					n.aborted = append(n.aborted, abortedTxn{pid: pid, first: first, last: base})
				} else if ok {
					*fates[pid] = true
				}
				delete(open, pid)
				n.markers[fmt.Sprint(pid)]++
				continue
			}
			x := naiveBatch{base: base}
			it := serde.NewRecords(b.Records(), b.Count())
			for it.Next() {
				v := string(it.Record.Value)
				if seen[v] {
					h.t.Fatalf("%q is stored twice", v)
				}
				seen[v] = true
				x.values = append(x.values, v)
			}
			if b.Transactional() {
				if _, ok := open[pid]; !ok {
					open[pid], fates[pid] = base, new(bool)
				}
				x.txn = fates[pid]
			}
			n.data = append(n.data, x)
		}
	}
	n.stable = n.end
	for _, first := range open {
		n.stable = min(n.stable, first)
	}
	return n
}

func (n *naive) overlapping(from, to types.Offset) []Aborted {
	out := []Aborted{}
	for _, a := range n.aborted {
		if a.last >= from && a.first < to && from < to {
			out = append(out, Aborted{a.pid, a.first})
		}
	}
	slices.SortFunc(out, func(a, b Aborted) int { return int(a.First - b.First) })
	return out
}

// compare compares what a gateway shows with the naive model, from some starts, or
// from all.
func (h *history) compare(g *gateway, starts int) {
	t, n := h.t, h.naive()
	for committed, want := range map[bool]types.Offset{false: n.end, true: n.stable} {
		r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest, Committed: committed})
		if err != nil || r.Offset != want {
			t.Fatalf("latest, committed %v: %d, %v, want %d", committed, r.Offset, err, want)
		}
	}
	for i := range int(n.end) + 1 {
		if starts > 0 && h.r.IntN(int(n.end)+1) >= starts {
			continue
		}
		from := types.Offset(i)
		r, err := g.p.Read(t.Context(), ReadRequest{Offset: from, MaxBytes: 1 + h.r.IntN(3000), Whole: true, Committed: true})
		if err != nil || r.HighWatermark != n.end || r.LastStable != n.stable {
			t.Fatalf("from %d: %v, high watermark %d, stable %d, want %d and %d", from, err, r.HighWatermark, r.LastStable, n.end, n.stable)
		}
		bs, to := split(t, r), from
		if len(bs) > 0 {
			to = types.Offset(bs[len(bs)-1].LastOffset()) + 1
		}
		if to > n.stable && to > from || to == from && from < n.stable {
			t.Fatalf("from %d: read up to %d, stable is %d", from, to, n.stable)
		}
		if want := n.overlapping(from, to); !slices.Equal(r.Aborted, want) {
			t.Fatalf("from %d to %d: aborted %v, want %v", from, to, r.Aborted, want)
		}
	}
	var want []string
	for _, x := range n.data {
		if x.base < n.stable && (x.txn == nil || *x.txn) {
			want = append(want, x.values...)
		}
	}
	if got := consumeCommitted(t, h.r, g, n.stable); !slices.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		t.Fatalf("a committed reader sees %d values, want %d; they differ from %q and %q on", len(got), len(want), got[i:min(i+1, len(got))], want[i:min(i+1, len(want))])
	}
}

// consumeCommitted reads as clients do (Fetcher of the Java client): a producer's
// batches are left out from the first offset of an aborted transaction to the
// marker.
func consumeCommitted(t *testing.T, r *rand.Rand, g *gateway, end types.Offset) (values []string) {
	for next := types.Offset(0); next < end; {
		res, err := g.p.Read(t.Context(), ReadRequest{Offset: next, MaxBytes: 1 + r.IntN(2000), Whole: true, Committed: true})
		if err != nil {
			t.Fatal(err)
		}
		aborted, skip := res.Aborted, map[int64]bool{}
		for _, b := range split(t, res) {
			for len(aborted) > 0 && aborted[0].First <= types.Offset(b.LastOffset()) {
				skip[aborted[0].ProducerID], aborted = true, aborted[1:]
			}
			kind := serde.ControlCommit
			if b.Control() {
				kind, _, _ = serde.ParseControl(b)
			}
			if b.Control() && kind == serde.ControlAbort {
				delete(skip, b.ProducerID())
			}
			if !b.Control() && !(b.Transactional() && skip[b.ProducerID()]) {
				it := serde.NewRecords(b.Records(), b.Count())
				for it.Next() {
					values = append(values, string(it.Record.Value))
				}
			}
			next = types.Offset(b.LastOffset()) + 1
		}
	}
	return values
}

// TestTransactionsAsTheModel: random histories of several producers with commits,
// aborts, late batches and markers, restarts with and without a snapshot, two
// gateways that lose to each other and acknowledgements that are lost. What
// committed readers see from every start is what the bytes of the log say, and each
// transaction has the one fate that its coordinator decided.
func TestTransactionsAsTheModel(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{t: t, r: rand.New(rand.NewPCG(uint64(seed), 7)), w: newWorld(t, memory.Config{}), commits: map[string]bool{}}
				for range 2 {
					h.gs = append(h.gs, h.w.gateway(h.faults()))
				}
				for i := range 1 + h.r.IntN(4) {
					h.writers = append(h.writers, &writer{pid: int64(i + 1), bumps: h.r.IntN(2) == 0})
				}
				for range 20 + h.r.IntN(60) {
					h.step()
				}
				fresh := h.w.gateway(memory.Faults{})
				h.compare(fresh, 0)
				for _, g := range h.gs {
					h.compare(g, 0)
				}
				h.fates()
			})
		})
	}
}

// fates compares the fate of each batch with what its coordinator decided.
func (h *history) fates() {
	n := h.naive()
	stored := 0
	for _, x := range n.data {
		if x.txn == nil {
			continue
		}
		for _, v := range x.values {
			stored++
			i := bytes.LastIndexByte([]byte(v), ' ')
			if commit, decided := h.commits[v[:i]]; *x.txn != (decided && commit) {
				h.t.Errorf("%q: committed %v, decided %v %v", v, *x.txn, decided, commit)
			}
		}
	}
	ended := 0
	for _, w := range h.writers {
		ended += len(w.ended)
		if got := n.markers[fmt.Sprint(w.pid)]; got != len(w.ended) {
			h.t.Errorf("producer %d: %d markers, %d transactions have ended", w.pid, got, len(w.ended))
		}
	}
	h.t.Logf("%d records in transactions, %d ended, log up to %d", stored, ended, n.end)
}

func memoryNews(deaf bool) func(string, pubsub.Message) bool {
	if !deaf {
		return nil
	}
	return func(string, pubsub.Message) bool { return true }
}
