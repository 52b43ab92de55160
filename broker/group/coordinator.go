package group

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// maxName is the longest group id: what the wire's plain strings can carry.
const maxName = 32767

// Deps are what a Coordinator works with.
type Deps struct {
	Table   pubsub.Table // kafka-consumer-offsets
	Members coord.Membership
	// Calls carries requests to other gateways; nil: there are none.
	Calls coord.Caller
	// Code is the code that a client is told of an error, for answers that travel
	// to another gateway; a failure is logged there. nil: UNKNOWN_SERVER_ERROR for
	// all but refusals.
	Code func(error) int16
	// Replicated says that the table has more than one replica.
	Replicated bool
	Logger     *slog.Logger          // nil: silent
	Registerer prometheus.Registerer // nil: no metrics
	// Open says whether a transaction that has offsets of a group may not have ended
	// yet. It is asked when it has been open for long. nil: it may.
	Open func(ctx context.Context, group string, t TxnCommit) (bool, error)
	// NewID makes the unique part of a member id; nil: a random UUID.
	NewID func() string
}

// Coordinator is the group coordinator of one gateway: it serves the groups
// that it owns, and knows of the others. Methods are safe for concurrent use and
// work while Run runs. Errors in answers are nil, a *kerr.Error or a failure of
// the store.
type Coordinator struct {
	c       Config
	d       Deps
	rt      *coord.Runtime[*State]
	metrics metrics

	mu       sync.Mutex // guards: drops, doubts
	drops    []types.TopicID
	dropping chan struct{} // capacity 1: drops is not empty
	doubts   map[string]struct{}
	doubting chan struct{} // capacity 1: doubts is not empty
}

type turn = coord.Turn[*State]

// New makes a Coordinator; the config must be valid. Nothing happens before
// Run. It panics if its metrics are registered already.
func New(c Config, d Deps) *Coordinator {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.NewID == nil {
		d.NewID = newUUID
	}
	co := &Coordinator{c: c, d: d, dropping: make(chan struct{}, 1), doubts: map[string]struct{}{}, doubting: make(chan struct{}, 1)}
	co.metrics.register(d.Registerer)
	co.rt = coord.New(coord.Config[*State]{
		Table: d.Table, Members: d.Members, Logger: d.Logger, Replicated: d.Replicated,
		New: func(key string) *State {
			name, _ := pubsub.Name(key) // a hashed one is set by the request or the record
			s := newState(name, &co.c, d.NewID)
			s.offsets.table = d.Table
			s.rebalanced = func(reason string) {
				co.metrics.rebalanced(reason)
				d.Logger.Debug("rebalance begun", logging.Group, s.name, "generation", s.generation, "reason", reason)
			}
			return s
		},
		Movable: (*State).movable,
		Adopt: func(e coord.Entry) bool {
			return e.Header.Get(membersHeader) != "0" || e.Header.Get(deletingHeader) != ""
		},
	})
	return co
}

// Run serves until ctx ends. Without Drain before, what this gateway owns is
// left to be adopted when it is found dead.
func (co *Coordinator) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { co.retain(ctx) })
	wg.Go(func() { co.inquiries(ctx) })
	// The runtime first: whoever waits for it is answered.
	defer co.serve()()
	return co.rt.Run(ctx)
}

// Owner names the gateway to which requests about a group should go: its living
// owner or, if nobody has it, the gateway that should be the first to take it
// over. ok is false if that is not known. Which gateway is told to clients as the
// coordinator follows from it.
func (co *Coordinator) Owner(name string) (id cluster.Identity, ok bool) {
	return co.rt.Owner(pubsub.Token(name))
}

// Seat names the gateway that clients should be told of as a group's coordinator
// where requests do not travel.
func (co *Coordinator) Seat(name string) (id cluster.Identity, ok bool) {
	return co.rt.Seat(pubsub.Token(name))
}

// Ready is closed when all groups are known to List.
func (co *Coordinator) Ready() <-chan struct{} { return co.rt.Ready() }

// Drain lets go of all groups, so that other gateways adopt them at once. Calls
// that wait, and all later ones, get NOT_COORDINATOR.
func (co *Coordinator) Drain(ctx context.Context) error { return co.rt.Drain(ctx) }

// do runs fn in turn on the group. refused tells fn's caller to use the error.
func (co *Coordinator) do(ctx context.Context, name string, fn func(*turn)) error {
	busy := false
	err := co.rt.Do(ctx, pubsub.Token(name), func(t *turn) {
		s := t.State
		s.name = name
		if s.deleting {
			// A delete was cut short: this turn ends it, and whoever asked asks again.
			busy = true
			t.Remove()
			return
		}
		fn(t)
	})
	if err == nil && busy {
		return kerr.CoordinatorLoadInProgress
	}
	return coord.Refusal(err)
}

