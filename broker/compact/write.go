package compact

import (
	"fmt"
	"math"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/serde"
)

// write makes the batch that holds what remains (MemoryRecords.filterTo).
func (e *Env) write(b serde.Batch, r remains) (out []byte, horizon int64, err error) {
	if r.count == 0 {
		switch {
		case !e.StaysEmpty(b):
			return nil, 0, nil
		case b.Count() == 0 && len(b) == serde.BatchHeaderSize:
			return b, 0, nil
		}
		return b.Emptied(), 0, nil
	}
	h, set := b.DeleteHorizon()
	fresh := r.expires && !set
	if fresh {
		h, set = e.horizon(), true
	}
	if r.expires {
		horizon = h
	}
	if r.whole && !fresh {
		return b, horizon, nil
	}
	records := r.records
	if fresh {
		e.moved, err = serde.MoveRecords(e.moved[:0], records, r.count, b.BaseTimestamp()-h, 0)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: at offset %d: %w", ErrUnreadable, b.BaseOffset(), err)
		}
		records = e.moved
	}
	f := serde.Rewrite{BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), BaseSequence: b.BaseSequence(),
		BaseTimestamp: b.BaseTimestamp(), MaxTimestamp: r.latest, Horizon: set, Count: r.count}
	if fresh {
		f.BaseTimestamp = h
	}
	out, err = e.encode(nil, b, f, records)
	return out, horizon, err
}

// horizon is when what this pass meets first may go.
func (e *Env) horizon() int64 {
	if h := e.Now + e.DeleteRetention; h >= e.Now {
		return h
	}
	return math.MaxInt64
}

// encode appends the batch f made of b and records; several if it is larger than
// what can be stored.
func (e *Env) encode(dst []byte, b serde.Batch, f serde.Rewrite, records []byte) ([]byte, error) {
	f.Encoded = records
	if b.Codec() != 0 {
		var err error
		if e.encoded, err = compress.Encode(e.encoded[:0], compress.Codec(b.Codec()), records); err != nil {
			return nil, fmt.Errorf("%w: at offset %d: %w", ErrUnreadable, f.BaseOffset, err)
		}
		f.Encoded = e.encoded
	}
	if b.LogAppendTime() {
		f.MaxTimestamp = b.MaxTimestamp()
	}
	if size := serde.BatchHeaderSize + len(f.Encoded); f.Count > 1 && e.MaxBatch > 0 && size > max(e.MaxBatch, len(b)) {
		return e.split(dst, b, f, records)
	}
	n := b.Rewrite(f)
	if dst == nil {
		return n, nil
	}
	return append(dst, n...), nil
}

// split writes the records as two batches that cover f's offsets.
func (e *Env) split(dst []byte, b serde.Batch, f serde.Rewrite, records []byte) ([]byte, error) {
	one, two := f, f
	one.Count = f.Count / 2
	two.Count = f.Count - one.Count
	one.MaxTimestamp, two.MaxTimestamp = math.MinInt64, math.MinInt64
	it := serde.NewRecords(records, f.Count)
	at, delta := 0, int32(0)
	for i := int32(0); it.Next(); i++ {
		t := f.BaseTimestamp + it.Record.TimestampDelta
		if i < one.Count {
			at += len(it.Raw)
			one.MaxTimestamp = max(one.MaxTimestamp, t)
			continue
		}
		if i == one.Count {
			delta = it.Record.OffsetDelta
		}
		two.MaxTimestamp = max(two.MaxTimestamp, t)
	}
	two.BaseOffset = f.BaseOffset + int64(delta)
	one.LastOffset = two.BaseOffset - 1
	if f.BaseSequence >= 0 {
		two.BaseSequence = int32((int64(f.BaseSequence) + int64(delta)) & math.MaxInt32) // after the largest comes 0
	}
	second, err := serde.MoveRecords(nil, records[at:], two.Count, 0, -delta)
	if err != nil {
		return nil, fmt.Errorf("%w: at offset %d: %w", ErrUnreadable, f.BaseOffset, err)
	}
	if dst == nil {
		dst = []byte{}
	}
	if dst, err = e.encode(dst, b, one, records[:at]); err != nil {
		return nil, err
	}
	return e.encode(dst, b, two, second)
}
