package group

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

func staticJoin(member, instance string) JoinRequest {
	r := joinRequest("g", member)
	r.Instance, r.RequireMemberID = &instance, true
	return r
}

// staticGroup has the static member i, which leads, and a dynamic one.
func staticGroup(t *testing.T) (r *rig, static, dynamic Membership) {
	r = newRig(t, newTestConfig())
	i := "i"
	first := r.join(staticJoin("", i)).Member
	tk := r.start(joinRequest("g", ""))
	tk0 := r.start(staticJoin(first, i))
	static, dynamic = r.member(r.joined(tk0).Member), r.member(r.joined(tk).Member)
	static.Instance = &i
	wait := r.startSync(SyncRequest{Membership: dynamic})
	sr := r.sync(SyncRequest{Membership: static, Assignments: []Assignment{{static.Member, []byte("s")}, {dynamic.Member, []byte("d")}}})
	if string(sr.Assignment) != "s" || string(r.syncs[wait].Assignment) != "d" {
		t.Fatalf("shares %q, %q", sr.Assignment, r.syncs[wait].Assignment)
	}
	return r, static, dynamic
}

func TestStaticMemberReturns(t *testing.T) {
	for _, skip := range []bool{false, true} {
		r, old, dynamic := staticGroup(t)
		req := staticJoin("", "i")
		req.CanSkipAssignment = skip
		writes := r.writes
		resp := r.join(req)
		if resp.Err != nil || resp.Generation != old.Generation || resp.Member == old.Member {
			t.Fatalf("returned as %+v", resp)
		}
		r.wantState(Stable)
		if r.writes != writes+1 {
			t.Fatalf("%d writes, the new id must be stored before it is told", r.writes-writes)
		}
		switch {
		case skip && (resp.Leader != resp.Member || !resp.SkipAssignment || len(resp.Members) != 2):
			t.Fatalf("v9: %+v", resp)
		case !skip && (resp.Leader != old.Member || resp.SkipAssignment || resp.Members != nil):
			t.Fatalf("before v9: %+v", resp)
		}
		now := Membership{Group: "g", Member: resp.Member, Instance: old.Instance, Generation: resp.Generation}
		if sr := r.sync(SyncRequest{Membership: now}); string(sr.Assignment) != "s" {
			t.Fatalf("share %q, %v", sr.Assignment, sr.Err)
		}
		wantErr(t, "old holder's heartbeat", r.heartbeat(old), kerr.FencedInstanceID)
		wantErr(t, "old holder's commit", r.s.checkCommit(CommitRequest{Membership: old}), kerr.FencedInstanceID)
		wantErr(t, "old holder's sync", r.sync(SyncRequest{Membership: old}).Err, kerr.FencedInstanceID)
		wantErr(t, "old holder's join", r.join(staticJoin(old.Member, "i")).Err, kerr.FencedInstanceID)
		wantErr(t, "old holder leaves", r.leave(LeaveMember{Member: old.Member, Instance: old.Instance})[0], kerr.FencedInstanceID)
		wantErr(t, "new holder's heartbeat", r.heartbeat(now), nil)
		wantErr(t, "the other's heartbeat", r.heartbeat(dynamic), nil)
		// The place under the new id is what a new owner finds.
		r.reload()
		wantErr(t, "new holder after a takeover", r.heartbeat(now), nil)
		wantErr(t, "old holder after a takeover", r.heartbeat(old), kerr.FencedInstanceID)
	}
}

func TestStaticMemberReturnsWithOtherProtocol(t *testing.T) {
	r, _, dynamic := staticGroup(t)
	// Both support range only; the static one now prefers nothing else, so the
	// choice stands; then it makes the choice impossible to keep.
	req := staticJoin("", "i")
	req.Protocols = []Protocol{{Name: "range", Metadata: []byte("other")}}
	if resp := r.join(req); resp.Err != nil || resp.Generation != 2 {
		t.Fatalf("other metadata, same choice: %+v", resp)
	}
	d := joinRequest("g", dynamic.Member)
	d.Protocols = []Protocol{{Name: "range"}, {Name: "sticky"}}
	tk := r.start(d) // begins a rebalance
	s := staticJoin("", "i")
	s.Protocols = []Protocol{{Name: "range"}, {Name: "sticky"}}
	tk0 := r.start(s)
	lead := r.joined(tk0)
	r.joined(tk)
	r.startSync(SyncRequest{Membership: r.member(lead.Member)})
	r.wantState(Stable)
	s.Protocols = []Protocol{{Name: "sticky"}}
	r.start(s)
	r.wantState(PreparingRebalance)
}

// Between join and sync the leader has been told the old id: everybody again.
func TestStaticMemberReturnsBeforeSync(t *testing.T) {
	r, old, dynamic := staticGroup(t)
	tk0, tk := r.start(staticJoin(old.Member, "i")), r.start(joinRequest("g", dynamic.Member))
	r.joined(tk0)
	r.joined(tk)
	r.wantState(CompletingRebalance)
	waits := r.startSync(SyncRequest{Membership: r.member(dynamic.Member)})
	r.start(staticJoin("", "i"))
	r.wantState(PreparingRebalance)
	wantErr(t, "who waited for its share", r.syncs[waits].Err, kerr.RebalanceInProgress)
}

func TestStaticMemberReplacedWhileWaiting(t *testing.T) {
	r, old, dynamic := staticGroup(t)
	waits := r.start(staticJoin(old.Member, "i"))
	r.wantState(PreparingRebalance)
	again := r.start(staticJoin("", "i"))
	wantErr(t, "the first of the two", r.joins[waits].Err, kerr.FencedInstanceID)
	tk := r.start(joinRequest("g", dynamic.Member))
	if a, b := r.joined(again), r.joined(tk); a.Generation != 3 || b.Generation != 3 || len(a.Members)+len(b.Members) != 2 {
		t.Fatalf("%+v, %+v", a, b)
	}
}

// A static member that is away keeps its place through rebalances until its
// session ends.
func TestStaticMemberKeepsItsPlace(t *testing.T) {
	r, static, dynamic := staticGroup(t)
	req := joinRequest("g", dynamic.Member)
	req.Protocols[0].Metadata = []byte("new")
	tk := r.start(req)
	for range 12 {
		r.pass(5 * time.Second)
		_ = r.heartbeat(static)
	}
	resp := r.joined(tk)
	if resp.Generation != 3 || resp.Leader != dynamic.Member || len(resp.Members) != 2 {
		t.Fatalf("%+v", resp)
	}
	if _, err := r.s.validate(static.Member, static.Instance); err != nil {
		t.Fatalf("the static member is gone: %v", err)
	}
}

func TestStaticMemberSessionEnds(t *testing.T) {
	r, static, dynamic := staticGroup(t)
	for range 3 {
		r.pass(4 * time.Second)
		_ = r.heartbeat(dynamic)
	}
	wantErr(t, "static member", r.heartbeat(static), kerr.UnknownMemberID)
}

func TestLeaveByInstance(t *testing.T) {
	r, _, _ := staticGroup(t)
	i, who := "i", "who"
	errs := r.leave(LeaveMember{Instance: &who}, LeaveMember{Instance: &i}, LeaveMember{}, LeaveMember{Member: "x"})
	wantErr(t, "unknown instance", errs[0], kerr.UnknownMemberID)
	wantErr(t, "instance", errs[1], nil)
	wantErr(t, "nobody", errs[2], kerr.UnknownMemberID)
	wantErr(t, "unknown member", errs[3], kerr.UnknownMemberID)
	r.wantState(PreparingRebalance)
}
