package partition

import (
	"context"
	"fmt"

	"github.com/hanzoai/stream/serde"
)

// The types of markers, as in entry.marker.
const (
	markerAbort  = int8(serde.ControlAbort)
	markerCommit = int8(serde.ControlCommit)
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
// when N has ended already. It is idempotent: after an unknown outcome, which an
// error may be, it is called again. Errors: refusals (*kerr.Error), failures of the
// store.
func (p *Partition) EndTransaction(ctx context.Context, m Marker) error {
	if m.ProducerID < 0 || m.Epoch < 0 || m.N < 0 {
		return fmt.Errorf("end a transaction on %s: producer %d, epoch %d, number %d", p, m.ProducerID, m.Epoch, m.N)
	}
	if !p.host.transactions() {
		return errEarlierFormat
	}
	if m.N > 0 && p.ended(m.ProducerID, m.N) {
		return nil
	}
	now, t := p.host.clock(), serde.ControlAbort
	if m.Commit {
		t = serde.ControlCommit
	}
	x := &pending{at: now, acksAll: true, told: m.N}
	x.batch = serde.ControlBatch(0, now.UnixMilli(), m.ProducerID, m.Epoch, t, m.CoordinatorEpoch)
	x.entry = markerEntry(x.batch, t, m.CoordinatorEpoch)
	if p.Config().LogAppendTime {
		x.entry.flags |= flagLogAppendTime
	}
	answer := make(chan error, 1)
	x.done = func(a AppendResult) { answer <- a.Err }
	p.mu.Lock()
	p.submitLocked(x)
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("end a transaction on %s: %w", p, ctx.Err())
	}
}

// markerEntry is what a marker's bytes tell.
func markerEntry(b serde.Batch, t serde.ControlType, coordinator int32) entry {
	e := entryOf(b)
	e.flags |= flagControl
	e.marker, e.coordinator = int8(t), coordinator
	return e
}

// ended reports whether the state knows that a transaction has ended.
func (p *Partition) ended(pid, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.st == nil || p.refusedLocked() != nil {
		return false
	}
	x := p.st.producers[pid]
	return x != nil && n <= x.ended
}
