package compact

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// mbatch is what the model knows of a batch: no bytes, one record a struct.
type mbatch struct {
	base, last int64
	pid        int64 // -1: none
	control    bool
	txn        int // 0: none; ids of the history's transactions
	records    []one
	horizon    int64 // 0: none
	raw        []byte
}

// history is a log as producers made it, and what is true of it.
type history struct {
	t       *testing.T
	rnd     *rand.Rand
	log     []*mbatch // as written
	next    int64
	now     int64
	txns    []int   // decision of each transaction: 0 open, 1 committed, 2 aborted
	first   []int64 // offset of each transaction's first record
	ended   []int64 // offset of each transaction's marker
	open    map[int64]int
	seqs    map[int64]int32
	epochs  map[int64]int16
	newest  map[int64]int64 // base offset of the batch that Env.LastOf means
	data    map[int64]int16 // epoch of each producer's newest batch of data
	keyless bool
}

func newHistory(t *testing.T, rnd *rand.Rand) *history {
	return &history{t: t, rnd: rnd, now: 1_700_000_000_000, txns: []int{0}, first: []int64{-1}, ended: []int64{-1}, open: map[int64]int{},
		seqs: map[int64]int32{}, epochs: map[int64]int16{}, newest: map[int64]int64{}, data: map[int64]int16{}}
}

// aborted is Env.Aborted.
func (h *history) aborted(_ int64, o types.Offset) bool {
	i := slices.IndexFunc(h.log, func(b *mbatch) bool { return b.base <= int64(o) && int64(o) <= b.last })
	return h.txns[h.log[i].txn] == 2
}

// lastOf is Env.LastOf where all live.
func (h *history) lastOf(pid int64, _ int16) (types.Offset, bool) {
	o, ok := h.newest[pid]
	return types.Offset(o), ok
}

func (h *history) codec() compress.Codec { return compress.Codec(h.rnd.IntN(5)) }

// grow appends n batches: plain, idempotent and transactional producers, markers,
// new epochs.
func (h *history) grow(n int) {
	for range n {
		h.now += h.rnd.Int64N(20)
		switch pid := int64(h.rnd.IntN(6)); {
		case pid < 2:
			h.append(-1, 0)
		case pid < 4:
			h.append(pid, 0)
		case h.open[pid] != 0 && h.rnd.IntN(3) == 0:
			h.end(pid, h.rnd.IntN(2) == 0)
		case h.open[pid] == 0 && h.rnd.IntN(8) == 0: // a fenced producer's marker
			h.txns, h.first, h.ended = append(h.txns, 0), append(h.first, -1), append(h.ended, -1)
			h.open[pid] = len(h.txns) - 1
			h.epochs[pid]++
			h.end(pid, false)
		default:
			if h.open[pid] == 0 {
				h.txns, h.first, h.ended = append(h.txns, 0), append(h.first, h.next), append(h.ended, -1)
				h.open[pid] = len(h.txns) - 1
			}
			h.append(pid, h.open[pid])
		}
	}
}

func (h *history) append(pid int64, txn int) {
	d := data{base: h.next, time: h.now - h.rnd.Int64N(50), codec: h.codec(), pid: pid, epoch: h.epochs[pid], seq: h.seqs[pid]}
	if pid < 0 {
		d.pid = 0
	}
	if txn != 0 {
		d.attrs |= transactional
	}
	for range 1 + h.rnd.IntN(6) {
		key := fmt.Sprintf("key-%d", h.rnd.IntN(12))
		switch r := h.rnd.IntN(12); {
		case r == 0 && h.keyless:
			d.records = append(d.records, fmt.Sprintf("=%d", h.next))
		case r < 4:
			d.records = append(d.records, key)
		case r == 4:
			d.records = append(d.records, key+"=")
		default:
			d.records = append(d.records, fmt.Sprintf("%s=%d", key, h.rnd.IntN(1000)))
		}
	}
	b := serde.Batch(d.bytes(h.t))
	if h.rnd.IntN(5) == 0 {
		b.SetTimes(h.now, true)
	}
	h.seqs[pid] += b.Count()
	h.add(b, txn)
}

func (h *history) end(pid int64, commit bool) {
	txn := h.open[pid]
	delete(h.open, pid)
	h.txns[txn], h.ended[txn] = 2, h.next
	if commit {
		h.txns[txn] = 1
	}
	kind := serde.ControlAbort
	if commit {
		kind = serde.ControlCommit
	}
	h.add(serde.ControlBatch(h.next, h.now, pid, h.epochs[pid], kind, 1), txn)
}

func (h *history) add(b serde.Batch, txn int) {
	b.Stamp(h.next, 7)
	h.log = append(h.log, &mbatch{base: b.BaseOffset(), last: b.LastOffset(), pid: b.ProducerID(), control: b.Control(), txn: txn, records: records(h.t, b), raw: b})
	h.next = b.LastOffset() + 1
	pid := b.ProducerID()
	if last, ok := h.data[pid]; pid >= 0 && (!b.Control() || !ok || last != b.ProducerEpoch()) {
		h.newest[pid] = b.BaseOffset()
	}
	if !b.Control() {
		h.data[pid] = b.ProducerEpoch()
	}
}

