package partition

import (
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
