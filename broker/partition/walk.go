package partition

import (
	"errors"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/serde"
)

// plainRecords returns a batch's records, decompressed if need be: at most the
// larger of maxMessage and eight times their size. What is larger stays opaque
// and is an error. Records that are not compressed share the batch's bytes.
func plainRecords(b serde.Batch, maxMessage int) ([]byte, error) {
	if b.Codec() == 0 {
		return b.Records(), nil
	}
	return compress.Decode(nil, compress.Codec(b.Codec()), b.Records(), maxMessage)
}

// eachRecord goes over a batch's records until see returns false: offset delta,
// whether there is no key, timestamp delta. What plainRecords does not take is
// decompressed as it is read, up to what compaction takes: memory stays flat, and no
// batch is admitted that could not be compacted. Errors: compress.ErrLimit, or that
// they cannot be read.
func eachRecord(b serde.Batch, maxMessage int, see func(delta int32, keyless bool, after int64) bool) error {
	body, err := plainRecords(b, maxMessage)
	if err == nil {
		it := serde.NewRecords(body, b.Count())
		for it.Next() {
			if !see(it.Record.OffsetDelta, it.Record.Key == nil, it.Record.TimestampDelta) {
				return nil
			}
		}
		return it.Err()
	}
	if !errors.Is(err, compress.ErrLimit) {
		return err
	}
	r := compress.NewReader(compress.Codec(b.Codec()), b.Records(), rewriteBudget)
	defer r.Close()
	s := serde.NewScan(r, b.Count())
	for s.Next() {
		if !see(s.OffsetDelta, s.NullKey, s.TimestampDelta) {
			return nil
		}
	}
	return s.Err()
}
