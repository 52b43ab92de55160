package partition

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Marker ends a transaction of a producer on one partition.
type Marker struct {
	ProducerID int64
	// Epoch is written into the marker; it is the producer's epoch from then on.
	Epoch int16
	// N is the number of the transaction. 0 ends whatever is open here, as a
	// tool's WriteTxnMarkers asks for: then Kafka's checks of the producer's epoch
	// (INVALID_PRODUCER_EPOCH) and of the coordinator's
	// (TRANSACTION_COORDINATOR_FENCED) apply.
	N                int64
	Commit           bool
	CoordinatorEpoch int32
}

// EndTransaction appends the marker and returns when it is applied, or at once
// when N has ended already. It is idempotent: after an unknown outcome it is
// called again. Errors: refusals (*kerr.Error), failures of the store.
func (p *Partition) EndTransaction(ctx context.Context, m Marker) error {
	return kerr.InvalidTxnState // transactional batches are not stored yet
}
