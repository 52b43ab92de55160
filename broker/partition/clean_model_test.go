package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// keyed makes a batch of records; a value of nil is a tombstone, a key of nil none.
func keyed(f serde.BatchFields, codec compress.Codec, rs []serde.NewRecord) []byte {
	body := serde.EncodeRecords(rs)
	if codec != compress.None {
		var err error
		if body, err = compress.Encode(nil, codec, body); err != nil {
			panic(err)
		}
		f.Attributes |= int16(codec)
	}
	return serde.BuildEncoded(f, rs, body)
}

// shown is one record as a reader sees it, or as the log has it.
type shown struct {
	offset     types.Offset
	key, value string // null stands for none
	time       int64
	control    bool
}

const null = "\x00null"

func text(b []byte) string {
	if b == nil {
		return null
	}
	return string(b)
}

// records decodes a batch.
func records(t testing.TB, b serde.Batch) (out []shown) {
	t.Helper()
	body, err := plainRecords(b, rewriteBudget)
	if err != nil {
		t.Fatal(err)
	}
	it := serde.NewRecords(body, b.Count())
	for it.Next() {
		r := &it.Record
		x := shown{types.Offset(b.BaseOffset()) + types.Offset(r.OffsetDelta), text(r.Key), text(r.Value), b.BaseTimestamp() + r.TimestampDelta, b.Control()}
		if b.LogAppendTime() {
			x.time = b.MaxTimestamp()
		}
		out = append(out, x)
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	return out
}

// truth is the log that was written, everything that was ever purged included.
type truth struct {
	all         map[types.Offset]shown
	fate        map[types.Offset]*bool // of records in transactions: committed
	open        map[int64]types.Offset
	end, stable types.Offset
	messages    int
}

// truths makes one again only when something was written.
type truths struct{ last *truth }

func (ts *truths) of(t testing.TB, server *memory.Server) *truth {
	if n := len(server.History(testLog, 1)); ts.last == nil || ts.last.messages != n {
		ts.last = truthOf(t, server)
		ts.last.messages = n
	}
	return ts.last
}

func truthOf(t testing.TB, server *memory.Server) *truth {
	tr := &truth{all: map[types.Offset]shown{}, fate: map[types.Offset]*bool{}, open: map[int64]types.Offset{}}
	fates := map[int64]*bool{}
	for _, m := range server.History(testLog, 1) {
		data := m.Data
		if m.Header.Get(headerLog) == "" {
			data = plainBatch(tr.end, &m)
		}
		for len(data) > 0 {
			b, rest, err := serde.ParseBatch(data)
			if err != nil || b.BaseOffset() != int64(tr.end) {
				t.Fatalf("batch at %d, expected at %d: %v", b.BaseOffset(), tr.end, err)
			}
			data, tr.end = rest, types.Offset(b.LastOffset())+1
			pid := b.ProducerID()
			if b.Transactional() && !b.Control() {
				if _, ok := tr.open[pid]; !ok {
					tr.open[pid], fates[pid] = types.Offset(b.BaseOffset()), new(bool)
				}
			}
			for _, r := range records(t, b) {
				tr.all[r.offset] = r
				if b.Transactional() && !b.Control() {
					tr.fate[r.offset] = fates[pid]
				}
			}
			if b.Control() {
				kind, _, err := serde.ParseControl(b)
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := tr.open[pid]; ok && kind == serde.ControlCommit {
					*fates[pid] = true
				}
				delete(tr.open, pid)
			}
		}
	}
	tr.stable = tr.end
	for _, first := range tr.open {
		tr.stable = min(tr.stable, first)
	}
	return tr
}

// counts reports that a record is not one of an aborted or open transaction.
func (tr *truth) counts(o types.Offset) bool {
	f := tr.fate[o]
	return f == nil || *f
}

// seen is what one reader has seen from a log start up to an offset.
type seen struct {
	start, end types.Offset
	committed  bool
	records    []shown
	// slow: it took longer than tombstones are kept for, and may have missed one.
	slow bool
}

// readAll reads as clients do from an offset to the end, and goes to the log start
// when what it wants is deleted.
func readAll(t testing.TB, r *rand.Rand, g *gateway, committed bool, rest func()) (s seen, err error) {
	s.committed = committed
	for next := types.Offset(0); ; {
		if rest != nil {
			rest()
		}
		res, err := g.p.Read(context.Background(), ReadRequest{Offset: next, MaxBytes: 1 + r.IntN(600), Whole: true, Committed: committed})
		if errors.Is(err, kerr.OffsetOutOfRange) {
			l, lerr := g.p.Lookup(context.Background(), LookupRequest{Timestamp: Earliest})
			if lerr != nil {
				return s, lerr
			}
			if l.Offset <= next {
				return s, fmt.Errorf("offset %d is out of range, the log begins at %d", next, l.Offset)
			}
			next = l.Offset
			continue
		}
		if err != nil {
			return s, fmt.Errorf("read at %d: %w", next, err)
		}
		s.start = max(s.start, res.LogStart)
		limit := res.HighWatermark
		if committed {
			limit = res.LastStable
		}
		bs := split(t, res)
		if len(bs) == 0 {
			if next < limit {
				return s, fmt.Errorf("nothing at %d, and the end is %d", next, limit)
			}
			s.end = next
			return s, nil
		}
		aborted, skip := res.Aborted, map[int64]bool{}
		for _, b := range bs {
			if types.Offset(b.LastOffset()) < next {
				return s, fmt.Errorf("read at %d brought the batch %d to %d", next, b.BaseOffset(), b.LastOffset())
			}
			for len(aborted) > 0 && aborted[0].First <= types.Offset(b.LastOffset()) {
				skip[aborted[0].ProducerID], aborted = true, aborted[1:]
			}
			rs := records(t, b)
			if b.Control() && len(rs) > 0 {
				if kind, _, _ := serde.ParseControl(b); kind == serde.ControlAbort {
					delete(skip, b.ProducerID())
				}
			}
			for _, x := range rs {
				if x.offset >= next && !(committed && !b.Control() && b.Transactional() && skip[b.ProducerID()]) {
					s.records = append(s.records, x)
				}
			}
			next = types.Offset(b.LastOffset()) + 1
		}
	}
}

// check compares what a reader saw with the truth.
func (tr *truth) check(s seen) error {
	have := map[types.Offset]bool{}
	prev := types.Offset(-1)
	for _, x := range s.records {
		if x.offset <= prev {
			return fmt.Errorf("offset %d comes after %d", x.offset, prev)
		}
		prev = x.offset
		if want, ok := tr.all[x.offset]; !ok || want != x {
			return fmt.Errorf("offset %d is %+v, it was stored as %+v", x.offset, x, want)
		}
		if s.committed && !tr.counts(x.offset) {
			return fmt.Errorf("offset %d is of a transaction that was not committed", x.offset)
		}
		have[x.offset] = true
	}
	last := map[string]types.Offset{}
	for o := range tr.end {
		if x, ok := tr.all[o]; ok && o < s.end && !x.control && x.key != null && tr.counts(o) {
			last[x.key] = o
		}
	}
	for key, o := range last {
		if o < s.start || have[o] {
			continue
		}
		if tr.all[o].value != null {
			return fmt.Errorf("key %q: its last value, at offset %d, was not shown", key, o)
		}
		for p := range have {
			if s.slow {
				break
			}
			if x := tr.all[p]; x.key == key && !x.control && p < o && tr.counts(p) {
				return fmt.Errorf("key %q: its tombstone at offset %d is gone, its value at %d is not", key, o, p)
			}
		}
	}
	return nil
}
