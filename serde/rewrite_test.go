package serde

import (
	"bytes"
	"math"
	"testing"
)

func TestRewrite(t *testing.T) {
	t.Parallel()
	rs := []NewRecord{{TimestampMillis: 1000, Key: []byte("a")}, {TimestampMillis: 900, Value: []byte("b"), Headers: []RecordHeader{{"h", nil}}}}
	b := Build(BatchFields{BaseOffset: 7, Attributes: attrTransactional, ProducerID: 5, ProducerEpoch: 1, BaseSequence: 10}, rs)
	b.Stamp(7, 3)
	same := b.Rewrite(Rewrite{BaseOffset: 7, LastOffset: 8, BaseSequence: 10, BaseTimestamp: 1000, MaxTimestamp: 1000, Count: 2, Encoded: b.Records()})
	if !bytes.Equal(same, b) {
		t.Errorf("% x, want % x", same, b)
	}
	if _, ok := b.DeleteHorizon(); ok {
		t.Error("a new batch has a delete horizon")
	}
	moved, err := MoveRecords(nil, b.Records(), 2, -4000, 0)
	if err != nil {
		t.Fatal(err)
	}
	h := b.Rewrite(Rewrite{BaseOffset: 6, LastOffset: 20, BaseSequence: 9, BaseTimestamp: 5000, MaxTimestamp: 1000, Horizon: true, Count: 2, Encoded: moved})
	if ms, ok := h.DeleteHorizon(); !ok || ms != 5000 || !h.ChecksumOK() || h.Attributes() != attrTransactional|attrDeleteHorizon || h.BaseOffset() != 6 || h.LastOffset() != 20 ||
		h.BaseSequence() != 9 || h.ProducerID() != 5 || h.ProducerEpoch() != 1 || h.LeaderEpoch() != 3 || h.MaxTimestamp() != 1000 || h.Count() != 2 {
		t.Errorf("% x", h)
	}
	it := NewRecords(h.Records(), h.Count())
	for i := 0; it.Next(); i++ {
		r := it.Record
		if h.BaseTimestamp()+r.TimestampDelta != rs[i].TimestampMillis || int(r.OffsetDelta) != i || !bytes.Equal(r.Key, rs[i].Key) || !bytes.Equal(r.Value, rs[i].Value) || r.HeaderCount != len(rs[i].Headers) {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if it.Err() != nil {
		t.Error(it.Err())
	}
	e := h.Emptied()
	if _, ok := e.DeleteHorizon(); ok || len(e) != BatchHeaderSize || !e.ChecksumOK() || e.Count() != 0 || e.BaseOffset() != 6 || e.LastOffset() != 20 || e.BaseSequence() != 9 ||
		e.ProducerID() != 5 || e.ProducerEpoch() != 1 || e.LeaderEpoch() != 3 || e.MaxTimestamp() != 1000 || e.BaseTimestamp() != -1 || e.Attributes() != attrTransactional {
		t.Errorf("% x", e)
	}
	if _, err := MoveRecords(nil, b.Records()[1:], 2, 0, 0); err == nil {
		t.Error("malformed records were moved")
	}
}

func FuzzMoveRecords(f *testing.F) {
	f.Add(records(5), int32(5), int64(1), int32(1))
	f.Add(records(40), int32(40), int64(math.MinInt64), int32(math.MinInt32))
	f.Fuzz(func(t *testing.T, p []byte, count int32, timeBy int64, offsetBy int32) {
		moved, err := MoveRecords(nil, p, count, timeBy, offsetBy)
		it := NewRecords(p, count)
		var raw []byte
		for it.Next() {
			raw = append(raw, it.Raw...)
		}
		if (err == nil) != (it.Err() == nil) {
			t.Fatalf("%v, %v", err, it.Err())
		}
		if err != nil {
			return
		}
		if !bytes.Equal(raw, p) {
			t.Fatal("raw records are not the bytes")
		}
		a, b := NewRecords(p, count), NewRecords(moved, count)
		for a.Next() {
			if !b.Next() {
				t.Fatal(b.Err())
			}
			x, y := a.Record, b.Record
			if y.TimestampDelta != x.TimestampDelta+timeBy || y.OffsetDelta != x.OffsetDelta+offsetBy || y.Attributes != x.Attributes || !bytes.Equal(x.Key, y.Key) ||
				(x.Key == nil) != (y.Key == nil) || !bytes.Equal(x.Value, y.Value) || (x.Value == nil) != (y.Value == nil) || !bytes.Equal(x.headers, y.headers) || x.HeaderCount != y.HeaderCount {
				t.Fatalf("%+v became %+v", x, y)
			}
		}
		if b.Next() || b.Err() != nil {
			t.Fatal(b.Err())
		}
	})
}
