package group

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestC25Row31CheckJoin(t *testing.T) {
	c := DefaultConfig()
	for _, tc := range []struct {
		name   string
		change func(*JoinRequest)
		want   error
	}{
		{"right", func(*JoinRequest) {}, nil},
		{"empty group id", func(r *JoinRequest) { r.Group = "" }, kerr.InvalidGroupID},
		{"64 KiB of group id", func(r *JoinRequest) { r.Group = strings.Repeat("g", 64<<10) }, kerr.InvalidGroupID},
		{"session 1 ms", func(r *JoinRequest) { r.SessionTimeout = time.Millisecond }, kerr.InvalidSessionTimeout},
		{"session just short", func(r *JoinRequest) { r.SessionTimeout = 6*time.Second - time.Millisecond }, kerr.InvalidSessionTimeout},
		{"shortest session", func(r *JoinRequest) { r.SessionTimeout = 6 * time.Second }, nil},
		{"longest session", func(r *JoinRequest) { r.SessionTimeout = 30 * time.Minute }, nil},
		{"session too long", func(r *JoinRequest) { r.SessionTimeout = 30*time.Minute + time.Millisecond }, kerr.InvalidSessionTimeout},
		{"1000 protocols", func(r *JoinRequest) { r.Protocols = make([]Protocol, 1000) }, kerr.InvalidRequest},
	} {
		r := joinRequest("g", "")
		tc.change(&r)
		wantErr(t, tc.name, checkJoin(&c, r), tc.want)
	}
}

// An id first, where the client knows how to come back with it.
func TestC25MemberIDRequired(t *testing.T) {
	instance := "i"
	for _, tc := range []struct {
		name   string
		change func(*JoinRequest)
		want   error
		joins  bool
	}{
		{"v0-v3", func(*JoinRequest) {}, nil, true},
		{"v4+", func(r *JoinRequest) { r.RequireMemberID = true }, kerr.MemberIDRequired, false},
		{"v5+ with instance id", func(r *JoinRequest) { r.RequireMemberID, r.Instance = true, &instance }, nil, true},
		{"unknown member", func(r *JoinRequest) { r.Member = "who" }, kerr.UnknownMemberID, false},
		{"unknown member of an instance", func(r *JoinRequest) { r.Member, r.Instance = "who", &instance }, kerr.UnknownMemberID, false},
		{"no protocols", func(r *JoinRequest) { r.Protocols = nil }, kerr.InconsistentGroupProtocol, false},
		{"no protocol type", func(r *JoinRequest) { r.ProtocolType = "" }, kerr.InconsistentGroupProtocol, false},
		{"8 MiB of metadata", func(r *JoinRequest) { r.Protocols[0].Metadata = make([]byte, 8<<20) }, kerr.InvalidRequest, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, newTestConfig())
			req := joinRequest("g", "")
			tc.change(&req)
			resp := r.join(req)
			wantErr(t, "join", resp.Err, tc.want)
			switch {
			case tc.joins:
				prefix := "c-"
				if req.Instance != nil {
					prefix = instance + "-"
				}
				if resp.Generation != 1 || !strings.HasPrefix(resp.Member, prefix) || resp.Leader != resp.Member || len(resp.Members) != 1 {
					t.Fatalf("joined as %+v", resp)
				}
			case resp.Generation != -1:
				t.Fatalf("generation %d with an error", resp.Generation)
			case tc.want == kerr.MemberIDRequired:
				if !strings.HasPrefix(resp.Member, "c-") {
					t.Fatalf("id %q", resp.Member)
				}
				req.Member = resp.Member
				if again := r.join(req); again.Err != nil || again.Member != resp.Member || again.Generation != 1 {
					t.Fatalf("second step: %+v", again)
				}
			}
		})
	}
}

// An id that nobody comes back with holds others up for a session, not longer.
func TestC25PendingMemberExpires(t *testing.T) {
	r := newRig(t, newTestConfig())
	m := r.stable(1)[0]
	req := joinRequest("g", "")
	req.RequireMemberID = true
	pending := r.join(req).Member
	r.wantState(Stable) // an id alone disturbs nobody
	tk := r.start(joinRequest("g", ""))
	r.wantState(PreparingRebalance)
	tk0 := r.start(joinRequest("g", m.Member))
	r.wantState(PreparingRebalance) // waits for the pending one
	r.pass(10*time.Second - time.Millisecond)
	r.wantState(PreparingRebalance)
	r.pass(time.Millisecond)
	if a, b := r.joined(tk0), r.joined(tk); a.Generation != 2 || b.Generation != 2 {
		t.Fatalf("generations %d and %d", a.Generation, b.Generation)
	}
	req.Member = pending
	wantErr(t, "late second step", r.join(req).Err, kerr.UnknownMemberID)
}

