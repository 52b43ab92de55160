package group

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// What a restart finds is what was told: generation, members, shares.
func TestRecordRoundTrip(t *testing.T) {
	for _, sit := range situations[1:] {
		t.Run(sit.name, func(t *testing.T) {
			r, _, _ := sit.make(t)
			before := r.s
			r.reload()
			if r.s.generation != before.generation || r.s.phase != before.storedPhase() || r.s.protocolType != before.protocolType || r.s.protocol != before.protocol {
				t.Fatalf("read back as %+v, was %+v", r.s, before)
			}
			var kept []*member
			for _, m := range before.members {
				if m.stored {
					kept = append(kept, m)
				}
			}
			if len(r.s.members) != len(kept) {
				t.Fatalf("%d members, want %d", len(r.s.members), len(kept))
			}
			for i, m := range r.s.members {
				w := kept[i]
				if m.id != w.id || m.session != w.session || m.rebalance != w.rebalance || m.client != w.client || m.host != w.host ||
					!reflect.DeepEqual(m.protocols, w.protocols) || string(m.assignment) != string(w.assignment) {
					t.Errorf("member %+v, want %+v", m, w)
				}
			}
			if before.phase != Empty && r.s.leader != before.leader {
				t.Errorf("leader %q, want %q", r.s.leader, before.leader)
			}
		})
	}
}

// A rebalance under way goes on after a takeover: in Join, and in Sync.
func TestTakeoverInRebalance(t *testing.T) {
	r := newRig(t, newTestConfig())
	ms := r.stable(2)
	waits := r.start(joinRequest("g", ms[0].Member))
	r.reload()
	wantErr(t, "who waited", r.joins[waits].Err, kerr.NotCoordinator)
	r.wantState(PreparingRebalance)
	wantErr(t, "heartbeat", r.heartbeat(ms[1]), kerr.RebalanceInProgress)
	a, b := r.start(joinRequest("g", ms[0].Member)), r.start(joinRequest("g", ms[1].Member))
	r.joined(a)
	r.joined(b)
	m0, m1 := r.member(ms[0].Member), r.member(ms[1].Member)
	lost := r.startSync(SyncRequest{Membership: m1})
	r.reload()
	wantErr(t, "who waited for its share", r.syncs[lost].Err, kerr.NotCoordinator)
	r.wantState(CompletingRebalance)
	waits = r.startSync(SyncRequest{Membership: m1})
	r.startSync(SyncRequest{Membership: m0, Assignments: []Assignment{{m1.Member, []byte("all")}}})
	if got := r.syncs[waits]; got.Err != nil || string(got.Assignment) != "all" {
		t.Fatalf("share %+v", got)
	}
	if r.s.generation != 3 {
		t.Fatalf("generation %d", r.s.generation)
	}
}

// A leader that never tells the shares holds the others up for the rebalance
// timeout, whoever owns the group meanwhile.
func TestTakeoverBeforeSync(t *testing.T) {
	r := newRig(t, newTestConfig())
	ms := r.stable(2)
	a, b := r.start(joinRequest("g", ms[0].Member)), r.start(joinRequest("g", ms[1].Member))
	r.joined(a)
	r.joined(b)
	m0, m1 := r.member(ms[0].Member), r.member(ms[1].Member)
	if d := r.s.describe(); d.State != CompletingRebalance || len(d.Members[0].Assignment) > 0 {
		t.Fatalf("described: %+v", d)
	}
	r.reload()
	for _, m := range r.s.members {
		if len(m.assignment) > 0 {
			t.Fatalf("%s has a share of an earlier generation", m.id)
		}
	}
	r.startSync(SyncRequest{Membership: m1})
	for range 13 {
		r.pass(5 * time.Second)
		_ = r.heartbeat(m0)
	}
	wantErr(t, "the leader", r.heartbeat(m0), kerr.UnknownMemberID)
}

// Who has left is gone for the next owner too.
func TestTakeoverAfterLeave(t *testing.T) {
	r := newRig(t, newTestConfig())
	ms := r.stable(2)
	wantErr(t, "leave", r.leave(LeaveMember{Member: ms[1].Member})[0], nil)
	r.reload()
	wantErr(t, "who left", r.heartbeat(ms[1]), kerr.UnknownMemberID)
	if resp := r.join(joinRequest("g", ms[0].Member)); resp.Err != nil || resp.Generation != 3 {
		t.Fatalf("who stayed: %+v", resp)
	}
	// A second one leaves while a rebalance is under way already.
	r = newRig(t, newTestConfig())
	ms = r.stable(3)
	r.leave(LeaveMember{Member: ms[1].Member})
	r.leave(LeaveMember{Member: ms[2].Member})
	r.reload()
	wantErr(t, "who left second", r.heartbeat(ms[2]), kerr.UnknownMemberID)
}

