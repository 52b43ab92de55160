package group

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/types"
)

// The situations that a request can find, and the requests that the tables
// below ask in each.
var situations = []struct {
	name string
	make func(t *testing.T) (r *rig, g int32, k string)
}{
	{"unknown", func(t *testing.T) (*rig, int32, string) { return newRig(t, newTestConfig()), 0, "k" }},
	{"offsets only", func(t *testing.T) (*rig, int32, string) {
		r := newRig(t, newTestConfig())
		if _, _, err := r.s.commit(r.now, commitOf(Membership{Group: "g", Generation: -1}, "foo", types.NewTopicID(), 1)); err != nil {
			t.Fatal(err)
		}
		r.settle()
		return r, 0, "k"
	}},
	{"emptied", func(t *testing.T) (*rig, int32, string) {
		r := newRig(t, newTestConfig())
		m := r.stable(1)[0]
		r.leave(LeaveMember{Member: m.Member})
		r.wantState(Empty)
		return r, r.s.generation, m.Member
	}},
	{"preparing", func(t *testing.T) (*rig, int32, string) {
		r := newRig(t, newTestConfig())
		m := r.stable(1)[0]
		r.start(joinRequest("g", ""))
		r.wantState(PreparingRebalance)
		return r, m.Generation, m.Member
	}},
	{"completing", func(t *testing.T) (*rig, int32, string) {
		r := newRig(t, newTestConfig())
		ms := r.stable(2)
		a, b := r.start(joinRequest("g", ms[0].Member)), r.start(joinRequest("g", ms[1].Member))
		r.joined(a)
		r.joined(b)
		r.wantState(CompletingRebalance)
		return r, r.s.generation, ms[0].Member
	}},
	{"stable", func(t *testing.T) (*rig, int32, string) {
		r := newRig(t, newTestConfig())
		m := r.stable(1)[0]
		return r, m.Generation, m.Member
	}},
}

// asker is a (generation, member, instance) relative to the situation's own.
type asker struct {
	name     string
	ask      func(g int32, k string) Membership
	instance bool
}

var askers = []asker{
	{"(-1,)", func(int32, string) Membership { return Membership{Generation: -1} }, false},
	{"(0,)", func(int32, string) Membership { return Membership{} }, false},
	{"(g,k)", func(g int32, k string) Membership { return Membership{Generation: g, Member: k} }, false},
	{"(g-1,k)", func(g int32, k string) Membership { return Membership{Generation: max(g-1, 0), Member: k} }, false},
	{"(g,other)", func(g int32, k string) Membership { return Membership{Generation: g, Member: "other"} }, false},
	{"(-1,k)", func(g int32, k string) Membership { return Membership{Generation: -1, Member: k} }, false},
	{"(g,k) of an unknown instance", func(g int32, k string) Membership { return Membership{Generation: g, Member: k} }, true},
}

func eachCell(t *testing.T, want map[string][]error, ask func(r *rig, m Membership) error) {
	t.Helper()
	for _, sit := range situations {
		row, ok := want[sit.name]
		if !ok || len(row) != len(askers) {
			t.Fatalf("the table lacks %s", sit.name)
		}
		for i, a := range askers {
			t.Run(sit.name+" "+a.name, func(t *testing.T) {
				r, g, k := sit.make(t)
				m := a.ask(g, k)
				m.Group = "g"
				if a.instance {
					who := "who"
					m.Instance = &who
				}
				wantErr(t, "answer", ask(r, m), row[i])
			})
		}
	}
}

var (
	gen22   = kerr.IllegalGeneration
	unk25   = kerr.UnknownMemberID
	reb27   = kerr.RebalanceInProgress
	none69  = kerr.GroupIDNotFound
	ok      error
	allOf25 = []error{unk25, unk25, unk25, unk25, unk25, unk25, unk25}
)

// State × generation × member × version of OffsetCommit.
func TestC26WhoMayCommit(t *testing.T) {
	v8 := map[string][]error{
		//               (-1,)  (0,)   (g,k)  (g-1,k) (g,o)  (-1,k) instance
		"unknown":      {ok, gen22, gen22, gen22, gen22, ok, gen22},
		"offsets only": {ok, unk25, unk25, unk25, unk25, ok, unk25},
		"emptied":      {ok, unk25, unk25, unk25, unk25, ok, unk25},
		"preparing":    {unk25, unk25, ok, gen22, unk25, gen22, unk25},
		"completing":   {unk25, unk25, reb27, gen22, unk25, gen22, unk25},
		"stable":       {unk25, unk25, ok, gen22, unk25, gen22, unk25},
	}
	commit := func(v9 bool) func(*rig, Membership) error {
		return func(r *rig, m Membership) error {
			req := commitOf(m, "foo", types.NewTopicID(), 5)
			req.V9 = v9
			_, _, err := r.s.commit(r.now, req)
			if err == nil {
				if r.settle(); !r.s.exists || r.s.describe().State == Dead {
					t.Error("the group does not exist after a commit")
				}
			}
			return err
		}
	}
	t.Run("v8", func(t *testing.T) { eachCell(t, v8, commit(false)) })
	v9 := map[string][]error{"unknown": {ok, none69, none69, none69, none69, ok, none69}}
	for k, row := range v8 {
		if k != "unknown" {
			v9[k] = row
		}
	}
	t.Run("v9", func(t *testing.T) { eachCell(t, v9, commit(true)) })
}

