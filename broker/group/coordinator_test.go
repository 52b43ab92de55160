package group

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// fakeMembers is a Membership that the test moves by hand.
type fakeMembers struct {
	mu      sync.Mutex // guards: all below
	self    cluster.Identity
	stale   bool
	dead    map[cluster.Identity]bool
	changed chan struct{}
}

func newMembers(node int32, incarnation string) *fakeMembers {
	return &fakeMembers{
		self:    cluster.Identity{Node: node, Incarnation: incarnation},
		dead:    make(map[cluster.Identity]bool),
		changed: make(chan struct{}),
	}
}

func (m *fakeMembers) Self() cluster.Identity {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

func (m *fakeMembers) Fresh() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.stale
}

func (m *fakeMembers) MayAdopt(id cluster.Identity) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead[id]
}

func (m *fakeMembers) Peers() []cluster.Peer { return nil }

func (m *fakeMembers) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *fakeMembers) set(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *fakeMembers) died(id cluster.Identity) { m.set(func() { m.dead[id] = true }) }
func (m *fakeMembers) setStale(stale bool)      { m.set(func() { m.stale = stale }) }

// gateway is one coordinator on a store.
type gateway struct {
	*Coordinator
	members *fakeMembers
	client  *memory.Client
	kill    func() // as SIGKILL: nothing is released
}

// groups is what clients are served by: a Coordinator or a Forwarder.
type groups interface {
	Join(ctx context.Context, r JoinRequest) JoinResponse
	Sync(ctx context.Context, r SyncRequest) SyncResponse
	Heartbeat(ctx context.Context, m Membership) error
	Leave(ctx context.Context, name string, members []LeaveMember) LeaveResponse
	Commit(ctx context.Context, r CommitRequest) CommitResponse
	Fetch(ctx context.Context, r FetchRequest) FetchResponse
	EndTransaction(ctx context.Context, group string, e TxnEnd) error
	Describe(ctx context.Context, name string) Description
	List(ctx context.Context, states, types []string) ([]Listing, error)
	Delete(ctx context.Context, name string) error
	DeleteOffsets(ctx context.Context, name string, partitions []types.TopicPartition) DeleteOffsetsResponse
}

func newTestConfig() Config {
	c := DefaultConfig()
	c.InitialRebalanceDelay = 0
	return c
}

func start(t *testing.T, srv *memory.Server, node int32, incarnation string, f memory.Faults, c Config) *gateway {
	t.Helper()
	client := srv.Client(f)
	table, err := client.Table(t.Context(), pubsub.TableConfig{Name: "kafka-consumer-offsets"})
	if err != nil {
		t.Fatal(err)
	}
	return run(t, client, newMembers(node, incarnation), c, Deps{Table: table})
}

func run(t *testing.T, client *memory.Client, m *fakeMembers, c Config, d Deps) *gateway {
	t.Helper()
	d.Members = m
	co := New(c, d)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- co.Run(ctx) }()
	var once sync.Once
	kill := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run: %v", err)
			}
			client.Close()
		})
	}
	t.Cleanup(kill)
	<-co.Ready()
	return &gateway{Coordinator: co, members: m, client: client, kill: kill}
}

func joinRequest(group, member string) JoinRequest {
	return JoinRequest{
		Caller: Caller{ClientID: "c", Host: "/127.0.0.1"},
		Group:  group, Member: member, ProtocolType: "consumer",
		Protocols:      []Protocol{{Name: "range", Metadata: []byte("meta")}},
		SessionTimeout: 10 * time.Second, RebalanceTimeout: 60 * time.Second,
	}
}

// stable makes a group with one member that has its share.
func stable(t *testing.T, g groups, group string) Membership {
	t.Helper()
	j := g.Join(t.Context(), joinRequest(group, ""))
	if j.Err != nil {
		t.Fatalf("join: %v", j.Err)
	}
	m := Membership{Group: group, Member: j.Member, Generation: j.Generation}
	s := g.Sync(t.Context(), SyncRequest{Membership: m, Assignments: []Assignment{{Member: j.Member, Data: []byte("share")}}})
	if s.Err != nil || string(s.Assignment) != "share" {
		t.Fatalf("sync: %q, %v", s.Assignment, s.Err)
	}
	return m
}

