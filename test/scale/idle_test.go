package scale

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

const (
	promisedCalls = 20.0 // JetStream API calls per second and gateway
	promisedCPU   = 0.02 // of a core
)

// apiCalls counts the calls of JetStream's API by kind.
type apiCalls struct {
	mu    sync.Mutex // guards: kinds, total
	kinds map[string]int
	total int
}

func countCalls(t *testing.T, url string) *apiCalls {
	t.Helper()
	a := &apiCalls{kinds: map[string]int{}}
	nc := natsConn(t, url, "count")
	_, err := nc.Subscribe("$JS.API.>", func(m *nats.Msg) {
		kind := strings.TrimPrefix(m.Subject, "$JS.API.")
		if f := strings.Split(kind, "."); len(f) > 2 {
			kind = strings.Join(f[:2], ".")
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.kinds[kind]++
		a.total++
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// take is what was counted since it was taken last.
func (a *apiCalls) take() (total int, kinds map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	total, kinds = a.total, a.kinds
	a.total, a.kinds = 0, map[string]int{}
	return total, kinds
}

// cpu is the time that the process has spent so far.
func (g *gateway) cpu(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.Process().Pid()))
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	ticks := 0
	for _, s := range f[11:13] { // user and system time, in ticks of 10 ms
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// TestIdleLoad: gateways with a thousand partitions and a hundred groups ask next to
// nothing of JetStream while nobody produces, with consumers that wait at the end of
// every partition and without.
func TestIdleLoad(t *testing.T) {
	const topics, each, groups = 10, 100, 100
	window := time.Duration(sized(4, 32)) * time.Second // retention looks every 15 s
	server := startNATS(t)
	o := testkit.Options{PubsubURL: server.URL}
	one, _ := launch(t, o)
	two, _ := launch(t, o)
	c := dial(t, one.Addr)
	to := make([][]target, topics)
	for i := range to {
		to[i] = c.create(t, fmt.Sprintf("idle-%d", i), each)
		ss := make([]*series, each)
		for n := range ss {
			ss[n] = newSeries(-1, time.Now())
		}
		c.produce(t, to[i], ss)
	}
	for i := range groups {
		c.commit(t, fmt.Sprintf("group-%d", i), to[i%topics][:10])
	}
	calls := countCalls(t, server.URL)

	over := make(chan struct{})
	var parked sync.WaitGroup
	for i := range to {
		g := []*gateway{one, two}[i%2]
		waiting := dial(t, g.Addr)
		parked.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if err := waiting.park(to[i]); err != nil {
					t.Errorf("a consumer that waits: %v", err)
					return
				}
			}
		})
	}
	t.Cleanup(parked.Wait)
	end := sync.OnceFunc(func() { close(over) })
	t.Cleanup(end)

	// Caches are filled, snapshots written, and retention has looked once at
	// everything, which it does 15 s after the start.
	passed := false
	testkit.Poll(t, time.Minute, "quiet after the first look at everything", func() error {
		_, _ = calls.take()
		time.Sleep(time.Second)
		n, kinds := calls.take()
		passed = passed || time.Since(one.started) > 16*time.Second
		if !passed || float64(n) > promisedCalls {
			return fmt.Errorf("%d calls in a second: %v", n, kinds)
		}
		return nil
	})
	measure := func(what string) {
		t.Helper()
		_, _ = calls.take()
		begin, before := time.Now(), one.cpu(t)+two.cpu(t)
		<-time.After(window)
		n, kinds := calls.take()
		took := time.Since(begin).Seconds()
		used := (one.cpu(t) + two.cpu(t) - before).Seconds() / took
		rate := float64(n) / took
		t.Logf("two gateways, %d partitions, %d groups, %s: %.1f JetStream API calls/s %v, %.2f %% of a core", topics*each, groups, what, rate, kinds, 100*used)
		if rate > promisedCalls { // both together: stricter than promised
			t.Errorf("%s: %.1f calls/s", what, rate)
		}
		if os.Getenv("STREAM_SCALE_STRICT") == "1" && used > 2*promisedCPU {
			t.Errorf("%s: %.2f %% of a core for two", what, 100*used)
		}
	}
	measure("consumers waiting")
	end()
	parked.Wait()
	measure("nobody connected")
}

// park waits at the end of all partitions of a topic, as a consumer does.
func (c *client) park(to []target) error {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(12)
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 500, 1, 50<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = to[0].topic
	for _, g := range to {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = g.n, perMessage, 1<<20, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := c.do(req)
	if err != nil {
		return err
	}
	for _, p := range resp.(*kmsg.FetchResponse).Topics[0].Partitions {
		if p.ErrorCode != 0 || len(p.RecordBatches) > 0 {
			return fmt.Errorf("partition %d: code %d, %d bytes", p.Partition, p.ErrorCode, len(p.RecordBatches))
		}
	}
	return nil
}

// commit stores an offset of each partition.
func (c *client) commit(t *testing.T, group string, to []target) {
	t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = to[0].topic
	for _, g := range to {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = g.n, 1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	for _, p := range ask[*kmsg.OffsetCommitResponse](t, c, 8, req).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			t.Fatalf("commit of %s: code %d", group, p.ErrorCode)
		}
	}
}