func TestC26HeartbeatTable(t *testing.T) {
	eachCell(t, map[string][]error{
		"unknown":      allOf25,
		"offsets only": allOf25,
		"emptied":      allOf25,
		"preparing":    {unk25, unk25, reb27, gen22, unk25, gen22, unk25},
		"completing":   {unk25, unk25, ok, gen22, unk25, gen22, unk25},
		"stable":       {unk25, unk25, ok, gen22, unk25, gen22, unk25},
	}, func(r *rig, m Membership) error { return r.heartbeat(m) })
}

func TestC26SyncTable(t *testing.T) {
	eachCell(t, map[string][]error{
		"unknown":      allOf25,
		"offsets only": allOf25,
		"emptied":      allOf25,
		"preparing":    {unk25, unk25, reb27, gen22, unk25, gen22, unk25},
		"completing":   {unk25, unk25, ok, gen22, unk25, gen22, unk25},
		"stable":       {unk25, unk25, ok, gen22, unk25, gen22, unk25},
	}, func(r *rig, m Membership) error { return r.sync(SyncRequest{Membership: m}).Err })
}

func TestC26LeaveTable(t *testing.T) {
	eachCell(t, map[string][]error{
		"unknown":      allOf25,
		"offsets only": allOf25,
		"emptied":      allOf25,
		// Generations are not asked for.
		"preparing":  {unk25, unk25, ok, ok, unk25, ok, unk25},
		"completing": {unk25, unk25, ok, ok, unk25, ok, unk25},
		"stable":     {unk25, unk25, ok, ok, unk25, ok, unk25},
	}, func(r *rig, m Membership) error {
		return r.leave(LeaveMember{Member: m.Member, Instance: m.Instance})[0]
	})
}

// Anybody may ask what is committed, in any state. TxnOffsetCommit's rows belong
// to transactions.
func TestC26FetchTable(t *testing.T) {
	for _, sit := range situations {
		t.Run(sit.name, func(t *testing.T) {
			r, _, _ := sit.make(t)
			id := types.NewTopicID()
			answer := r.s.fetch(FetchRequest{Group: "g", Partitions: []FetchPartition{{TopicPartition: types.TopicPartition{Topic: "bar"}, TopicID: id}}})
			r.settle()
			got := answer()
			if got.Err != nil || len(got.Offsets) != 1 {
				t.Fatalf("%+v", got)
			}
			if o := got.Offsets[0]; o.Err != nil || o.Offset != -1 || o.LeaderEpoch != -1 || o.Metadata != "" || o.TopicID != id {
				t.Errorf("%+v", o)
			}
			answer = r.s.fetch(FetchRequest{Group: "g", All: true}) // nothing is stored in this rig
			r.settle()
			if got := answer(); got.Err != nil || len(got.Offsets) != 0 {
				t.Errorf("all: %+v", got)
			}
		})
	}
}

func TestC26DeleteTable(t *testing.T) {
	want := map[string]error{"unknown": none69, "offsets only": nil, "emptied": nil,
		"preparing": kerr.NonEmptyGroup, "completing": kerr.NonEmptyGroup, "stable": kerr.NonEmptyGroup}
	for _, sit := range situations {
		r, _, _ := sit.make(t)
		wantErr(t, sit.name, r.s.removeGroup(), want[sit.name])
	}
}

// What tools see in each state.
func TestC45DescribeTable(t *testing.T) {
	want := map[string]Description{
		"unknown":      {State: Dead},
		"offsets only": {State: Empty},
		"emptied":      {State: Empty, ProtocolType: "consumer"},
		"preparing":    {State: PreparingRebalance, ProtocolType: "consumer", Members: make([]DescribedMember, 2)},
		"completing":   {State: CompletingRebalance, ProtocolType: "consumer", Members: make([]DescribedMember, 2)},
		"stable":       {State: Stable, ProtocolType: "consumer", Protocol: "range", Members: make([]DescribedMember, 1)},
	}
	for _, sit := range situations {
		r, _, k := sit.make(t)
		d, w := r.s.describe(), want[sit.name]
		if d.Err != nil || d.State != w.State || d.ProtocolType != w.ProtocolType || d.Protocol != w.Protocol || len(d.Members) != len(w.Members) {
			t.Errorf("%s: %+v", sit.name, d)
			continue
		}
		for _, m := range d.Members {
			if full := d.State == Stable; (string(m.Metadata) == "meta") != full || (len(m.Assignment) > 0) != full {
				t.Errorf("%s: member %+v", sit.name, m)
			}
			if m.ClientID != "c" || m.Host != "/127.0.0.1" {
				t.Errorf("%s: member %+v", sit.name, m)
			}
		}
		if d.State == Stable && d.Members[0].Member != k {
			t.Errorf("%s: member %q", sit.name, d.Members[0].Member)
		}
	}
}

