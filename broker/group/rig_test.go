package group

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hanzoai/stream/broker/coord"
)

// rig drives a State as the runtime does, with a clock of its own and a store
// that is one value.
type rig struct {
	t      failer
	c      *Config
	s      *State
	now    time.Time
	ids    int
	joins  map[ticket]JoinResponse
	syncs  map[ticket]SyncResponse
	stored []byte
	env    coord.Envelope
	writes int
}

// failer is what a rig needs of a test.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newRig(t failer, c Config) *rig {
	r := &rig{t: t, c: &c, now: time.UnixMilli(1_700_000_000_000), joins: map[ticket]JoinResponse{}, syncs: map[ticket]SyncResponse{}}
	r.env = coord.Envelope{V: coord.Version, Owner: coord.Owner{Node: 1, Incarnation: "a", Term: 1}}
	r.s = newState("g", r.c, r.newID)
	r.s.Start(r.now, coord.Envelope{})
	return r
}

func (r *rig) newID() string {
	r.ids++
	return fmt.Sprintf("id%d", r.ids)
}

// settle stores what is dirty and delivers what is due.
func (r *rig) settle() {
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

// reload forgets the state and reads the stored one, as after a kill.
func (r *rig) reload() {
	r.s.Drop(coord.ErrNotOwner)
	last := r.s.lastTicket
	r.s = newState("g", r.c, r.newID)
	r.s.lastTicket = last // answers are kept by ticket
	if r.stored != nil {
		if err := r.s.Decode(r.stored); err != nil {
			r.t.Fatalf("decode: %v", err)
		}
	}
	r.s.Start(r.now, r.env)
}

func (r *rig) start(req JoinRequest) ticket {
	var tk ticket
	tk = r.s.take(waiter{join: func(jr JoinResponse) { r.joins[tk] = jr }})
	r.s.join(r.now, req, tk)
	r.settle()
	return tk
}

// join expects an answer at once.
func (r *rig) join(req JoinRequest) JoinResponse {
	r.t.Helper()
	tk := r.start(req)
	resp, ok := r.joins[tk]
	if !ok {
		r.t.Fatalf("join of %q waits", req.Member)
	}
	return resp
}

func (r *rig) startSync(req SyncRequest) ticket {
	var tk ticket
	tk = r.s.take(waiter{sync: func(sr SyncResponse) { r.syncs[tk] = sr }})
	r.s.sync(r.now, req, tk)
	r.settle()
	return tk
}

func (r *rig) sync(req SyncRequest) SyncResponse {
	r.t.Helper()
	tk := r.startSync(req)
	resp, ok := r.syncs[tk]
	if !ok {
		r.t.Fatalf("sync of %q waits", req.Member)
	}
	return resp
}

// pass lets time go by, stopping at every timer.
func (r *rig) pass(d time.Duration) {
	end := r.now.Add(d)
	for {
		next := r.s.Next()
		if next.IsZero() || next.After(end) {
			break
		}
		if next.After(r.now) {
			r.now = next
		}
		r.s.Expire(r.now)
		r.settle()
	}
	r.now = end
}

func (r *rig) heartbeat(m Membership) error {
	err := r.s.heartbeat(r.now, m)
	r.settle()
	return err
}

func (r *rig) leave(ms ...LeaveMember) []error {
	resp := r.s.leave(r.now, ms)
	r.settle()
	var errs []error
	for _, m := range resp.Members {
		errs = append(errs, m.Err)
	}
	return errs
}

func (r *rig) joined(tk ticket) JoinResponse {
	r.t.Helper()
	resp, ok := r.joins[tk]
	if !ok {
		r.t.Fatal("join was not answered")
	}
	if resp.Err != nil {
		r.t.Fatalf("join: %v", resp.Err)
	}
	return resp
}

func (r *rig) wantState(want string) {
	r.t.Helper()
	if r.s.phase != want {
		r.t.Fatalf("state %s, want %s", r.s.phase, want)
	}
}

func wantErr(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) && !(got == nil && want == nil) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// member makes a membership in the rig's present generation.
func (r *rig) member(id string) Membership {
	return Membership{Group: "g", Member: id, Generation: r.s.generation}
}

// stable makes a stable group of n dynamic members; the first leads.
func (r *rig) stable(n int) []Membership {
	r.t.Helper()
	tks := make([]ticket, n)
	var ids []string
	tks[0] = r.start(joinRequest("g", ""))
	first := r.joined(tks[0]).Member
	for i := 1; i < n; i++ {
		tks[i] = r.start(joinRequest("g", ""))
	}
	if n > 1 {
		tks[0] = r.start(joinRequest("g", first))
	}
	for _, tk := range tks {
		ids = append(ids, r.joined(tk).Member)
	}
	r.wantState(CompletingRebalance)
	var as []Assignment
	for _, id := range ids {
		as = append(as, Assignment{Member: id, Data: []byte("share of " + id)})
	}
	var ms []Membership
	for i, id := range ids {
		m := r.member(id)
		ms = append(ms, m)
		req := SyncRequest{Membership: m}
		if i == 0 {
			req.Assignments = as
		}
		r.startSync(req)
	}
	r.wantState(Stable)
	return ms
}
