package group

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// site is a gateway with a membership of its own: it calls, and is called by,
// the others on the store.
type site struct {
	*Forwarder
	cluster *cluster.Cluster
	client  *memory.Client
	calls   atomic.Int32 // that it made
	kill    func()       // as SIGKILL
	code    func(error) int16
}

// codeOf is Deps.Code.
func (s *site) codeOf(err error) int16 { return coord.Code(s.code)(err) }

// begin starts a site.
func begin(t *testing.T, srv *memory.Server, f memory.Faults, c Config) *site {
	t.Helper()
	s := &site{client: srv.Client(f)}
	tables := make([]pubsub.Table, 2)
	for i, name := range []string{"kafka-gateways", bucket} {
		tb, err := s.client.Table(t.Context(), pubsub.TableConfig{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		tables[i] = tb
	}
	s.cluster = cluster.New(cluster.Config{Prefix: "kafka"}, cluster.Deps{Table: tables[0], Store: s.client, Logger: slog.New(slog.DiscardHandler)})
	if err := s.cluster.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Forwarder = NewForwarder(New(c, Deps{Table: tables[1], Members: s.cluster, Calls: counted{s.cluster, &s.calls}, Code: s.codeOf}))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{s.cluster.Run, s.Coordinator.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	s.kill = sync.OnceFunc(func() {
		s.client.Thaw()
		s.client.Disconnect()
		cancel()
		wg.Wait()
		s.client.Close()
	})
	t.Cleanup(s.kill)
	<-s.Ready()
	return s
}

// beginAll starts n sites that know each other.
func beginAll(t *testing.T, srv *memory.Server, n int, c Config) []*site {
	t.Helper()
	sites := make([]*site, n)
	for i := range sites {
		sites[i] = begin(t, srv, memory.Faults{}, c)
	}
	time.Sleep(7 * time.Second)
	return sites
}

type counted struct {
	*cluster.Cluster
	n *atomic.Int32
}

func (c counted) Call(ctx context.Context, to cluster.Identity, method string, request []byte) ([]byte, error) {
	c.n.Add(1)
	return c.Cluster.Call(ctx, to, method, request)
}

// holder finds the site that owns a group.
func holder(t *testing.T, sites []*site, group string) (owner *site, rest []*site) {
	t.Helper()
	for _, s := range sites {
		if s.rt.Holds(pubsub.Token(group)) {
			if owner != nil {
				t.Fatal("two owners")
			}
			owner = s
		} else {
			rest = append(rest, s)
		}
	}
	if owner == nil {
		t.Fatalf("nobody owns %s", group)
	}
	return owner, rest
}
