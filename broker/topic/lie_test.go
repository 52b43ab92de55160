package topic

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// liar is a gateway whose news are late and whose store's leader may be one that woke
// from a freeze: it shows the previous value of a key and an earlier end of the table.
func liar(t *testing.T, c *cluster) (g *gateway, lying *atomic.Bool) {
	t.Helper()
	lying = &atomic.Bool{}
	g = c.gateway(t, "b", memory.Faults{
		TableGet: func(memory.Op) memory.ReadFault { return memory.ReadFault{Old: lying.Load()} },
		TableRead: func(memory.Op) (f memory.ReadFault) {
			if lying.Load() {
				f.Behind = 1
			}
			return f
		},
		Watch: func(string) time.Duration { return 5 * time.Second },
	}, three)
	return g, lying
}

func three(c *Config, _ *Deps) { c.Replicas = 3 }

// TestPartitionDenied: a partition that another gateway has just made is not
// denied because a leader has not seen the growth (simulation of gateways, seed
// 7015).
func TestPartitionDenied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(memory.Config{MaxReplicas: 3})
		a := c.gateway(t, "a", memory.Faults{}, three)
		b, lying := liar(t, c)
		defer a.stop()
		defer b.stop()
		foo, err := a.Create(t.Context(), spec("foo"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		has := func() error {
			_, err := b.Reaching(t.Context(), foo, foo.Partitions)
			return err
		}
		wantCode(t, "one more, of a server that nobody knows", has(), kerr.LeaderNotAvailable)
		time.Sleep(1500 * time.Millisecond)
		wantCode(t, "one more", has(), kerr.UnknownTopicOrPartition)
		if err := a.Grow(t.Context(), foo, Growth{Partitions: foo.Partitions + 1}); err != nil {
			t.Fatal(err)
		}
		lying.Store(true)
		wantCode(t, "denied by a leader that woke", has(), kerr.LeaderNotAvailable)
		lying.Store(false)
		if err := has(); err != nil {
			t.Errorf("a leader that has seen it: %v", err)
		}
	})
}

// TestDenialOfBefore: that there was no topic a while ago proves nothing about now: a
// leader that woke from a freeze is not believed because it was right before. The
// first of two denials could be a minute old.
func TestDenialOfBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(memory.Config{MaxReplicas: 3})
		a := c.gateway(t, "a", memory.Faults{}, three)
		b, lying := liar(t, c)
		defer a.stop()
		defer b.stop()
		has := func(ctx context.Context) error { _, err := b.Get(ctx, "foo"); return err }
		wantCode(t, "denied", has(t.Context()), kerr.LeaderNotAvailable)
		time.Sleep(1500 * time.Millisecond)
		wantCode(t, "denied again", has(t.Context()), kerr.UnknownTopicOrPartition)
		foo, err := a.Create(t.Context(), spec("foo"))
		if err != nil {
			t.Fatal(err)
		}
		lying.Store(true)
		many := ForMany(t.Context())
		wantCode(t, "denied by a leader that woke", has(many), kerr.LeaderNotAvailable)
		wantCode(t, "later in the same request", has(many), kerr.LeaderNotAvailable)
		_, err = b.GetByID(t.Context(), types.NewTopicID())
		wantCode(t, "an id", err, kerr.LeaderNotAvailable)
		lying.Store(false)
		if err := has(t.Context()); err != nil {
			t.Errorf("a leader that has seen it: %v", err)
		}
		if _, err := b.GetByID(t.Context(), foo.ID); err != nil {
			t.Errorf("by id: %v", err)
		}
	})
}

// TestDenialOfOneServer: who denies and who vouches for the end of the table may be two
// servers. What the end tells of counts.
func TestDenialOfOneServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lying atomic.Bool
		c := newCluster(memory.Config{MaxReplicas: 3})
		a := c.gateway(t, "a", memory.Faults{}, three)
		b := c.gateway(t, "b", memory.Faults{
			TableGet: func(memory.Op) memory.ReadFault { return memory.ReadFault{Deny: lying.Load()} },
			Watch:    func(string) time.Duration { return 500 * time.Millisecond },
		}, three)
		defer a.stop()
		defer b.stop()
		_, err := b.Get(t.Context(), "foo")
		wantCode(t, "denied", err, kerr.LeaderNotAvailable)
		time.Sleep(1500 * time.Millisecond)
		_, err = b.Get(t.Context(), "foo")
		wantCode(t, "denied again", err, kerr.UnknownTopicOrPartition)
		mustCreate(t, a, spec("foo"))
		lying.Store(true)
		if _, err := b.Get(ForMany(t.Context()), "foo"); err != nil {
			t.Errorf("made a moment ago: %v", err)
		}
	})
}

