package txn

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
)

// Markers ends transactions on partitions.
type Markers interface {
	// End is partition.EndTransaction on a partition, wherever its log is appended
	// to: idempotent. nil for a partition of a topic that is gone.
	End(ctx context.Context, p Partition, m partition.Marker) error
}

// Groups ends transactions in consumer groups; group.Forwarder is the real one.
type Groups interface {
	EndTransaction(ctx context.Context, group string, e group.TxnEnd) error
}

// Deps are what a Coordinator works with.
type Deps struct {
	Table   pubsub.Table // kafka-txns
	Members coord.Membership
	// Calls carries requests to other gateways; nil: there are none.
	Calls coord.Caller
	// Code is the code that another gateway's client is told of an error; a failure
	// is logged there. nil: UNKNOWN_SERVER_ERROR for all but refusals.
	Code       func(error) int16
	Replicated bool // the table has more than one replica
	Markers    Markers
	Groups     Groups
	// NewProducerID gives a producer id that nobody was ever given.
	NewProducerID func(ctx context.Context) (int64, error)
	// Known says that every gateway knows transactions: until then no id is given.
	// nil: they do.
	Known func() bool
	// Ahead is by how much our clock is ahead of the store's. nil: not at all.
	Ahead      func() time.Duration
	Logger     *slog.Logger          // nil: silent
	Registerer prometheus.Registerer // nil: no metrics
}

// Coordinator is the transaction coordinator of one gateway: it serves the
// transactional ids that it owns, and knows of the others. Methods are safe for
// concurrent use and work while Run runs.
type Coordinator struct {
	c       Config
	d       Deps
	rt      *coord.Runtime[*State]
	metrics metrics
	chores  chores
	slots   chan struct{} // capacity triesAtOnce
}

type turn = coord.Turn[*State]

// New makes a Coordinator; the config must be valid. Nothing happens before Run.
// It panics if its metrics are registered already.
func New(c Config, d Deps) *Coordinator {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Known == nil {
		d.Known = func() bool { return true }
	}
	if d.Ahead == nil {
		d.Ahead = func() time.Duration { return 0 }
	}
	co := &Coordinator{c: c, d: d, slots: make(chan struct{}, triesAtOnce)}
	co.chores.running = map[choreKey]struct{}{}
	co.metrics.register(d.Registerer)
	co.rt = coord.New(coord.Config[*State]{
		Table: d.Table, Members: d.Members, Logger: d.Logger, Replicated: d.Replicated,
		New: func(key string) *State {
			id, _ := pubsub.Name(key) // a hashed one is set by the request or the record
			return newState(id, &co.c, d.Ahead, co.begin)
		},
		Movable: (*State).movable,
		Adopt: func(e coord.Entry) bool {
			switch e.Header.Get(stateHeader) {
			case Ongoing, PrepareCommit, PrepareAbort:
				return true
			}
			return false
		},
	})
	return co
}

// Run serves until ctx ends. Without Drain before, what this gateway owns is left
// to be adopted when it is found dead.
func (co *Coordinator) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	co.chores.mu.Lock()
	co.chores.ctx, co.chores.end = context.WithCancel(ctx)
	co.chores.mu.Unlock()
	var wg sync.WaitGroup
	defer co.chores.stop()
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { co.expireIDs(ctx) })
	// The runtime first: whoever waits for it is answered.
	defer co.serve()()
	return co.rt.Run(ctx)
}

// Ready is closed when all transactional ids are known to List.
func (co *Coordinator) Ready() <-chan struct{} { return co.rt.Ready() }

// Drain lets go of all transactional ids, so that other gateways adopt them at
// once, and carry on with what is decided: this one tells nobody any more. All later
// calls get NOT_COORDINATOR.
func (co *Coordinator) Drain(ctx context.Context) error {
	co.chores.stop()
	return co.rt.Drain(ctx)
}

// Seat names the gateway that clients should be told of as the coordinator of a
// transactional id. Any other passes their requests on.
func (co *Coordinator) Seat(id string) (to cluster.Identity, ok bool) {
	return co.rt.Seat(pubsub.Token(id))
}

