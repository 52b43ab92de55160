package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

func mustCreate(t *testing.T, g *gateway, s Spec) *Topic {
	t.Helper()
	top, err := g.Create(t.Context(), s)
	if err != nil {
		t.Fatalf("create %s: %v", s.Name, err)
	}
	return top
}

func TestC09CreateDefaultsAndMistakes(t *testing.T) {
	t.Parallel()
	g, srv := simple(t, func(c *Config, d *Deps) {
		c.Partitions, c.MaxPartitions = 3, 100
		d.Broker = func(id int32) bool { return id < 5 }
	})
	mustCreate(t, g, spec("exists"))
	mustCreate(t, g, spec("cs.a"))
	before := srv.Logs()
	for _, c := range []struct {
		what string
		s    Spec
		want *kerr.Error
	}{
		{"defaults", Spec{Partitions: -1, Replicas: -1}, nil},
		{"numbers", Spec{Partitions: 5, Replicas: 3}, nil},
		{"no partitions", Spec{Partitions: 0, Replicas: 1}, kerr.InvalidPartitions},
		{"-2 partitions", Spec{Partitions: -2, Replicas: 1}, kerr.InvalidPartitions},
		{"100,000 partitions", Spec{Partitions: 100_000, Replicas: 1}, kerr.InvalidPartitions},
		{"2^31-1 partitions", Spec{Partitions: 1<<31 - 1, Replicas: 1}, kerr.InvalidPartitions},
		{"replication 0", Spec{Partitions: 1, Replicas: 0}, kerr.InvalidReplicationFactor},
		{"replication -2", Spec{Partitions: 1, Replicas: -2}, kerr.InvalidReplicationFactor},
		{"replication 4 of 3", Spec{Partitions: 1, Replicas: 4}, kerr.InvalidReplicationFactor},
		{"replication 99", Spec{Partitions: 1, Replicas: 99}, kerr.InvalidReplicationFactor},
		{"replication 0 before partitions 0", Spec{}, kerr.InvalidReplicationFactor},
		{"configs before numbers", Spec{Configs: map[string]*string{"x": str("1")}}, kerr.InvalidConfig},
		{"null config", Spec{Partitions: -1, Replicas: -1, Configs: map[string]*string{"retention.ms": nil}}, kerr.InvalidConfig},
		{"bad config", Spec{Partitions: -1, Replicas: -1, Configs: map[string]*string{"cleanup.policy": str("zzz")}}, kerr.InvalidConfig},
		{"more in sync than acknowledged", Spec{Partitions: -1, Replicas: 3, Configs: map[string]*string{"min.insync.replicas": str("3")}}, kerr.InvalidConfig},
		{"more in sync than there are", Spec{Partitions: -1, Replicas: 1, Configs: map[string]*string{"min.insync.replicas": str("2")}}, nil},
		{"assignment", Spec{Partitions: -1, Replicas: -1, Assignments: map[int32][]int32{0: {1}, 1: {2}}}, nil},
		{"assignment with a gap", Spec{Partitions: -1, Replicas: -1, Assignments: map[int32][]int32{0: {1}, 2: {1}}}, kerr.InvalidReplicaAssignment},
		{"assignment from 1", Spec{Partitions: -1, Replicas: -1, Assignments: map[int32][]int32{1: {1}}}, kerr.InvalidReplicaAssignment},
		{"assignment to nobody", Spec{Partitions: -1, Replicas: -1, Assignments: map[int32][]int32{0: {}}}, kerr.InvalidReplicaAssignment},
		{"assignment twice to one", Spec{Partitions: -1, Replicas: -1, Assignments: map[int32][]int32{0: {1, 1}}}, kerr.InvalidReplicaAssignment},
		{"assignment to a stranger", Spec{Partitions: -1, Replicas: -1, Assignments: map[int32][]int32{0: {9}}}, kerr.InvalidReplicaAssignment},
		{"uneven assignment", Spec{Partitions: -1, Replicas: -1, Assignments: map[int32][]int32{0: {1}, 1: {1, 2}}}, kerr.InvalidReplicaAssignment},
		{"existing", Spec{Name: "exists", Configs: map[string]*string{"x": nil}}, kerr.TopicAlreadyExists},
		{"colliding", Spec{Name: "cs_a", Partitions: -1, Replicas: -1}, kerr.InvalidTopicException},
		{"colliding with the offsets", Spec{Name: "__consumer.offsets", Partitions: -1, Replicas: -1}, kerr.InvalidTopicException},
		{"colliding with transactions", Spec{Name: "._transaction_state", Partitions: -1, Replicas: -1}, kerr.InvalidTopicException},
		{"colliding with share groups", Spec{Name: "__share.group.state", Partitions: -1, Replicas: -1}, kerr.InvalidTopicException},
		{"near the offsets", Spec{Name: "__consumer-offsets", Partitions: -1, Replicas: -1}, nil},
		{"not colliding", Spec{Name: "cs-a", Partitions: -1, Replicas: -1}, nil},
	} {
		if c.s.Name == "" {
			c.s.Name = "fresh"
		}
		c.s.ValidateOnly = true
		top, err := g.Create(t.Context(), c.s)
		wantCode(t, c.what, err, c.want)
		if err == nil {
			want := Topic{Partitions: c.s.Partitions, Replicas: int(c.s.Replicas)}
			if n := len(c.s.Assignments); n > 0 {
				want.Partitions, want.Replicas = int32(n), 1
			} else if want.Partitions == -1 {
				want.Partitions, want.Replicas = 3, 1
			}
			if top.Partitions != want.Partitions || top.Replicas != want.Replicas || !top.ID.IsZero() {
				t.Errorf("%s: validated as %+v", c.what, top)
			}
		}
	}
	if after := srv.Logs(); !slices.Equal(before, after) || len(srv.Keys("kafka-topics")) != 2 {
		t.Errorf("validation left something: %v, topics %v", after, srv.Keys("kafka-topics"))
	}
}

