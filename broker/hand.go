package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/types"
)

// appendMethod is the call by which batches are handed over.
const appendMethod = "append"

// appenders reaches the gateways that append to partitions (partition.Others).
// The hinted one is the same in both address modes: with an address per gateway
// it is the leader that clients are told of.
type appenders struct{ cluster *cluster.Cluster }

// Appender implements partition.Others.
func (a appenders) Appender(id types.TopicID, n int32) partition.Send {
	p, ok := cluster.Choose(a.cluster.Peers(), id.String()+"."+strconv.Itoa(int(n)))
	if !ok || p.Incarnation == a.cluster.Self().Incarnation {
		return nil
	}
	return a.send(p.Identity)
}

// All implements partition.Others.
func (a appenders) All() (all []partition.Send) {
	self := a.cluster.Self().Incarnation
	for _, p := range a.cluster.Peers() {
		if p.Incarnation != self {
			all = append(all, a.send(p.Identity))
		}
	}
	return all
}

func (a appenders) send(to cluster.Identity) partition.Send {
	return func(ctx context.Context, request []byte) ([]byte, error) {
		b, err := a.cluster.Call(ctx, to, appendMethod, request)
		if err == nil {
			return b, nil
		}
		// What TakeOver refuses it has not done, nor will.
		if _, refused := errors.AsType[cluster.RemoteError](err); refused || errors.Is(err, cluster.ErrNotDelivered) {
			err = fmt.Errorf("%w: %w", partition.ErrNotHanded, err)
		}
		return nil, err
	}
}

// takeOver answers appendMethod.
func (b *Broker) takeOver(ctx context.Context, from cluster.Identity, request []byte) ([]byte, error) {
	return b.host.TakeOver(ctx, from.Incarnation, request, func(ctx context.Context, id types.TopicID, n int32) (*partition.Partition, error) {
		t, err := b.topics.GetByID(ctx, id)
		if err != nil {
			return nil, err
		}
		if n >= t.Partitions {
			return nil, kerr.UnknownTopicOrPartition
		}
		return b.open(t, n), nil
	})
}
