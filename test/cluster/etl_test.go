package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/testkit"
)

const (
	etlPartitions = 8
	etlWorkers    = 8
	// etlPace is the time between two records of a source.
	etlPace = 50 * time.Millisecond
	// abortPercent is how many transactions are aborted on purpose.
	abortPercent = 10
	// txnTimeout is after which time an open transaction is ended by the cluster.
	txnTimeout = 10 * time.Second
	// lsoGrace is how much longer than that the last stable offset may stand still.
	lsoGrace = 5 * time.Second
)

// Operations of etl whose waits are measured.
const (
	opTxn = "transaction" // from its first record to the end that was agreed on
	opLSO = "LSO stands"  // the last stable offset does not move with more behind it
)

// etl is the clients of one round with transactions: sources fill a topic, workers
// carry its records to another, partition by partition, in transactions, and
// verifiers read that.
type etl struct {
	t     *testing.T
	w     *world
	watch *watch
	seed  uint64
	in    string
	out   string
	group string

	source  context.Context // of sources
	stop    context.CancelFunc
	rest    context.Context // of everybody else
	endRest context.CancelFunc
	filling sync.WaitGroup
	working sync.WaitGroup

	mu      sync.Mutex
	ledger  ledger         // guards: but for Inputs, which are the acknowledged ends meanwhile
	ends    map[string]int // guards: transactions by how they ended
	errs    map[string]int // guards: errors that ended sessions or transactions
	workers []*worker      // by place
	owns    []string       // guards: by place: the transactional id of its worker
}

// newEtl makes the topics and starts the clients.
func newEtl(t *testing.T, w *world, watch *watch, name string, seed int) *etl {
	t.Helper()
	e := &etl{t: t, w: w, watch: watch, seed: uint64(seed), in: name + "-in", out: name + "-out", group: name + "-workers", ends: map[string]int{}, errs: map[string]int{}}
	e.ledger = ledger{Inputs: make([]int64, etlPartitions), Attempts: map[string]*attempt{}, Committed: make([][]copied, etlPartitions), Uncommitted: make([][]copied, etlPartitions)}
	cl := newClient(t, w)
	defer cl.Close()
	admin := kadm.NewClient(cl)
	for _, topic := range []string{e.in, e.out} {
		testkit.Poll(t, lastWords, "the topic is made", func() error {
			r, err := admin.CreateTopic(t.Context(), etlPartitions, int16(w.replicas), nil, topic)
			if errors.Is(cmpErr(err, r.Err), kerr.TopicAlreadyExists) {
				return nil
			}
			return cmpErr(err, r.Err)
		})
		// Apache Kafka says so a moment before its transactions know it.
		testkit.Poll(t, lastWords, "the topic is there", func() error {
			r, err := admin.ListEndOffsets(t.Context(), topic)
			return cmpErr(err, r.Error())
		})
	}
	e.source, e.stop = context.WithCancel(t.Context())
	e.rest, e.endRest = context.WithCancel(context.WithoutCancel(t.Context()))
	for i := range 3 {
		e.filling.Go(func() { e.fill(fmt.Sprintf("source %d", i)) })
	}
	for i := range etlWorkers {
		wk := &worker{e: e, place: i, random: rand.New(rand.NewPCG(uint64(seed), uint64(i)+1)), orders: make(chan string, 1)}
		e.workers = append(e.workers, wk)
		e.working.Go(wk.run)
	}
	e.working.Go(func() { e.verify("read_committed", kgo.ReadCommitted(), e.ledger.Committed) })
	e.working.Go(func() { e.verify("read_uncommitted", kgo.ReadUncommitted(), e.ledger.Uncommitted) })
	e.working.Go(e.watchStable)
	t.Cleanup(func() {
		e.stop()
		e.endRest()
		e.filling.Wait()
		e.working.Wait()
	})
	return e
}

// fill sends to the input until it is stopped, and waits for all acknowledgements.
func (e *etl) fill(name string) {
	cl := newClient(e.t, e.w, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.StopProducerOnDataLossDetected())
	defer cl.Close()
	sendUntil(e.source, e.t, name, cl, etlPace, func(ctx context.Context, n int) {
		p := int32(n % etlPartitions)
		began := time.Now()
		cl.Produce(ctx, &kgo.Record{Topic: e.in, Partition: p, Value: fmt.Appendf(nil, "%s/%d", name, n)}, func(r *kgo.Record, err error) {
			if err != nil {
				if ctx.Err() == nil {
					e.t.Errorf("%s: record %d of partition %d: %v", name, n, p, err)
				}
				return
			}
			e.watch.note(opProduce, began, time.Since(began), fmt.Sprintf("partition %d, offset %d", p, r.Offset), nil)
			e.mu.Lock()
			defer e.mu.Unlock()
			e.ledger.Inputs[p] = max(e.ledger.Inputs[p], r.Offset+1)
		})
	})
}

