package writers

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/test/testkit"
)

// leaderOf is the server that leads a stream.
func leaderOf(t *testing.T, servers []*testkit.NATSServer, stream string) int {
	t.Helper()
	nc, err := nats.Connect(servers[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	m, err := nc.Request("$JS.API.STREAM.INFO."+stream, nil, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Cluster struct{ Leader string } }
	if err := json.Unmarshal(m.Data, &info); err != nil {
		t.Fatal(err)
	}
	for i := range servers {
		if info.Cluster.Leader == fmt.Sprintf("n%d", i) {
			return i
		}
	}
	t.Fatalf("%s is led by %q", stream, info.Cluster.Leader)
	return 0
}

// TestEndWithReplicas: the end of a log with three replicas is asked for twice
// only if nothing is known of its leader. With the long loads that leader is then
// frozen, with questions waiting at it, and wakes up as soon as another one has
// taken records: no gateway falls short of what another has shown.
func TestEndWithReplicas(t *testing.T) {
	servers := testkit.StartNATSCluster(t, 3, testkit.NATSOptions{NoAdvertise: true})
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	testkit.Poll(t, 30*time.Second, "JetStream answers", func() error {
		nc, err := nats.Connect(urls[0])
		if err != nil {
			return err
		}
		defer nc.Close()
		_, err = nc.Request("$JS.API.INFO", nil, time.Second)
		return err
	})
	ps := open(t, brokersAt(t, 3, urls...), "end")
	produce := func(p *partition.Partition) partition.AppendResult {
		acked := make(chan partition.AppendResult, 1)
		p.Submit(partition.AppendRequest{Records: batchOf(100)}, func(a partition.AppendResult) { acked <- a })
		return <-acked
	}
	latest := func(ctx context.Context, p *partition.Partition) (int64, error) {
		r, err := p.Lookup(ctx, partition.LookupRequest{Timestamp: partition.Latest})
		return int64(r.Offset), err
	}
	for range 10 {
		if a := produce(ps[0]); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	for n := range 5 {
		began := time.Now()
		if end, err := latest(t.Context(), ps[1]); err != nil || end != 10 {
			t.Fatalf("end %d (%v)", end, err)
		}
		t.Logf("question %d: %v", n, time.Since(began))
		if took := time.Since(began); n > 0 && took > 900*time.Millisecond {
			t.Errorf("question %d took %v", n, took)
		}
	}
	if !full {
		return
	}
	var shown atomic.Int64
	shown.Store(10)
	for range 5 {
		at := leaderOf(t, servers, ps[0].Stream())
		writer, asker := ps[(at+1)%3], ps[(at+2)%3] // connected to the other two
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		answers, failed, long := atomic.Int64{}, atomic.Int64{}, atomic.Int64{}
		servers[at].Pause()
		// A question every 50 ms, each with five seconds.
		wait.Go(func() {
			for tick := time.NewTicker(50 * time.Millisecond); ; {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				wait.Go(func() {
					least, began := shown.Load(), time.Now()
					end, err := latest(t.Context(), asker)
					switch {
					case err != nil:
						failed.Add(1)
					case end < least:
						t.Errorf("end %d, although %d was shown before", end, least)
					default:
						answers.Add(1)
						if time.Since(began) > time.Second {
							long.Add(1)
						}
					}
				})
			}
		})
		began := time.Now()
		for taken := 0; taken < 5 && time.Since(began) < time.Minute; {
			if a := produce(writer); a.Err == nil {
				taken++
				shown.Store(max(shown.Load(), int64(a.BaseOffset)+1))
			} else {
				t.Logf("after %v: %v (%s)", time.Since(began), a.Err, a.Message)
			}
		}
		froze := time.Since(began)
		servers[at].Resume()
		for woke := time.Now(); time.Since(woke) < 5*time.Second; {
			if a := produce(writer); a.Err == nil {
				shown.Store(max(shown.Load(), int64(a.BaseOffset)+1))
			}
		}
		stop()
		wait.Wait()
		t.Logf("frozen for %v: %d answers, %d of them after a second and more, %d failures", froze, answers.Load(), long.Load(), failed.Load())
		if answers.Load() == 0 {
			t.Error("no answer")
		}
	}
}