func TestTakeoverWithSilentMembers(t *testing.T) {
	r := newRig(t, newTestConfig())
	ms := r.stable(2)
	r.reload()
	r.pass(9 * time.Second) // sessions begin in full
	wantErr(t, "heartbeat", r.heartbeat(ms[0]), nil)
	r.pass(time.Second)
	wantErr(t, "heartbeat", r.heartbeat(ms[0]), kerr.RebalanceInProgress)
	wantErr(t, "silent", r.heartbeat(ms[1]), kerr.UnknownMemberID)
}

// Fields of a later version survive; what is in it is readable.
func TestRecordUnknownFields(t *testing.T) {
	r := newRig(t, newTestConfig())
	r.stable(1)
	var m map[string]any
	if err := json.Unmarshal(r.stored, &m); err != nil {
		t.Fatal(err)
	}
	if m["name"] != "g" || m["state"] != Stable || m["type"] != "classic" || m["generation"] != 1.0 || m["v"] != 1.0 {
		t.Fatalf("stored as %s", r.stored)
	}
	r.stored = []byte(strings.TrimSuffix(string(r.stored), "}") + `,"later":{"a":[1,2]}}`)
	r.reload()
	r.s.dirty = true
	r.settle()
	if !strings.Contains(string(r.stored), `"later":{"a":[1,2]}`) {
		t.Fatalf("stored as %s", r.stored)
	}
}

func TestRecordOfAnotherTypeIsLeftAlone(t *testing.T) {
	r := newRig(t, newTestConfig())
	r.stable(1)
	for _, change := range [][2]string{{`"type":"classic"`, `"type":"consumer"`}, {`"state":"Stable"`, `"state":"Assigning"`}} {
		body := strings.Replace(string(r.stored), change[0], change[1], 1)
		if body == string(r.stored) {
			t.Fatalf("no %s in %s", change[0], r.stored)
		}
		wantErr(t, change[1], newState("g", r.c, nil).Decode([]byte(body)), coord.ErrVersion)
	}
}

// C 23: names differing in one byte never mix, whatever is in them.
func TestC08Row23OffsetKeys(t *testing.T) {
	names := []string{"a", "a.b", "b", "b.c", ">", "*", " ", "", "ü", "<script>", strings.Repeat("x", 500), strings.Repeat("x", 501)}
	seen := map[string]string{}
	for _, g := range names {
		for _, topic := range names {
			tp := types.TopicPartition{Topic: topic, Partition: 3}
			key := offsetKey(g, tp)
			if other, ok := seen[key]; ok {
				t.Errorf("%q: both %s and %s/%s", key, other, g, topic)
			}
			seen[key] = g + "/" + topic
			s := newState(g, new(Config), nil)
			s.env = coord.Envelope{Birth: 1}
			v := s.compose(tp, &entry{}, &op{changes: []change{{commit: &commit{Offset: 5}}}})
			data, err := coord.Marshal(v, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, val, err := parseOffset(pubsub.Value{Key: key, Data: data})
			if err != nil || got != tp || val.Offset != 5 {
				t.Errorf("%q read back as %v, %+v, %v", key, got, val, err)
			}
		}
	}
	if key := offsetKey("g", types.TopicPartition{Topic: "foo"}); key != "g.foo.0" {
		t.Errorf("key %q", key)
	}
}

func FuzzStored(f *testing.F) {
	r := newRig(f, newTestConfig())
	r.stable(2)
	f.Add("g.foo.0", r.stored)
	f.Add("g.foo.0", []byte(`{"v":1,"offset":5,"later":1}`))
	f.Add("g.=.-1", []byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		_, _, _ = parseOffset(pubsub.Value{Key: key, Data: data})
		c := DefaultConfig()
		s := newState("g", &c, nil)
		if body, _, err := coord.Open(pubsub.Value{Key: "g", Data: data, Rev: 1}); err == nil && s.Decode(body) == nil {
			s.Start(time.UnixMilli(1), coord.Envelope{})
			s.describe()
			if _, _, err := s.Encode(coord.Envelope{V: 1}); err != nil {
				t.Fatalf("read and not written: %v", err)
			}
		}
	})
}