// Join is JoinGroup: it returns when the rebalance completes, or ctx ends.
func (co *Coordinator) Join(ctx context.Context, r JoinRequest) JoinResponse {
	fail := func(err error) JoinResponse {
		return JoinResponse{Err: err, Member: r.Member, Generation: -1}
	}
	if err := checkJoin(&co.c, r); err != nil {
		return fail(err)
	}
	// The request's bytes end with the request; the group's do not.
	ps := make([]Protocol, len(r.Protocols))
	for i, p := range r.Protocols {
		ps[i] = Protocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)}
	}
	r.Protocols = ps
	answered := make(chan JoinResponse, 1)
	err := co.do(ctx, r.Group, func(t *turn) {
		tk := t.State.take(waiter{join: func(jr JoinResponse) { answered <- jr }})
		t.State.join(t.Now, r, tk)
	})
	if err != nil {
		return fail(err)
	}
	select {
	case resp := <-answered:
		if resp.Err != nil && resp.Member == "" && !errors.Is(resp.Err, kerr.GroupMaxSizeReached) {
			resp.Member = r.Member
		}
		return resp
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}

// Sync is SyncGroup: it returns when the leader has told the shares, or ctx ends.
func (co *Coordinator) Sync(ctx context.Context, r SyncRequest) SyncResponse {
	switch {
	case r.RequireProtocol && (r.ProtocolType == nil || r.Protocol == nil):
		return SyncResponse{Err: kerr.InconsistentGroupProtocol}
	case r.Group == "":
		return SyncResponse{Err: kerr.InvalidGroupID}
	}
	as := make([]Assignment, len(r.Assignments))
	for i, a := range r.Assignments {
		as[i] = Assignment{Member: a.Member, Data: bytes.Clone(a.Data)}
	}
	r.Assignments = as
	answered := make(chan SyncResponse, 1)
	err := co.do(ctx, r.Group, func(t *turn) {
		tk := t.State.take(waiter{sync: func(sr SyncResponse) { answered <- sr }})
		t.State.sync(t.Now, r, tk)
	})
	if err != nil {
		return SyncResponse{Err: err}
	}
	select {
	case resp := <-answered:
		return resp
	case <-ctx.Done():
		return SyncResponse{Err: ctx.Err()}
	}
}

// Heartbeat keeps a member's session alive and tells it of rebalances.
func (co *Coordinator) Heartbeat(ctx context.Context, m Membership) error {
	if m.Group == "" {
		return kerr.InvalidGroupID
	}
	var out error
	if err := co.do(ctx, m.Group, func(t *turn) { out = t.State.heartbeat(t.Now, m) }); err != nil {
		return err
	}
	return out
}

// Leave removes members at their own or an operator's wish.
func (co *Coordinator) Leave(ctx context.Context, name string, members []LeaveMember) LeaveResponse {
	if name == "" {
		return LeaveResponse{Err: kerr.InvalidGroupID}
	}
	var out LeaveResponse
	if err := co.do(ctx, name, func(t *turn) { out = t.State.leave(t.Now, members) }); err != nil {
		return LeaveResponse{Err: err}
	}
	return out
}

// Commit stores offsets, those of a transaction to be pending until it ends; it
// returns when they are stored.
func (co *Coordinator) Commit(ctx context.Context, r CommitRequest) CommitResponse {
	if len(r.Group) > maxName {
		return CommitResponse{Err: kerr.InvalidGroupID}
	}
	if r.Txn != nil && r.Group == "" {
		return CommitResponse{Err: kerr.InvalidGroupID}
	}
	out, err := co.planned(ctx, r.Group, func(t *turn) ([]*op, []error, error) { return t.State.commit(t.Now, r) })
	if err != nil {
		return CommitResponse{Err: err}
	}
	return CommitResponse{Partitions: out}
}

// planned carries out what plan wants to write in a group's turn, and returns the
// outcomes in plan's order, with what became of each write. plan's own error, or
// the turn's, is of all.
func (co *Coordinator) planned(ctx context.Context, name string, plan func(*turn) ([]*op, []error, error)) ([]error, error) {
	var (
		refused error
		out     []error
	)
	err := co.do(ctx, name, func(t *turn) {
		var plans []*op
		plans, out, refused = plan(t)
		t.After(func() {
			for i, p := range plans {
				if p != nil && p.err != nil {
					out[i] = coord.Refusal(p.err)
				}
			}
		})
	})
	if err != nil {
		return nil, err // the turn may be under way still: what it sets is its own
	}
	return out, refused
}

// Fetch reads committed offsets. Nothing committed is told only by a group's
// owner, or when there is no group.
func (co *Coordinator) Fetch(ctx context.Context, r FetchRequest) FetchResponse {
	var out FetchResponse
	err := co.do(ctx, r.Group, func(t *turn) {
		answer := t.State.fetch(r)
		t.After(func() {
			if out = answer(); r.RequireStable && len(t.State.overdue(t.Now)) > 0 {
				co.inquire(r.Group)
			}
		})
	})
	if err != nil {
		return FetchResponse{Err: err}
	}
	return out
}

// newUUID is a random UUID in its usual form.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

var _ coord.State = (*State)(nil)

// retain looks for expired offsets from time to time, and for those of deleted
// topics when there are some.
func (co *Coordinator) retain(ctx context.Context) {
	t := time.NewTicker(co.c.RetentionInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			co.expire(ctx)
		case <-co.dropping:
			co.dropTopics(ctx)
		}
	}
}
