package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/testkit"
)

// TestC40Fault07Restart ends a single NATS server under load, in good order and with
// SIGKILL, several times.
func TestC40Fault07Restart(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testkit.NATSServer){"stopped": (*testkit.NATSServer).Stop, "killed": (*testkit.NATSServer).Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testkit.StartNATS(t, testkit.NATSOptions{})
			s := testkit.Start(t, testkit.Options{PubsubURL: server.URL})
			w := newWorld(t, s.Addr, "restart", load{partitions: 4, pace: 5 * time.Millisecond})
			p := newPipeline(t, s.Addr, "pipeline")
			w.waitAcks(t, 20*time.Second, 20)
			began := time.Now()
			for range 4 {
				end(server)
				if err := server.Start(); err != nil {
					t.Fatal(err)
				}
				w.waitAcks(t, 30*time.Second, 20)
				p.waitMore(t, 30*time.Second, 200)
			}
			s.WaitReady(t)
			w.report(t, "4 restarts", began)
			p.finish(t)
			w.finish(t)
			alive(t, s)
		})
	}
}

// TestC40Fault07RollingRestart ends the servers of a cluster of three one after the other
// under load, topics with three replicas: once in good order, once with SIGKILL.
func TestC40Fault07RollingRestart(t *testing.T) {
	t.Parallel()
	servers := testkit.StartNATSCluster(t, 3, testkit.NATSOptions{})
	s := startOnCluster(t, servers)
	w := newWorld(t, s.Addr, "rolling", load{partitions: 2, pace: 5 * time.Millisecond})
	p := newPipeline(t, s.Addr, "pipeline")
	w.waitAcks(t, 40*time.Second, 20)
	for name, end := range map[string]func(*testkit.NATSServer){"stopped": (*testkit.NATSServer).Stop, "killed": (*testkit.NATSServer).Kill} {
		began := time.Now()
		for _, server := range servers {
			end(server)
			// Two of three go on.
			w.waitAcks(t, 60*time.Second, 20)
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			inSync(t, servers)
			w.waitAcks(t, 60*time.Second, 20)
		}
		p.waitMore(t, 60*time.Second, 100)
		w.report(t, "all three "+name, began)
	}
	s.WaitReady(t)
	p.finish(t)
	w.finish(t)
	alive(t, s)
}

// startOnCluster starts stream with three replicas once the cluster has a leader.
func startOnCluster(t *testing.T, servers []*testkit.NATSServer) *testkit.Stream {
	t.Helper()
	var urls []string
	for _, n := range servers {
		urls = append(urls, n.URL)
	}
	inSync(t, servers)
	return testkit.Start(t, testkit.Options{PubsubURL: strings.Join(urls, ","), Args: []string{"--replicas", "3"}, ReadyLimit: time.Minute})
}

// inSync waits until every stream has all its replicas, in order that the next
// server may go without a majority being lost.
func inSync(t *testing.T, servers []*testkit.NATSServer) {
	t.Helper()
	testkit.Poll(t, time.Minute, "all replicas in sync", func() error {
		nc, err := nats.Connect(servers[0].URL)
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := nc.JetStream(nats.MaxWait(5 * time.Second))
		if err != nil {
			return err
		}
		names, err := streamNames(js)
		if err != nil {
			return err
		}
		for _, name := range names {
			info, err := js.StreamInfo(name)
			if err != nil {
				return err
			}
			if c := info.Cluster; c == nil || c.Leader == "" {
				return fmt.Errorf("%s has no leader", name)
			}
			for _, r := range info.Cluster.Replicas {
				if !r.Current || r.Offline {
					return fmt.Errorf("%s: replica on %s is not in sync", name, r.Name)
				}
			}
		}
		return nil
	})
}

// streamNames lists all streams, or says that there are none to be had. It reads
// the client's list to its end: whoever stops before leaves a goroutine behind.
func streamNames(js nats.JetStreamContext) ([]string, error) {
	if _, err := js.AccountInfo(); err != nil { // the list of names has no error
		return nil, err
	}
	var names []string
	for name := range js.StreamNames() {
		names = append(names, name)
	}
	return names, nil
}

// pipeline is an idempotent producer as applications use it: franz-go with five
// requests in flight, which retries by itself and in order.
type pipeline struct {
	topic string
	cl    *kgo.Client
	stop  context.CancelFunc
	wait  sync.WaitGroup

	mu     sync.Mutex
	acked  map[int]int64 // guards: offset by number
	failed error         // guards: first failure
	more   chan struct{} // capacity 1
}

func newPipeline(t *testing.T, addr, topic string) *pipeline {
	t.Helper()
	createTopic(t, addr, topic, 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addr, ",")...), kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(500), kgo.ProducerLinger(time.Millisecond),
		kgo.ProducerBatchMaxBytes(4<<10), kgo.StopProducerOnDataLossDetected(), kgo.RequestRetries(1000), kgo.RecordRetries(1000),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	p := &pipeline{topic: topic, cl: cl, acked: map[int]int64{}, more: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	t.Cleanup(func() {
		stop()
		p.wait.Wait()
		cl.Close()
	})
	p.wait.Go(func() {
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-pace.C:
			case <-ctx.Done():
				return
			}
			cl.Produce(context.WithoutCancel(ctx), &kgo.Record{Value: fmt.Appendf(nil, "0/%d/", n)}, func(r *kgo.Record, err error) {
				p.mu.Lock()
				defer p.mu.Unlock()
				if err != nil && !errors.Is(err, kgo.ErrClientClosed) && p.failed == nil {
					p.failed = fmt.Errorf("record %d: %w", n, err)
				}
				if err == nil {
					p.acked[n] = r.Offset
				}
				select {
				case p.more <- struct{}{}:
				default:
				}
			})
		}
	})
	return p
}

func (p *pipeline) state() (acked int, failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.acked), p.failed
}

// waitMore waits for n more acknowledged records.
func (p *pipeline) waitMore(t *testing.T, limit time.Duration, n int) {
	t.Helper()
	before, _ := p.state()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		acked, failed := p.state()
		if failed != nil {
			t.Fatalf("%s: %v", p.topic, failed)
		}
		if acked >= before+n {
			return
		}
		select {
		case <-p.more:
		case <-deadline.C:
			t.Fatalf("%s: %d of %d more records acknowledged within %v", p.topic, acked-before, n, limit)
		}
	}
}

// finish ends it and wants every record once, in order, where it was acknowledged.
func (p *pipeline) finish(t *testing.T) {
	t.Helper()
	p.stop()
	p.wait.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), finishLimit)
	defer cancel()
	if err := p.cl.Flush(ctx); err != nil {
		t.Fatalf("%s: flush: %v", p.topic, err)
	}
	acked, failed := p.state()
	if failed != nil {
		t.Fatalf("%s: %v", p.topic, failed)
	}
	n := 0
	for n < acked {
		fetches := p.cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s: read: %v", p.topic, err)
		}
		for _, r := range fetches.Records() {
			if r.Offset != int64(n) || number(string(r.Value)) != n || p.acked[n] != r.Offset {
				t.Fatalf("%s: offset %d holds %q, record %d was acknowledged at %d", p.topic, r.Offset, r.Value, n, p.acked[n])
			}
			n++
		}
	}
	t.Logf("%s: %d records, each once and in order", p.topic, acked)
}
