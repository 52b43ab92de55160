package group

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// TestForward: every request, asked of every gateway, is answered as by the
// owner; so are refusals.
func TestForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites := beginAll(t, memory.NewServer(memory.Config{}), 3, newTestConfig())
		id := types.NewTopicID()
		for i, s := range sites {
			g := fmt.Sprint("g", i)
			m := stable(t, s, g)
			for _, s := range sites {
				mustCommit(t, s, commitOf(m, "foo", id, types.Offset(i)))
			}
		}
		m := stable(t, sites[0], "g")
		owner, rest := holder(t, sites, "g")
		for i, s := range append(rest, owner) {
			if d := s.Describe(t.Context(), "g"); d.State != Stable || len(d.Members) != 1 || d.Members[0].Host != "/127.0.0.1" || d.Members[0].ClientID != "c" ||
				string(d.Members[0].Metadata) != "meta" || string(d.Members[0].Assignment) != "share" {
				t.Errorf("described %+v", d)
			}
			wantErr(t, "heartbeat", s.Heartbeat(t.Context(), m), nil)
			mustCommit(t, s, commitOf(m, "foo", id, types.Offset(10+i)))
			for _, s := range sites {
				wantOffset(t, s, "g", "foo", id, types.Offset(10+i))
			}
			if sr := s.Sync(t.Context(), SyncRequest{Membership: m}); sr.Err != nil || string(sr.Assignment) != "share" {
				t.Errorf("sync %+v", sr)
			}
			wantErr(t, "heartbeat of a stranger", s.Heartbeat(t.Context(), Membership{Group: "g", Member: "x"}), kerr.UnknownMemberID)
			old := m
			old.Generation--
			wantErr(t, "sync of an old generation", s.Sync(t.Context(), SyncRequest{Membership: old}).Err, kerr.IllegalGeneration)
			wantErr(t, "commit of an old generation", s.Commit(t.Context(), commitOf(old, "foo", id, 1)).Err, kerr.IllegalGeneration)
			big := commitOf(m, "foo", id, 1)
			text := string(make([]byte, 5000))
			big.Partitions[0].Metadata = &text
			if r := s.Commit(t.Context(), big); r.Err != nil || !errors.Is(r.Partitions[0], kerr.OffsetMetadataTooLarge) {
				t.Errorf("commit of large metadata: %+v", r)
			}
			wantErr(t, "delete", s.Delete(t.Context(), "g"), kerr.NonEmptyGroup)
			if r := s.DeleteOffsets(t.Context(), "g", []types.TopicPartition{{Topic: "foo"}, {Topic: "foo", Partition: 9}}); r.Err != nil || !errors.Is(r.Partitions[0], kerr.GroupSubscribedToTopic) || !errors.Is(r.Partitions[1], kerr.GroupSubscribedToTopic) {
				t.Errorf("delete offsets: %+v", r)
			}
			if r := s.Leave(t.Context(), "g", []LeaveMember{{Member: "x"}}); r.Err != nil || !errors.Is(r.Members[0].Err, kerr.UnknownMemberID) {
				t.Errorf("leave: %+v", r)
			}
			j := joinRequest("g", "")
			j.ProtocolType = "other"
			if r := s.Join(t.Context(), j); !errors.Is(r.Err, kerr.InconsistentGroupProtocol) || r.Generation != -1 {
				t.Errorf("join: %+v", r)
			}
			ls, err := s.List(t.Context(), nil, nil)
			if err != nil || len(ls) != 4 || ls[0] != (Listing{Group: "g", ProtocolType: "consumer", State: Stable, Type: classic}) {
				t.Errorf("listed %v, %v", ls, err)
			}
		}
		if n := owner.calls.Load(); n > 20 {
			t.Errorf("the owner made %d calls", n)
		}
		if r := rest[0].Leave(t.Context(), "g", []LeaveMember{{Member: m.Member}}); r.Err != nil || r.Members[0].Err != nil {
			t.Errorf("leave: %+v", r)
		}
		if r := rest[1].DeleteOffsets(t.Context(), "g", []types.TopicPartition{{Topic: "foo"}}); r.Err != nil || r.Partitions[0] != nil {
			t.Errorf("delete offsets: %+v", r)
		}
		wantOffset(t, rest[0], "g", "foo", id, -1)
		wantErr(t, "delete", rest[1].Delete(t.Context(), "g"), nil)
		wantErr(t, "delete again", rest[0].Delete(t.Context(), "g"), kerr.GroupIDNotFound)
		for _, s := range sites {
			if d := s.Describe(t.Context(), "g"); d.State != Dead || d.Err != nil {
				t.Errorf("described %+v", d)
			}
		}
	})
}

