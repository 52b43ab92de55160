package serde

import "encoding/binary"

// Sparse makes one uncompressed batch whose offsets have gaps, as Kafka leaves
// it after compaction: the batch covers a range in which there may be fewer
// records, or none.
type Sparse struct {
	b             Batch
	base          int64
	first, latest int64 // timestamps
	count         int32
}

// NewSparse begins a batch that covers offsets from base on.
func NewSparse(base int64) *Sparse {
	return &Sparse{b: make(Batch, BatchHeaderSize), base: base, first: -1, latest: -1}
}

// Len is the number of bytes so far, header included.
func (s *Sparse) Len() int { return len(s.b) }

// Count is the number of records so far.
func (s *Sparse) Count() int { return int(s.count) }

// Size is what Add would make of Len.
func (s *Sparse) Size(offset int64, r NewRecord) int {
	n := recordBodySize(s.delta(r), int32(offset-s.base), r.Key, r.Value, r.Headers)
	return len(s.b) + varintSize(int64(n)) + n
}

func (s *Sparse) delta(r NewRecord) int64 {
	if s.count == 0 {
		return 0
	}
	return r.TimestampMillis - s.first
}

// Add appends a record at an offset above those before it, and less than 2³¹
// above the base.
func (s *Sparse) Add(offset int64, r NewRecord) {
	delta, at := s.delta(r), int32(offset-s.base)
	if s.count == 0 {
		s.first = r.TimestampMillis
	}
	s.latest = max(s.latest, r.TimestampMillis)
	s.count++
	s.b = binary.AppendVarint(s.b, int64(recordBodySize(delta, at, r.Key, r.Value, r.Headers)))
	s.b = appendRecordBody(s.b, delta, at, r.Key, r.Value, r.Headers)
}

// Batch closes the batch, which covers offsets up to last: at least the last
// record's, less than 2³¹ above the base. Nothing may be added any more.
func (s *Sparse) Batch(last int64) Batch {
	putBatchHeader(s.b, s.base, 0, int32(last-s.base), s.first, s.latest, -1, -1, -1, s.count)
	s.b.close()
	return s.b
}
