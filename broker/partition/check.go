package partition

import (
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/serde"
)

// checked is a request that may be stored as far as its bytes tell.
type checked struct {
	batch serde.Batch
	entry entry // all but the append time
	// walked: the header's times were replaced by those of the records.
	err     *kerr.Error
	message string
	records []RecordError
}

func (c *checked) refuse(err *kerr.Error, message string) *checked {
	c.err, c.message = err, message
	return c
}

// check looks at one request's bytes, in its caller's goroutine: everything
// that does not depend on the partition's state. largest is the largest batch
// that can be stored whatever the config says. now is in ms.
//
// Order and codes are those of ProduceRequest.validateRecords,
// UnifiedLog.analyzeAndValidateRecords and LogValidator. Records are walked
// only where a rule needs it (design §6).
func check(r *AppendRequest, c *Config, largest int, now int64) *checked {
	k := &checked{}
	if len(r.Records) == 0 {
		return k.refuse(kerr.InvalidRecord, "no record batch")
	}
	b, rest, err := serde.ParseBatch(r.Records)
	switch {
	case errors.Is(err, serde.ErrMagic):
		return k.refuse(kerr.InvalidRecord, "only record batches of magic 2 can be stored")
	case err != nil:
		return k.refuse(kerr.InvalidRecord, "the record batch is cut short")
	case len(rest) > 0:
		return k.refuse(kerr.InvalidRecord, "more than one record batch for a partition")
	}
	codec := b.Codec()
	if codec > 4 {
		return k.refuse(kerr.UnsupportedCompressionType, fmt.Sprintf("compression type %d is unknown", codec))
	}
	if codec == 4 && r.NoZstd {
		return k.refuse(kerr.UnsupportedCompressionType, "zstd needs Produce version 7")
	}
	if limit := min(c.MaxMessageBytes, largest); len(b) > limit {
		return k.refuse(kerr.MessageTooLarge, fmt.Sprintf("the batch has %d bytes, the limit is %d", len(b), limit))
	}
	if !b.ChecksumOK() {
		return k.refuse(kerr.CorruptMessage, "the batch's checksum is wrong")
	}
	switch count, delta := b.Count(), b.LastOffsetDelta(); {
	case count <= 0:
		return k.refuse(kerr.InvalidRecord, "the batch has no records")
	case int64(delta)+1 != int64(count):
		return k.refuse(kerr.InvalidRecord, "record count and last offset delta differ")
	case b.Control():
		return k.refuse(kerr.InvalidRecord, "clients may not write control batches")
	case b.ProducerID() >= 0 && (b.BaseSequence() < 0 || b.ProducerEpoch() < 0):
		return k.refuse(kerr.InvalidRecord, "the batch has a producer id without epoch or sequence")
	case b.ProducerID() < -1:
		return k.refuse(kerr.InvalidRecord, "the producer id is negative")
	case b.Transactional() && !r.Transactional:
		return k.refuse(kerr.TransactionalIDAuthorizationFailed, "a transactional batch without a transactional id")
	case b.Transactional():
		return k.refuse(kerr.InvalidTxnState, "transactions are not served")
	}
	k.batch = b
	k.entry = entry{
		length: int32(len(b)), count: b.Count(), maxTime: b.MaxTimestamp(),
		pid: b.ProducerID(), epoch: b.ProducerEpoch(), first: b.BaseSequence(),
	}
	if k.entry.pid < 0 {
		k.entry.pid, k.entry.epoch, k.entry.first = -1, -1, -1
	}
	if c.LogAppendTime {
		k.entry.flags |= flagLogAppendTime
	}
	return k.times(c, now)
}

// times checks timestamps and keys. The header's max timestamp is believed if
// it is possible; else the records are read and the header is set right, as
// Kafka does for every batch. A header that lies within reason (above the base,
// below the true maximum) is kept: finding it out would cost a decompression
// per batch.
func (k *checked) times(c *Config, now int64) *checked {
	b := k.batch
	newest := now + c.MaxAheadMillis
	if newest < now {
		newest = math.MaxInt64
	}
	oldest := now - c.MaxBehindMillis
	if oldest > now || c.MaxBehindMillis == math.MaxInt64 {
		oldest = math.MinInt64
	}
	implausible := !c.LogAppendTime && (b.LogAppendTime() || b.MaxTimestamp() < b.BaseTimestamp() || b.MaxTimestamp() < 0)
	late := !c.LogAppendTime && (b.MaxTimestamp() > newest || b.BaseTimestamp() > newest || oldest != math.MinInt64)
	if !implausible && !late && !c.KeysRequired {
		return k
	}
	body, err := plainRecords(b, c.MaxMessageBytes)
	if err != nil {
		return k.refuse(kerr.InvalidRecord, "the batch's records cannot be read")
	}
	largest := int64(-1)
	var badKey, badTime []RecordError
	it := serde.NewRecords(body, b.Count())
	for i := int32(0); it.Next(); i++ {
		if it.Record.OffsetDelta != i {
			return k.refuse(kerr.InvalidRecord, "the batch's offsets have gaps")
		}
		if c.KeysRequired && it.Record.Key == nil {
			badKey = append(badKey, RecordError{i, "a record of a compacted topic needs a key"})
		}
		t := b.BaseTimestamp() + it.Record.TimestampDelta
		largest = max(largest, t)
		if !c.LogAppendTime && t != -1 && (t > newest || t < oldest) {
			badTime = append(badTime, RecordError{i, fmt.Sprintf("timestamp %d is outside of what the topic allows", t)})
		}
	}
	if it.Err() != nil {
		return k.refuse(kerr.InvalidRecord, "the batch's records cannot be read")
	}
	if len(badKey) > 0 {
		k.records = capped(badKey)
		return k.refuse(kerr.InvalidRecord, "one or more records have been rejected")
	}
	if len(badTime) > 0 {
		k.records = capped(badTime)
		return k.refuse(kerr.InvalidTimestamp, "one or more records have been rejected due to invalid timestamp")
	}
	if implausible || late && largest != b.MaxTimestamp() {
		if b.LogAppendTime() || largest != b.MaxTimestamp() {
			b.SetTimes(largest, false)
		}
		k.entry.maxTime = largest
	}
	return k
}

// capped keeps the answer to a hopeless batch small.
func capped(r []RecordError) []RecordError { return r[:min(len(r), 100)] }