// verify reads the output from the start, at the end.
func (e *etl) verify(name string, isolation kgo.IsolationLevel, into [][]copied) {
	cl := newClient(e.t, e.w, e.everything(e.out), kgo.FetchIsolationLevel(isolation), kgo.FetchMaxWait(time.Second))
	defer cl.Close()
	for e.rest.Err() == nil {
		fetches := cl.PollFetches(e.rest)
		fetchErrors(e.t, e.watch, e.rest, name, fetches)
		e.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			into[r.Partition] = append(into[r.Partition], e.parse(r))
		})
		e.mu.Unlock()
	}
}

func (e *etl) everything(topic string) kgo.Opt {
	at := map[string]map[int32]kgo.Offset{topic: {}}
	for p := range int32(etlPartitions) {
		at[topic][p] = kgo.NewOffset().AtStart()
	}
	return kgo.ConsumePartitions(at)
}

// value is what a worker writes for a record of the input.
func value(attempt string, input int64) []byte { return fmt.Appendf(nil, "%d %s", input, attempt) }

func (e *etl) parse(r *kgo.Record) copied {
	c := copied{Offset: r.Offset}
	if _, err := fmt.Sscanf(string(r.Value), "%d %s", &c.Input, &c.Attempt); err != nil {
		e.t.Errorf("partition %d, offset %d: %q", r.Partition, r.Offset, r.Value)
	}
	return c
}

// watchStable measures how long the last stable offset of a partition stands still
// while there are records behind it.
func (e *etl) watchStable() {
	cl := newClient(e.t, e.w, kgo.RetryTimeout(10*time.Second))
	defer cl.Close()
	admin := kadm.NewClient(cl)
	type standing struct {
		at    int64
		since time.Time // when the first answer came that said so
		noted time.Duration
	}
	var stand [etlPartitions]standing
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.rest.Done():
			return
		}
		asked := time.Now()
		stable, err := admin.ListCommittedOffsets(e.rest, e.out)
		if err != nil || stable.Error() != nil {
			continue
		}
		answered := time.Now()
		ends, err := admin.ListEndOffsets(e.rest, e.out)
		if err != nil || ends.Error() != nil {
			continue
		}
		for p := range int32(etlPartitions) {
			lso, _ := stable.Lookup(e.out, p)
			end, _ := ends.Lookup(e.out, p)
			s := &stand[p]
			if lso.Offset >= end.Offset || lso.Offset != s.at || s.since.IsZero() {
				if lso.Offset < s.at {
					e.t.Errorf("partition %d: the last stable offset went back from %d to %d", p, s.at, lso.Offset)
				}
				if s.noted > 0 {
					e.watch.note(opLSO, s.since, s.noted, fmt.Sprintf("partition %d, offset %d", p, s.at), nil)
				}
				*s = standing{at: lso.Offset}
				if lso.Offset < end.Offset {
					s.since = answered
				}
				continue
			}
			s.noted = asked.Sub(s.since)
		}
	}
}

// waitBegun waits until every partition is carried.
func (e *etl) waitBegun() {
	e.t.Helper()
	e.progress(1)
}

// progress waits until n more records of every partition have been carried over.
func (e *etl) progress(n int64) time.Duration {
	e.t.Helper()
	began := time.Now()
	e.mu.Lock()
	var before [etlPartitions]int
	for p, c := range e.ledger.Committed {
		before[p] = len(c)
	}
	e.mu.Unlock()
	testkit.Poll(e.t, lastWords, "records are carried over", func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		for p, c := range e.ledger.Committed {
			if len(c) < before[p]+int(n) {
				return fmt.Errorf("partition %d: %d of %d; %v", p, len(c)-before[p], n, e.errs)
			}
		}
		return nil
	})
	return time.Since(began)
}

// streams are those whose leaders may be asked to step down.
func (e *etl) streams() []string {
	names := []string{"KV_kafka-consumer-offsets", "KV_kafka-gateways", "KV_kafka-partitions", "KV_kafka-topics", "KV_kafka-txns"}
	for p := range etlPartitions {
		names = append(names, fmt.Sprintf("kafka-%s-%d", e.in, p), fmt.Sprintf("kafka-%s-%d", e.out, p))
	}
	return names
}