func TestInitialRebalanceDelay(t *testing.T) {
	c := newTestConfig()
	c.InitialRebalanceDelay = 3 * time.Second
	r := newRig(t, c)
	a := r.start(joinRequest("g", ""))
	r.pass(2 * time.Second)
	b := r.start(joinRequest("g", ""))
	r.pass(time.Second)
	if len(r.joins) != 0 {
		t.Fatal("answered although somebody came meanwhile")
	}
	r.pass(3 * time.Second)
	if ga, gb := r.joined(a), r.joined(b); ga.Generation != 1 || gb.Generation != 1 || len(ga.Members) != 2 || len(gb.Members) != 0 {
		t.Fatalf("joined as %+v and %+v", ga, gb)
	}
}

// The delay grows while members come, and ends with the rebalance timeout.
func TestInitialRebalanceDelayIsBounded(t *testing.T) {
	c := newTestConfig()
	c.InitialRebalanceDelay = 3 * time.Second
	r := newRig(t, c)
	began := r.now
	var tks []ticket
	for len(r.joins) == 0 {
		if r.now.Sub(began) > time.Minute {
			t.Fatal("still waiting after the rebalance timeout")
		}
		tks = append(tks, r.start(joinRequest("g", "")))
		r.pass(time.Second)
	}
	if took := r.now.Sub(began); took < 50*time.Second {
		t.Fatalf("ended after %v although members kept coming", took)
	}
	if g := r.joined(tks[0]); g.Generation != 1 || len(g.Members) < 50 {
		t.Fatalf("generation %d with %d members", g.Generation, len(g.Members))
	}
}

func TestGroupMaxSize(t *testing.T) {
	c := newTestConfig()
	c.MaxSize = 2
	r := newRig(t, c)
	r.stable(2)
	resp := r.join(joinRequest("g", ""))
	wantErr(t, "third member", resp.Err, kerr.GroupMaxSizeReached)
	r.wantState(Stable)
}

func TestJoinAgain(t *testing.T) {
	r := newRig(t, newTestConfig())
	ms := r.stable(2)
	// A follower with nothing new changes nothing.
	resp := r.join(joinRequest("g", ms[1].Member))
	if resp.Err != nil || resp.Generation != 2 || resp.Members != nil || resp.Leader != ms[0].Member {
		t.Fatalf("follower joined again as %+v", resp)
	}
	r.wantState(Stable)
	// Other protocols begin a rebalance, and so does the leader.
	req := joinRequest("g", ms[1].Member)
	req.Protocols = append(req.Protocols, Protocol{Name: "sticky", Metadata: []byte("m")})
	tk := r.start(req)
	r.wantState(PreparingRebalance)
	wantErr(t, "heartbeat of the other", r.heartbeat(ms[0]), kerr.RebalanceInProgress)
	tk0 := r.start(joinRequest("g", ms[0].Member))
	if a, b := r.joined(tk0), r.joined(tk); a.Generation != 3 || b.Generation != 3 {
		t.Fatalf("generations %d, %d", a.Generation, b.Generation)
	}
	// Who missed the answer gets it again, before the shares are told.
	resp = r.join(req)
	if resp.Err != nil || resp.Generation != 3 {
		t.Fatalf("joined again before sync: %+v", resp)
	}
	r.wantState(CompletingRebalance)
	wantErr(t, "protocol type", r.join(func() JoinRequest {
		req := joinRequest("g", "")
		req.ProtocolType = "connect"
		return req
	}()).Err, kerr.InconsistentGroupProtocol)
	wantErr(t, "nothing in common", r.join(func() JoinRequest {
		req := joinRequest("g", "")
		req.Protocols = []Protocol{{Name: "sticky"}}
		return req
	}()).Err, kerr.InconsistentGroupProtocol)
}

func TestChooseProtocol(t *testing.T) {
	p := func(names ...string) []Protocol {
		var ps []Protocol
		for _, n := range names {
			ps = append(ps, Protocol{Name: n, Metadata: []byte{}})
		}
		return ps
	}
	for _, tc := range []struct {
		members [][]Protocol
		want    string
	}{
		{[][]Protocol{p("range")}, "range"},
		{[][]Protocol{p("a", "b"), p("b", "a"), p("b", "a")}, "b"},
		{[][]Protocol{p("x", "b"), p("a", "b")}, "b"},
		{[][]Protocol{p("a", "b"), p("b", "a")}, "a"},
	} {
		r := newRig(t, newTestConfig())
		for i, ps := range tc.members {
			r.s.add(&member{id: string(rune('a' + i)), protocols: ps})
		}
		if got := r.s.choose(); got != tc.want {
			t.Errorf("%v: chose %q, want %q", tc.members, got, tc.want)
		}
	}
}

