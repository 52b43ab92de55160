package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/types"
)

// method is a request of type Q, answered by A, that gateways carry out for each
// other.
type method[Q, A any] struct {
	name  string
	parks bool // it waits for other members
	// between says that gateways ask it of each other on their own: it travels also
	// where clients find the owner themselves.
	between bool
	local   func(*Coordinator, context.Context, Q) A
	// errs are where an answer's errors are: its own, and those of its parts. n is
	// how many an answer has that came without those of its parts, else −1.
	errs func(a *A, n int) []*error
	// fail is the answer of a request that was not carried out.
	fail func(q Q, err error) A
}

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
		name:  "group.join",
		parks: true,
		local: func(co *Coordinator, ctx context.Context, q JoinRequest) JoinResponse { return co.Join(ctx, q) },
		errs:  func(a *JoinResponse, _ int) []*error { return []*error{&a.Err} },
		fail: func(q JoinRequest, err error) JoinResponse {
			return JoinResponse{Err: err, Member: q.Member, Generation: -1}
		},
	}
	syncMethod = &method[SyncRequest, SyncResponse]{
		name:  "group.sync",
		parks: true,
		local: func(co *Coordinator, ctx context.Context, q SyncRequest) SyncResponse { return co.Sync(ctx, q) },
		errs:  func(a *SyncResponse, _ int) []*error { return []*error{&a.Err} },
		fail:  func(_ SyncRequest, err error) SyncResponse { return SyncResponse{Err: err} },
	}
	heartbeatMethod = &method[Membership, outcome]{
		name:  "group.heartbeat",
		local: func(co *Coordinator, ctx context.Context, q Membership) outcome { return outcome{co.Heartbeat(ctx, q)} },
		errs:  func(a *outcome, _ int) []*error { return []*error{&a.Err} },
		fail:  func(_ Membership, err error) outcome { return outcome{err} },
	}
	leaveMethod = &method[leaveRequest, LeaveResponse]{
		name: "group.leave",
		local: func(co *Coordinator, ctx context.Context, q leaveRequest) LeaveResponse {
			return co.Leave(ctx, q.Group, q.Members)
		},
		errs: func(a *LeaveResponse, _ int) []*error {
			errs := []*error{&a.Err}
			for i := range a.Members {
				errs = append(errs, &a.Members[i].Err)
			}
			return errs
		},
		fail: func(_ leaveRequest, err error) LeaveResponse { return LeaveResponse{Err: err} },
	}
	commitMethod = &method[CommitRequest, CommitResponse]{
		name:  "group.commit",
		local: func(co *Coordinator, ctx context.Context, q CommitRequest) CommitResponse { return co.Commit(ctx, q) },
		errs:  func(a *CommitResponse, n int) []*error { return partErrors(&a.Err, &a.Partitions, n) },
		fail:  func(_ CommitRequest, err error) CommitResponse { return CommitResponse{Err: err} },
	}
	// Its own name, because gateways that know nothing of transactions would take
	// it for a plain commit.
	commitTxnMethod = &method[CommitRequest, CommitResponse]{
		name: "group.commit-in-transaction", local: commitMethod.local, errs: commitMethod.errs, fail: commitMethod.fail,
	}
	fetchMethod = &method[FetchRequest, FetchResponse]{
		name:  "group.fetch",
		local: func(co *Coordinator, ctx context.Context, q FetchRequest) FetchResponse { return co.Fetch(ctx, q) },
		errs: func(a *FetchResponse, _ int) []*error {
			errs := []*error{&a.Err}
			for i := range a.Offsets {
				errs = append(errs, &a.Offsets[i].Err)
			}
			return errs
		},
		fail: func(_ FetchRequest, err error) FetchResponse { return FetchResponse{Err: err} },
	}
	describeMethod = &method[nameRequest, Description]{
		name: "group.describe",
		local: func(co *Coordinator, ctx context.Context, q nameRequest) Description {
			return co.Describe(ctx, q.Group)
		},
		errs: func(a *Description, _ int) []*error { return []*error{&a.Err} },
		fail: func(q nameRequest, err error) Description { return Description{Err: err, Group: q.Group} },
	}
	deleteMethod = &method[nameRequest, outcome]{
		name: "group.delete",
		local: func(co *Coordinator, ctx context.Context, q nameRequest) outcome {
			return outcome{co.Delete(ctx, q.Group)}
		},
		errs: func(a *outcome, _ int) []*error { return []*error{&a.Err} },
		fail: func(_ nameRequest, err error) outcome { return outcome{err} },
	}
	endMethod = &method[endRequest, outcome]{
		name:    "group.end-transaction",
		between: true,
		local: func(co *Coordinator, ctx context.Context, q endRequest) outcome {
			return outcome{co.EndTransaction(ctx, q.Group, q.TxnEnd)}
		},
		errs: func(a *outcome, _ int) []*error { return []*error{&a.Err} },
		fail: func(_ endRequest, err error) outcome { return outcome{err} },
	}
	deleteOffsetsMethod = &method[deleteOffsetsRequest, DeleteOffsetsResponse]{
		name: "group.delete-offsets",
		local: func(co *Coordinator, ctx context.Context, q deleteOffsetsRequest) DeleteOffsetsResponse {
			return co.DeleteOffsets(ctx, q.Group, q.Partitions)
		},
		errs: func(a *DeleteOffsetsResponse, n int) []*error { return partErrors(&a.Err, &a.Partitions, n) },
		fail: func(_ deleteOffsetsRequest, err error) DeleteOffsetsResponse { return DeleteOffsetsResponse{Err: err} },
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
	cancels := []func(){
		handle(co, joinMethod), handle(co, syncMethod), handle(co, heartbeatMethod), handle(co, leaveMethod),
		handle(co, commitMethod), handle(co, fetchMethod), handle(co, describeMethod), handle(co, deleteMethod),
		handle(co, deleteOffsetsMethod), handle(co, commitTxnMethod), handle(co, endMethod),
	}
	return func() {
		for _, cancel := range cancels {
			cancel()
		}
	}
}