// A store of one server holds one copy: more is refused, unless the operator has
// said that it may be fewer.
func TestC09ReplicationOnOneServer(t *testing.T) {
	t.Parallel()
	for _, clamp := range []bool{false, true} {
		c := newCluster(memory.Config{MaxReplicas: 1})
		g := c.gateway(t, "a", memory.Faults{}, func(c *Config, _ *Deps) { c.ClampReplication = clamp })
		for _, n := range []int16{3, 99} {
			s := spec(fmt.Sprintf("t%d", n))
			s.Replicas = n
			top, err := g.Create(t.Context(), s)
			if !clamp {
				wantCode(t, "3 of 1", err, kerr.InvalidReplicationFactor)
				continue
			}
			if err != nil || top.Replicas != 1 {
				t.Errorf("clamped: %+v, %v", top, err)
			}
		}
		if made := len(c.srv.Logs()); (made > 0) != clamp || !clamp && len(c.srv.Keys("kafka-topics")) != 0 {
			t.Errorf("clamp %v: left %v, %v", clamp, c.srv.Logs(), c.srv.Keys("kafka-topics"))
		}
	}
}

func TestC09ClampReplication(t *testing.T) {
	t.Parallel()
	g, _ := simple(t, func(c *Config, _ *Deps) { c.ClampReplication = true })
	s := spec("t")
	s.Replicas = 99
	if top := mustCreate(t, g, s); top.Replicas != 3 {
		t.Errorf("%d replicas, the store has 3", top.Replicas)
	}
}

