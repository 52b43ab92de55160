package txn

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
)

// Forwarder is a Coordinator that can be asked about every transactional id: a
// request about one that another gateway owns travels there, and the answer back.
// Methods are as the Coordinator's.
type Forwarder struct{ *Coordinator }

// NewForwarder makes a Forwarder of a Coordinator, which runs.
func NewForwarder(co *Coordinator) *Forwarder { return &Forwarder{co} }

// Init implements protocol.Transactions.
func (f *Forwarder) Init(ctx context.Context, q InitRequest) InitResponse {
	coord.Mend(&q.TransactionalID)
	return forward(ctx, f, initMethod, q.TransactionalID, initCall{q, rand.Text()})
}

// AddPartitions implements protocol.Transactions.
func (f *Forwarder) AddPartitions(ctx context.Context, q AddPartitionsRequest) AddPartitionsResponse {
	coord.Mend(&q.TransactionalID)
	return forward(ctx, f, addPartitionsMethod, q.TransactionalID, q)
}

// AddOffsets implements protocol.Transactions.
func (f *Forwarder) AddOffsets(ctx context.Context, q AddOffsetsRequest) AddOffsetsResponse {
	coord.Mend(&q.TransactionalID, &q.Group)
	return forward(ctx, f, addOffsetsMethod, q.TransactionalID, q)
}

// End implements protocol.Transactions.
func (f *Forwarder) End(ctx context.Context, q EndRequest) EndResponse {
	coord.Mend(&q.TransactionalID)
	return forward(ctx, f, endMethod, q.TransactionalID, endCall{q, rand.Text()})
}

// Describe implements protocol.Transactions: as the owner has it in memory or, if
// it cannot be asked, as it was stored last.
func (f *Forwarder) Describe(ctx context.Context, id string) Description {
	coord.Mend(&id)
	key := pubsub.Token(id)
	if to, owned := f.rt.LivingOwner(key); owned && f.d.Calls != nil && to != f.d.Members.Self() && !f.rt.Holds(key) {
		if d, err := describeMethod.Call(ctx, f.d.Calls, to, id); err == nil && !errors.Is(d.Err, kerr.NotCoordinator) {
			return d
		}
	}
	return f.Coordinator.Describe(ctx, id)
}

// forward runs a request where its transactional id is owned.
func forward[Q, A any](ctx context.Context, f *Forwarder, m *method[Q, A], id string, q Q) A {
	return coord.Forward(ctx, f.rt, f.d.Calls, true, f.Coordinator, m, pubsub.Token(id), q)
}
