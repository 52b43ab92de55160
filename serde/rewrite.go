package serde

import (
	"encoding/binary"
	"fmt"
)

// Rewrite is what changes in a batch of which compaction keeps a part. Producer
// id and epoch, leader epoch, codec and the other attributes stay
// (org.apache.kafka.common.record.MemoryRecords.buildRetainedRecordsInto).
type Rewrite struct {
	// BaseOffset and LastOffset are the range that the batch covers; Kafka
	// never changes them.
	BaseOffset, LastOffset int64
	BaseSequence           int32
	// BaseTimestamp is what the records' timestamps are deltas to, and the
	// delete horizon if Horizon is set; ms.
	BaseTimestamp, MaxTimestamp int64
	Horizon                     bool
	Count                       int32
	// Encoded are the records, compressed with the batch's codec. They are copied.
	Encoded []byte
}

// Rewrite makes a batch with other records in new memory.
func (b Batch) Rewrite(r Rewrite) Batch {
	n := make(Batch, BatchHeaderSize, BatchHeaderSize+len(r.Encoded))
	a := b.Attributes() &^ attrDeleteHorizon
	if r.Horizon {
		a |= attrDeleteHorizon
	}
	putBatchHeader(n, r.BaseOffset, a, int32(r.LastOffset-r.BaseOffset), r.BaseTimestamp, r.MaxTimestamp, b.ProducerID(), b.ProducerEpoch(), r.BaseSequence, r.Count)
	n.Stamp(r.BaseOffset, b.LeaderEpoch())
	n = append(n, r.Encoded...)
	n.close()
	return n
}

// Emptied makes a batch in new memory that covers the same offsets and holds no
// record: its fields tell who wrote last (DefaultRecordBatch.writeEmptyHeader).
func (b Batch) Emptied() Batch {
	n := make(Batch, BatchHeaderSize)
	a := b.Attributes() & (attrLogAppendTime | attrTransactional | attrControl)
	putBatchHeader(n, b.BaseOffset(), a, b.LastOffsetDelta(), -1, b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), 0)
	n.Stamp(b.BaseOffset(), b.LeaderEpoch())
	n.close()
	return n
}

// MoveRecords appends count uncompressed records to dst with timeBy (ms) added
// to their timestamp deltas and offsetBy to their offset deltas, everything else
// as it is.
func MoveRecords(dst, records []byte, count int32, timeBy int64, offsetBy int32) ([]byte, error) {
	it := NewRecords(records, count)
	for it.Next() {
		r := &it.Record
		_, body, _ := varint(it.Raw)
		// What follows the two deltas is not touched.
		_, m := binary.Varint(body[1:])
		_, tail, _ := varint(body[1+m:])
		t, o := r.TimestampDelta+timeBy, r.OffsetDelta+offsetBy
		dst = binary.AppendVarint(dst, int64(1+varintSize(t)+varintSize(int64(o))+len(tail)))
		dst = append(dst, body[0])
		dst = binary.AppendVarint(dst, t)
		dst = binary.AppendVarint(dst, int64(o))
		dst = append(dst, tail...)
	}
	if err := it.Err(); err != nil {
		return dst, fmt.Errorf("move records: %w", err)
	}
	return dst, nil
}
