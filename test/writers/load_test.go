package writers

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// fleet is gateways on one NATS server.
type fleet struct {
	nats     *testkit.NATSServer
	gateways []*testkit.Stream
}

func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{nats: testkit.StartNATS(t, testkit.NATSOptions{})}
	for range n {
		f.gateways = append(f.gateways, testkit.Start(t, testkit.Options{PubsubURL: f.nats.URL}))
	}
	return f
}

// create makes a topic through the first gateway.
func (f *fleet) create(t *testing.T, topic string, partitions int32) {
	t.Helper()
	c := client(t, f.gateways[0])
	req := kmsg.NewCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, partitions, 1
	req.Topics = append(req.Topics, ct)
	req.TimeoutMillis = 20000
	r, err := req.RequestWith(t.Context(), c)
	if err != nil || r.Topics[0].ErrorCode != 0 {
		t.Fatalf("create %s: %v, %+v", topic, err, r)
	}
}

func client(t *testing.T, s *testkit.Stream, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(slices.Concat([]kgo.Opt{
		kgo.SeedBrokers(s.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.UnknownTopicRetries(-1),
	}, more)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// load is producers, spread over gateways and partitions in turn, each with some
// records on their way.
type load struct {
	topic      string
	gateways   []*testkit.Stream
	partitions int32
	producers  int
	depth      int // records of a producer on their way
	size       int // bytes of a value
	length     time.Duration
	begin      int64 // end of its one partition before
}

// outcome is what a load was.
type outcome struct {
	acked   [][]int64 // by producer: offset of each of its records
	records int
	took    time.Duration
	waits   []time.Duration // of each record, sorted
	// CPU time of gateways, store and clients
	gateways, nats, clients time.Duration
}

// each is CPU seconds per million records.
func (o *outcome) each(d time.Duration) float64 { return d.Seconds() / float64(o.records) * 1e6 }

func (o *outcome) rate() float64 { return float64(o.records) / o.took.Seconds() }

func (o *outcome) wait(p float64) time.Duration {
	return o.waits[min(len(o.waits)-1, int(p*float64(len(o.waits))))].Round(10 * time.Microsecond)
}

func (o *outcome) String() string {
	return fmt.Sprintf("%.0f records/s, waits p50 %v p99 %v max %v, CPU s per million: gateways %.2f, store %.2f, clients %.2f",
		o.rate(), o.wait(0.5), o.wait(0.99), o.wait(1), o.each(o.gateways), o.each(o.nats), o.each(o.clients))
}

// partition of a producer.
func (l *load) partition(producer int) int32 { return int32(producer) % l.partitions }

// gateway of a producer: all have as many producers, and those of one partition are
// at as many gateways as there are.
func (l *load) gateway(producer int) int {
	return (producer%int(l.partitions) + producer/int(l.partitions)) % len(l.gateways)
}

// TestSpread: who produces to what through whom.
func TestSpread(t *testing.T) {
	for _, x := range []struct {
		producers, gateways int
		partitions          int32
		each, writers       int // producers of a gateway, gateways of a partition
	}{{10, 1, 1, 10, 1}, {10, 2, 1, 5, 2}, {10, 5, 1, 2, 5}, {32, 1, 16, 32, 1}, {32, 2, 16, 16, 2}, {32, 4, 16, 8, 2}, {64, 4, 16, 16, 4}} {
		l := load{gateways: make([]*testkit.Stream, x.gateways), partitions: x.partitions}
		each := make([]int, x.gateways)
		writers := make([]map[int]bool, x.partitions)
		for i := range x.producers {
			g, p := l.gateway(i), l.partition(i)
			each[g]++
			if writers[p] == nil {
				writers[p] = map[int]bool{}
			}
			writers[p][g] = true
		}
		for g, n := range each {
			if n != x.each {
				t.Errorf("%+v: gateway %d has %d producers", x, g, n)
			}
		}
		for p, gs := range writers {
			if len(gs) != x.writers {
				t.Errorf("%+v: partition %d is written through %d gateways", x, p, len(gs))
			}
		}
	}
}

func (l *load) run(t *testing.T, f *fleet) *outcome {
	t.Helper()
	o := &outcome{acked: make([][]int64, l.producers)}
	var mu sync.Mutex // guards: o.waits, o.records
	var wait sync.WaitGroup
	clients := make([]*kgo.Client, l.producers)
	for i := range clients {
		// A batch holds what is on its way at most; five requests at a time.
		clients[i] = client(t, l.gateways[l.gateway(i)], kgo.MaxBufferedRecords(l.depth), kgo.ProducerBatchMaxBytes(64<<10))
		if err := clients[i].Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	gateways, nats, cs := f.spent()
	began := time.Now()
	ctx, stop := context.WithDeadline(t.Context(), began.Add(l.length))
	defer stop()
	for i, c := range clients {
		wait.Go(func() {
			var waits []time.Duration
			var inside sync.WaitGroup
			var each sync.Mutex // guards: waits, o.acked[i]
			slots := make(chan struct{}, l.depth)
			for n := 0; ctx.Err() == nil; n++ {
				slots <- struct{}{}
				value := make([]byte, max(l.size, 16))
				binary.BigEndian.PutUint64(value, uint64(i))
				binary.BigEndian.PutUint64(value[8:], uint64(n))
				at := time.Now()
				each.Lock()
				o.acked[i] = append(o.acked[i], -1)
				each.Unlock()
				inside.Add(1)
				c.Produce(context.Background(), &kgo.Record{Topic: l.topic, Partition: l.partition(i), Value: value}, func(r *kgo.Record, err error) {
					defer inside.Done()
					<-slots
					if err != nil {
						t.Errorf("producer %d, record %d: %v", i, n, err)
						return
					}
					took := time.Since(at)
					each.Lock()
					waits = append(waits, took)
					o.acked[i][n] = r.Offset
					each.Unlock()
				})
			}
			inside.Wait()
			mu.Lock()
			defer mu.Unlock()
			o.waits = append(o.waits, waits...)
			o.records += len(waits)
		})
	}
	wait.Wait()
	o.took = time.Since(began)
	o.gateways, o.nats, o.clients = f.spent()
	o.gateways, o.nats, o.clients = o.gateways-gateways, o.nats-nats, o.clients-cs
	slices.Sort(o.waits)
	if len(o.waits) == 0 {
		t.Fatal("nothing was acknowledged")
	}
	return o
}

// check reads everything through one gateway and compares it with what was
// acknowledged.
func (l *load) check(t *testing.T, o *outcome, through *testkit.Stream) {
	t.Helper()
	at := map[string]map[int32]kgo.Offset{l.topic: {}}
	for p := range l.partitions {
		at[l.topic][p] = kgo.NewOffset().At(l.begin)
	}
	c := client(t, through, kgo.ConsumePartitions(at), kgo.FetchMaxBytes(8<<20))
	next := make([]int64, l.partitions)
	next[0] = l.begin
	number := make([]int, l.producers)
	deadline, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for got := 0; got < o.records; {
		fs := c.PollFetches(deadline)
		if err := fs.Err0(); err != nil {
			t.Fatalf("%d of %d records read: %v", got, o.records, err)
		}
		fs.EachError(func(_ string, p int32, err error) { t.Errorf("read partition %d: %v", p, err) })
		fs.EachRecord(func(r *kgo.Record) {
			got++
			if r.Offset != next[r.Partition] {
				t.Fatalf("partition %d: offset %d after %d", r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition]++
			i, n := int(binary.BigEndian.Uint64(r.Value)), int(binary.BigEndian.Uint64(r.Value[8:]))
			if n != number[i] || o.acked[i][n] != r.Offset {
				t.Fatalf("offset %d: record %d of producer %d, which was acknowledged at %d; next is its record %d", r.Offset, n, i, o.acked[i][n], number[i])
			}
			number[i]++
		})
	}
	for i, n := range number {
		if n != len(o.acked[i]) {
			t.Errorf("producer %d: %d of %d records found", i, n, len(o.acked[i]))
		}
	}
}
