package partition

import (
	"cmp"
	"context"
	"slices"

	"github.com/hanzoai/stream/types"
)

// ProducerState is what a partition knows of one producer id.
type ProducerState struct {
	ID           int64
	Epoch        int16
	LastSequence int32 // -1 before the first
	LastTime     int64 // ms: the largest timestamp of its last batch
	// CoordinatorEpoch is that of its last marker, -1 before the first.
	CoordinatorEpoch int32
	// TxnStart is the first offset of its open transaction, -1 if none is open.
	TxnStart types.Offset
}

// Producers lists the producer ids that are known, as of the log's end, by id.
// Those that wrote nothing for a day are forgotten.
func (p *Partition) Producers(ctx context.Context) ([]ProducerState, error) {
	if err := p.sync(ctx); err != nil {
		return nil, err
	}
	now := p.host.clock().UnixMilli()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.st == nil {
		return nil, p.unloaded()
	}
	out := make([]ProducerState, 0, len(p.st.producers))
	for id, s := range p.st.producers {
		if expired(s, max(now, p.st.now)) {
			continue
		}
		o := ProducerState{ID: id, Epoch: s.epoch, LastSequence: -1, LastTime: s.time, CoordinatorEpoch: s.coordinator, TxnStart: types.NoOffset}
		if s.txn != 0 {
			o.TxnStart = s.start
		}
		if s.kept > 0 {
			o.LastSequence = s.batches[s.kept-1].last
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b ProducerState) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}
