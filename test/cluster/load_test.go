package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/history"
	"github.com/hanzoai/stream/test/testkit"
)

// Operations whose waits are measured.
const (
	opProduce = "produce" // from the call to the acknowledgement
	opFetch   = "fetch"   // from the acknowledgement to a reader at the end
	opCommit  = "commit"  // of a group's member, until it is accepted
	opSession = "session lost"
)

const (
	partitions = 6
	producers  = 3
	// pace is the time between two records of a producer.
	pace = 10 * time.Millisecond
	// lastWords is how long the last record, or a consumer, may take to get
	// through when all faults are over.
	lastWords = 2 * time.Minute
)

// load is the clients of one round: a topic of its own, producers, groups, a
// reader at the end, and what they saw.
type load struct {
	t     *testing.T
	w     *world
	topic string
	watch *watch
	rec   history.Recorder

	stop      context.CancelFunc // of producers
	ctx       context.Context
	producing sync.WaitGroup
	reading   sync.WaitGroup
	endReads  context.CancelFunc

	mu      sync.Mutex
	acked   map[record]time.Time // guards: acknowledged and not yet read at the end
	read    [partitions]int64    // guards: next offset of the reader at the end
	ends    [partitions]int64    // guards: offset after the highest acknowledged
	sent    int                  // guards: records acknowledged
	at      map[string][]int64   // guards: by group: next offset of each partition that was committed
	members []*member            // guards: living
}

// record is where a record is.
type record struct {
	partition int32
	offset    int64
}

// client is newClient for this load.
func (l *load) client(o ...kgo.Opt) *kgo.Client { return newClient(l.t, l.w, o...) }

// newClient makes a franz-go client that goes on for as long as a fault may last.
func newClient(t *testing.T, w *world, o ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(clientOpts(w, o...)...)
	if err != nil {
		t.Error(err)
	}
	return cl
}

func clientOpts(w *world, o ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(w.seeds...),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.RequestRetries(10_000),
		kgo.RetryTimeout(lastWords),
		// A connection that ends before its first answer is a kill here.
		kgo.AlwaysRetryEOF(),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.DialTimeout(2 * time.Second),
	}, o...)
}

// newLoad makes the topic and starts the clients.
func newLoad(t *testing.T, w *world, watch *watch, name string) *load {
	t.Helper()
	l := &load{t: t, w: w, topic: name, watch: watch, acked: map[record]time.Time{}, at: map[string][]int64{}}
	cl := l.client()
	defer cl.Close()
	admin := kadm.NewClient(cl)
	testkit.Poll(t, lastWords, "the topic is made", func() error {
		r, err := admin.CreateTopic(t.Context(), partitions, int16(w.replicas), nil, name)
		if errors.Is(cmpErr(err, r.Err), kerr.TopicAlreadyExists) {
			return nil
		}
		return cmpErr(err, r.Err)
	})
	var reads context.Context
	l.ctx, l.stop = context.WithCancel(t.Context())
	reads, l.endReads = context.WithCancel(t.Context())
	for i := range producers {
		l.producing.Go(func() { l.produce(fmt.Sprintf("producer %d", i)) })
	}
	l.reading.Go(func() { l.follow(reads) })
	for _, kind := range groupKinds {
		l.at[l.group(kind)] = make([]int64, partitions)
		for i := range 2 {
			l.join(kind, i)
		}
	}
	l.reading.Go(func() { l.askCommitted(reads) })
	t.Cleanup(func() {
		l.stopProducing()
		l.endReading()
	})
	return l
}

// waitBegun waits until every client has got through once: the time that groups
// take to gather is no stall.
func (l *load) waitBegun() {
	l.t.Helper()
	testkit.Poll(l.t, lastWords, "the load has begun", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for p, o := range l.read {
			if o == 0 {
				return fmt.Errorf("nothing of partition %d has been read", p)
			}
			for _, kind := range groupKinds {
				if l.at[l.group(kind)][p] == 0 {
					return fmt.Errorf("the %s group has committed nothing of partition %d", kind, p)
				}
			}
		}
		return nil
	})
}

