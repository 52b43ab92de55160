package txn

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
)

// Forwarder can be asked about every transactional id.
type Forwarder struct{}

// Init is InitProducerId.
func (f *Forwarder) Init(context.Context, InitRequest) InitResponse {
	return InitResponse{Err: kerr.CoordinatorNotAvailable, Producer: NoProducer}
}

// AddPartitions is AddPartitionsToTxn, and what Produce asks before it appends.
func (f *Forwarder) AddPartitions(context.Context, AddPartitionsRequest) AddPartitionsResponse {
	return AddPartitionsResponse{Err: kerr.CoordinatorNotAvailable}
}

// AddOffsets is AddOffsetsToTxn, and what TxnOffsetCommit asks before it commits.
func (f *Forwarder) AddOffsets(context.Context, AddOffsetsRequest) AddOffsetsResponse {
	return AddOffsetsResponse{Err: kerr.CoordinatorNotAvailable}
}

// End is EndTxn.
func (f *Forwarder) End(context.Context, EndRequest) EndResponse {
	return EndResponse{Err: kerr.CoordinatorNotAvailable, Producer: NoProducer}
}

// Describe shows a transactional id.
func (f *Forwarder) Describe(_ context.Context, id string) Description {
	return Description{Err: kerr.CoordinatorNotAvailable, TransactionalID: id}
}

// List lists the transactional ids of the cluster, by name.
func (f *Forwarder) List(context.Context, ListRequest) ([]Listing, error) {
	return nil, kerr.CoordinatorNotAvailable
}

// Seat names the gateway that clients should be told of as an id's coordinator.
func (f *Forwarder) Seat(string) (cluster.Identity, bool) { return cluster.Identity{}, false }
