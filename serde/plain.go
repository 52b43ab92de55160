package serde

import (
	"encoding/binary"
)

// RecordHeader is one header of a record. A nil Value is Kafka's null.
type RecordHeader struct {
	Key   string
	Value []byte
}

// PlainBatch makes an uncompressed batch of exactly one record, without a
// producer id, in leader epoch 0. nil for key or value is Kafka's null, which
// is not the same as empty. timestampMillis counts from the Unix epoch. The
// result is new memory; the arguments are not kept. The same arguments give the
// same bytes.
func PlainBatch(offset int64, timestampMillis int64, key, value []byte, headers []RecordHeader) Batch {
	body := recordBodySize(0, 0, key, value, headers)
	b := make(Batch, BatchHeaderSize, BatchHeaderSize+varintSize(int64(body))+body)
	putBatchHeader(b, offset, 0, 0, timestampMillis, timestampMillis, -1, -1, -1, 1)
	b = binary.AppendVarint(b, int64(body))
	b = appendRecordBody(b, 0, 0, key, value, headers)
	b.close()
	return b
}

// putBatchHeader fills the fixed fields. Length and checksum are set by close.
func putBatchHeader(b Batch, offset int64, attributes int16, lastDelta int32, base, maxTime, producer int64, epoch int16, sequence, count int32) {
	binary.BigEndian.PutUint64(b, uint64(offset))
	binary.BigEndian.PutUint32(b[batchLeaderEpoch:], 0)
	b[batchMagic] = 2
	binary.BigEndian.PutUint16(b[batchAttributes:], uint16(attributes))
	binary.BigEndian.PutUint32(b[batchLastDelta:], uint32(lastDelta))
	binary.BigEndian.PutUint64(b[batchBaseTime:], uint64(base))
	binary.BigEndian.PutUint64(b[batchMaxTime:], uint64(maxTime))
	binary.BigEndian.PutUint64(b[batchProducerID:], uint64(producer))
	binary.BigEndian.PutUint16(b[batchEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(b[batchBaseSeq:], uint32(sequence))
	binary.BigEndian.PutUint32(b[batchCount:], uint32(count))
}

// close sets length and checksum of a batch whose bytes are complete.
func (b Batch) close() {
	binary.BigEndian.PutUint32(b[batchLength:], uint32(len(b)-batchOverhead))
	b.sum()
}

// recordBodySize is what a record's length field counts.
func recordBodySize(timeDelta int64, offsetDelta int32, key, value []byte, headers []RecordHeader) int {
	n := 1 + varintSize(timeDelta) + varintSize(int64(offsetDelta)) + bytesSize(key) + bytesSize(value) + varintSize(int64(len(headers)))
	for _, h := range headers {
		n += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	return n
}

func appendRecordBody(b []byte, timeDelta int64, offsetDelta int32, key, value []byte, headers []RecordHeader) []byte {
	b = append(b, 0) // record attributes, unused
	b = binary.AppendVarint(b, timeDelta)
	b = binary.AppendVarint(b, int64(offsetDelta))
	b = appendBytes(b, key)
	b = appendBytes(b, value)
	b = binary.AppendVarint(b, int64(len(headers)))
	for _, h := range headers {
		b = binary.AppendVarint(b, int64(len(h.Key)))
		b = append(b, h.Key...)
		b = appendBytes(b, h.Value)
	}
	return b
}

func appendBytes(b, p []byte) []byte {
	if p == nil {
		return binary.AppendVarint(b, -1)
	}
	b = binary.AppendVarint(b, int64(len(p)))
	return append(b, p...)
}

func bytesSize(p []byte) int {
	if p == nil {
		return 1
	}
	return varintSize(int64(len(p))) + len(p)
}

// varintSize is the length of the zigzag varint of n.
func varintSize(n int64) int {
	u := uint64(n)<<1 ^ uint64(n>>63)
	s := 1
	for u >= 0x80 {
		u >>= 7
		s++
	}
	return s
}