func commitOf(m Membership, topic string, id types.TopicID, offset types.Offset) CommitRequest {
	return CommitRequest{Membership: m, Partitions: []CommitPartition{{
		TopicPartition: types.TopicPartition{Topic: topic}, TopicID: id, Offset: offset, LeaderEpoch: -1,
	}}}
}

func mustCommit(t *testing.T, g groups, r CommitRequest) {
	t.Helper()
	resp := g.Commit(t.Context(), r)
	if resp.Err != nil {
		t.Fatalf("commit: %v", resp.Err)
	}
	for _, err := range resp.Partitions {
		if err != nil {
			t.Fatalf("commit: %v", err)
		}
	}
}

func fetchOne(t *testing.T, g groups, group, topic string, id types.TopicID) (types.Offset, error) {
	t.Helper()
	r := g.Fetch(t.Context(), FetchRequest{Group: group, Partitions: []FetchPartition{{TopicPartition: types.TopicPartition{Topic: topic}, TopicID: id}}})
	if r.Err != nil {
		return -1, r.Err
	}
	return r.Offsets[0].Offset, r.Offsets[0].Err
}

func wantOffset(t *testing.T, g groups, group, topic string, id types.TopicID, want types.Offset) {
	t.Helper()
	got, err := fetchOne(t, g, group, topic, id)
	if err != nil || got != want {
		t.Fatalf("offset of %s %s: %d, %v; want %d", group, topic, got, err, want)
	}
}

func TestJoinSyncHeartbeatCommitFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		m := stable(t, g, "g")
		if err := g.Heartbeat(t.Context(), m); err != nil {
			t.Fatalf("heartbeat: %v", err)
		}
		id := types.NewTopicID()
		mustCommit(t, g, commitOf(m, "foo", id, 42))
		wantOffset(t, g, "g", "foo", id, 42)
		wantOffset(t, g, "g", "foo", types.NewTopicID(), -1)
		if r := g.Leave(t.Context(), "g", []LeaveMember{{Member: m.Member}}); r.Err != nil || r.Members[0].Err != nil {
			t.Fatalf("leave: %+v", r)
		}
		if d := g.Describe(t.Context(), "g"); d.State != Empty {
			t.Fatalf("state %s after leave", d.State)
		}
		if err := g.Heartbeat(t.Context(), m); !errors.Is(err, kerr.UnknownMemberID) {
			t.Fatalf("heartbeat after leave: %v", err)
		}
		if err := g.Delete(t.Context(), "g"); err != nil {
			t.Fatalf("delete: %v", err)
		}
		if keys := srv.Keys("kafka-consumer-offsets"); len(keys) != 0 {
			t.Fatalf("keys left: %v", keys)
		}
	})
}

// A gateway that was killed and comes back within the session timeout finds
// generation, members and shares as they were, and nobody joins anew.
func TestC27RestartKeepsGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		m := stable(t, a, "g")
		id := types.NewTopicID()
		mustCommit(t, a, commitOf(m, "foo", id, 7))
		a.kill()
		b := start(t, srv, 1, "b", memory.Faults{}, newTestConfig())
		if err := b.Heartbeat(t.Context(), m); !errors.Is(err, kerr.NotCoordinator) {
			t.Fatalf("heartbeat while the old life may live: %v", err)
		}
		b.members.died(a.members.Self())
		if err := b.Heartbeat(t.Context(), m); err != nil {
			t.Fatalf("heartbeat after restart: %v", err)
		}
		s := b.Sync(t.Context(), SyncRequest{Membership: m})
		if s.Err != nil || string(s.Assignment) != "share" {
			t.Fatalf("share after restart: %q, %v", s.Assignment, s.Err)
		}
		wantOffset(t, b, "g", "foo", id, 7)
		mustCommit(t, b, commitOf(m, "foo", id, 8))
		d := b.Describe(t.Context(), "g")
		if d.State != Stable || len(d.Members) != 1 || string(d.Members[0].Metadata) != "meta" {
			t.Fatalf("described: %+v", d)
		}
	})
}
