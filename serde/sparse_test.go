package serde

import (
	"bytes"
	"math"
	"testing"
)

func TestSparse(t *testing.T) {
	type at struct {
		offset int64
		r      NewRecord
	}
	rec := func(ts int64, k, v string) NewRecord {
		return NewRecord{TimestampMillis: ts, Key: []byte(k), Value: []byte(v)}
	}
	for name, c := range map[string]struct {
		base, last int64
		records    []at
	}{
		"dense":      {5, 6, []at{{5, rec(10, "a", "b")}, {6, rec(11, "c", "d")}}},
		"gaps":       {5, 99, []at{{7, rec(10, "a", "b")}, {70, NewRecord{TimestampMillis: 3, Key: []byte("gone")}}}},
		"empty":      {5, 99, nil},
		"far":        {1 << 40, 1<<40 + math.MaxInt32, []at{{1<<40 + math.MaxInt32, rec(1, "", "")}}},
		"one offset": {0, 0, nil},
	} {
		s := NewSparse(c.base)
		for _, a := range c.records {
			want := s.Size(a.offset, a.r)
			if s.Add(a.offset, a.r); s.Len() != want {
				t.Errorf("%s: %d bytes after Add, Size said %d", name, s.Len(), want)
			}
		}
		b, rest, err := ParseBatch(s.Batch(c.last))
		if err != nil || len(rest) != 0 || !b.ChecksumOK() || b.BaseOffset() != c.base || b.LastOffset() != c.last || int(b.Count()) != len(c.records) || s.Count() != len(c.records) {
			t.Fatalf("%s: %v, %d to %d, %d records, %v", name, b, b.BaseOffset(), b.LastOffset(), b.Count(), err)
		}
		it, latest := NewRecords(b.Records(), b.Count()), int64(-1)
		for _, a := range c.records {
			if !it.Next() {
				t.Fatalf("%s: %v", name, it.Err())
			}
			r := it.Record
			if c.base+int64(r.OffsetDelta) != a.offset || b.BaseTimestamp()+r.TimestampDelta != a.r.TimestampMillis ||
				!bytes.Equal(r.Key, a.r.Key) || !bytes.Equal(r.Value, a.r.Value) || (r.Value == nil) != (a.r.Value == nil) {
				t.Errorf("%s: record %+v, want %+v", name, r, a)
			}
			latest = max(latest, a.r.TimestampMillis)
		}
		if it.Next() || it.Err() != nil || b.MaxTimestamp() != latest {
			t.Errorf("%s: %v, max timestamp %d, want %d", name, it.Err(), b.MaxTimestamp(), latest)
		}
	}
	// Without gaps it is what Build makes.
	s := NewSparse(5)
	s.Add(5, rec(10, "a", "b"))
	s.Add(6, rec(4, "c", "d"))
	if want := Build(BatchFields{BaseOffset: 5, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, []NewRecord{rec(10, "a", "b"), rec(4, "c", "d")}); !bytes.Equal(s.Batch(6), want) {
		t.Error("Sparse and Build differ")
	}
}
