package partition

import (
	"bytes"
	"slices"
	"testing"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// verify reads the whole log through every gateway and a new one, and compares
// it with what was stored and with what was submitted.
func (s *run) verify() {
	t := s.t
	s.mu.Lock()
	least, log, kills := s.acked, s.log, s.kills
	s.mu.Unlock()
	fresh := &seat{number: len(s.seats)}
	s.start(fresh, "fresh")
	defer fresh.kill(false)
	var first []serde.Batch
	start := types.NoOffset
	var ps []*partition.Partition
	for i, x := range append([]*seat{fresh}, s.seats...) {
		p, _ := x.now()
		ps = append(ps, p)
		begin, all := s.readAll(p)
		if i == 0 {
			start, first = begin, all
		} else if begin != start || !slices.EqualFunc(first, all, func(a, b serde.Batch) bool { return bytes.Equal(a, b) }) {
			t.Errorf("gateway %d reads another log than a new one (from %d and %d, %d and %d batches)", i, begin, start, len(all), len(first))
		}
	}
	stored := storedOf(t, s.server.History(logName, 0))
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
	s.verifyTxns(ps, start)
	// What is read is the end of what was stored.
	rest := stored[len(stored):]
	for i, b := range stored {
		if b.base+types.Offset(b.n) > start {
			rest = stored[i:]
			break
		}
	}
	for _, b := range first {
		if got := batchOf(t, b); len(rest) == 0 || got != rest[0] {
			t.Fatalf("read %+v, stored are %+v", got, rest[:min(1, len(rest))])
		}
		rest = rest[1:]
	}
	if len(rest) > 0 {
		t.Errorf("the last %d batches are not read", len(rest))
	}
	t.Logf("%d submitted, offsets %d to %d, %d messages, %d kills, faults %v, %d gateways", len(log), start, next, len(s.server.Messages(logName)), kills, s.weather.Rate(), len(s.seats))
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
		case f.pid > 0 && f.base >= 0:
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