// TestForwardOddNames: what clients call themselves is the same everywhere, as
// Kafka reads it.
func TestForwardOddNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites := beginAll(t, memory.NewServer(memory.Config{}), 3, newTestConfig())
		for i, s := range sites {
			name := fmt.Sprintf("caf\xe9 \xff%d", i)
			r := joinRequest(name, "")
			r.ClientID = "\xe9t\xe9"
			j := s.Join(t.Context(), r)
			if j.Err != nil {
				t.Fatal(j.Err)
			}
			m := Membership{Group: name, Member: j.Member, Generation: j.Generation}
			for _, s := range sites {
				if sr := s.Sync(t.Context(), SyncRequest{Membership: m, Assignments: []Assignment{{Member: j.Member, Data: []byte{0xff, 0}}}}); sr.Err != nil || string(sr.Assignment) != "\xff\x00" {
					t.Errorf("sync: %+v", sr)
				}
				wantErr(t, "heartbeat", s.Heartbeat(t.Context(), m), nil)
			}
		}
		synctest.Wait()
		if ls, err := sites[0].List(t.Context(), nil, nil); err != nil || len(ls) != 3 {
			t.Errorf("listed %v, %v", ls, err)
		}
	})
}

// TestForwardWaits: members that wait in Join and Sync at an owner that dies
// wait on at the next one, and nobody is told.
func TestForwardWaits(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(*testing.T, *site)
	}{
		{"killed", func(_ *testing.T, s *site) { s.kill() }},
		{"frozen", func(_ *testing.T, s *site) { s.client.Freeze() }},
		{"cut off", func(_ *testing.T, s *site) { s.client.Disconnect() }},
		{"drained", func(t *testing.T, s *site) { wantErr(t, "drain", s.Drain(t.Context()), nil) }},
	} {
		t.Run(end.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sites := beginAll(t, memory.NewServer(memory.Config{}), 3, newTestConfig())
				first := stable(t, sites[0], "g")
				owner, rest := holder(t, sites, "g")
				joined := make(chan JoinResponse, 1)
				go func() { joined <- rest[0].Join(t.Context(), joinRequest("g", "")) }()
				time.Sleep(time.Second)
				wantErr(t, "heartbeat", rest[1].Heartbeat(t.Context(), first), kerr.RebalanceInProgress)
				end.do(t, owner)
				time.Sleep(4 * time.Second)
				wantErr(t, "heartbeat", rest[1].Heartbeat(t.Context(), first), kerr.RebalanceInProgress)
				lead := rest[1].Join(t.Context(), joinRequest("g", first.Member))
				second := <-joined
				if lead.Err != nil || second.Err != nil || lead.Generation != 2 || second.Generation != 2 || len(lead.Members) != 2 {
					t.Fatalf("joined: %+v and %+v", lead, second)
				}
				// The other one waits for its share while the next owner dies too.
				next, _ := holder(t, rest, "g")
				last := rest[0]
				if last == next {
					last = rest[1]
				}
				synced := make(chan SyncResponse, 1)
				go func() {
					synced <- last.Sync(t.Context(), SyncRequest{Membership: Membership{Group: "g", Member: second.Member, Generation: 2}})
				}()
				time.Sleep(time.Second)
				end.do(t, next)
				time.Sleep(4 * time.Second)
				sr := last.Sync(t.Context(), SyncRequest{Membership: Membership{Group: "g", Member: first.Member, Generation: 2},
					Assignments: []Assignment{{Member: first.Member, Data: []byte("1")}, {Member: second.Member, Data: []byte("2")}}})
				if other := <-synced; sr.Err != nil || string(sr.Assignment) != "1" || other.Err != nil || string(other.Assignment) != "2" {
					t.Fatalf("synced: %+v and %+v", sr, other)
				}
			})
		})
	}
}

