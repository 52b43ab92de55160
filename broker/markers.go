package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/txn"
)

// markers appends the markers of transactions to partitions (txn.Markers), through
// this gateway's own host, as batches of any client are.
type markers struct{ b *Broker }

// End implements txn.Markers. A topic is gone when the store has said so twice:
// until then its marker is tried again.
func (m markers) End(ctx context.Context, p txn.Partition, mark partition.Marker) error {
	t, err := m.b.topics.GetByID(ctx, p.Topic)
	switch {
	case errors.Is(err, kerr.UnknownTopicID):
		return nil
	case err != nil:
		return err
	}
	part, err := m.b.Partition(ctx, t, p.N)
	if err != nil {
		return err
	}
	return part.EndTransaction(ctx, mark)
}

// openTransaction says whether a transaction with offsets of a group may not have
// ended yet (group.Deps.Open). Of an id that has one open with that group it may be
// that one: if it is a later one, its end settles the matter.
func (b *Broker) openTransaction(ctx context.Context, name string, t group.TxnCommit) (bool, error) {
	d := b.txns.Describe(ctx, t.TransactionalID)
	switch {
	case errors.Is(d.Err, kerr.TransactionalIDNotFound):
		return false, nil
	case d.Err != nil:
		return false, d.Err
	}
	return d.Producer.ID == t.ProducerID && slices.Contains(d.Groups, name), nil
}

// ahead is by how much our clock is ahead of the store's, as far as that is known.
func (b *Broker) ahead() time.Duration {
	d, _ := b.cluster.Ahead()
	return d
}
