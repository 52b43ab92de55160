package txn

import (
	"errors"
	"testing"
	"time"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/types"
)

// rig drives a State as the runtime does, with a clock of its own and a store that
// is one value.
type rig struct {
	t      *testing.T
	c      Config
	s      *State
	now    time.Time
	ids    int64 // the last producer id given out
	stored []byte
	env    coord.Envelope
	writes int
	chores []chore
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, c: DefaultConfig(), now: time.UnixMilli(1_700_000_000_000), ids: 999}
	r.env = coord.Envelope{V: coord.Version, Owner: coord.Owner{Node: 1, Incarnation: "a", Term: 1}}
	r.reload()
	return r
}

// reload forgets the state and reads the stored one, as after a kill.
func (r *rig) reload() {
	r.t.Helper()
	if r.s != nil {
		r.s.Drop(coord.ErrNotOwner)
	}
	r.chores = nil
	r.s = newState("t", &r.c, func() time.Duration { return 0 }, func(c chore) { r.chores = append(r.chores, c) })
	if r.stored != nil {
		if err := r.s.Decode(r.stored); err != nil {
			r.t.Fatalf("decode: %v", err)
		}
	}
	r.s.Start(r.now, r.env)
	r.settle()
}

// adopt lets another owner take the record over, as coord does: it writes what it
// has read before anything else.
func (r *rig) adopt() {
	r.t.Helper()
	next := newState("t", &r.c, func() time.Duration { return 0 }, nil)
	if err := next.Decode(r.stored); err != nil {
		r.t.Fatalf("decode: %v", err)
	}
	body, _, err := next.Encode(r.env)
	if err != nil {
		r.t.Fatalf("encode: %v", err)
	}
	next.do = func(c chore) { r.chores = append(r.chores, c) }
	r.s.Drop(coord.ErrNotOwner)
	r.stored, r.chores, r.s = body, nil, next
	next.Start(r.now, r.env)
	r.settle()
}

// settle stores what is dirty and delivers what is due.
func (r *rig) settle() {
	r.t.Helper()
	if r.s.Dirty() {
		body, _, err := r.s.Encode(r.env)
		if err != nil {
			r.t.Fatalf("encode: %v", err)
		}
		r.stored = body
		r.writes++
		if r.s.Dirty() {
			r.t.Fatal("dirty after encode")
		}
	}
	r.s.Deliver(nil)
}

// look is what a request may have changed.
type look struct {
	dirty, unstored bool
	producer        Producer
	state           string
	n               int64
}

func (r *rig) look() look {
	return look{r.s.dirty, r.s.unstored, r.s.producer, r.s.state, r.s.n}
}

func (r *rig) fresh() int64 {
	r.ids++
	return r.ids
}

// ask runs a rule, again with a new producer id if it needs one.
func ask[A any](r *rig, rule func(fresh int64) (A, error)) (A, error) {
	r.t.Helper()
	before := r.look()
	a, err := rule(noID)
	if errors.Is(err, errNeedsID) {
		if r.look() != before {
			r.t.Fatal("a rule that needs an id has changed something")
		}
		a, err = rule(r.fresh())
	}
	r.settle()
	return a, err
}

func (r *rig) init(expected Producer) (Producer, error) {
	r.t.Helper()
	return ask(r, func(fresh int64) (Producer, error) {
		return r.s.init(r.now, InitRequest{TransactionalID: "t", Timeout: time.Minute, Producer: expected}, "", fresh)
	})
}

func (r *rig) mustInit(expected Producer) Producer {
	r.t.Helper()
	p, err := r.init(expected)
	if err != nil {
		r.t.Fatalf("init: %v", err)
	}
	return p
}

func (r *rig) add(p Producer, parts ...Partition) (int64, error) {
	r.t.Helper()
	a, err := ask(r, func(int64) (AddPartitionsResponse, error) {
		return r.s.addPartitions(r.now, AddPartitionsRequest{TransactionalID: "t", Producer: p, Partitions: parts})
	})
	return a.N, err
}

func (r *rig) mustAdd(p Producer, parts ...Partition) int64 {
	r.t.Helper()
	n, err := r.add(p, parts...)
	if err != nil {
		r.t.Fatalf("add: %v", err)
	}
	return n
}

func (r *rig) verify(p Producer, parts ...Partition) (AddPartitionsResponse, error) {
	r.t.Helper()
	return ask(r, func(int64) (AddPartitionsResponse, error) {
		return r.s.addPartitions(r.now, AddPartitionsRequest{TransactionalID: "t", Producer: p, Partitions: parts, VerifyOnly: true})
	})
}

func (r *rig) addOffsets(p Producer, group string) (int64, error) {
	r.t.Helper()
	a, err := ask(r, func(int64) (AddOffsetsResponse, error) {
		return r.s.addOffsets(r.now, AddOffsetsRequest{TransactionalID: "t", Producer: p, Group: group})
	})
	return a.N, err
}

func (r *rig) end(p Producer, commit, bump bool) (Producer, error) {
	r.t.Helper()
	return ask(r, func(fresh int64) (Producer, error) {
		return r.s.end(r.now, EndRequest{TransactionalID: "t", Producer: p, Commit: commit, Bump: bump}, "", fresh)
	})
}

func (r *rig) mustEnd(p Producer, commit, bump bool) Producer {
	r.t.Helper()
	next, err := r.end(p, commit, bump)
	if err != nil {
		r.t.Fatalf("end: %v", err)
	}
	return next
}

// complete tells that all markers are written.
func (r *rig) complete() {
	r.t.Helper()
	r.s.complete(r.now, r.s.n)
	r.settle()
}

// pass lets time go by, stopping at every timer and doing what comes of it.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	for range 100 {
		next := r.s.Next()
		if next.IsZero() || next.After(end) {
			r.now = end
			return
		}
		if next.After(r.now) {
			r.now = next
		}
		r.s.Expire(r.now)
		r.settle()
		for len(r.chores) > 0 && r.chores[0].abort {
			c := r.chores[0]
			r.chores = r.chores[1:]
			if _, err := ask(r, func(fresh int64) (bool, error) { return r.s.tooLong(r.now, c.n, fresh) }); err != nil {
				r.t.Fatalf("timeout: %v", err)
			}
		}
	}
	r.t.Fatal("timers come due again and again")
}

func (r *rig) want(state string, p Producer) {
	r.t.Helper()
	if r.s.state != state || r.s.producer != p {
		r.t.Fatalf("%s %+v, want %s %+v", r.s.state, r.s.producer, state, p)
	}
}

var (
	topicA = types.TopicID{15: 1}
	topicB = types.TopicID{15: 2}
	p0     = Partition{topicA, 0}
	p1     = Partition{topicA, 1}
	p2     = Partition{topicB, 0}
)

func wantErr(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) && !(got == nil && want == nil) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}
