package group

import (
	"context"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/types"
)

// method is what gateways carry out for each other.
type method[Q, A any] = coord.Method[*Coordinator, Q, A]

// outcome answers what is only done or refused.
type outcome struct {
	Err error `json:"-"`
}

type nameRequest struct{ Group string }

type leaveRequest struct {
	Group   string
	Members []LeaveMember
}

type endRequest struct {
	Group string
	TxnEnd
}

type deleteOffsetsRequest struct {
	Group      string
	Partitions []types.TopicPartition
}

var (
	joinMethod = &method[JoinRequest, JoinResponse]{
		Name:  "group.join",
		Parks: true,
		Local: func(co *Coordinator, ctx context.Context, q JoinRequest) JoinResponse { return co.Join(ctx, q) },
		Errs:  func(a *JoinResponse, _ int) []*error { return []*error{&a.Err} },
		Fail: func(q JoinRequest, err error) JoinResponse {
			return JoinResponse{Err: err, Member: q.Member, Generation: -1}
		},
	}
	syncMethod = &method[SyncRequest, SyncResponse]{
		Name:  "group.sync",
		Parks: true,
		Local: func(co *Coordinator, ctx context.Context, q SyncRequest) SyncResponse { return co.Sync(ctx, q) },
		Errs:  func(a *SyncResponse, _ int) []*error { return []*error{&a.Err} },
		Fail:  func(_ SyncRequest, err error) SyncResponse { return SyncResponse{Err: err} },
	}
	heartbeatMethod = &method[Membership, outcome]{
		Name:  "group.heartbeat",
		Local: func(co *Coordinator, ctx context.Context, q Membership) outcome { return outcome{co.Heartbeat(ctx, q)} },
		Errs:  func(a *outcome, _ int) []*error { return []*error{&a.Err} },
		Fail:  func(_ Membership, err error) outcome { return outcome{err} },
	}
	leaveMethod = &method[leaveRequest, LeaveResponse]{
		Name: "group.leave",
		Local: func(co *Coordinator, ctx context.Context, q leaveRequest) LeaveResponse {
			return co.Leave(ctx, q.Group, q.Members)
		},
		Errs: func(a *LeaveResponse, _ int) []*error {
			errs := []*error{&a.Err}
			for i := range a.Members {
				errs = append(errs, &a.Members[i].Err)
			}
			return errs
		},
		Fail: func(_ leaveRequest, err error) LeaveResponse { return LeaveResponse{Err: err} },
	}
	commitMethod = &method[CommitRequest, CommitResponse]{
		Name:  "group.commit",
		Local: func(co *Coordinator, ctx context.Context, q CommitRequest) CommitResponse { return co.Commit(ctx, q) },
		Errs:  func(a *CommitResponse, n int) []*error { return partErrors(&a.Err, &a.Partitions, n) },
		Fail:  func(_ CommitRequest, err error) CommitResponse { return CommitResponse{Err: err} },
	}
	// Its own name, because gateways that know nothing of transactions would take
	// it for a plain commit.
	commitTxnMethod = &method[CommitRequest, CommitResponse]{
		Name: "group.commit-in-transaction", Local: commitMethod.Local, Errs: commitMethod.Errs, Fail: commitMethod.Fail,
	}
	fetchMethod = &method[FetchRequest, FetchResponse]{
		Name:  "group.fetch",
		Local: func(co *Coordinator, ctx context.Context, q FetchRequest) FetchResponse { return co.Fetch(ctx, q) },
		Errs: func(a *FetchResponse, _ int) []*error {
			errs := []*error{&a.Err}
			for i := range a.Offsets {
				errs = append(errs, &a.Offsets[i].Err)
			}
			return errs
		},
		Fail: func(_ FetchRequest, err error) FetchResponse { return FetchResponse{Err: err} },
	}
	describeMethod = &method[nameRequest, Description]{
		Name: "group.describe",
		Local: func(co *Coordinator, ctx context.Context, q nameRequest) Description {
			return co.Describe(ctx, q.Group)
		},
		Errs: func(a *Description, _ int) []*error { return []*error{&a.Err} },
		Fail: func(q nameRequest, err error) Description { return Description{Err: err, Group: q.Group} },
	}
	deleteMethod = &method[nameRequest, outcome]{
		Name: "group.delete",
		Local: func(co *Coordinator, ctx context.Context, q nameRequest) outcome {
			return outcome{co.Delete(ctx, q.Group)}
		},
		Errs: func(a *outcome, _ int) []*error { return []*error{&a.Err} },
		Fail: func(_ nameRequest, err error) outcome { return outcome{err} },
	}
	endMethod = &method[endRequest, outcome]{
		Name:    "group.end-transaction",
		Between: true,
		Local: func(co *Coordinator, ctx context.Context, q endRequest) outcome {
			return outcome{co.EndTransaction(ctx, q.Group, q.TxnEnd)}
		},
		Errs: func(a *outcome, _ int) []*error { return []*error{&a.Err} },
		Fail: func(_ endRequest, err error) outcome { return outcome{err} },
	}
	deleteOffsetsMethod = &method[deleteOffsetsRequest, DeleteOffsetsResponse]{
		Name: "group.delete-offsets",
		Local: func(co *Coordinator, ctx context.Context, q deleteOffsetsRequest) DeleteOffsetsResponse {
			return co.DeleteOffsets(ctx, q.Group, q.Partitions)
		},
		Errs: func(a *DeleteOffsetsResponse, n int) []*error { return partErrors(&a.Err, &a.Partitions, n) },
		Fail: func(_ deleteOffsetsRequest, err error) DeleteOffsetsResponse { return DeleteOffsetsResponse{Err: err} },
	}
)

func partErrors(err *error, parts *[]error, n int) []*error {
	if n > 0 {
		*parts = make([]error, n-1)
	}
	errs := []*error{err}
	for i := range *parts {
		errs = append(errs, &(*parts)[i])
	}
	return errs
}

// serve carries out what other gateways ask, until end is called.
func (co *Coordinator) serve() (end func()) {
	if co.d.Calls == nil {
		return func() {}
	}
	calls, code := co.d.Calls, coord.Code(co.d.Code)
	cancels := []func(){
		joinMethod.Handle(calls, co, code), syncMethod.Handle(calls, co, code), heartbeatMethod.Handle(calls, co, code),
		leaveMethod.Handle(calls, co, code), commitMethod.Handle(calls, co, code), fetchMethod.Handle(calls, co, code),
		describeMethod.Handle(calls, co, code), deleteMethod.Handle(calls, co, code), deleteOffsetsMethod.Handle(calls, co, code),
		commitTxnMethod.Handle(calls, co, code), endMethod.Handle(calls, co, code),
	}
	return func() {
		for _, cancel := range cancels {
			cancel()
		}
	}
}