func TestC27Row30CommitMetadata(t *testing.T) {
	r := newRig(t, newTestConfig())
	long, longest := string(make([]byte, 4097)), string(make([]byte, 4096))
	req := CommitRequest{Membership: Membership{Group: "g", Generation: -1}}
	for i, m := range []*string{nil, &longest, &long} {
		req.Partitions = append(req.Partitions, CommitPartition{
			TopicPartition: types.TopicPartition{Topic: "foo", Partition: int32(i)}, Metadata: m, Offset: -5, LeaderEpoch: -1})
	}
	plans, refused, err := r.s.commit(r.now, req)
	wantErr(t, "commit", err, nil)
	for i, want := range []error{nil, nil, kerr.OffsetMetadataTooLarge} {
		wantErr(t, "partition", refused[i], want)
		if (plans[i] == nil) != (want != nil) {
			t.Errorf("partition %d: planned %v", i, plans[i])
		}
	}
	if c := plans[0].changes[0].commit; c.Metadata != "" || c.Offset != -5 || c.Epoch != -1 {
		t.Errorf("planned %+v", c)
	}
	// Nothing to store, nothing made.
	r = newRig(t, newTestConfig())
	req.Partitions = req.Partitions[2:]
	if _, _, err := r.s.commit(r.now, req); err != nil || r.s.exists {
		t.Errorf("a refused commit made a group: %v", err)
	}
}

// Commits keep a member alive, as heartbeats do.
func TestCommitIsSignOfLife(t *testing.T) {
	r := newRig(t, newTestConfig())
	m := r.stable(1)[0]
	for range 5 {
		r.pass(8 * time.Second)
		if _, _, err := r.s.commit(r.now, commitOf(m, "foo", types.NewTopicID(), 1)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSyncChecksProtocol(t *testing.T) {
	right, wrong := "consumer", "connect"
	name, other := "range", "sticky"
	for _, tc := range []struct {
		kind, name *string
		want       error
	}{
		{nil, nil, nil}, {&right, &name, nil},
		{&wrong, &name, kerr.InconsistentGroupProtocol}, {&right, &other, kerr.InconsistentGroupProtocol},
	} {
		r := newRig(t, newTestConfig())
		m := r.stable(1)[0]
		wantErr(t, "sync", r.sync(SyncRequest{Membership: m, ProtocolType: tc.kind, Protocol: tc.name}).Err, tc.want)
	}
}

// A member that the leader leaves out gets an empty share and no error.
func TestC27LeaderNamesOnlyItself(t *testing.T) {
	r := newRig(t, newTestConfig())
	ms := r.stable(2)
	tk0, tk1 := r.start(joinRequest("g", ms[0].Member)), r.start(joinRequest("g", ms[1].Member))
	r.joined(tk0)
	r.joined(tk1)
	waits := r.startSync(SyncRequest{Membership: r.member(ms[1].Member)})
	lead := r.sync(SyncRequest{Membership: r.member(ms[0].Member), Assignments: []Assignment{{ms[0].Member, []byte("all")}, {"nobody", []byte("x")}}})
	if lead.Err != nil || string(lead.Assignment) != "all" {
		t.Fatalf("leader: %+v", lead)
	}
	got, answered := r.syncs[waits]
	if !answered || got.Err != nil || len(got.Assignment) != 0 {
		t.Fatalf("left out: %+v", got)
	}
	r.wantState(Stable)
}

// Who joins and never asks for its share is dropped after the rebalance timeout.
func TestSyncTimeout(t *testing.T) {
	r := newRig(t, newTestConfig())
	ms := r.stable(2)
	tk0, tk1 := r.start(joinRequest("g", ms[0].Member)), r.start(joinRequest("g", ms[1].Member))
	r.joined(tk0)
	r.joined(tk1)
	m0, m1 := r.member(ms[0].Member), r.member(ms[1].Member)
	waits := r.startSync(SyncRequest{Membership: m1})
	for range 11 {
		wantErr(t, "heartbeat", r.heartbeat(m0), nil) // the leader lives, and does not sync
		r.pass(5 * time.Second)
	}
	if _, ok := r.syncs[waits]; ok {
		t.Fatal("answered before the rebalance timeout")
	}
	r.pass(5 * time.Second)
	wantErr(t, "who waited", r.syncs[waits].Err, kerr.RebalanceInProgress)
	wantErr(t, "who did not sync", r.heartbeat(m0), kerr.UnknownMemberID)
	if resp := r.join(joinRequest("g", m1.Member)); resp.Err != nil || resp.Leader != m1.Member {
		t.Fatalf("joined as %+v", resp)
	}
}

func TestSharesTooLarge(t *testing.T) {
	r := newRig(t, newTestConfig())
	resp := r.join(joinRequest("g", ""))
	m := r.member(resp.Member)
	sr := r.sync(SyncRequest{Membership: m, Assignments: []Assignment{{m.Member, make([]byte, 701<<10)}}})
	wantErr(t, "shares", sr.Err, kerr.InvalidRequest)
	r.wantState(CompletingRebalance)
}
