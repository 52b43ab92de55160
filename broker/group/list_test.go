package group

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// ListGroups tells of all groups, whoever owns them, also of names that no key
// can carry.
func TestC45List(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		b := start(t, srv, 2, "b", memory.Faults{}, newTestConfig())
		long := strings.Repeat("ü", 300)
		for _, g := range []string{"g", long, "<script>"} {
			stable(t, a, g)
		}
		stable(t, b, "of b")
		mustCommit(t, b, commitOf(Membership{Group: "simple", Generation: -1}, "foo", types.NewTopicID(), 1))
		go a.Join(t.Context(), joinRequest("g", ""))
		synctest.Wait()
		want := []string{"<script> consumer Stable", "g consumer PreparingRebalance", "of b consumer Stable", "simple  Empty", long + " consumer Stable"}
		slices.Sort(want)
		lines := func(g *gateway, states, kinds []string) []string {
			t.Helper()
			ls, err := g.List(t.Context(), states, kinds)
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, l := range ls {
				if l.Type != "classic" {
					t.Errorf("type %q", l.Type)
				}
				out = append(out, fmt.Sprintf("%s %s %s", l.Group, l.ProtocolType, l.State))
			}
			return out
		}
		for _, g := range []*gateway{a, b} {
			if got := lines(g, nil, nil); !slices.Equal(got, want) {
				t.Errorf("%v\nwant %v", got, want)
			}
			if got := lines(g, []string{"stable"}, []string{"CLASSIC"}); len(got) != 3 {
				t.Errorf("stable ones: %v", got)
			}
			if got := lines(g, []string{"empty", "preparingrebalance"}, nil); len(got) != 2 {
				t.Errorf("empty or preparing ones: %v", got)
			}
			if got := lines(g, []string{"nonsense"}, nil); len(got) != 0 {
				t.Errorf("in an unknown state: %v", got)
			}
			if got := lines(g, nil, []string{"share"}); len(got) != 0 {
				t.Errorf("of another type: %v", got)
			}
			if d := g.Describe(t.Context(), long); d.State != Stable || d.Group != long || len(d.Members) != 1 {
				t.Errorf("described: %+v", d)
			}
		}
		if err := b.Delete(t.Context(), "simple"); err != nil {
			t.Fatal(err)
		}
		if got := lines(b, []string{Empty}, nil); len(got) != 0 {
			t.Errorf("after the delete: %v", got)
		}
		wantErr(t, "delete what another gateway owns", b.Delete(t.Context(), "g"), kerr.NotCoordinator)
		wantErr(t, "delete what is not there", b.Delete(t.Context(), "no"), kerr.GroupIDNotFound)
		// The rest is served by its heirs under the same names.
		a.kill()
		b.members.died(a.members.Self())
		synctest.Wait()
		if got := lines(b, nil, nil); len(got) != 4 {
			t.Errorf("after a's death: %v", got)
		}
	})
}

// A list that is not complete is none.
func TestListBeforeReady(t *testing.T) {
	co := New(newTestConfig(), Deps{Members: newMembers(1, "a")})
	if _, err := co.List(t.Context(), nil, nil); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
		t.Fatal(err)
	}
}

func TestOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		b := start(t, srv, 2, "b", memory.Faults{}, newTestConfig())
		id := types.NewTopicID()
		long := strings.Repeat("x", 300)
		for i, g := range []string{"b", "a.b", long} {
			mustCommit(t, []*gateway{a, b, a}[i], commitOf(Membership{Group: g, Generation: -1}, "t.1", id, types.Offset(i)))
		}
		mustCommit(t, a, commitOf(Membership{Group: "b", Generation: -1}, long, id, 9))
		for _, g := range []*gateway{a, b} {
			got, err := g.Offsets(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, o := range got {
				lines = append(lines, fmt.Sprintf("%s %s %d %d", o.Group, o.Topic, o.Partition, o.Offset))
			}
			want := []string{"a.b t.1 0 1", "b t.1 0 0", "b " + long + " 0 9", long + " t.1 0 2"}
			if !slices.Equal(lines, want) {
				t.Errorf("%q", lines)
			}
		}
		wantErr(t, "delete", a.Delete(t.Context(), "b"), nil)
		if got, err := b.Offsets(t.Context()); err != nil || len(got) != 2 {
			t.Errorf("after the delete: %v, %v", got, err)
		}
		b.client.Disconnect()
		if _, err := b.Offsets(t.Context()); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("cut off: %v", err)
		}
		b.client.Reconnect()
	})
}