// TestForwardDrainEndsWaiting: a gateway that drains answers those who wait
// through it at another one.
func TestForwardDrainEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites := beginAll(t, memory.NewServer(memory.Config{}), 2, newTestConfig())
		first := stable(t, sites[0], "g")
		owner, rest := holder(t, sites, "g")
		joined := make(chan JoinResponse, 1)
		go func() { joined <- rest[0].Join(t.Context(), joinRequest("g", "")) }()
		time.Sleep(time.Second)
		began := time.Now()
		wantErr(t, "drain", rest[0].Drain(t.Context()), nil)
		wantErr(t, "join through a gateway that drains", (<-joined).Err, kerr.NotCoordinator)
		if d := time.Since(began); d > 100*time.Millisecond {
			t.Errorf("after %v", d)
		}
		wantErr(t, "heartbeat", owner.Heartbeat(t.Context(), first), kerr.RebalanceInProgress)
	})
}

// TestForwardIsolated: a gateway that is cut off and does not notice says soon
// that it cannot tell, instead of waiting for an owner that does not hear it.
func TestForwardIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites := beginAll(t, memory.NewServer(memory.Config{}), 2, newTestConfig())
		m := stable(t, sites[0], "g")
		owner, rest := holder(t, sites, "g")
		rest[0].client.Isolate()
		began := time.Now()
		wantErr(t, "heartbeat", rest[0].Heartbeat(t.Context(), m), kerr.CoordinatorNotAvailable)
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("after %v", d)
		}
		wantErr(t, "heartbeat at the owner", owner.Heartbeat(t.Context(), m), nil)
		rest[0].client.Rejoin()
		time.Sleep(5 * time.Second)
		wantErr(t, "heartbeat", rest[0].Heartbeat(t.Context(), m), nil)
	})
}

// TestForwardLosses: requests and answers between gateways are lost; commits are
// made again, and heartbeats answered.
func TestForwardLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var n atomic.Int32
		var on atomic.Bool
		lossy := memory.Faults{Request: func(memory.Op) (f memory.WriteFault) {
			if on.Load() {
				switch n.Add(1) % 7 {
				case 0:
					f.Drop = true
				case 3:
					f.LoseAck = true
				}
			}
			return f
		}}
		sites := []*site{begin(t, srv, lossy, newTestConfig()), begin(t, srv, lossy, newTestConfig())}
		time.Sleep(7 * time.Second)
		m := stable(t, sites[0], "g")
		_, rest := holder(t, sites, "g")
		id := types.NewTopicID()
		on.Store(true)
		for i := range types.Offset(20) {
			began := time.Now()
			mustCommit(t, rest[0], commitOf(m, "foo", id, i))
			wantErr(t, "heartbeat", rest[0].Heartbeat(t.Context(), m), nil)
			wantOffset(t, rest[0], "g", "foo", id, i)
			if d := time.Since(began); d > 15*time.Second {
				t.Errorf("commit, heartbeat and fetch took %v", d)
			}
		}
	})
}