// act runs a rule in turn on a transactional id: with a new producer id if the rule
// needs one, and, with patient, after the decided transaction before it, if it is
// complete soon.
func act[A any](ctx context.Context, co *Coordinator, id string, fresh int64, patient bool, rule func(*turn, int64) (A, error)) (A, error) {
	var late <-chan time.Time
	for {
		var a A
		var refused error
		var ended <-chan struct{}
		err := co.rt.Do(ctx, pubsub.Token(id), func(t *turn) {
			t.State.id = id
			ended = t.State.ended
			a, refused = rule(t, fresh)
		})
		switch {
		case err != nil:
			// The turn may be under way still: what it sets is its own.
			var none A
			return none, coord.Refusal(err)
		case errors.Is(refused, errNeedsID):
			if fresh, err = co.d.NewProducerID(ctx); err != nil {
				return a, err
			}
			continue
		case !patient || ended == nil || !errors.Is(refused, kerr.ConcurrentTransactions):
			return a, refused
		}
		if late == nil {
			timer := time.NewTimer(co.c.CompletionWait)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-ended:
		case <-late:
			return a, refused
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

// Init is InitProducerId with a transactional id.
func (co *Coordinator) Init(ctx context.Context, q InitRequest) InitResponse {
	return co.init(ctx, initCall{InitRequest: q})
}

func (co *Coordinator) init(ctx context.Context, q initCall) InitResponse {
	fail := func(err error) InitResponse { return InitResponse{Err: err, Producer: NoProducer} }
	if !co.d.Known() {
		// A gateway of an earlier version would take what is pending for committed.
		// Clients ask again until the last one is upgraded.
		return fail(kerr.CoordinatorNotAvailable)
	}
	switch {
	case q.TransactionalID == "":
		return fail(kerr.InvalidRequest)
	case q.Timeout < time.Millisecond || q.Timeout > co.c.MaxTimeout:
		return fail(kerr.InvalidTransactionTimeout)
	}
	fresh := int64(noID)
	if !co.rt.Holds(pubsub.Token(q.TransactionalID)) {
		// There may be no record, and to be sure of that, which a rule that gives up
		// wants to be, takes a second.
		var err error
		if fresh, err = co.d.NewProducerID(ctx); err != nil {
			return fail(err)
		}
	}
	fenced := false
	p, err := act(ctx, co, q.TransactionalID, fresh, false, func(t *turn, fresh int64) (Producer, error) {
		open := t.State.state == Ongoing
		p, err := t.State.init(t.Now, q.InitRequest, q.Request, fresh)
		fenced = open && t.State.state != Ongoing
		return p, err
	})
	if fenced && errors.Is(err, kerr.ConcurrentTransactions) {
		co.metrics.ended.WithLabelValues("fenced").Inc()
	}
	if err != nil {
		return fail(err)
	}
	return InitResponse{Producer: p}
}

// AddPartitions is AddPartitionsToTxn, and what Produce asks before it appends.
func (co *Coordinator) AddPartitions(ctx context.Context, q AddPartitionsRequest) AddPartitionsResponse {
	if q.TransactionalID == "" {
		return AddPartitionsResponse{Err: kerr.InvalidRequest}
	}
	a, err := act(ctx, co, q.TransactionalID, noID, q.Implicit && !q.VerifyOnly, func(t *turn, _ int64) (AddPartitionsResponse, error) {
		return t.State.addPartitions(t.Now, q)
	})
	if err != nil {
		return AddPartitionsResponse{Err: err}
	}
	return a
}

// AddOffsets is AddOffsetsToTxn, and what TxnOffsetCommit asks before it commits.
func (co *Coordinator) AddOffsets(ctx context.Context, q AddOffsetsRequest) AddOffsetsResponse {
	if q.TransactionalID == "" {
		return AddOffsetsResponse{Err: kerr.InvalidRequest}
	}
	a, err := act(ctx, co, q.TransactionalID, noID, q.Implicit && !q.VerifyOnly, func(t *turn, _ int64) (AddOffsetsResponse, error) {
		return t.State.addOffsets(t.Now, q)
	})
	if err != nil {
		return AddOffsetsResponse{Err: err}
	}
	return a
}

// End is EndTxn: it returns when the decision is stored, as in Kafka.
func (co *Coordinator) End(ctx context.Context, q EndRequest) EndResponse {
	return co.end(ctx, endCall{EndRequest: q})
}

func (co *Coordinator) end(ctx context.Context, q endCall) EndResponse {
	if q.TransactionalID == "" {
		return EndResponse{Err: kerr.InvalidRequest, Producer: NoProducer}
	}
	decided := false
	p, err := act(ctx, co, q.TransactionalID, noID, false, func(t *turn, fresh int64) (Producer, error) {
		open := t.State.state == Ongoing
		p, err := t.State.end(t.Now, q.EndRequest, q.Request, fresh)
		decided = open && t.State.state != Ongoing
		return p, err
	})
	if err != nil {
		return EndResponse{Err: err, Producer: NoProducer}
	}
	if decided {
		co.metrics.ended.WithLabelValues(outcome(q.Commit)).Inc()
	}
	return EndResponse{Producer: p}
}

// expireIDs lets go of transactional ids that nobody has used for long, until ctx
// ends: of those that this gateway owns, and that nobody alive does.
func (co *Coordinator) expireIDs(ctx context.Context) {
	t := time.NewTicker(co.c.ExpirationInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		pass := func(t *turn) {
			if t.State.expired(t.Now) {
				t.Remove()
			}
		}
		_ = co.rt.Each(ctx, pass)
		held := co.rt.Held()
		before := time.Now().Add(-co.d.Ahead() - co.c.IDExpiration).UnixMilli()
		for _, e := range co.rt.List() {
			if ctx.Err() != nil {
				return
			}
			if _, ours := held[e.Key]; ours || !co.rt.Adoptable(e) || number(e, updatedHeader) > before || number(e, updatedHeader) < 0 {
				continue
			}
			_ = co.rt.Do(ctx, e.Key, pass) // what fails is tried at the next pass
		}
	}
}