// stable is the last stable offset.
func (h *history) stable() int64 {
	o := h.next
	for _, t := range h.open {
		o = min(o, h.first[t])
	}
	return o
}

// naive is one pass of the model: log is what lies below the pass's end.
func (h *history) naive(log []*mbatch, keysUpto int64, e *Env) (out []*mbatch, horizon int64) {
	last := map[string]int64{}
	for _, b := range log {
		for _, r := range b.records {
			if !b.control && h.txns[b.txn] != 2 && r.key != "<null>" && r.offset >= int64(e.From) && r.offset < keysUpto {
				last[r.key] = r.offset
			}
		}
	}
	for i, b := range log {
		n := *b
		n.records = nil
		expired := b.horizon != 0 && b.horizon <= e.Now
		needless := b.control && len(b.records) > 0 // a marker of which no batch is left
		for j := i - 1; needless && j >= 0 && (log[j].pid != b.pid || !log[j].control || len(log[j].records) == 0); j-- {
			needless = log[j].pid != b.pid || log[j].control || log[j].txn == 0
		}
		for _, r := range b.records {
			keep := true
			switch {
			case b.control:
				keep = !(needless && expired)
			case h.txns[b.txn] == 2:
				keep = false
			case r.offset >= int64(e.Upto):
			case r.key == "<null>", r.offset < last[r.key], r.value == "<null>" && expired:
				keep = false
			}
			if keep {
				n.records = append(n.records, r)
			}
		}
		// Where the map ends within a batch, tombstones in it may not have deleted yet.
		tombstones := needless || !b.control && b.last < int64(e.Upto) && slices.ContainsFunc(n.records, func(r one) bool { return r.value == "<null>" })
		if len(n.records) == 0 {
			alive := false
			if e.LastOf != nil && b.pid >= 0 {
				o, ok := e.LastOf(b.pid, 0)
				alive = ok && int64(o) == b.base
			}
			if !alive && int64(e.End) != b.last+1 {
				continue
			}
			n.horizon = 0
		} else if tombstones {
			if n.horizon == 0 {
				n.horizon = e.Now + e.DeleteRetention
			}
			if horizon == 0 || n.horizon < horizon {
				horizon = n.horizon
			}
		}
		if len(n.records) != len(b.records) || n.horizon != b.horizon {
			n.raw = nil
		}
		out = append(out, &n)
	}
	return out, horizon
}

// compacted is a partition that is compacted now and then: what runs left below x
// and what was written since.
type compacted struct {
	h     *history
	x     int64
	model []*mbatch // of all
	log   [][]byte
}

// write appends about n batches.
func (c *compacted) write(n int) {
	before := len(c.h.log)
	c.h.grow(n)
	for _, b := range c.h.log[before:] {
		m := *b
		c.model, c.log = append(c.model, &m), append(c.log, b.raw)
	}
}

// edge is where a run may end: between two batches, not above the last stable
// offset.
func (c *compacted) edge() int64 {
	end := c.x
	for _, b := range c.model {
		if edge := b.last + 1; edge > end && edge <= c.h.stable() && c.h.rnd.IntN(8) > 0 {
			end = edge
		}
	}
	return end
}

// run compacts below end as a partition would: passes until all keys fit.
func (c *compacted) run(end int64, e *Env, k *Keys) {
	t, h := c.h.t, c.h
	e.From, e.End = types.Offset(c.x), types.Offset(end)
	n := slices.IndexFunc(c.model, func(b *mbatch) bool { return b.base >= end })
	if n < 0 {
		n = len(c.model)
	}
	below, above := c.model[:n], slices.Clone(c.model[n:])
	logBelow, logAbove := c.log[:n], slices.Clone(c.log[n:])
	for int64(e.From) < end {
		k.Reset()
		e.Restart()
		e.Upto = e.End
		for _, b := range logBelow {
			full, err := Index(k, e, b)
			if err != nil {
				t.Fatal(err)
			}
			if full {
				// Both ways that a pass may end early.
				e.Upto = k.Upto()
				if base := types.Offset(serde.Batch(b).BaseOffset()); base > e.From && h.rnd.IntN(2) == 0 {
					e.Upto = base
				}
				break
			}
		}
		if e.Upto <= e.From {
			t.Fatalf("no progress at %d", e.From)
		}
		want, wantHorizon := h.naive(below, int64(k.Upto()), e)
		var out [][]byte
		horizon := int64(0)
		for _, b := range logBelow {
			o, _, at, err := Filter(k, e, b)
			if err != nil {
				t.Fatal(err)
			}
			if at > 0 && (horizon == 0 || at < horizon) {
				horizon = at
			}
			if o != nil {
				out = append(out, o)
			}
		}
		if horizon != wantHorizon {
			t.Fatalf("horizon %d, want %d", horizon, wantHorizon)
		}
		c.compare(out, want)
		below, logBelow = want, out
		e.From = e.Upto
	}
	c.model, c.log, c.x = append(below, above...), append(logBelow, logAbove...), end
}