func TestCreateMakesStreams(t *testing.T) {
	t.Parallel()
	g, srv := simple(t, nil)
	var changes []string
	var mu sync.Mutex
	g.OnChange(func(old, now *Topic) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case old == nil:
			changes = append(changes, "+"+now.Name)
		case now == nil:
			changes = append(changes, "-"+old.Name)
		default:
			changes = append(changes, "~"+now.Name)
		}
	})
	s := spec("a.b")
	s.Partitions, s.Replicas = 20, 3
	top := mustCreate(t, g, s)
	if top.ID.IsZero() || top.Partitions != 20 || top.Replicas != 3 || !top.Bare {
		t.Errorf("created %+v", top)
	}
	if got, err := g.Get(t.Context(), "a.b"); err != nil || got.ID != top.ID || got.N != top.N {
		t.Errorf("Get: %+v, %v", got, err)
	}
	if got, err := g.GetByID(t.Context(), top.ID); err != nil || got.Name != "a.b" {
		t.Errorf("GetByID: %+v, %v", got, err)
	}
	if logs := srv.Logs(); len(logs) != 20 || logs[0] != "kafka-a=2Eb-0" {
		t.Errorf("streams: %v", logs)
	}
	info, err := g.client.FindLog(t.Context(), "kafka-a=2Eb-7")
	if err != nil || info.Subject != "kafka.a=2Eb.7" || info.Replicas != 3 {
		t.Errorf("stream: %+v, %v", info, err)
	}
	if i, ok := identify("cluster-1", info.LogConfig); !ok || i != (identity{"a.b", top.ID, top.N, 7}) {
		t.Errorf("metadata says %+v", i)
	}
	if _, ok := identify("cluster-2", info.LogConfig); ok {
		t.Error("another cluster takes the stream for its own")
	}
	_, err = g.Create(t.Context(), s)
	wantCode(t, "create again", err, kerr.TopicAlreadyExists)
	_, err = g.Create(t.Context(), spec("a_b"))
	wantCode(t, "create a colliding name", err, kerr.InvalidTopicException)
	if err := g.Delete(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "delete again", g.Delete(t.Context(), top), kerr.UnknownTopicOrPartition)
	_, err = g.Get(t.Context(), "a.b")
	wantCode(t, "Get after the deletion", err, kerr.UnknownTopicOrPartition)
	_, err = g.GetByID(t.Context(), top.ID)
	wantCode(t, "GetByID after the deletion", err, kerr.UnknownTopicID)
	if logs := srv.Logs(); len(logs) != 0 || len(srv.Keys("kafka-partitions")) != 0 {
		t.Errorf("left over: %v, %v", logs, srv.Keys("kafka-partitions"))
	}
	mustCreate(t, g, spec("a_b")) // nothing to collide with any more
	eventually(t, "changes", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(changes, []string{"+a.b", "-a.b", "+a_b"})
	})
}

// TestC10Recreate: a new id, new streams, and nothing of the old one.
func TestC10Recreate(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	a, b := c.gateway(t, "a", memory.Faults{}, nil), c.gateway(t, "b", memory.Faults{}, nil)
	var last *Topic
	for i := range 5 {
		by, other := a, b
		if i%2 == 1 {
			by, other = b, a
		}
		top := mustCreate(t, by, spec("foo")) // at once, whatever by's memory says
		if last != nil {
			if top.ID == last.ID || top.N <= last.N || top.Bare {
				t.Errorf("%+v after %+v", top, last)
			}
			wantCode(t, "delete the earlier one", other.Delete(t.Context(), last), kerr.UnknownTopicOrPartition)
			_, err := by.GetByID(t.Context(), last.ID)
			wantCode(t, "the earlier id", err, kerr.UnknownTopicID)
		}
		if got, err := other.Get(t.Context(), "foo"); err != nil || last != nil && got.ID == last.ID {
			// Memory may lag for a moment, but never behind the deletion that
			// the same gateway carried out.
			t.Errorf("the other gateway: %+v, %v", got, err)
		}
		want := "kafka-foo-0"
		if i > 0 {
			want = fmt.Sprintf("kafka-foo-0=r%d", top.N)
		}
		if logs := c.srv.Logs(); !slices.Equal(logs, []string{want}) {
			t.Errorf("streams %v, want %s", logs, want)
		}
		if err := other.Delete(t.Context(), top); err != nil {
			t.Fatal(err)
		}
		last = top
	}
}

// TestC07VisibleEverywhere: what one gateway said is true on all from that
// moment, also on one that gets no news.
func TestC07VisibleEverywhere(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	a, b := c.gateway(t, "a", memory.Faults{}, nil), c.gateway(t, "b", memory.Faults{}, noNews)
	for i := range 51 {
		top := mustCreate(t, a, spec(fmt.Sprintf("t%d", i)))
		switch i % 3 {
		case 0:
			if got, err := b.Get(t.Context(), top.Name); err != nil || got.ID != top.ID {
				t.Fatalf("Get %s on the other gateway: %+v, %v", top.Name, got, err)
			}
		case 1:
			if got, err := b.GetByID(t.Context(), top.ID); err != nil || got.Name != top.Name {
				t.Fatalf("GetByID of %s on the other gateway: %+v, %v", top.Name, got, err)
			}
		case 2:
			all, err := b.All(t.Context())
			if err != nil || len(all) != i+1 {
				t.Fatalf("All on the other gateway: %d of %d topics, %v", len(all), i+1, err)
			}
		}
	}
}

