package partition

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/serde"
)

// checked is a request that may be stored as far as its bytes tell.
type checked struct {
	batch   serde.Batch
	entry   entry // all but the append time
	err     *kerr.Error
	message string
	records []RecordError
}

func (k *checked) refuse(err *kerr.Error, message string) { k.err, k.message = err, message }

// check looks at one request's bytes, in its caller's goroutine: everything
// that does not depend on the partition's state. largest is the largest batch
// that can be stored whatever the config says. now is in ms.
//
// Order and codes are those of ProduceRequest.validateRecords,
// UnifiedLog.analyzeAndValidateRecords and LogValidator. Records are walked
// only where a rule needs it (design §6).
//
// Texts for people are Kafka's where it sends one; most refusals have none there.
// at is the partition's name in them.
func (k *checked) check(at fmt.Stringer, r *AppendRequest, c *Config, largest int, now int64) {
	if len(r.Records) == 0 {
		k.refuse(kerr.InvalidRecord, "no record batch")
		return
	}
	b, rest, err := serde.ParseBatch(r.Records)
	switch {
	case errors.Is(err, serde.ErrMagic):
		k.refuse(kerr.InvalidRecord, "only record batches of magic 2 can be stored")
		return
	case err != nil:
		k.refuse(kerr.InvalidRecord, "the record batch is cut short")
		return
	case len(rest) > 0:
		k.refuse(kerr.InvalidRecord, "more than one record batch for a partition")
		return
	}
	codec := b.Codec()
	if codec > 4 {
		k.refuse(kerr.UnsupportedCompressionType, fmt.Sprintf("compression type %d is unknown", codec))
		return
	}
	if codec == 4 && r.NoZstd {
		k.refuse(kerr.UnsupportedCompressionType, "zstd needs Produce version 7")
		return
	}
	if limit := min(c.MaxMessageBytes, largest); len(b) > limit {
		k.refuse(kerr.MessageTooLarge, "")
		return
	}
	if !b.ChecksumOK() {
		k.refuse(kerr.CorruptMessage, "the batch's checksum is wrong")
		return
	}
	switch count, delta := b.Count(), b.LastOffsetDelta(); {
	case count <= 0:
		k.refuse(kerr.InvalidRecord, "the batch has no records")
		return
	case int64(delta)+1 != int64(count):
		k.refuse(kerr.InvalidRecord, "record count and last offset delta differ")
		return
	case b.Control():
		k.refuse(kerr.InvalidRecord, "clients may not write control batches")
		return
	case b.ProducerID() >= 0 && (b.BaseSequence() < 0 || b.ProducerEpoch() < 0):
		k.refuse(kerr.InvalidRecord, "the batch has a producer id without epoch or sequence")
		return
	case b.ProducerID() < -1:
		k.refuse(kerr.InvalidRecord, "the producer id is negative")
		return
	case b.Transactional() && !r.Transactional:
		k.refuse(kerr.TransactionalIDAuthorizationFailed, "a transactional batch without a transactional id")
		return
	case b.Transactional() && b.ProducerID() < 0:
		k.refuse(kerr.InvalidRecord, "a transactional batch without a producer id")
		return
	case b.Transactional() && r.Verify == nil:
		k.refuse(kerr.InvalidTxnState, "transactions are not served")
		return
	}
	k.batch = b
	k.entry = entryOf(b)
	k.entry.fromZero = r.FromZero && b.Transactional()
	if c.LogAppendTime {
		k.entry.flags |= flagLogAppendTime
	}
	if k.times(at, c, now); k.err == nil {
		k.recode(c, largest)
	}
}

// times checks timestamps and keys. The header's max timestamp is believed if
// it is possible; else the records are read and the header is set right, as
// Kafka does for every batch. A header that lies within reason (above the base,
// below the true maximum) is kept: finding it out would cost a decompression
// per batch.
func (k *checked) times(at fmt.Stringer, c *Config, now int64) {
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
	if !implausible && !late && !c.Compacted {
		return
	}
	largest := int64(-1)
	var bad []RecordError
	badTime, gaps, n := false, false, int32(0)
	see := func(delta int32, keyless bool, after int64) bool {
		i := n
		n++
		if gaps = delta != i; gaps {
			return false
		}
		t := b.BaseTimestamp() + after
		largest = max(largest, t)
		switch { // one for a record, as LogValidator.validateRecord
		case c.Compacted && keyless:
			bad = append(bad, RecordError{i, fmt.Sprintf("Compacted topic cannot accept message without key in topic partition %s", at)})
		case !c.LogAppendTime && t != -1 && (t > newest || t < oldest):
			badTime = true
			bad = append(bad, RecordError{i, fmt.Sprintf("Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]", t, i, oldest, newest)})
		}
		return true
	}
	if err := eachRecord(b, c.MaxMessageBytes, see); err != nil {
		why := "the batch's records cannot be read"
		if errors.Is(err, compress.ErrLimit) {
			why = fmt.Sprintf("the batch's records take more than %d bytes", rewriteBudget)
		}
		k.refuse(kerr.InvalidRecord, why)
		return
	}
	switch {
	case gaps:
		k.refuse(kerr.InvalidRecord, "the batch's offsets have gaps")
		return
	case badTime: // LogValidator.processRecordErrors: whatever else is wrong
		k.records = capped(bad)
		k.refuse(kerr.InvalidTimestamp, "One or more records have been rejected due to invalid timestamp")
		return
	case len(bad) > 0:
		k.records = capped(bad)
		k.refuse(kerr.InvalidRecord, rejected(bad))
		return
	}
	if implausible || late && largest != b.MaxTimestamp() {
		if b.LogAppendTime() || largest != b.MaxTimestamp() {
			b.SetTimes(largest, false)
		}
		k.entry.maxTime = largest
	}

}

// rejected is RecordValidationException's text.
func rejected(bad []RecordError) string {
	var first strings.Builder
	for i, e := range bad[:min(len(bad), 3)] {
		if i > 0 {
			first.WriteString(", ")
		}
		fmt.Fprintf(&first, "RecordError(batchIndex=%d, message='%s')", e.Index, e.Message)
	}
	return fmt.Sprintf("One or more records have been rejected due to %d record errors in total, and only showing the first three errors at most: [%s]", len(bad), first.String())
}

// capped keeps the answer to a hopeless batch small.
func capped(r []RecordError) []RecordError { return r[:min(len(r), 100)] }