// TestLyingLeader: a leader that woke from a freeze denies the last change of a
// topic, or that there is one. Nobody is told so who asks through a gateway that
// knows better, and a creation that fails meanwhile leaves nothing (simulation of
// gateways, seed 806).
func TestLyingLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lying, failing atomic.Bool
		c := newCluster(memory.Config{MaxReplicas: 3})
		g := c.gateway(t, "a", memory.Faults{
			TableGet: func(memory.Op) memory.ReadFault { return memory.ReadFault{Old: lying.Load()} },
			Create: func(op memory.Op) memory.WriteFault {
				if failing.Load() && strings.HasPrefix(op.Name, "kafka-bar") {
					lying.Store(true)
					return memory.WriteFault{Err: pubsub.ErrUnavailable}
				}
				return memory.WriteFault{}
			},
		}, nil)
		defer g.stop()
		foo, err := g.Create(t.Context(), spec("foo"))
		if err != nil {
			t.Fatal(err)
		}
		lying.Store(true)
		for name, call := range map[string]func() error{
			"Delete": func() error { return g.Delete(t.Context(), foo) },
			"Grow":   func() error { return g.Grow(t.Context(), foo, Growth{Partitions: foo.Partitions + 1}) },
			"Alter":  func() error { return g.Alter(t.Context(), foo, Alteration{}) },
			"Newest": func() error { _, err := g.Newest(t.Context(), foo); return err },
			"Create": func() error { _, err := g.Create(t.Context(), spec("foo")); return err },
		} {
			if err := call(); !errors.Is(err, pubsub.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		lying.Store(false)
		failing.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := g.Create(ctx, spec("bar")); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("a creation that fails: %v", err)
		}
		failing.Store(false)
		time.Sleep(time.Second)
		lying.Store(false)
		time.Sleep(5 * time.Minute)
		for _, l := range c.srv.Logs() {
			if strings.HasPrefix(l, "kafka-bar") {
				t.Errorf("stream %s is left", l)
			}
		}
		if !whole(t, c, g) {
			t.Error("foo is gone")
		}
	})
}

// TestLyingLeaderOfConfigs: a change of broker configs back to what a leader that
// woke from a freeze still shows is made, or refused; it is not taken for none.
func TestLyingLeaderOfConfigs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lying atomic.Bool
		c := newCluster(memory.Config{MaxReplicas: 3})
		client := c.srv.Client(memory.Faults{
			TableGet: func(memory.Op) memory.ReadFault { return memory.ReadFault{Old: lying.Load()} },
		})
		defer client.Close()
		meta, err := client.Table(t.Context(), pubsub.TableConfig{Name: "kafka-meta"})
		if err != nil {
			t.Fatal(err)
		}
		g := c.gateway(t, "a", memory.Faults{}, func(c *Config, d *Deps) { three(c, d); d.Settings = meta })
		defer g.stop()
		set := func(to string) error {
			return g.AlterBroker(t.Context(), "", Alteration{Changes: changes("set:log.retention.ms=" + to)})
		}
		for _, to := range []string{"1000", "2000"} {
			if err := set(to); err != nil {
				t.Fatal(err)
			}
		}
		lying.Store(true)
		if err := set("1000"); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("a leader that woke: %v", err)
		}
		if err := g.Refresh(t.Context(), nil); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("configs of a leader that woke: %v", err)
		}
		lying.Store(false)
		if err := set("1000"); err != nil {
			t.Error(err)
		}
		if v := g.dynamic.Load().Cluster["log.retention.ms"]; v != "1000" {
			t.Errorf("in force is %q", v)
		}
	})
}

// TestAlterBackAtLyingLeader: what another gateway has changed is changed back, or
// the change refused, although a leader that woke from a freeze shows no difference.
func TestAlterBackAtLyingLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(memory.Config{MaxReplicas: 3})
		a := settled(t, c, "a", three)
		b, lying := liar(t, c)
		meta, err := b.client.Table(t.Context(), pubsub.TableConfig{Name: "kafka-meta"})
		if err != nil {
			t.Fatal(err)
		}
		b.deps.Settings = meta // not followed: its news never come
		defer a.stop()
		defer b.stop()
		foo, err := a.Create(t.Context(), spec("foo"))
		if err != nil {
			t.Fatal(err)
		}
		for name, set := range map[string]func(g *gateway, to string) error{
			"topic": func(g *gateway, to string) error {
				return g.Alter(t.Context(), foo, Alteration{Changes: changes("set:retention.ms=" + to)})
			},
			"broker": func(g *gateway, to string) error {
				return g.AlterBroker(t.Context(), "", Alteration{Changes: changes("set:log.retention.ms=" + to)})
			},
		} {
			for _, to := range []string{"1000", "2000"} {
				if err := set(a, to); err != nil {
					t.Fatal(err)
				}
			}
			lying.Store(true)
			if err := set(b, "1000"); err == nil {
				t.Errorf("%s: not changed, and no error", name)
			}
			lying.Store(false)
			if err := set(b, "1000"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