// Who waits in Join is alive whatever its session timeout; the generation
// grows once per completed rebalance; who does not come back in time is left out.
func TestC27WaitingMembersAreAlive(t *testing.T) {
	r := newRig(t, newTestConfig())
	ms := r.stable(3)
	gen := r.s.generation
	tk1 := r.start(joinRequest("g", ms[1].Member))
	r.wantState(Stable) // a follower with the same metadata
	if r.joined(tk1).Generation != gen {
		t.Fatal("generation changed")
	}
	tk0 := r.start(joinRequest("g", ms[0].Member)) // the leader
	r.wantState(PreparingRebalance)
	tk1 = r.start(joinRequest("g", ms[1].Member))
	for range 10 { // the third says it is alive, but does not join for 50 s
		r.pass(5 * time.Second)
		wantErr(t, "heartbeat", r.heartbeat(ms[2]), kerr.RebalanceInProgress)
	}
	r.wantState(PreparingRebalance)
	r.pass(10 * time.Second)
	a, b := r.joined(tk0), r.joined(tk1)
	if a.Generation != gen+1 || b.Generation != gen+1 || len(a.Members) != 2 {
		t.Fatalf("joined as %+v and %+v", a, b)
	}
	wantErr(t, "who was left out", r.heartbeat(ms[2]), kerr.UnknownMemberID)
}

// Thirty members that join a running group within ten seconds are one
// generation; a restarted follower that brings the same is none at all.
func TestC27ManyJoinOnce(t *testing.T) {
	r := newRig(t, newTestConfig())
	old := r.stable(2)
	gen := r.s.generation
	var tks []ticket
	for range 30 {
		tks = append(tks, r.start(joinRequest("g", "")))
		r.pass(10 * time.Second / 30)
		for _, m := range old {
			wantErr(t, "heartbeat", r.heartbeat(m), kerr.RebalanceInProgress)
		}
	}
	r.wantState(PreparingRebalance)
	if r.s.generation != gen || len(r.joins) != 3 { // those of stable
		t.Fatalf("generation %d, %d answers while two have not come back", r.s.generation, len(r.joins))
	}
	for _, m := range old {
		tks = append(tks, r.start(joinRequest("g", m.Member)))
	}
	for _, tk := range tks {
		if got := r.joined(tk); got.Generation != gen+1 {
			t.Fatalf("generation %d, want %d", got.Generation, gen+1)
		}
	}
	if n := len(r.s.members); n != 32 {
		t.Errorf("%d members", n)
	}
	wantErr(t, "heartbeat before sync", r.heartbeat(r.member(old[1].Member)), nil)
	if got := r.join(joinRequest("g", old[1].Member)); got.Generation != gen+1 {
		t.Errorf("a follower joined again into generation %d", got.Generation)
	}
}

// A member that never got its first answer does not stay for ever.
func TestNewMemberTimeout(t *testing.T) {
	r := newRig(t, newTestConfig())
	m := r.stable(1)[0]
	late := joinRequest("g", "")
	late.RebalanceTimeout = 30 * time.Minute
	r.start(late)
	for range 61 {
		wantErr(t, "heartbeat", r.heartbeat(m), kerr.RebalanceInProgress)
		r.pass(5 * time.Second)
	}
	if n := len(r.s.members); n != 1 {
		t.Fatalf("%d members, the new one should be gone", n)
	}
}

func TestEmptyGroupGetsNextGeneration(t *testing.T) {
	r := newRig(t, newTestConfig())
	m := r.stable(1)[0]
	r.pass(11 * time.Second) // silent
	r.wantState(Empty)
	if r.s.generation != m.Generation+1 || r.s.leader != "" || r.s.protocol != "" {
		t.Fatalf("generation %d, leader %q, protocol %q", r.s.generation, r.s.leader, r.s.protocol)
	}
	wantErr(t, "heartbeat", r.heartbeat(m), kerr.UnknownMemberID)
	if resp := r.join(joinRequest("g", "")); resp.Generation != 3 {
		t.Fatalf("generation %d after it was empty", resp.Generation)
	}
}

func TestJoinTwiceWhileWaiting(t *testing.T) {
	r := newRig(t, newTestConfig())
	ms := r.stable(2)
	first := r.start(joinRequest("g", ms[0].Member))
	second := r.start(joinRequest("g", ms[0].Member))
	wantErr(t, "first join", r.joins[first].Err, kerr.RebalanceInProgress)
	third := r.start(joinRequest("g", ms[1].Member))
	if r.joined(second).Generation != 3 || r.joined(third).Generation != 3 {
		t.Fatal("not one generation")
	}
}
