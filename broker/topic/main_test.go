package topic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parts is a small Partitions: one log and one record per partition.
type parts struct {
	store   pubsub.Store
	records pubsub.Table
}

func (p *parts) key(s PartitionSpec) string { return fmt.Sprintf("%s.%d", s.ID, s.N) }

func (p *parts) Create(ctx context.Context, s PartitionSpec) error {
	if err := p.store.CreateLog(ctx, s.LogConfig); err != nil {
		return err
	}
	_, err := pubsub.Put(ctx, p.records, pubsub.Write{Key: p.key(s), Data: []byte(s.LogConfig.Name)})
	if errors.Is(err, pubsub.ErrConflict) {
		if v, err := p.records.Get(ctx, p.key(s)); err == nil && string(v.Data) == s.LogConfig.Name {
			return nil
		}
	}
	return err
}

func (p *parts) Destroy(ctx context.Context, s PartitionSpec) error {
	if err := p.store.DeleteLog(ctx, s.LogConfig.Name); err != nil && !errors.Is(err, pubsub.ErrNotFound) {
		return err
	}
	v, err := p.records.Get(ctx, p.key(s))
	if errors.Is(err, pubsub.ErrNotFound) {
		if v.Rev != 0 {
			return nil
		}
	} else if err != nil {
		return err
	}
	_, err = pubsub.Put(ctx, p.records, pubsub.Write{Key: p.key(s), Expect: v.Rev, Delete: true})
	if errors.Is(err, pubsub.ErrConflict) {
		return nil
	}
	return err
}

// gateway is one Topics with a connection of its own.
type gateway struct {
	*Topics
	client *memory.Client
	stop   func()
}

// cluster is one server and who is dead on it.
type cluster struct {
	srv  *memory.Server
	mu   sync.Mutex
	dead map[string]bool
}

func newCluster(c memory.Config) *cluster {
	return &cluster{srv: memory.NewServer(c), dead: map[string]bool{}}
}

func (c *cluster) kill(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead[name] = true
}

// gateway starts Topics and waits until it is ready.
func (c *cluster) gateway(t testing.TB, name string, f memory.Faults, change func(*Config, *Deps)) *gateway {
	t.Helper()
	client := c.srv.Client(f)
	ctx, cancel := context.WithCancel(context.Background())
	table := func(name string) pubsub.Table {
		for {
			tb, err := client.Table(ctx, pubsub.TableConfig{Name: name})
			if err == nil {
				return tb
			}
			if !errors.Is(err, pubsub.ErrUnavailable) {
				t.Fatal(err)
			}
		}
	}
	config := Defaults()
	deps := Deps{
		Table: table("kafka-topics"), Store: client, Cluster: "cluster-1",
		Partitions:  &parts{store: client, records: table("kafka-partitions")},
		Incarnation: func() string { return name },
		MayAdopt: func(other string) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.dead[other]
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&config, &deps)
	}
	g := &gateway{Topics: New(config, deps), client: client}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("%s: Run: %v", name, err)
		}
	})
	var once sync.Once
	g.stop = func() { once.Do(func() { cancel(); client.Close(); wg.Wait() }) }
	t.Cleanup(g.stop)
	<-g.Ready()
	return g
}

// simple is one gateway on a server of its own.
func simple(t testing.TB, change func(*Config, *Deps)) (*gateway, *memory.Server) {
	c := newCluster(memory.Config{MaxReplicas: 3})
	return c.gateway(t, "a", memory.Faults{}, change), c.srv
}

func spec(name string) Spec { return Spec{Name: name, Partitions: -1, Replicas: -1} }

func str(s string) *string { return &s }

func wantCode(t *testing.T, what string, err error, want *kerr.Error) {
	t.Helper()
	k := (*kerr.Error)(nil)
	switch {
	case want == nil && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != nil && (!errors.As(err, &k) || k.Code != want.Code):
		t.Errorf("%s: got %v, want %s", what, err, want.Message)
	case want != nil && k.Description == "":
		t.Errorf("%s: %v has no text", what, err)
	}
}

// eventually polls a condition that something else makes true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// counting counts and can fail store calls of every kind.
type counting struct {
	calls atomic.Int64
	hook  func(n int64, write bool) (memory.WriteFault, memory.ReadFault)
}

func (c *counting) faults() memory.Faults {
	w := func(memory.Op) memory.WriteFault {
		n := c.calls.Add(1)
		if c.hook == nil {
			return memory.WriteFault{}
		}
		f, _ := c.hook(n, true)
		return f
	}
	r := func(memory.Op) memory.ReadFault {
		n := c.calls.Add(1)
		if c.hook == nil {
			return memory.ReadFault{}
		}
		_, f := c.hook(n, false)
		return f
	}
	return memory.Faults{Append: w, Set: w, Trim: w, Create: w, Delete: w, Read: r, Get: r, Bounds: r, Headers: r, TableGet: r, Scan: r, Find: r}
}
