package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

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

// ahead is by how much our clock is ahead of the store's, as far as that is known.
func (b *Broker) ahead() time.Duration {
	d, _ := b.cluster.Ahead()
	return d
}
