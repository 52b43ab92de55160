package kill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

const (
	records    = 100_000
	partitions = 4
	topic      = "kill"
	groupName  = "kill-group"
	limit      = 8 * time.Minute
)

// TestKill kills the broker 50 times during an idempotent load with two
// consumers in a group, and restarts it at once on the same port. Every
// acknowledged record must be there once, in order, at gap-free offsets, and
// the group must keep its generation.
func TestKill(t *testing.T) {
	t.Parallel()
	broker.Each(t, []string{broker.NATS}, func(t *testing.T, b *broker.Broker) {
		kills := 50
		if b.Kind == broker.Kafka {
			kills = 4 // a JVM takes seconds to come back
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()

		admin := kadm.NewClient(client(t, b))
		if _, err := admin.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
			t.Fatalf("create the topic: %v", err)
		}
		seen := &deliveries{}
		members := []*member{join(ctx, t, b, seen), join(ctx, t, b, seen)}
		testkit.Poll(t, time.Minute, "balanced group", func() error { return balanced(ctx, admin, members) })
		before := []state{members[0].state(), members[1].state()}

		l := newLoad(t, b)
		defer l.close()
		step := records / kills
		for i := range kills {
			// More is on its way when the kill comes.
			l.allow(min(records, (i+1)*step+step/2))
			l.waitAcked(ctx, t, i*step+1+random.IntN(step))
			b.Kill(t)
			b.Restart(t)
		}
		l.allow(records)
		l.waitAcked(ctx, t, records)

		// What producers were told.
		for p, offsets := range l.offsets() {
			for i, o := range offsets {
				if o != int64(i) {
					t.Fatalf("partition %d: record %d was acknowledged at offset %d", p, i, o)
				}
			}
		}
		// What the group saw, without a rebalance.
		testkit.Poll(t, time.Minute, "all records in the group", func() error {
			if n := seen.count(); n < records {
				return fmt.Errorf("%d of %d records", n, records)
			}
			return nil
		})
		for i, m := range members {
			if after := m.state(); after != before[i] {
				t.Errorf("member %d: %+v before the kills, %+v after", i, before[i], after)
			}
		}
		seen.check(t, "the group")
		for i, m := range members {
			if err := m.close(ctx); err != nil {
				t.Errorf("member %d: last commit: %v", i, err)
			}
		}
		committed, err := admin.FetchOffsets(ctx, groupName)
		if err != nil {
			t.Fatalf("committed offsets: %v", err)
		}
		for p := range int32(partitions) {
			if o, ok := committed.Lookup(topic, p); !ok || o.At != records/partitions {
				t.Errorf("partition %d: committed %d (%v), want %d", p, o.At, ok, records/partitions)
			}
		}
		// What is stored.
		stored := &deliveries{}
		cl := client(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for stored.count() < records {
			fetches := cl.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatalf("read after the kills: %v", err)
			}
			stored.add(fetches.Records())
		}
		stored.check(t, "a reader")
	})
}

func client(t *testing.T, b *broker.Broker, o ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.Addr),
		// Retry often, and for as long as the session lasts.
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.RequestRetries(10_000),
		kgo.Dialer(dial),
		// A connection that ends before its first answer is a kill here, not a
		// login that is missing, for which the client gives its membership up.
		kgo.AlwaysRetryEOF(),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// dial waits for a listener, up to the client's dial timeout. With one broker,
// franz-go takes the first refused connection of a heartbeat for the end of its
// membership and rejoins, without having asked the broker (Java and librdkafka
// go on dialing): what is tested here is the broker.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return c, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// value is record i of partition p.
func value(p, i int) string { return fmt.Sprintf("%d:%07d:%080d", p, i, 0) }

// deliveries are records by partition, in the order they came.
type deliveries struct {
	mu   sync.Mutex
	n    int                       // guards: records in all
	recs [partitions][]*kgo.Record // guards: records
}

func (d *deliveries) add(rs []*kgo.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n += len(rs)
	for _, r := range rs {
		d.recs[r.Partition] = append(d.recs[r.Partition], r)
	}
}

func (d *deliveries) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// check wants every record once, in order, at gap-free offsets.
func (d *deliveries) check(t *testing.T, who string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for p, rs := range d.recs {
		if len(rs) != records/partitions {
			t.Errorf("%s: partition %d has %d records, want %d", who, p, len(rs), records/partitions)
		}
		for i, r := range rs {
			if r.Offset != int64(i) || string(r.Value) != value(p, i) {
				t.Errorf("%s: partition %d: delivery %d is offset %d with %.20q", who, p, i, r.Offset, r.Value)
				break
			}
		}
	}
}

// member is a consumer of the group.
type member struct {
	cl   *kgo.Client
	stop context.CancelFunc
	wait sync.WaitGroup

	mu                sync.Mutex
	assigned, revoked int // guards: callbacks so far
	partitions        int // guards: partitions it has
}