// deaf is a table whose watch never tells anything.
type deaf struct{ pubsub.Table }

func (deaf) Watch(ctx context.Context, o pubsub.WatchOptions, _ func(pubsub.Value) error) error {
	o.Synced()
	<-ctx.Done()
	return nil
}

func noNews(_ *Config, d *Deps) { d.Table = deaf{d.Table} }

// TestC10NewLife: a gateway that was found dead believes nothing of its memory before
// it has compared it with the store; another sign is that the store denies what
// belongs to a topic.
func TestC10NewLife(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	var life atomic.Value
	life.Store("b")
	a, b := c.gateway(t, "a", memory.Faults{}, nil), c.gateway(t, "b", memory.Faults{}, func(c *Config, d *Deps) {
		noNews(c, d)
		d.Incarnation = func() string { return life.Load().(string) }
	})
	var old []*Topic
	for i := range 4 {
		name := fmt.Sprintf("t%d", i)
		mustCreate(t, a, spec(name))
		top, err := b.Get(t.Context(), name) // it has it in memory
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, top)
		if err := a.Delete(t.Context(), top); err != nil {
			t.Fatal(err)
		}
	}
	again := mustCreate(t, a, spec("t0"))
	if got, err := b.Get(t.Context(), "t0"); err != nil || got.ID != old[0].ID {
		t.Fatalf("it has heard: the test proves nothing (%v, %v)", got, err)
	}
	b.Recheck("t1")
	eventually(t, "t1 is asked about", func() bool { return b.cached("t1") == nil })
	life.Store("b, later")
	if got, err := b.Get(t.Context(), "t0"); err != nil || got.ID != again.ID {
		t.Errorf("Get: %v, %v", got, err)
	}
	_, err := b.Get(t.Context(), "t2")
	wantCode(t, "Get what is gone", err, kerr.UnknownTopicOrPartition)
	life.Store("b, still later")
	_, err = b.GetByID(t.Context(), old[3].ID)
	wantCode(t, "GetByID of what is gone", err, kerr.UnknownTopicID)
}

