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
)

// TestPartitionDenied: a partition that another gateway has just made is not
// denied because a leader has not seen the growth (simulation of gateways, seed
// 7015).
func TestPartitionDenied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lying atomic.Bool
		c := newCluster(memory.Config{MaxReplicas: 3})
		three := func(c *Config, _ *Deps) { c.Replicas = 3 }
		a := c.gateway(t, "a", memory.Faults{}, three)
		b := c.gateway(t, "b", memory.Faults{
			TableGet: func(memory.Op) memory.ReadFault { return memory.ReadFault{Old: lying.Load()} },
			Watch:    func(string) time.Duration { return 100 * time.Millisecond },
		}, three)
		defer a.stop()
		defer b.stop()
		foo, err := a.Create(t.Context(), spec("foo"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		has := func() error {
			_, err := b.Reaching(t.Context(), foo, foo.Partitions)
			return err
		}
		if err := a.Grow(t.Context(), foo, Growth{Partitions: foo.Partitions + 1}); err != nil {
			t.Fatal(err)
		}
		lying.Store(true)
		wantCode(t, "denied once", has(), kerr.LeaderNotAvailable)
		lying.Store(false)
		if err := has(); err != nil {
			t.Errorf("a leader that has seen it: %v", err)
		}
		foo, err = b.Newest(t.Context(), foo)
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, "one more", has(), kerr.LeaderNotAvailable)
		time.Sleep(time.Second)
		wantCode(t, "denied twice, a second apart", has(), kerr.UnknownTopicOrPartition)
	})
}

// TestDenialsThatOverlap: the second denial counts only if it was asked for a second
// after the first had come. An answer that is long under way is no second opinion.
func TestDenialsThatOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lying atomic.Bool
		c := newCluster(memory.Config{MaxReplicas: 3})
		three := func(c *Config, _ *Deps) { c.Replicas = 3 }
		a := c.gateway(t, "a", memory.Faults{}, three)
		b := c.gateway(t, "b", memory.Faults{
			TableGet: func(memory.Op) memory.ReadFault {
				if !lying.Load() {
					return memory.ReadFault{}
				}
				return memory.ReadFault{Old: true, Delay: 1100 * time.Millisecond}
			},
			Watch: func(string) time.Duration { return 5 * time.Second },
		}, three)
		defer a.stop()
		defer b.stop()
		has := func(ctx context.Context) error { _, err := b.Get(ctx, "foo"); return err }
		wantCode(t, "denied", has(t.Context()), kerr.LeaderNotAvailable)
		foo, err := a.Create(t.Context(), spec("foo"))
		if err != nil {
			t.Fatal(err)
		}
		lying.Store(true)
		many := ForMany(t.Context())
		wantCode(t, "denied at once again, the answer took long", has(many), kerr.LeaderNotAvailable)
		wantCode(t, "later in the same request", has(many), kerr.LeaderNotAvailable)
		lying.Store(false)
		if err := has(t.Context()); err != nil {
			t.Errorf("a leader that has seen it: %v", err)
		}

		reaches := func() error { _, err := b.Reaching(t.Context(), foo, foo.Partitions); return err }
		wantCode(t, "the partition is denied", reaches(), kerr.LeaderNotAvailable)
		if err := a.Grow(t.Context(), foo, Growth{Partitions: foo.Partitions + 1}); err != nil {
			t.Fatal(err)
		}
		lying.Store(true)
		wantCode(t, "the partition is denied at once again, the answer took long", reaches(), kerr.LeaderNotAvailable)
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