func handle[Q, A any](co *Coordinator, m *method[Q, A]) (cancel func()) {
	return co.d.Calls.Handle(m.name, func(ctx context.Context, _ cluster.Identity, request []byte) ([]byte, error) {
		var q Q
		if err := json.Unmarshal(request, &q); err != nil {
			return nil, fmt.Errorf("request %s: %w", m.name, err)
		}
		a := m.local(co, ctx, q)
		if err := ctx.Err(); err != nil {
			return nil, err // the caller has gone, or we go: this is no answer
		}
		return m.encode(&a, co.code)
	})
}

// call lets another gateway carry out a request. Its error is of the way there
// and back.
func call[Q, A any](f *Forwarder, ctx context.Context, to cluster.Identity, m *method[Q, A], q Q) (A, error) {
	var none A
	request, err := json.Marshal(q)
	if err != nil {
		return none, fmt.Errorf("request %s: %w", m.name, err)
	}
	b, err := f.d.Calls.Call(ctx, to, m.name, request)
	if err != nil {
		return none, err
	}
	return m.decode(b)
}

// wireAnswer is an answer on its way.
type wireAnswer struct {
	// Codes of all the answer's errors, in the order of errs, 0 for none.
	Codes []int16         `json:"codes"`
	Body  json.RawMessage `json:"body"`
}

func (m *method[Q, A]) encode(a *A, code func(error) int16) ([]byte, error) {
	var w wireAnswer
	for _, err := range m.errs(a, -1) {
		var c int16
		if *err != nil {
			c = code(*err)
		}
		w.Codes = append(w.Codes, c)
	}
	var err error
	if w.Body, err = json.Marshal(a); err != nil {
		return nil, fmt.Errorf("answer to %s: %w", m.name, err)
	}
	return json.Marshal(w)
}

func (m *method[Q, A]) decode(b []byte) (a A, err error) {
	var w wireAnswer
	if err := json.Unmarshal(b, &w); err != nil {
		return a, fmt.Errorf("answer to %s: %w", m.name, err)
	}
	if err := json.Unmarshal(w.Body, &a); err != nil {
		return a, fmt.Errorf("answer to %s: %w", m.name, err)
	}
	errs := m.errs(&a, len(w.Codes))
	if len(w.Codes) != len(errs) {
		return a, fmt.Errorf("answer to %s: %d errors of %d", m.name, len(w.Codes), len(errs))
	}
	for i, c := range w.Codes {
		*errs[i] = kerr.ErrorForCode(c)
	}
	return a, nil
}

// code maps an error for another gateway; failures are logged there.
func (co *Coordinator) code(err error) int16 {
	if co.d.Code != nil {
		return co.d.Code(err)
	}
	if k := (*kerr.Error)(nil); errors.As(err, &k) {
		return k.Code
	}
	return kerr.UnknownServerError.Code
}