// TestForwardAfterFreeze: what a gateway that was frozen finds in its sockets is
// old. Passed on, a commit that its client has repeated elsewhere would take back
// the later ones.
func TestForwardAfterFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites := beginAll(t, memory.NewServer(memory.Config{}), 2, newTestConfig())
		m := stable(t, sites[0], "g")
		owner, rest := holder(t, sites, "g")
		id := types.NewTopicID()
		mustCommit(t, rest[0], commitOf(m, "foo", id, 5))
		rest[0].client.Freeze()
		time.Sleep(1900 * time.Millisecond) // not dead yet
		mustCommit(t, owner, commitOf(m, "foo", id, 9))
		rest[0].client.Thaw()
		if r := rest[0].Commit(t.Context(), commitOf(m, "foo", id, 6)); !errors.Is(r.Err, kerr.CoordinatorNotAvailable) {
			t.Errorf("a commit of before the freeze: %+v", r)
		}
		wantOffset(t, owner, "g", "foo", id, 9)
		time.Sleep(time.Second)
		mustCommit(t, rest[0], commitOf(m, "foo", id, 10))
		wantOffset(t, owner, "g", "foo", id, 10)
	})
}

// TestForwardOwnerFails: a failure of the owner's store is a code where it
// happened; here it is a refusal like any other.
func TestForwardOwnerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var away atomic.Bool
		failing := memory.Faults{Set: func(op memory.Op) (f memory.WriteFault) {
			if away.Load() && op.Name == bucket {
				f.Err = pubsub.ErrFull
			}
			return f
		}}
		var told []error
		a, b := begin(t, srv, failing, newTestConfig()), begin(t, srv, failing, newTestConfig())
		for _, s := range []*site{a, b} {
			s.code = func(err error) int16 {
				if k := (*kerr.Error)(nil); errors.As(err, &k) {
					return k.Code
				}
				told = append(told, err)
				return kerr.CoordinatorNotAvailable.Code
			}
		}
		time.Sleep(7 * time.Second)
		m := stable(t, a, "g")
		_, rest := holder(t, []*site{a, b}, "g")
		away.Store(true)
		r := rest[0].Commit(t.Context(), commitOf(m, "foo", types.NewTopicID(), 1))
		if r.Err != nil || !errors.Is(r.Partitions[0], kerr.CoordinatorNotAvailable) || len(told) != 1 || !errors.Is(told[0], pubsub.ErrFull) {
			t.Errorf("commit: %+v, told %v", r, told)
		}
	})
}

// TestForwardOff: with an address for each gateway requests do not travel.
func TestForwardOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestConfig()
		c.Forward = false
		sites := beginAll(t, memory.NewServer(memory.Config{}), 3, c)
		for i := range 10 {
			g := fmt.Sprint("g", i)
			owner := sites[0]
			id, ok := sites[0].Owner(g)
			for _, s := range sites {
				if other, also := s.Owner(g); !ok || !also || other != id {
					t.Fatalf("owner of %s: %v and %v", g, id, other)
				}
				if s.cluster.Self() == id {
					owner = s
				}
			}
			for _, s := range sites {
				if s != owner {
					wantErr(t, "join elsewhere", s.Join(t.Context(), joinRequest(g, "")).Err, kerr.NotCoordinator)
				}
			}
			m := stable(t, owner, g)
			time.Sleep(time.Second)
			for _, s := range sites {
				want := error(kerr.NotCoordinator)
				if s == owner {
					want = nil
				}
				wantErr(t, "heartbeat", s.Heartbeat(t.Context(), m), want)
				if s.calls.Load() != 0 {
					t.Fatal("a request travelled")
				}
			}
		}
	})
}

