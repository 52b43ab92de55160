package serde

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// Record is one record of a batch (org.apache.kafka.common.record.DefaultRecord).
// Key, Value and what Headers yields share the bytes that were iterated.
type Record struct {
	Attributes     int8
	TimestampDelta int64 // ms after the batch's base timestamp
	OffsetDelta    int32 // after the batch's base offset
	Key, Value     []byte
	HeaderCount    int
	headers        []byte // checked by the iterator
}

// Headers yields each header's key and value (nil for null) in order.
func (r *Record) Headers() iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		p := r.headers
		for range r.HeaderCount {
			var k, v []byte
			k, p, _ = varbytes(p)
			v, p, _ = varbytes(p)
			if !yield(k, v) {
				return
			}
		}
	}
}

// Records iterates over the records of one batch without allocating:
//
//	it := serde.NewRecords(batch.Records(), batch.Count())
//	for it.Next() { use(it.Record) }
//	if err := it.Err(); err != nil { … }
type Records struct {
	Record Record // the present record, overwritten by Next
	Raw    []byte // all bytes of the present record, its length included
	p      []byte
	left   int32
	err    error
}

// NewRecords iterates over count records in p, which is not compressed (any
// more).
func NewRecords(p []byte, count int32) Records { return Records{p: p, left: count} }

// Next reads the next record. It returns false at the end and on the first
// record that is malformed; Err tells which. Every length was checked against
// the bytes there, headers included.
func (it *Records) Next() bool {
	if it.err != nil {
		return false
	}
	if it.left <= 0 {
		if len(it.p) > 0 {
			it.err = fmt.Errorf("%w: %d bytes after the last record", ErrMalformed, len(it.p))
		}
		return false
	}
	it.left--
	it.err = it.next()
	return it.err == nil
}

// Err is nil when all records were read and nothing followed them.
func (it *Records) Err() error { return it.err }

func (it *Records) next() error {
	n, p, ok := varint(it.p)
	if !ok || n < 0 || int64(n) > int64(len(p)) {
		return fmt.Errorf("%w: record of %d bytes, %d there", ErrMalformed, n, len(p))
	}
	size := len(it.p) - len(p) + int(n)
	it.Raw, it.p = it.p[:size:size], p[n:]
	p = p[:n:n]
	r := &it.Record
	if len(p) < 1 {
		return fmt.Errorf("%w: empty record", ErrMalformed)
	}
	r.Attributes = int8(p[0])
	var m int
	if r.TimestampDelta, m = binary.Varint(p[1:]); m <= 0 {
		return fmt.Errorf("%w: timestamp delta", ErrMalformed)
	}
	if r.OffsetDelta, p, ok = varint(p[1+m:]); !ok {
		return fmt.Errorf("%w: offset delta", ErrMalformed)
	}
	if r.Key, p, ok = varbytes(p); !ok {
		return fmt.Errorf("%w: key", ErrMalformed)
	}
	if r.Value, p, ok = varbytes(p); !ok {
		return fmt.Errorf("%w: value", ErrMalformed)
	}
	var count int32
	// A header takes at least two bytes.
	if count, p, ok = varint(p); !ok || count < 0 || int64(count)*2 > int64(len(p)) {
		return fmt.Errorf("%w: %d headers", ErrMalformed, count)
	}
	r.HeaderCount, r.headers = int(count), p
	for range count {
		var k []byte
		if k, p, ok = varbytes(p); !ok || k == nil {
			return fmt.Errorf("%w: header key", ErrMalformed)
		}
		if _, p, ok = varbytes(p); !ok {
			return fmt.Errorf("%w: header value", ErrMalformed)
		}
	}
	if len(p) > 0 {
		return fmt.Errorf("%w: %d bytes left in a record", ErrMalformed, len(p))
	}
	return nil
}

// varbytes reads a length and that many bytes; a negative length is null, as
// for Kafka's Utils.readBytes.
func varbytes(p []byte) (v, rest []byte, ok bool) {
	n, p, ok := varint(p)
	switch {
	case !ok || int64(n) > int64(len(p)):
		return nil, nil, false
	case n < 0:
		return nil, p, true
	}
	return p[:n:n], p[n:], true
}

// varint reads a zigzag varint of at most five bytes.
func varint(p []byte) (v int32, rest []byte, ok bool) {
	if len(p) > 0 && p[0] < 0x80 {
		u := uint32(p[0])
		return int32(u>>1) ^ -int32(u&1), p[1:], true
	}
	var u uint32
	for i, c := range p {
		if i == 5 {
			break
		}
		u |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			if i == 4 && c > 0x0f {
				return 0, nil, false
			}
			return int32(u>>1) ^ -int32(u&1), p[i+1:], true
		}
	}
	return 0, nil, false
}
