package serde

import "encoding/binary"

// NewRecord is a record to be put into a batch. nil for Key or Value is null.
type NewRecord struct {
	TimestampMillis int64
	Key, Value      []byte
	Headers         []RecordHeader
}

// BatchFields are the header fields of a new batch that do not follow from its
// records. Without a producer id, the last three are -1.
type BatchFields struct {
	BaseOffset    int64
	Attributes    int16
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
}

// Build makes an uncompressed batch of one or more records with consecutive
// offsets.
func Build(f BatchFields, records []NewRecord) Batch {
	b := newBatch(f, records, recordsSize(records))
	b = appendRecords(b, records)
	b.close()
	return b
}

// EncodeRecords is the part of a batch that is compressed.
func EncodeRecords(records []NewRecord) []byte {
	return appendRecords(make([]byte, 0, recordsSize(records)), records)
}

// recordsSize is the length of what appendRecords appends.
func recordsSize(records []NewRecord) (n int) {
	for i, r := range records {
		size := recordBodySize(r.TimestampMillis-records[0].TimestampMillis, int32(i), r.Key, r.Value, r.Headers)
		n += varintSize(int64(size)) + size
	}
	return n
}

func appendRecords(p []byte, records []NewRecord) []byte {
	for i, r := range records {
		delta := r.TimestampMillis - records[0].TimestampMillis
		p = binary.AppendVarint(p, int64(recordBodySize(delta, int32(i), r.Key, r.Value, r.Headers)))
		p = appendRecordBody(p, delta, int32(i), r.Key, r.Value, r.Headers)
	}
	return p
}

// BuildEncoded is Build with the records' bytes given, compressed as
// f.Attributes says.
func BuildEncoded(f BatchFields, records []NewRecord, encoded []byte) Batch {
	b := append(newBatch(f, records, len(encoded)), encoded...)
	b.close()
	return b
}

// newBatch is a header with room for so many bytes of records.
func newBatch(f BatchFields, records []NewRecord, room int) Batch {
	latest := records[0].TimestampMillis
	for _, r := range records[1:] {
		latest = max(latest, r.TimestampMillis)
	}
	b := make(Batch, BatchHeaderSize, BatchHeaderSize+room)
	n := int32(len(records))
	putBatchHeader(b, f.BaseOffset, f.Attributes, n-1, records[0].TimestampMillis, latest, f.ProducerID, f.ProducerEpoch, f.BaseSequence, n)
	return b
}
