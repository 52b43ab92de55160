package serde

import (
	"encoding/binary"
	"fmt"
)

// ControlBatchSize is the size of every transaction marker.
const ControlBatchSize = 78

// ControlType is the type field of a control record's key.
type ControlType int16

// The control records that clients act on.
const (
	ControlAbort  ControlType = 0
	ControlCommit ControlType = 1
)

// ControlBatch makes the batch that ends a transaction of one producer: one
// record, no sequence, 78 bytes (org.apache.kafka.common.record.EndTransactionMarker).
func ControlBatch(offset, timestampMillis, producerID int64, epoch int16, t ControlType, coordinatorEpoch int32) Batch {
	var key [4]byte // version 0, type
	binary.BigEndian.PutUint16(key[2:], uint16(t))
	var value [6]byte // version 0, coordinator epoch
	binary.BigEndian.PutUint32(value[2:], uint32(coordinatorEpoch))
	b := make(Batch, BatchHeaderSize, ControlBatchSize)
	putBatchHeader(b, offset, attrTransactional|attrControl, 0, timestampMillis, timestampMillis, producerID, epoch, -1, 1)
	b = binary.AppendVarint(b, int64(recordBodySize(0, 0, key[:], value[:], nil)))
	b = appendRecordBody(b, 0, 0, key[:], value[:], nil)
	b.close()
	return b
}

// ParseControl reads a control batch's type and coordinator epoch. Types other
// than abort and commit are returned as they are.
func ParseControl(b Batch) (t ControlType, coordinatorEpoch int32, err error) {
	if !b.Control() || b.Codec() != 0 {
		return 0, 0, fmt.Errorf("%w: not a control batch: attributes %#x", ErrMalformed, b.Attributes())
	}
	it := NewRecords(b.Records(), b.Count())
	if !it.Next() {
		if err := it.Err(); err != nil {
			return 0, 0, fmt.Errorf("control batch: %w", err)
		}
		return 0, 0, fmt.Errorf("%w: control batch without a record", ErrMalformed)
	}
	k, v := it.Record.Key, it.Record.Value
	if len(k) < 4 || len(v) < 6 {
		return 0, 0, fmt.Errorf("%w: control record with key of %d and value of %d bytes", ErrMalformed, len(k), len(v))
	}
	return ControlType(binary.BigEndian.Uint16(k[2:])), int32(binary.BigEndian.Uint32(v[2:])), nil
}