// endReading ends everybody but the producers; members leave their groups.
func (l *load) endReading() {
	l.endReads()
	l.mu.Lock()
	members := l.members
	l.mu.Unlock()
	for _, m := range members {
		m.stop()
	}
	l.reading.Wait()
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *load) log(p int32) history.Log { return history.Log{Topic: l.topic, Partition: p} }

// sendUntil sends one record after the other, until the context ends, and then waits
// for the acknowledgement of all, lastWords long. The context that send gets ends
// with that.
func sendUntil(source context.Context, t *testing.T, name string, cl *kgo.Client, pace time.Duration, send func(ctx context.Context, n int)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(source))
	defer cancel()
	defer context.AfterFunc(source, func() { time.AfterFunc(lastWords, cancel) })()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
			send(ctx, n)
		case <-source.Done():
			if err := cl.Flush(ctx); err != nil {
				t.Errorf("%s: the last records are not acknowledged %v after the faults", name, lastWords)
			}
			return
		}
	}
}

// produce sends until stop, each record to the next partition, and waits for the
// acknowledgement of all.
func (l *load) produce(name string) {
	var at waits
	cl := l.client(kgo.WithHooks(&at), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(5000), kgo.StopProducerOnDataLossDetected())
	defer cl.Close()
	sendUntil(l.ctx, l.t, name, cl, pace, func(ctx context.Context, n int) {
		p := int32(n % partitions)
		s := history.Send{Log: l.log(p), Producer: name, Idempotent: true, Value: fmt.Sprintf("%s/%d/%d", name, p, n)}
		s.Span = l.rec.Begin()
		began := time.Now()
		cl.Produce(ctx, &kgo.Record{Topic: l.topic, Partition: p, Value: []byte(s.Value + strings.Repeat(" ", 200))}, func(r *kgo.Record, err error) {
			s.Outcome, s.Offset = history.OK, r.Offset
			if err != nil {
				s.Outcome, s.Offset = history.Unknown, -1
				if ctx.Err() == nil {
					l.t.Errorf("%s: record %d of partition %d: %v", name, n, p, err)
				}
			}
			l.rec.Send(s)
			if err != nil {
				return
			}
			now := time.Now()
			l.watch.note(opProduce, began, now.Sub(began), fmt.Sprintf("partition %d, offset %d", p, r.Offset), &at)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.sent++
			l.ends[p] = max(l.ends[p], r.Offset+1)
			if r.Offset >= l.read[p] {
				l.acked[record{p, r.Offset}] = now
			}
		})
	})
}

// follow reads every partition from the start, at the end.
func (l *load) follow(ctx context.Context) {
	at := map[string]map[int32]kgo.Offset{l.topic: {}}
	for p := range int32(partitions) {
		at[l.topic][p] = kgo.NewOffset().AtStart()
		l.rec.Seek(history.Seek{Consumer: "reader", Log: l.log(p), Offset: 0})
	}
	var where waits
	cl := l.client(kgo.WithHooks(&where), kgo.WithLogger(&where), kgo.ConsumePartitions(at), kgo.FetchMaxWait(time.Second), kgo.FetchMinBytes(1))
	defer cl.Close()
	for ctx.Err() == nil {
		span := l.rec.Begin()
		fetches := cl.PollFetches(ctx)
		l.errors(ctx, "reader", fetches)
		l.polled("reader", span, fetches)
		now := time.Now()
		l.mu.Lock()
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			for _, r := range f.Records {
				k := record{r.Partition, r.Offset}
				if acked, ok := l.acked[k]; ok {
					l.watch.note(opFetch, acked, now.Sub(acked), fmt.Sprintf("partition %d, offset %d", r.Partition, r.Offset), &where)
					delete(l.acked, k)
				}
				l.read[r.Partition] = r.Offset + 1
			}
		})
		l.mu.Unlock()
	}
}

// errors are what no client may be told, whatever happens to the cluster. That a
// session of a group has ended is no error to a client that joins again.
func (l *load) errors(ctx context.Context, who string, f kgo.Fetches) {
	fetchErrors(l.t, l.watch, ctx, who, f)
}