// TestSpread: groups spread over the gateways; one that comes gets its share
// some at a time, and members notice nothing.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		sites := beginAll(t, srv, 2, newTestConfig())
		const groups = 60
		var members []Membership
		for i := range groups {
			members = append(members, stable(t, sites[i%2], fmt.Sprint("g", i)))
		}
		count := func() (n []int) {
			for _, s := range sites {
				n = append(n, len(s.rt.Held()))
			}
			return n
		}
		if n := count(); n[0]+n[1] != groups || n[0] < groups/4 || n[1] < groups/4 {
			t.Fatalf("spread %v", n)
		}
		sites = append(sites, begin(t, srv, memory.Faults{}, newTestConfig()))
		stop := make(chan struct{})
		var beats sync.WaitGroup
		for i, m := range members {
			beats.Go(func() {
				for n := i; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(300 * time.Millisecond):
					}
					began := time.Now()
					if err := sites[n%3].Heartbeat(t.Context(), m); err != nil || time.Since(began) > time.Second {
						t.Errorf("heartbeat of %s: %v after %v", m.Group, err, time.Since(began))
					}
				}
			})
		}
		time.Sleep(4 * time.Second)
		if n := count(); n[2] != 0 {
			t.Errorf("%v before it has lived for long", n)
		}
		time.Sleep(2 * time.Second)
		if n := count(); n[2] == 0 || n[2] > 12 {
			t.Errorf("%v in the first second", n)
		}
		time.Sleep(20 * time.Second)
		if n := count(); n[2] < groups/6 || n[0]+n[1]+n[2] != groups {
			t.Errorf("spread %v", n)
		}
		for i := range groups {
			g := fmt.Sprint("g", i)
			owner, _ := holder(t, sites, g)
			if id, ok := sites[0].Owner(g); !ok || id != owner.cluster.Self() {
				t.Errorf("%s: owner %v, told %v", g, owner.cluster.Self(), id)
			}
		}
		close(stop)
		beats.Wait()
		made := sites[0].calls.Load() + sites[1].calls.Load() + sites[2].calls.Load()
		time.Sleep(5 * time.Second) // less than a session
		if n := sites[0].calls.Load() + sites[1].calls.Load() + sites[2].calls.Load(); n != made {
			t.Error("idle gateways call each other")
		}
	})
}

// TestForwardWire: what travels between gateways of several versions keeps its
// names; what is not known is passed over.
func TestForwardWire(t *testing.T) {
	s := func(s string) *string { return &s }
	id := types.TopicID{1, 15: 2}
	tp := types.TopicPartition{Topic: "foo", Partition: 1}
	m := Membership{Group: "g", Member: "m", Instance: s("i"), Generation: 3}
	var wire []string
	wire = append(wire, travels(t, joinMethod, JoinRequest{Caller: Caller{"c", "/h"}, Group: "g", Member: "m", Instance: s(""), ProtocolType: "consumer",
		Protocols: []Protocol{{"range", []byte{1, 0xff}}}, SessionTimeout: time.Second, RebalanceTimeout: time.Minute, Reason: "r", RequireMemberID: true, CanSkipAssignment: true},
		JoinResponse{Generation: 4, ProtocolType: s("consumer"), Protocol: s("range"), Leader: "l", Member: "m", SkipAssignment: true, Members: []JoinMember{{"m", s("i"), []byte{}}}})...)
	wire = append(wire, travels(t, syncMethod, SyncRequest{Membership: m, ProtocolType: s("consumer"), Protocol: s("range"), RequireProtocol: true, Assignments: []Assignment{{"m", []byte("x")}}},
		SyncResponse{Err: kerr.RebalanceInProgress, ProtocolType: s("consumer"), Protocol: s("range"), Assignment: []byte("x")})...)
	wire = append(wire, travels(t, heartbeatMethod, m, outcome{kerr.FencedInstanceID})...)
	wire = append(wire, travels(t, leaveMethod, leaveRequest{"g", []LeaveMember{{"m", s("i"), "r"}}},
		LeaveResponse{Members: []LeaveResult{{LeaveMember{"m", s("i"), "r"}, kerr.UnknownMemberID}, {LeaveMember{"n", nil, ""}, nil}}})...)
	wire = append(wire, travels(t, commitMethod, CommitRequest{Caller: Caller{"c", "/h"}, Membership: m, V9: true, Partitions: []CommitPartition{{tp, id, 7, -1, s("note")}}},
		CommitResponse{Partitions: []error{nil, kerr.OffsetMetadataTooLarge}})...)
	wire = append(wire, travels(t, commitTxnMethod, CommitRequest{Membership: m, Partitions: []CommitPartition{{tp, id, 7, -1, s("note")}},
		Txn: &TxnCommit{TransactionalID: "t", ProducerID: 4000, Epoch: 3, N: 17}}, CommitResponse{Err: kerr.InvalidProducerEpoch, Partitions: []error{}})...)
	wire = append(wire, travels(t, endMethod, endRequest{"g", TxnEnd{ProducerID: 4000, N: 17, Commit: true}}, outcome{kerr.CoordinatorLoadInProgress})...)
	wire = append(wire, travels(t, fetchMethod, FetchRequest{Group: "g", All: true, Partitions: []FetchPartition{{tp, id}}, RequireStable: true},
		FetchResponse{Offsets: []CommittedOffset{{tp, id, 7, 2, "note", nil}, {tp, id, -1, -1, "", kerr.UnstableOffsetCommit}}})...)
	wire = append(wire, travels(t, describeMethod, nameRequest{"g"}, Description{Group: "g", State: Stable, ProtocolType: "consumer", Protocol: "range",
		Members: []DescribedMember{{"m", s("i"), Caller{"c", "/h"}, []byte("x"), []byte("y")}}})...)
	wire = append(wire, travels(t, deleteMethod, nameRequest{"g"}, outcome{})...)
	wire = append(wire, travels(t, deleteOffsetsMethod, deleteOffsetsRequest{"g", []types.TopicPartition{tp}}, DeleteOffsetsResponse{Partitions: []error{kerr.GroupSubscribedToTopic}})...)
	golden(t, "testdata/forward.golden", wire)
}

