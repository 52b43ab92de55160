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
	return BuildEncoded(f, records, EncodeRecords(records))
}

// EncodeRecords is the part of a batch that is compressed.
func EncodeRecords(records []NewRecord) []byte {
	var p []byte
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
	latest := records[0].TimestampMillis
	for _, r := range records[1:] {
		latest = max(latest, r.TimestampMillis)
	}
	b := make(Batch, BatchHeaderSize, BatchHeaderSize+len(encoded))
	n := int32(len(records))
	putBatchHeader(b, f.BaseOffset, f.Attributes, n-1, records[0].TimestampMillis, latest, f.ProducerID, f.ProducerEpoch, f.BaseSequence, n)
	b = append(b, encoded...)
	b.close()
	return b
}
