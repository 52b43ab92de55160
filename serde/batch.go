package serde

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Positions of the record batch's fields (org.apache.kafka.common.record.DefaultRecordBatch).
const (
	batchLength      = 8
	batchLeaderEpoch = 12
	batchMagic       = 16
	batchCRC         = 17
	batchAttributes  = 21
	batchLastDelta   = 23
	batchBaseTime    = 27
	batchMaxTime     = 35
	batchProducerID  = 43
	batchEpoch       = 51
	batchBaseSeq     = 53
	batchCount       = 57
	// BatchHeaderSize is the number of bytes before a batch's records.
	BatchHeaderSize = 61
	// batchOverhead is what the length field does not count.
	batchOverhead = 12
)

// Attribute bits of a batch.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// Errors of ParseBatch, told apart because Kafka answers them differently.
var (
	// ErrMagic: an older message format (magic 0 or 1) or an unknown one.
	ErrMagic = errors.New("not a record batch of magic 2")
	// ErrShort: fewer bytes than the batch announces, or a length below a header's.
	ErrShort = errors.New("record batch is cut short")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is a view over the bytes of exactly one record batch of magic 2. Make
// it with ParseBatch; the accessors rely on its length check. It shares the
// bytes it was made from.
type Batch []byte

// ParseBatch takes the first batch of p and returns it with the bytes that
// follow. It checks the announced length against p and the magic byte, and
// nothing else: neither CRC nor plausibility.
func ParseBatch(p []byte) (b Batch, rest []byte, err error) {
	if len(p) < batchMagic+1 {
		return nil, nil, fmt.Errorf("%w: %d bytes", ErrShort, len(p))
	}
	if m := p[batchMagic]; m != 2 {
		return nil, nil, fmt.Errorf("%w: magic %d", ErrMagic, int8(m))
	}
	n := int64(int32(binary.BigEndian.Uint32(p[batchLength:]))) + batchOverhead
	if n < BatchHeaderSize || n > int64(len(p)) {
		return nil, nil, fmt.Errorf("%w: %d bytes announced, %d there", ErrShort, n, len(p))
	}
	return Batch(p[:n:n]), p[n:], nil
}

func (b Batch) i16(at int) int16 { return int16(binary.BigEndian.Uint16(b[at:])) }
func (b Batch) i32(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func (b Batch) i64(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }

// BaseOffset is the offset of the batch's first record.
func (b Batch) BaseOffset() int64 { return b.i64(0) }

// LeaderEpoch is the partition leader epoch stamped by the broker.
func (b Batch) LeaderEpoch() int32 { return b.i32(batchLeaderEpoch) }

// Attributes holds codec, timestamp type, transactional and control bits.
func (b Batch) Attributes() int16 { return b.i16(batchAttributes) }

// Codec is 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 mean nothing.
func (b Batch) Codec() int8 { return int8(b.Attributes() & attrCodec) }

// LogAppendTime reports whether the max timestamp is the broker's append time.
func (b Batch) LogAppendTime() bool { return b.Attributes()&attrLogAppendTime != 0 }

// Transactional reports whether the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&attrTransactional != 0 }

// Control reports a control batch (transaction marker).
func (b Batch) Control() bool { return b.Attributes()&attrControl != 0 }

// DeleteHorizon is the time (ms) from which on the batch's tombstones, or the
// marker in it, may be removed, if compaction has set one: it is stored as the
// base timestamp (KIP-534).
func (b Batch) DeleteHorizon() (ms int64, ok bool) {
	return b.BaseTimestamp(), b.Attributes()&attrDeleteHorizon != 0
}

// LastOffsetDelta is the last record's offset less the base offset, kept also
// when compaction removed that record.
func (b Batch) LastOffsetDelta() int32 { return b.i32(batchLastDelta) }

// LastOffset is the offset of the last record that the batch ever held.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// BaseTimestamp is what record timestamps are deltas to, in ms.
func (b Batch) BaseTimestamp() int64 { return b.i64(batchBaseTime) }

// MaxTimestamp is the largest record timestamp, or the append time, in ms.
func (b Batch) MaxTimestamp() int64 { return b.i64(batchMaxTime) }

// ProducerID is -1 for a producer that is not idempotent.
func (b Batch) ProducerID() int64 { return b.i64(batchProducerID) }

// ProducerEpoch is -1 without a producer id.
func (b Batch) ProducerEpoch() int16 { return b.i16(batchEpoch) }

// BaseSequence is the sequence number of the first record, -1 without one.
func (b Batch) BaseSequence() int32 { return b.i32(batchBaseSeq) }

// Count is the number of records that the batch says it holds.
func (b Batch) Count() int32 { return b.i32(batchCount) }

// Records are the bytes after the header, compressed if Codec is not 0.
func (b Batch) Records() []byte { return b[BatchHeaderSize:] }

// CRC is the stored checksum.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[batchCRC:]) }

// ChecksumOK compares the stored CRC-32C with the bytes it covers.
func (b Batch) ChecksumOK() bool { return b.CRC() == crc32.Checksum(b[batchAttributes:], castagnoli) }

// Stamp sets base offset and partition leader epoch in place. Both lie outside
// the checksum.
func (b Batch) Stamp(base int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[batchLeaderEpoch:], uint32(leaderEpoch))
}

// SetTimes sets the max timestamp (ms) and the timestamp type in place and
// redoes the checksum.
func (b Batch) SetTimes(maxTimestamp int64, logAppendTime bool) {
	binary.BigEndian.PutUint64(b[batchMaxTime:], uint64(maxTimestamp))
	a := b.Attributes() &^ attrLogAppendTime
	if logAppendTime {
		a |= attrLogAppendTime
	}
	binary.BigEndian.PutUint16(b[batchAttributes:], uint16(a))
	b.sum()
}

// WithRecords makes a batch with the same header and other records, encoded as
// codec says.
func (b Batch) WithRecords(codec int8, encoded []byte) Batch {
	n := make(Batch, BatchHeaderSize, BatchHeaderSize+len(encoded))
	copy(n, b)
	binary.BigEndian.PutUint16(n[batchAttributes:], uint16(b.Attributes()&^attrCodec|int16(codec)))
	n = append(n, encoded...)
	n.close()
	return n
}

func (b Batch) sum() {
	binary.BigEndian.PutUint32(b[batchCRC:], crc32.Checksum(b[batchAttributes:], castagnoli))
}