// TestForwardUnknown: an owner that does not know the request yet, or answers
// what cannot be read, is an error and no answer.
func TestForwardUnknown(t *testing.T) {
	for _, b := range []string{"", "{", `{"codes":[0,0],"body":{}}`, `{"codes":[],"body":{}}`, `{"codes":[0],"body":7}`} {
		if a, err := joinMethod.Decode([]byte(b)); err == nil {
			t.Errorf("%q reads as %+v", b, a)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		sites := beginAll(t, memory.NewServer(memory.Config{}), 2, newTestConfig())
		m := stable(t, sites[0], "g")
		owner, rest := holder(t, sites, "g")
		odd := &method[Membership, outcome]{Name: "group.newer", Local: heartbeatMethod.Local, Errs: heartbeatMethod.Errs, Fail: heartbeatMethod.Fail}
		began := time.Now()
		if err := forward(rest[0].Forwarder, t.Context(), "g", odd, m).Err; !errors.Is(err, pubsub.ErrUnavailable) || !errors.Is(err, cluster.ErrNotDelivered) {
			t.Errorf("a request that the owner does not know: %v", err)
		}
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("after %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		owner.client.Freeze()
		if err := rest[0].Heartbeat(ctx, m); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client that has gone: %v", err)
		}
		owner.client.Thaw()
	})
}

// travels sends a request and an answer through the encoding and returns both.
func travels[Q, A any](t *testing.T, m *method[Q, A], q Q, a A) []string {
	t.Helper()
	request, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := m.Encode(&a, coord.Code(nil))
	if err != nil {
		t.Fatal(err)
	}
	var q2 Q
	if err := json.Unmarshal(request, &q2); err != nil || !reflect.DeepEqual(q, q2) {
		t.Errorf("%s: sent %+v, got %+v, %v", m.Name, q, q2, err)
	}
	a2, err := m.Decode(answer)
	if err != nil || !reflect.DeepEqual(a, a2) {
		t.Errorf("%s: answered %+v, got %+v, %v", m.Name, a, a2, err)
	}
	// As a later version may say it.
	newer := append([]byte(`{"new":{"x":[1]},`), answer[1:]...)
	if a2, err := m.Decode(newer); err != nil || !reflect.DeepEqual(a, a2) {
		t.Errorf("%s: a newer answer reads as %+v, %v", m.Name, a2, err)
	}
	return []string{m.Name, string(request), string(answer)}
}

var update = flag.Bool("update", false, "write testdata anew")

// golden compares lines with those of a file.
func golden(t *testing.T, file string, lines []string) {
	t.Helper()
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s:\n%s", file, got)
	}
}