// compare holds batches against the model's, byte for byte where nothing was to
// be dropped.
func (c *compacted) compare(log [][]byte, want []*mbatch) {
	t := c.h.t
	if len(log) != len(want) {
		t.Fatalf("%d batches, want %d", len(log), len(want))
	}
	for i, w := range want {
		b := batches(t, log[i])[0]
		horizon, set := b.DeleteHorizon()
		if len(b) != len(log[i]) || b.BaseOffset() != w.base || b.LastOffset() != w.last || b.ProducerID() != w.pid || b.Control() != w.control || set != (w.horizon != 0) || set && horizon != w.horizon {
			t.Fatalf("batch %d-%d, horizon %d (%v); want %+v", b.BaseOffset(), b.LastOffset(), horizon, set, w)
		}
		if got := records(t, b); !slices.Equal(got, w.records) {
			t.Fatalf("batch at %d holds %v, want %v", w.base, got, w.records)
		}
		if w.raw == nil {
			w.raw = b
		} else if !bytes.Equal(b, w.raw) {
			t.Fatalf("the batch at %d changed", w.base)
		}
	}
}

// committed is what a client of isolation read_committed sees that reads from the
// start, as org.apache.kafka.clients.consumer.internals.CompletedFetch decides:
// aborted transactions are announced if they end at from or above.
func (c *compacted) committed(log [][]byte, from int64) (rs []one) {
	h := c.h
	aborted := map[int64]bool{}
	for _, p := range log {
		b := serde.Batch(p)
		for txn, state := range h.txns {
			if state == 2 && h.ended[txn] >= from && h.first[txn] >= 0 && h.first[txn] <= b.LastOffset() && h.ended[txn] >= b.BaseOffset() {
				for _, m := range h.log {
					if m.base == h.ended[txn] {
						aborted[m.pid] = true
					}
				}
			}
		}
		if b.Control() {
			if kind, _, err := serde.ParseControl(b); err == nil && kind == serde.ControlAbort {
				delete(aborted, b.ProducerID())
			}
			continue
		}
		if b.Transactional() && aborted[b.ProducerID()] {
			continue
		}
		rs = append(rs, records(h.t, p)...)
	}
	return rs
}

// values are the last values of all keys; a tombstone is none.
func values(rs []one) map[string]one {
	m := map[string]one{}
	for _, r := range rs {
		if r.key == "<null>" {
			continue
		}
		if m[r.key] = r; r.value == "<null>" {
			delete(m, r.key)
		}
	}
	return m
}

// TestModel compacts random histories again and again, with more written in
// between, and compares with a naive model and with what readers of the whole
// history know. COMPACT_SEEDS sets how many, COMPACT_SEED runs one.
func TestModel(t *testing.T) {
	t.Parallel()
	first, n := uint64(0), 100
	if s, err := strconv.Atoi(os.Getenv("COMPACT_SEEDS")); err == nil {
		n = s
	}
	if s, err := strconv.ParseUint(os.Getenv("COMPACT_SEED"), 10, 64); err == nil {
		first, n = s, 1
	}
	for seed := first; seed < first+uint64(n); seed++ {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { model(t, seed) }) {
			return
		}
	}
}

func model(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 8))
	h := newHistory(t, rnd)
	h.keyless = rnd.IntN(3) == 0
	c := &compacted{h: h}
	budget := []int{0, 100, 200, 1 << 16}[rnd.IntN(4)]
	retention := []int64{0, 30, 200}[rnd.IntN(3)]
	for range 2 + rnd.IntN(6) {
		c.write(rnd.IntN(30))
		end := c.edge()
		e := &Env{Now: h.now, DeleteRetention: retention, Budget: 1 << 20, Aborted: h.aborted}
		if rnd.IntN(3) > 0 {
			gone := int64(rnd.IntN(6)) // this producer has expired
			e.LastOf = func(pid int64, _ int16) (types.Offset, bool) {
				o, ok := h.lastOf(pid, 0)
				return o, ok && pid != gone
			}
		}
		c.run(end, e, NewKeys(budget))

		// What a reader of all sees who was told nothing of the model.
		want := (&compacted{h: h}).committed(raws(h.log), 0)
		got := c.committed(c.log, c.x)
		if w, g := values(want), values(got); !maps.Equal(w, g) {
			t.Fatalf("last values %v, want %v", g, w)
		}
		at := map[int64]one{}
		for _, r := range want {
			at[r.offset] = r
		}
		prev := int64(-1)
		for _, r := range got {
			if r != at[r.offset] || r.offset <= prev {
				t.Fatalf("record %+v after %d, was %+v", r, prev, at[r.offset])
			}
			prev = r.offset
		}
		h.now += rnd.Int64N(150)
	}
}

func raws(log []*mbatch) (p [][]byte) {
	for _, b := range log {
		p = append(p, b.raw)
	}
	return p
}
