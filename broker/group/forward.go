package group

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// Forwarder is a Coordinator that can be asked about every group: a request about
// one that another gateway owns travels there, and the answer back. Whoever waits
// there when its owner dies waits on at the next one, so that clients behind one
// address notice nothing but the time it takes. With Config.Forward off such a
// request is NOT_COORDINATOR instead. Methods are as the Coordinator's.
type Forwarder struct{ *Coordinator }

// NewForwarder makes a Forwarder of a Coordinator, which runs.
func NewForwarder(co *Coordinator) *Forwarder { return &Forwarder{co} }

// Join implements protocol.Groups.
func (f *Forwarder) Join(ctx context.Context, r JoinRequest) JoinResponse {
	r.Caller.mend()
	coord.Mend(&r.Group, &r.Member, r.Instance, &r.ProtocolType, &r.Reason)
	ps := make([]Protocol, len(r.Protocols))
	for i, p := range r.Protocols {
		coord.Mend(&p.Name)
		ps[i] = p
	}
	r.Protocols = ps
	return forward(f, ctx, r.Group, joinMethod, r)
}

// Sync implements protocol.Groups.
func (f *Forwarder) Sync(ctx context.Context, r SyncRequest) SyncResponse {
	r.Membership.mend()
	coord.Mend(r.ProtocolType, r.Protocol)
	as := make([]Assignment, len(r.Assignments))
	for i, a := range r.Assignments {
		coord.Mend(&a.Member)
		as[i] = a
	}
	r.Assignments = as
	return forward(f, ctx, r.Group, syncMethod, r)
}

// Heartbeat implements protocol.Groups.
func (f *Forwarder) Heartbeat(ctx context.Context, m Membership) error {
	m.mend()
	return forward(f, ctx, m.Group, heartbeatMethod, m).Err
}

// Leave implements protocol.Groups.
func (f *Forwarder) Leave(ctx context.Context, name string, members []LeaveMember) LeaveResponse {
	r := leaveRequest{Group: name, Members: make([]LeaveMember, len(members))}
	coord.Mend(&r.Group)
	for i, m := range members {
		coord.Mend(&m.Member, m.Instance, &m.Reason)
		r.Members[i] = m
	}
	return forward(f, ctx, r.Group, leaveMethod, r)
}

// Commit implements protocol.Groups. Offsets of which it is not known whether
// they were stored are committed again, which changes nothing.
func (f *Forwarder) Commit(ctx context.Context, r CommitRequest) CommitResponse {
	r.Caller.mend()
	r.Membership.mend()
	ps := make([]CommitPartition, len(r.Partitions))
	for i, p := range r.Partitions {
		coord.Mend(p.Metadata)
		ps[i] = p
	}
	r.Partitions = ps
	if r.Txn != nil {
		txn := *r.Txn
		coord.Mend(&txn.TransactionalID)
		r.Txn = &txn
		return forward(f, ctx, r.Group, commitTxnMethod, r)
	}
	return forward(f, ctx, r.Group, commitMethod, r)
}

// Fetch implements protocol.Groups.
func (f *Forwarder) Fetch(ctx context.Context, r FetchRequest) FetchResponse {
	coord.Mend(&r.Group)
	return forward(f, ctx, r.Group, fetchMethod, r)
}

// Delete implements protocol.Groups.
func (f *Forwarder) Delete(ctx context.Context, name string) error {
	coord.Mend(&name)
	return forward(f, ctx, name, deleteMethod, nameRequest{name}).Err
}

// DeleteOffsets implements protocol.Groups.
func (f *Forwarder) DeleteOffsets(ctx context.Context, name string, partitions []types.TopicPartition) DeleteOffsetsResponse {
	coord.Mend(&name)
	return forward(f, ctx, name, deleteOffsetsMethod, deleteOffsetsRequest{Group: name, Partitions: partitions})
}

// EndTransaction tells a group how a transaction ended that may have committed
// offsets to it. nil: its record says that the transaction has ended, and no
// offset of it is pending any more; or there is no such group. It may be repeated.
func (f *Forwarder) EndTransaction(ctx context.Context, group string, e TxnEnd) error {
	coord.Mend(&group)
	return forward(f, ctx, group, endMethod, endRequest{group, e}).Err
}

// Describe implements protocol.Groups: as the owner has it in memory or, if it
// cannot be asked, as it was stored last.
func (f *Forwarder) Describe(ctx context.Context, name string) Description {
	coord.Mend(&name)
	key := pubsub.Token(name)
	if to, owned := f.rt.LivingOwner(key); owned && f.forwards() && to != f.d.Members.Self() && !f.rt.Holds(key) {
		if d, err := describeMethod.Call(ctx, f.d.Calls, to, nameRequest{name}); err == nil && !errors.Is(d.Err, kerr.NotCoordinator) {
			return d
		}
	}
	return f.Coordinator.Describe(ctx, name)
}

func (f *Forwarder) forwards() bool { return f.c.Forward && f.d.Calls != nil }

// forward runs a request about a group where the group is owned.
func forward[Q, A any](f *Forwarder, ctx context.Context, name string, m *method[Q, A], q Q) A {
	return coord.Forward(ctx, f.rt, f.d.Calls, f.c.Forward, f.Coordinator, m, pubsub.Token(name), q)
}

func (c *Caller) mend()     { coord.Mend(&c.ClientID, &c.Host) }
func (m *Membership) mend() { coord.Mend(&m.Group, &m.Member, m.Instance) }
