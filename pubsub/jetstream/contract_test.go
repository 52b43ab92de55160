package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/contract"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/test/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startEmbedded(t *testing.T, c embedded.Config) *embedded.Server {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	s, err := embedded.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func connect(t *testing.T, c jetstream.Config) *jetstream.Store {
	t.Helper()
	s, err := jetstream.Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestContractEmbedded(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	t.Run("suite", func(t *testing.T) {
		contract.Run(t, func(t *testing.T) pubsub.Store { return connect(t, jetstream.Config{InProcess: srv}) })
	})
}

func TestContractAlone(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	if !srv.Alone() {
		t.Fatal("a server without a listener is not alone")
	}
	t.Run("suite", func(t *testing.T) {
		contract.RunAlone(t, func(t *testing.T) pubsub.Store { return connect(t, jetstream.Config{InProcess: srv, Alone: true}) })
	})
}

// TestContractRuns: every read that goes on where another one ended is by a
// consumer.
func TestContractRuns(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	t.Run("suite", func(t *testing.T) {
		contract.Run(t, func(t *testing.T) pubsub.Store {
			st := connect(t, jetstream.Config{InProcess: srv})
			st.SetRuns(1, time.Second, time.Second)
			return st
		})
	})
}

// TestContractServers runs the suite against real servers of the versions that
// STREAM_TEST_NATS_VERSIONS lists, e.g. "2.10.29,2.11.x".
func TestContractServers(t *testing.T) {
	versions := testkit.NATSVersions()
	if len(versions) == 0 {
		t.Skip("STREAM_TEST_NATS_VERSIONS lists no versions")
	}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			srv := testkit.StartNATS(t, testkit.NATSOptions{Version: v})
			contract.Run(t, func(t *testing.T) pubsub.Store { return connect(t, jetstream.Config{URL: srv.URL}) })
		})
		t.Run(v+"-runs", func(t *testing.T) {
			srv := testkit.StartNATS(t, testkit.NATSOptions{Version: v})
			contract.Run(t, func(t *testing.T) pubsub.Store {
				st := connect(t, jetstream.Config{URL: srv.URL})
				st.SetRuns(1, time.Second, time.Second)
				return st
			})
		})
		t.Run(v+"-cluster", func(t *testing.T) {
			servers := testkit.StartNATSCluster(t, 3, testkit.NATSOptions{Version: v})
			waitLeader(t, servers)
			contract.Run(t, func(t *testing.T) pubsub.Store {
				return replicated{connect(t, jetstream.Config{URL: urls(servers)})}
			})
		})
	}
}

// replicated makes every log and table with three replicas.
type replicated struct{ *jetstream.Store }

func (r replicated) CreateLog(ctx context.Context, c pubsub.LogConfig) error {
	c.Replicas = 3
	return placed(ctx, func() error { return r.Store.CreateLog(ctx, c) })
}

func (r replicated) Table(ctx context.Context, c pubsub.TableConfig) (t pubsub.Table, err error) {
	c.Replicas = 3
	err = placed(ctx, func() error {
		t, err = r.Store.Table(ctx, c)
		return err
	})
	return t, err
}

// placed tries again while the servers of a young cluster do not know of each
// other that they are there: a leader that was just elected, or whose routes were
// renewed, counts a server as offline until it has heard its statistics, and
// says 10005. A gateway's start is as patient.
func placed(ctx context.Context, create func() error) error {
	for {
		err := create()
		if err == nil || !errors.Is(err, pubsub.ErrUnavailable) || !strings.Contains(err.Error(), "(10005)") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (r replicated) FindLog(ctx context.Context, name string) (pubsub.LogInfo, error) {
	i, err := r.Store.FindLog(ctx, name)
	return one(i), err
}

func (r replicated) Logs(ctx context.Context, filter string) ([]pubsub.LogInfo, []string, error) {
	logs, missing, err := r.Store.Logs(ctx, filter)
	for i := range logs {
		logs[i] = one(logs[i])
	}
	return logs, missing, err
}

func (r replicated) Log(name, subject string) pubsub.Log {
	return replicatedLog{r.Store.Log(name, subject)}
}

type replicatedLog struct{ pubsub.Log }

func (l replicatedLog) Bounds(ctx context.Context) (pubsub.Bounds, error) {
	b, err := l.Log.Bounds(ctx)
	b.Replicas, b.InSync = min(b.Replicas, 1), min(b.InSync, 1)
	return b, err
}

// one hides the replicas from the suite, which asks for one.
func one(i pubsub.LogInfo) pubsub.LogInfo {
	i.Replicas = min(i.Replicas, 1)
	i.Bounds.Replicas, i.Bounds.InSync = min(i.Bounds.Replicas, 1), min(i.Bounds.InSync, 1)
	return i
}

func urls(servers []*testkit.NATSServer) string {
	var us []string
	for _, s := range servers {
		us = append(us, s.URL)
	}
	return strings.Join(us, ",")
}

// waitLeader waits until the cluster takes streams of three replicas, all three
// follow, and JetStream answers through each server.
func waitLeader(t *testing.T, servers []*testkit.NATSServer) {
	t.Helper()
	testkit.Poll(t, 2*time.Minute, "a cluster with a leader", func() error {
		s, err := jetstream.Connect(t.Context(), jetstream.Config{URL: urls(servers), APITimeout: time.Second})
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := s.CreateLog(ctx, pubsub.LogConfig{Name: "probe", Subject: "probe", Replicas: 3}); err != nil {
			return err
		}
		if b, err := s.Log("probe", "probe").Bounds(ctx); err != nil {
			return err
		} else if b.InSync < 3 {
			return fmt.Errorf("%d replicas follow", b.InSync)
		}
		if err := s.DeleteLog(ctx, "probe"); err != nil {
			return err
		}
		for _, srv := range servers {
			one, err := jetstream.Connect(ctx, jetstream.Config{URL: srv.URL, APITimeout: time.Second})
			if err != nil {
				return err
			}
			one.Close()
		}
		return nil
	})
}