// state changes with every rebalance.
type state struct {
	Member            string
	Generation        int32
	Assigned, Revoked int
}

func (m *member) state() state {
	id, generation := m.cl.GroupMetadata()
	m.mu.Lock()
	defer m.mu.Unlock()
	return state{id, generation, m.assigned, m.revoked}
}

func join(ctx context.Context, t *testing.T, b *broker.Broker, seen *deliveries) *member {
	t.Helper()
	m := &member{}
	count := func(n *int, sign int) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			*n++
			m.partitions += sign * len(changed[topic])
		}
	}
	m.cl = client(t, b, kgo.ConsumerGroup(groupName), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(30*time.Second), kgo.HeartbeatInterval(500*time.Millisecond), kgo.AutoCommitInterval(200*time.Millisecond), kgo.GreedyAutoCommit(),
		kgo.OnPartitionsAssigned(count(&m.assigned, 1)), kgo.OnPartitionsRevoked(count(&m.revoked, -1)), kgo.OnPartitionsLost(count(&m.revoked, -1)))
	ctx, m.stop = context.WithCancel(ctx)
	m.wait.Go(func() {
		for ctx.Err() == nil {
			fetches := m.cl.PollFetches(ctx)
			fetches.EachError(func(_ string, p int32, err error) {
				if ctx.Err() == nil {
					t.Errorf("poll: partition %d: %v", p, err)
				}
			})
			seen.add(fetches.Records())
		}
	})
	return m
}

func (m *member) close(ctx context.Context) error {
	m.stop()
	m.wait.Wait()
	err := m.cl.CommitUncommittedOffsets(ctx)
	m.cl.Close() // leaves
	return err
}

// balanced is nil when both members have half of the partitions and know it.
func balanced(ctx context.Context, admin *kadm.Client, members []*member) error {
	groups, err := admin.DescribeGroups(ctx, groupName)
	if err != nil {
		return err
	}
	g := groups[groupName]
	var got []int
	for _, m := range g.Members {
		if a, ok := m.Assigned.AsConsumer(); ok && len(a.Topics) == 1 {
			got = append(got, len(a.Topics[0].Partitions))
		}
	}
	if g.State != "Stable" || !slices.Equal(got, []int{partitions / 2, partitions / 2}) {
		return fmt.Errorf("group is %s with %v partitions per member", g.State, got)
	}
	for i, m := range members {
		m.mu.Lock()
		n := m.partitions
		m.mu.Unlock()
		if n != partitions/2 {
			return fmt.Errorf("member %d was told of %d partitions", i, n)
		}
	}
	return nil
}

// load is an idempotent producer that runs up to a limit that can be raised.
type load struct {
	cl   *kgo.Client
	stop context.CancelFunc
	wait sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond          // on mu; signalled when a field below changes
	allowed int                 // guards: records that may be sent
	acked   int                 // guards: records acknowledged
	failed  error               // guards: the first failure
	stopped bool                // guards: close was called
	at      [partitions][]int64 // guards: offsets by partition, in order of sending
}

func newLoad(t *testing.T, b *broker.Broker) *load {
	t.Helper()
	l := &load{}
	l.changed = sync.NewCond(&l.mu)
	l.cl = client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(2000), kgo.ProducerLinger(0), kgo.StopProducerOnDataLossDetected())
	for p := range l.at {
		l.at[p] = make([]int64, records/partitions)
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.wait.Go(func() {
		for i := range records {
			l.mu.Lock()
			for i >= l.allowed && !l.stopped {
				l.changed.Wait()
			}
			stopped := l.stopped
			l.mu.Unlock()
			if stopped {
				return
			}
			p, n := i%partitions, i/partitions
			l.cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(p), Value: []byte(value(p, n))}, func(r *kgo.Record, err error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if err != nil && l.failed == nil {
					l.failed = fmt.Errorf("record %d of partition %d: %w", n, p, err)
				}
				l.at[p][n] = r.Offset
				l.acked++
				l.changed.Broadcast()
			})
		}
	})
	return l
}

func (l *load) allow(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed = n
	l.changed.Broadcast()
}

// waitAcked waits until n records are acknowledged.
func (l *load) waitAcked(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	})()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.acked < n && l.failed == nil && ctx.Err() == nil {
		l.changed.Wait()
	}
	if l.failed != nil || ctx.Err() != nil {
		t.Fatalf("%d of %d records acknowledged: %v, %v", l.acked, n, l.failed, ctx.Err())
	}
}

func (l *load) offsets() [partitions][]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

func (l *load) close() {
	l.mu.Lock()
	l.stopped = true
	l.changed.Broadcast()
	l.mu.Unlock()
	l.stop()
	l.wait.Wait()
}