func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		srv := memory.NewServer(memory.Config{})
		g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		id := types.NewTopicID()
		req := joinRequest("g", "")
		req.SessionTimeout = 30 * time.Minute // few heartbeats in two weeks
		j := g.Join(t.Context(), req)
		m := Membership{Group: "g", Member: j.Member, Generation: j.Generation}
		if sr := g.Sync(t.Context(), SyncRequest{Membership: m}); sr.Err != nil {
			t.Fatal(sr.Err)
		}
		mustCommit(t, g, commitOf(m, "foo", id, 1))
		simple := Membership{Group: "simple", Generation: -1}
		mustCommit(t, g, commitOf(simple, "old", id, 1))
		beat := func(d time.Duration) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Minute) {
				if err := g.Heartbeat(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
		}
		beat(4 * day)
		mustCommit(t, g, commitOf(simple, "new", id, 2))
		beat(4 * day) // longer than the retention, with a member
		wantOffset(t, g, "g", "foo", id, 1)
		wantOffset(t, g, "simple", "old", id, -1)
		wantOffset(t, g, "simple", "new", id, 2)
		g.Leave(t.Context(), "g", []LeaveMember{{Member: m.Member}})
		time.Sleep(7*day - time.Minute)
		wantOffset(t, g, "g", "foo", id, 1)
		if d := g.Describe(t.Context(), "simple"); d.State != Dead {
			t.Errorf("a group without offsets is %s", d.State)
		}
		time.Sleep(time.Hour)
		if keys := srv.Keys(bucket); len(keys) != 0 {
			t.Errorf("keys left: %v", keys)
		}
	})
}

// Groups that nobody alive owns expire as well.
func TestRetentionOfOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		mustCommit(t, a, commitOf(Membership{Group: "simple", Generation: -1}, "foo", types.NewTopicID(), 1))
		a.kill()
		b := start(t, srv, 2, "b", memory.Faults{}, newTestConfig())
		time.Sleep(8 * 24 * time.Hour)
		if keys := srv.Keys(bucket); len(keys) != 2 {
			t.Errorf("keys of a gateway that may live: %v", keys)
		}
		b.members.died(a.members.Self())
		time.Sleep(time.Hour)
		if keys := srv.Keys(bucket); len(keys) != 0 {
			t.Errorf("keys left: %v", keys)
		}
	})
}

func TestC10DropTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		m := stable(t, g, "g")
		gone, kept := types.NewTopicID(), types.NewTopicID()
		mustCommit(t, g, commitOf(m, "foo", gone, 1))
		mustCommit(t, g, commitOf(m, "bar", kept, 2))
		g.DropTopic(gone)
		synctest.Wait()
		if keys := srv.Keys(bucket); !slices.Equal(keys, []string{"g", "g.bar.0"}) {
			t.Errorf("keys: %v", keys)
		}
		mustCommit(t, g, commitOf(m, "foo", kept, 3)) // made anew
		wantOffset(t, g, "g", "foo", kept, 3)
	})
}

func TestRebalanceMetric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		client := srv.Client(memory.Faults{})
		table, err := client.Table(t.Context(), pubsub.TableConfig{Name: bucket})
		if err != nil {
			t.Fatal(err)
		}
		reg := prometheus.NewRegistry()
		g := run(t, client, newMembers(1, "a"), newTestConfig(), Deps{Table: table, Registerer: reg})
		stable(t, g, "g")
		time.Sleep(time.Minute)
		got := map[string]float64{}
		fs, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fs {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = m.GetCounter().GetValue()
			}
		}
		if len(got) != 2 || got["stream_group_rebalances_total classic join"] != 1 || got["stream_group_rebalances_total classic session_timeout"] != 1 {
			t.Errorf("%v", got)
		}
	})
}

// What an operator sees with `nats kv get`.
func TestStoredForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		m := stable(t, g, "g")
		mustCommit(t, g, commitOf(m, "foo", types.TopicID{1}, 42))
		want := fmt.Sprintf(`{"v":1,"topic_id":"AQAAAAAAAAAAAAAAAAAAAA","offset":42,"epoch":-1,"metadata":"","timestamp":%d,"term":1,"birth":1}`, time.Now().UnixMilli())
		if got := value(t, srv, "g.foo.0"); got != want {
			t.Errorf("%s", got)
		}
		if got := value(t, srv, "g"); !strings.HasPrefix(got, `{"v":1,"owner":{"node":1,"incarnation":"a","term":1},"birth":1,"name":"g","type":"classic","state":"Stable"`) {
			t.Errorf("%s", got)
		}
	})
}

// A large group is stored compressed, and read back.
func TestLargeGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, DefaultConfig())
		const n = 300
		joins := make(chan JoinResponse, n)
		for range n {
			go func() {
				r := joinRequest("g", "")
				r.Protocols[0].Metadata = []byte(strings.Repeat("topic", 100))
				joins <- a.Join(t.Context(), r)
			}()
		}
		var ms []Membership
		for range n {
			j := <-joins
			if j.Err != nil || j.Generation != 1 {
				t.Fatalf("join: %+v", j)
			}
			ms = append(ms, Membership{Group: "g", Member: j.Member, Generation: j.Generation})
		}
		if size := len(value(t, srv, "g")); size > n*500/2 {
			t.Errorf("stored in %d bytes", size)
		}
		a.kill()
		b := start(t, srv, 2, "b", memory.Faults{}, DefaultConfig())
		b.members.died(a.members.Self())
		for _, m := range ms {
			if err := b.Heartbeat(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	})
}