// replace has a worker end in one of the ways of fates, and another take its place.
func (e *etl) replace(n, m int) string {
	w, fate := e.workers[n%len(e.workers)], fates[m%len(fates)]
	select {
	case w.orders <- fate:
	default: // it has not come to the last one yet
	}
	return fmt.Sprintf("worker %d %s", w.place, fate)
}

// finish ends the load when everything is carried over, and checks all of it. All
// faults must be over.
func (e *etl) finish(seed int, judge bool) {
	t := e.t
	t.Helper()
	e.stop()
	e.filling.Wait()
	testkit.Poll(t, lastWords, "everything is carried over", func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		for p, c := range e.ledger.Committed {
			if len(c) == 0 || c[len(c)-1].Input != e.ledger.Inputs[p]-1 {
				return fmt.Errorf("partition %d: %d of %d; %v", p, len(c), e.ledger.Inputs[p], e.errs)
			}
		}
		return nil
	})
	cl := newClient(t, e.w)
	defer cl.Close()
	admin := kadm.NewClient(cl)
	ends := make([]int64, etlPartitions)
	testkit.Poll(t, txnTimeout+lastWords, "no transaction is open", func() error {
		stable, err := admin.ListCommittedOffsets(t.Context(), e.out)
		if err = cmpErr(err, stable.Error()); err != nil {
			return err
		}
		all, err := admin.ListEndOffsets(t.Context(), e.out)
		if err = cmpErr(err, all.Error()); err != nil {
			return err
		}
		for p := range ends {
			lso, _ := stable.Lookup(e.out, int32(p))
			end, _ := all.Lookup(e.out, int32(p))
			if ends[p] = end.Offset; lso.Offset != end.Offset {
				return fmt.Errorf("partition %d is stable up to %d of %d", p, lso.Offset, end.Offset)
			}
		}
		return nil
	})
	offsets, err := admin.FetchOffsets(t.Context(), e.group)
	if err != nil {
		t.Errorf("the workers' offsets: %v", err)
	}
	for p, n := range e.ledger.Inputs {
		if o, ok := offsets.Lookup(e.in, int32(p)); !ok || o.Err != nil || o.At != n {
			t.Errorf("partition %d: %d is committed, want %d: %v", p, o.At, n, o.Err)
		}
	}
	e.endRest()
	e.working.Wait()
	// Once more, by somebody who was not there: from the start to the end.
	e.ledger.Uncommitted = e.readAgain(kgo.ReadUncommitted(), ends)
	again := e.readAgain(kgo.ReadCommitted(), ends)
	for p, c := range e.ledger.Committed {
		if !slices.Equal(c, again[p]) {
			t.Errorf("partition %d: %d committed records were read at the end, %d from the start", p, len(c), len(again[p]))
		}
	}
	e.ledger.Committed = again
	problems := e.ledger.problems()
	for _, p := range problems[:min(len(problems), 30)] {
		t.Errorf("%s: %s", e.out, p)
	}
	records := 0
	for _, c := range again {
		records += len(c)
	}
	t.Logf("%s: %d records carried; transactions: %s; errors: %s", e.out, records, counted(e.ends), counted(e.errs))
	if t.Failed() {
		if err := e.ledger.save(keepAs(t, seed, e.out) + ".ledger.json.gz"); err != nil {
			t.Error(err)
		}
	}
	if judge {
		e.watch.stands(t, txnTimeout+lsoGrace)
	}
}

func counted(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(parts, ", ")
}

// readAgain reads the output up to its ends.
func (e *etl) readAgain(isolation kgo.IsolationLevel, ends []int64) [][]copied {
	all := make([][]copied, etlPartitions)
	cl := newClient(e.t, e.w, e.everything(e.out), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords())
	defer cl.Close()
	ctx, cancel := context.WithTimeout(e.t.Context(), lastWords)
	defer cancel()
	left := 0
	for _, end := range ends {
		if end > 0 {
			left++
		}
	}
	for left > 0 && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetchErrors(e.t, e.watch, ctx, "last reader", fetches)
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				all[r.Partition] = append(all[r.Partition], e.parse(r))
			}
			// The last of a log in which no transaction is open is a marker.
			if r.Offset == ends[r.Partition]-1 {
				left--
			}
		})
	}
	if left > 0 {
		e.t.Errorf("%d partitions could not be read to the end within %v", left, lastWords)
	}
	return all
}