func fetchErrors(t *testing.T, w *watch, ctx context.Context, who string, f kgo.Fetches) {
	f.EachError(func(_ string, p int32, err error) {
		var session *kgo.ErrGroupSession
		if errors.As(err, &session) {
			w.took(opSession, time.Now(), who, nil)
			return
		}
		if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: partition %d: %v", who, p, err)
		}
	})
}

// polled records what was read.
func (l *load) polled(who string, span history.Span, fetches kgo.Fetches) {
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if len(f.Records) == 0 {
			return
		}
		p := history.Poll{Span: span, Consumer: who, Log: l.log(f.Partition), HighWatermark: f.HighWatermark}
		for _, r := range f.Records {
			p.Records = append(p.Records, history.Record{Offset: r.Offset, Value: strings.TrimRight(string(r.Value), " ")})
		}
		l.rec.Poll(p)
	})
}

// finish ends the load, reads everything again and has the history checked. All
// faults must be over.
func (l *load) finish(seed int, _ bool) {
	t := l.t
	t.Helper()
	l.stopProducing()
	l.mu.Lock()
	ends, sent := l.ends, l.sent
	l.mu.Unlock()
	testkit.Poll(t, lastWords, "the reader is at the end", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.read != ends {
			return fmt.Errorf("it is at %v of %v", l.read, ends)
		}
		return nil
	})
	for _, kind := range groupKinds {
		testkit.Poll(t, lastWords, "the "+kind+" group is at the end", func() error {
			l.mu.Lock()
			defer l.mu.Unlock()
			for p, o := range l.at[l.group(kind)] {
				if o != ends[p] {
					return fmt.Errorf("it has committed %v of %v", l.at[l.group(kind)], ends)
				}
			}
			return nil
		})
	}
	l.endReading()
	l.final(ends)
	t.Logf("%s: %d records acknowledged, ends %v", l.topic, sent, ends)
	check(t, &l.rec, seed, l.topic)
}

// streams are those whose leaders may be asked to step down.
func (l *load) streams() []string {
	names := []string{"KV_kafka-consumer-offsets", "KV_kafka-gateways", "KV_kafka-partitions", "KV_kafka-topics"}
	for p := range partitions {
		names = append(names, fmt.Sprintf("kafka-%s-%d", l.topic, p))
	}
	return names
}

// stopProducing waits until everything sent is acknowledged.
func (l *load) stopProducing() {
	l.stop()
	l.producing.Wait()
}

// final reads the whole log once more, and asks where it ends.
func (l *load) final(ends [partitions]int64) {
	t := l.t
	cl := l.client()
	span := l.rec.Begin()
	listed, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), l.topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		t.Errorf("the ends of %s: %v", l.topic, err)
	}
	listed.Each(func(o kadm.ListedOffset) {
		l.rec.End(history.End{Span: span, Log: l.log(o.Partition), Offset: o.Offset})
		if o.Offset != ends[o.Partition] {
			t.Errorf("partition %d ends at %d; %d is the highest acknowledged", o.Partition, o.Offset, ends[o.Partition]-1)
		}
	})
	cl.Close()
	at := map[string]map[int32]kgo.Offset{l.topic: {}}
	finals := make([]history.Final, partitions)
	for p := range int32(partitions) {
		at[l.topic][p] = kgo.NewOffset().AtStart()
		finals[p] = history.Final{Span: l.rec.Begin(), Reader: "last reader", Log: l.log(p), End: ends[p]}
	}
	cl = l.client(kgo.ConsumePartitions(at))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), lastWords)
	defer cancel()
	left := 0
	for _, e := range ends {
		left += int(e)
	}
	for left > 0 && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		l.errors(ctx, "last reader", fetches)
		fetches.EachRecord(func(r *kgo.Record) {
			f := &finals[r.Partition]
			f.Records = append(f.Records, history.Record{Offset: r.Offset, Value: strings.TrimRight(string(r.Value), " ")})
			left--
		})
	}
	if left > 0 {
		t.Errorf("%d records could not be read within %v", left, lastWords)
	}
	for _, f := range finals {
		l.rec.Final(f)
	}
}