// TestCreateRace: of gateways that create one name at once, one succeeds; of
// names that collide, one stays.
func TestCreateRace(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	gs := []*gateway{c.gateway(t, "a", memory.Faults{}, nil), c.gateway(t, "b", memory.Faults{}, nil), c.gateway(t, "c", memory.Faults{}, nil)}
	for round := range 20 {
		names := []string{"same", "same", "same"}
		if round%2 == 1 {
			names = []string{"x.y_z", "x_y.z", "x.y.z"}
		}
		tops, errs := make([]*Topic, 3), make([]error, 3)
		var wg sync.WaitGroup
		for i, g := range gs {
			wg.Go(func() { tops[i], errs[i] = g.Create(t.Context(), spec(names[i])) })
		}
		wg.Wait()
		won := -1
		for i, err := range errs {
			if err == nil {
				if won >= 0 {
					t.Fatalf("round %d: both %s and %s were created", round, names[won], names[i])
				}
				won = i
			} else if want := kerr.TopicAlreadyExists; round%2 == 0 {
				wantCode(t, "the loser", err, want)
			} else {
				wantCode(t, "the loser", err, kerr.InvalidTopicException)
			}
		}
		if won < 0 {
			t.Fatalf("round %d: nobody won: %v", round, errs)
		}
		if logs := c.srv.Logs(); len(logs) != 1 {
			t.Fatalf("round %d: streams %v", round, logs)
		}
		if err := gs[(won+1)%3].Delete(t.Context(), tops[won]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeleteRace: deletions at once are one deletion.
func TestDeleteRace(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	a, b := c.gateway(t, "a", memory.Faults{}, nil), c.gateway(t, "b", memory.Faults{}, nil)
	for range 10 {
		s := spec("foo")
		s.Partitions = 4
		top := mustCreate(t, a, s)
		var ok atomic.Int32
		var wg sync.WaitGroup
		for _, g := range []*gateway{a, b, a, b} {
			wg.Go(func() {
				err := g.Delete(t.Context(), top)
				if err == nil {
					ok.Add(1)
				} else {
					wantCode(t, "another deletion", err, kerr.UnknownTopicOrPartition)
				}
			})
		}
		wg.Wait()
		if ok.Load() != 1 {
			t.Errorf("%d deletions succeeded", ok.Load())
		}
		if logs := c.srv.Logs(); len(logs) != 0 {
			t.Errorf("streams %v", logs)
		}
	}
}

// TestC07UnknownAsksOnce: many questions at once are few questions to the store,
// and an answer never serves a question that came after it was asked for.
func TestC07UnknownAsksOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(memory.Config{})
		var gets atomic.Int32
		b := c.gateway(t, "b", memory.Faults{TableGet: func(memory.Op) memory.ReadFault {
			gets.Add(1)
			return memory.ReadFault{Delay: time.Second}
		}}, noNews)
		a := c.gateway(t, "a", memory.Faults{}, nil)
		ask := func() chan error {
			ch := make(chan error, 1)
			go func() { _, err := b.Get(t.Context(), "foo"); ch <- err }()
			synctest.Wait()
			return ch
		}
		first := ask()
		var later []chan error
		for range 100 {
			later = append(later, ask())
		}
		wantCode(t, "the first", <-first, kerr.UnknownTopicOrPartition)
		for _, ch := range later {
			wantCode(t, "a later one", <-ch, kerr.UnknownTopicOrPartition)
		}
		if gets.Load() != 2 {
			t.Errorf("%d questions to the store, want 2", gets.Load())
		}
		// No news comes: only asking helps. A question is under way when the
		// topic is made; one that comes after that must see it.
		early := ask()
		mustCreate(t, a, spec("foo"))
		if err := <-ask(); err != nil {
			t.Errorf("asked after the creation: %v", err)
		}
		<-early
		b.stop()
		a.stop()
	})
}

// TestC41UnknownIsNotAbsent: a store that is away is no missing topic.
func TestC41UnknownIsNotAbsent(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	g := c.gateway(t, "a", memory.Faults{}, nil)
	mustCreate(t, g, spec("here"))
	g.client.Disconnect()
	_, err := g.Get(t.Context(), "foo")
	if !errors.Is(err, pubsub.ErrUnavailable) {
		t.Errorf("Get of an unknown name: %v", err)
	}
	if _, err = g.GetByID(t.Context(), types.NewTopicID()); !errors.Is(err, pubsub.ErrUnavailable) {
		t.Errorf("GetByID of an unknown id: %v", err)
	}
	if _, err = g.Create(t.Context(), spec("foo")); !errors.Is(err, pubsub.ErrUnavailable) {
		t.Errorf("Create: %v", err)
	}
	if all, err := g.All(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("All from memory: %d, %v", len(all), err)
	}
	if _, err := g.Get(t.Context(), "here"); err != nil {
		t.Errorf("Get from memory: %v", err)
	}
	g.client.Reconnect()
	_, err = g.Get(t.Context(), "foo")
	wantCode(t, "Get with the store back", err, kerr.UnknownTopicOrPartition)
}

// TestC41AbsenceNeedsProof (design rule 7): with replicas, the store's denial is not
// enough before its server is known to have been awake for a second, nor is any while
// our own membership is not acknowledged.
func TestC41AbsenceNeedsProof(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fresh := true
		g, _ := simple(t, func(c *Config, d *Deps) {
			c.Replicas = 3
			d.Fresh = func() bool { return fresh }
		})
		defer g.stop()
		get := func(what string, want *kerr.Error) {
			t.Helper()
			_, err := g.Get(t.Context(), "foo")
			wantCode(t, what, err, want)
		}
		get("first denial", kerr.LeaderNotAvailable)
		time.Sleep(999 * time.Millisecond)
		get("too soon after it", kerr.LeaderNotAvailable)
		time.Sleep(2 * time.Millisecond)
		get("a second later", kerr.UnknownTopicOrPartition)
		fresh = false
		get("while not fresh", kerr.LeaderNotAvailable)
		fresh = true
		time.Sleep(5 * time.Minute)
		get("its server is watched", kerr.UnknownTopicOrPartition)
		_, err := g.GetByID(t.Context(), types.NewTopicID())
		wantCode(t, "an id", err, kerr.UnknownTopicID)
		time.Sleep(30 * time.Minute)
		get("nobody wanted to know for long", kerr.LeaderNotAvailable)
		mustCreate(t, g, spec("foo"))
		get("created", nil)
	})
}

// TestMemoryFollowsTable: a watch that starts over, and a start with topics,
// lead to the same memory.
func TestMemoryFollowsTable(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	a, b := c.gateway(t, "a", memory.Faults{}, nil), c.gateway(t, "b", memory.Faults{}, nil)
	names := func(g *gateway) string {
		var s []string
		for _, k := range g.Known() {
			s = append(s, k.Name)
		}
		return strings.Join(s, " ")
	}
	keep := mustCreate(t, a, spec("keep"))
	drop := mustCreate(t, a, spec("drop"))
	eventually(t, "news of both", func() bool { return names(b) == "drop keep" })
	b.client.Disconnect()
	if err := a.Delete(t.Context(), drop); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, a, spec("late"))
	b.client.Reconnect()
	eventually(t, "what was missed", func() bool { return names(b) == "keep late" })
	d := c.gateway(t, "d", memory.Faults{}, nil)
	if names(d) != "keep late" {
		t.Errorf("a fresh gateway is ready with %s", names(d))
	}
	if got, _ := d.Get(t.Context(), "keep"); got == nil || got.ID != keep.ID {
		t.Errorf("keep is %+v", got)
	}
}

// TestUnknownFormat: a record of a later version is neither served nor touched.
func TestUnknownFormat(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	g := c.gateway(t, "a", memory.Faults{}, nil)
	data := []byte(`{"v":2,"name":"foo","new":"shape"}`)
	rev, err := g.deps.Table.Set(t.Context(), pubsub.Write{Key: "foo", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Get(t.Context(), "foo"); !errors.Is(err, errFormat) || !errors.Is(err, pubsub.ErrUnavailable) {
		t.Errorf("Get: %v", err)
	}
	if _, err := g.Create(t.Context(), spec("foo")); !errors.Is(err, errFormat) {
		t.Errorf("Create: %v", err)
	}
	if err := g.Sweep(t.Context()); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if v, err := g.deps.Table.Get(t.Context(), "foo"); err != nil || v.Rev != rev {
		t.Errorf("the record became %+v, %v", v, err)
	}
	if all, err := g.All(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("All: %v, %v", all, err)
	}
}

func TestC08LongNames(t *testing.T) {
	t.Parallel()
	g, srv := simple(t, nil)
	for _, name := range []string{strings.Repeat("n", 249), strings.Repeat("n", 248) + "m", strings.Repeat(".", 100)} {
		top := mustCreate(t, g, spec(name))
		if got, err := g.Get(t.Context(), name); err != nil || got.Name != name || got.ID != top.ID {
			t.Errorf("%.10s…: %v", name, err)
		}
	}
	for _, l := range srv.Logs() {
		if len(l) > 255 {
			t.Errorf("stream name of %d bytes", len(l))
		}
	}
	d := newClusterOn(srv).gateway(t, "d", memory.Faults{}, nil)
	if all := d.Known(); len(all) != 3 || len(all[0].Name) != 100 {
		t.Errorf("a fresh gateway knows %d topics", len(all))
	}
}

func newClusterOn(srv *memory.Server) *cluster { return &cluster{srv: srv, dead: map[string]bool{}} }

func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(memory.Config{})
		slow := func(memory.Op) memory.WriteFault { return memory.WriteFault{Before: 3 * time.Second} }
		g := c.gateway(t, "a", memory.Faults{Create: slow}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.Create(ctx, spec("foo"))
		if err == nil {
			t.Error("created in time?")
		}
		// The stream that was on its way arrives, and is removed in the end.
		time.Sleep(time.Minute)
		if len(c.srv.Keys("kafka-topics")) != 0 {
			t.Errorf("records %v", c.srv.Keys("kafka-topics"))
		}
		if err := g.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if logs := c.srv.Logs(); len(logs) != 0 {
			t.Errorf("streams %v", logs)
		}
		mustCreate(t, g, spec("foo"))
		g.stop()
	})
}
