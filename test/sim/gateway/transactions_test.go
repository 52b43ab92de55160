package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/types"
)

// Transactions: workers read numbers, write one record for each and commit how far
// they have come, all in transactions, some of which they abort. A worker that does
// not know what became of one begins anew, as the next process of its transactional
// id, and now and then another process does so under its feet. In the end every
// number that was committed as read is in the output once, and no other.

const (
	etl        = "etl" // the workers' group
	source     = "source"
	sink       = "sink"
	sinks      = 3
	txnTimeout = 10 * time.Second
)

// TestTransactions runs SIM_SEEDS seeds (default 15), or the one seed SIM_SEED.
func TestTransactions(t *testing.T) {
	var total counts
	many := sim.Seeds(t, 15, func(t *testing.T, seed uint64) {
		sim.Bubble(t, func(t *testing.T) {
			x := &exact{run: newRun(t, seed), counts: &total, floor: map[string]int64{}}
			x.play()
		})
	})
	if !many || t.Failed() {
		return
	}
	enough := sim.Number(t, "SIM_SEEDS", 0) >= 100
	for what, n := range map[string]*atomic.Int64{
		"commits": &total.commits, "aborts": &total.aborts, "processes fenced": &total.fenced, "transactions left open": &total.left,
		"offsets that were unstable": &total.unstable, "processes begun anew": &total.anew,
	} {
		if t.Logf("%9d %s", n.Load(), what); n.Load() == 0 && enough {
			t.Errorf("never: %s", what)
		}
	}
}

// counts are what must happen now and then.
type counts struct{ commits, aborts, fenced, left, unstable, anew atomic.Int64 }

// exact is a run of workers in transactions.
type exact struct {
	*run
	*counts
	in, out types.TopicID
	ids     int

	mu    sync.Mutex       // guards: floor
	floor map[string]int64 // by transactional id: the highest offset whose commit was acknowledged
}

func (x *exact) play() {
	s := x.run
	var starting sync.WaitGroup
	for _, seat := range s.seats {
		starting.Go(func() { seat.start("g", 0) })
	}
	starting.Wait()
	x.ids = 1 + s.rng.IntN(3)
	x.in, x.out = x.make(source, int32(x.ids)), x.make(sink, sinks)
	var workers, troubles sync.WaitGroup
	for i := range x.ids {
		for twin := range 1 + s.rng.IntN(2) {
			workers.Go(func() {
				w := &worker{x: x, r: sim.Rand(s.seed, uint64(700+10*i+twin)), id: fmt.Sprint("tx", i), n: int32(i)}
				w.work()
			})
		}
	}
	for i := range s.rng.IntN(3) {
		troubles.Go(func() { s.trouble(sim.Rand(s.seed, uint64(600+i))) })
	}
	time.Sleep(time.Duration(5+s.rng.IntN(25)) * time.Second)
	close(s.ended)
	troubles.Wait()
	s.weather.Clear()
	for _, seat := range s.seats {
		seat.heal()
	}
	close(s.healed)
	workers.Wait()
	x.verify()
	close(s.done)
	for _, seat := range s.seats {
		seat.stop(seat.now(), s.rng.IntN(2) == 0)
	}
	time.Sleep(30 * time.Second)
}

// make makes a topic, however long it takes.
func (x *exact) make(name string, partitions int32) types.TopicID {
	for {
		id, err := x.create(x.rng, name, partitions)
		if err == nil {
			return id
		}
		if errors.Is(err, kerr.TopicAlreadyExists) {
			if id, _, ok := x.find(x.rng, name, x.done); ok {
				return id
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// worker is a process with a transactional id.
type worker struct {
	x  *exact
	r  *rand.Rand
	id string
	n  int32 // its partition of the source

	producer txn.Producer
	sequence [sinks]int32
}

// again asks anybody until it is done, some times. Errors that say something of the
// producer end it at once.
func again[T any](w *worker, what string, fn func(ctx context.Context, b *broker.Broker) (T, error)) (v T, err error) {
	for try := range 6 {
		v, err = ask(w.r, w.x.any(w.r), sim.Millis(w.r, 8000), true, fn)
		if err == nil {
			return v, nil
		}
		w.x.trace("%s %s try %d: %v", w.id, what, try, err)
		switch {
		case errors.Is(err, kerr.UnstableOffsetCommit):
			w.x.unstable.Add(1)
		case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
			w.x.fenced.Add(1)
			return v, err
		case errors.Is(err, errCut), errors.Is(err, errRefused), errors.Is(err, kerr.ConcurrentTransactions), kerr.IsRetriable(err):
		case errors.Is(err, kerr.InvalidTxnState), errors.Is(err, kerr.InvalidProducerIDMapping),
			errors.Is(err, kerr.TransactionAbortable), errors.Is(err, kerr.OutOfOrderSequenceNumber):
			return v, err
		default:
			w.x.t.Errorf("%s %s: %v", w.id, what, err)
			return v, err
		}
		sim.Pause(w.x.healed, sim.Millis(w.r, 300))
		time.Sleep(sim.Millis(w.r, 50))
	}
	return v, err
}

func (w *worker) work() {
	for !sim.Over(w.x.ended) && !w.x.t.Failed() {
		p, err := again(w, "init", func(ctx context.Context, b *broker.Broker) (txn.Producer, error) {
			a := b.Transactions().Init(ctx, txn.InitRequest{TransactionalID: w.id, Timeout: txnTimeout, Producer: txn.NoProducer})
			return a.Producer, a.Err
		})
		if err != nil {
			continue
		}
		w.producer, w.sequence = p, [sinks]int32{}
		for !sim.Over(w.x.ended) && w.transaction() {
			sim.Pause(w.x.ended, sim.Millis(w.r, 300))
		}
		w.x.anew.Add(1)
		sim.Pause(w.x.ended, sim.Millis(w.r, 2000))
	}
}

// committed is how far the worker's id has come, when nothing is pending.
func (w *worker) committed() (int64, error) {
	w.x.mu.Lock()
	floor := w.x.floor[w.id]
	w.x.mu.Unlock()
	q := group.FetchRequest{Group: etl, RequireStable: true, Partitions: []group.FetchPartition{{
		TopicPartition: types.TopicPartition{Topic: source, Partition: w.n}, TopicID: w.x.in}}}
	got, err := again(w, "fetch", func(ctx context.Context, b *broker.Broker) (int64, error) {
		a := b.Groups().Fetch(ctx, q)
		if a.Err != nil {
			return 0, a.Err
		}
		return max(int64(a.Offsets[0].Offset), 0), a.Offsets[0].Err
	})
	if err == nil && got < floor {
		w.x.t.Errorf("%s: told %d after the commit of %d was acknowledged", w.id, got, floor)
	}
	return got, err
}

// transaction does one; false if the worker must begin anew.
func (w *worker) transaction() bool {
	at, err := w.committed()
	if err != nil {
		return false
	}
	k := 1 + w.r.Int64N(4)
	for i := range k {
		if w.send(fmt.Sprintf("%s-%d", w.id, at+i)) != nil {
			return false
		}
	}
	if w.commitOffset(at+k) != nil {
		return false
	}
	if w.r.IntN(15) == 0 { // it dies here, or hangs until its time is over
		w.x.left.Add(1)
		time.Sleep([]time.Duration{0, 2 * txnTimeout}[w.r.IntN(2)])
		return false
	}
	commit := w.r.IntN(5) > 0
	p, err := again(w, "end", func(ctx context.Context, b *broker.Broker) (txn.Producer, error) {
		a := b.Transactions().End(ctx, txn.EndRequest{TransactionalID: w.id, Producer: w.producer, Commit: commit, Bump: true})
		return a.Producer, a.Err
	})
	if err != nil {
		return false
	}
	w.producer, w.sequence = p, [sinks]int32{}
	if !commit {
		w.x.aborts.Add(1)
		return true
	}
	w.x.commits.Add(1)
	w.x.mu.Lock()
	w.x.floor[w.id] = max(w.x.floor[w.id], at+k)
	w.x.mu.Unlock()
	return true
}

// send writes a record, as Produce v12 does: it puts the partition into the
// transaction.
func (w *worker) send(name string) error {
	to := target{sink, w.x.out, w.r.Int32N(sinks)}
	f := serde.BatchFields{Attributes: 0x10, ProducerID: w.producer.ID, ProducerEpoch: w.producer.Epoch, BaseSequence: w.sequence[to.partition]}
	q := txn.AddPartitionsRequest{TransactionalID: w.id, Producer: w.producer, Partitions: []txn.Partition{{Topic: to.id, N: to.partition}}, Implicit: true}
	now := time.Now().UnixMilli()
	_, err := again(w, "send "+name, func(ctx context.Context, b *broker.Broker) (int64, error) {
		p, err := open(ctx, b, to)
		if err != nil {
			return 0, err
		}
		done := make(chan partition.AppendResult, 1)
		p.Submit(partition.AppendRequest{
			Records: serde.Build(f, []serde.NewRecord{{TimestampMillis: now, Value: []byte(name + "|")}}), AcksAll: true, Transactional: true, FromZero: true,
			Verify: func(ctx context.Context) (int64, error) {
				a := b.Transactions().AddPartitions(ctx, q)
				return a.N, a.Err
			},
		}, func(r partition.AppendResult) { done <- r })
		select {
		case r := <-done:
			return int64(r.BaseOffset), r.Err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	if err == nil {
		w.sequence[to.partition]++
	}
	return err
}

// commitOffset is TxnOffsetCommit v5.
func (w *worker) commitOffset(at int64) error {
	_, err := again(w, "commit", func(ctx context.Context, b *broker.Broker) (bool, error) {
		a := b.Transactions().AddOffsets(ctx, txn.AddOffsetsRequest{TransactionalID: w.id, Producer: w.producer, Group: etl, Implicit: true})
		if a.Err != nil {
			return false, a.Err
		}
		c := b.Groups().Commit(ctx, group.CommitRequest{
			Membership: group.Membership{Group: etl, Generation: -1},
			Partitions: []group.CommitPartition{{TopicPartition: types.TopicPartition{Topic: source, Partition: w.n}, TopicID: w.x.in, Offset: types.Offset(at), LeaderEpoch: -1}},
			Txn:        &group.TxnCommit{TransactionalID: w.id, ProducerID: w.producer.ID, Epoch: w.producer.Epoch, N: a.N},
		})
		return true, errors.Join(append(c.Partitions, c.Err)...)
	})
	return err
}

// verify waits until every transaction has ended, and compares what readers of
// committed records see, at every gateway and at a new one, with what was committed
// as read.
func (x *exact) verify() {
	x.eventually("a transaction does not end", func() string {
		for n := range int32(sinks) {
			to := target{sink, x.out, n}
			ends := [2]int64{}
			for i, committed := range []bool{false, true} {
				var err error
				if ends[i], err = ask(x.rng, x.any(x.rng), 5*time.Second, false, func(ctx context.Context, b *broker.Broker) (int64, error) {
					p, err := open(ctx, b, to)
					if err != nil {
						return 0, err
					}
					a, err := p.Lookup(ctx, partition.LookupRequest{Timestamp: partition.Latest, Committed: committed})
					return int64(a.Offset), err
				}); err != nil {
					return fmt.Sprintf("%s: %v", to.log(), err)
				}
			}
			if ends[0] != ends[1] {
				return fmt.Sprintf("%s is stable up to %d of %d", to.log(), ends[1], ends[0])
			}
		}
		return ""
	})
	if x.t.Failed() {
		return
	}
	var want []string
	for i := range x.ids {
		w := &worker{x: x, r: x.rng, id: fmt.Sprint("tx", i), n: int32(i)}
		at := int64(0)
		x.eventually("offsets stay unstable", func() string {
			var err error
			if at, err = w.committed(); err != nil {
				return err.Error()
			}
			return ""
		})
		for n := range at {
			want = append(want, fmt.Sprintf("%s-%d", w.id, n))
		}
	}
	slices.Sort(want)
	fresh := &seat{s: x.run, n: len(x.seats)}
	fresh.start("v", 0)
	defer func() { fresh.stop(fresh.now(), false) }()
	for _, seat := range append(slices.Clone(x.seats), fresh) {
		var got []string
		for n := range int32(sinks) {
			got = append(got, x.readCommitted(seat.now(), target{sink, x.out, n})...)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			x.t.Errorf("%s: read %v\ncommitted %v", seat.now().name, strings.Join(got, " "), strings.Join(want, " "))
		}
	}
}

// readCommitted is what a consumer of committed records sees of a partition.
func (x *exact) readCommitted(g *process, to target) (names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := open(ctx, g.broker, to)
	if err != nil {
		x.t.Errorf("%s: %v", g.name, err)
		return nil
	}
	latest, err := p.Lookup(ctx, partition.LookupRequest{Timestamp: partition.Latest, Committed: true})
	if err != nil {
		x.t.Errorf("%s: %v", g.name, err)
		return nil
	}
	end := int64(latest.Offset)
	for next := int64(0); next < end; {
		got, err := p.Read(ctx, partition.ReadRequest{Offset: types.Offset(next), MaxBytes: 1 + x.rng.IntN(3000), Whole: true, Committed: true})
		if err != nil || len(got.Batches) == 0 {
			x.t.Errorf("%s: %d batches of %s at %d of %d: %v", g.name, len(got.Batches), to.log(), next, end, err)
			return names
		}
		aborted := got.Aborted
		open := map[int64]bool{} // aborted transactions, by producer
		for _, data := range got.Batches {
			for len(data) > 0 {
				b, rest, err := serde.ParseBatch(data)
				if err != nil {
					x.t.Error(err)
					return names
				}
				for len(aborted) > 0 && int64(aborted[0].First) <= b.LastOffset() {
					open[aborted[0].ProducerID] = true
					aborted = aborted[1:]
				}
				switch {
				case b.Control():
					delete(open, b.ProducerID())
				case !open[b.ProducerID()]:
					rs, err := values(b)
					if err != nil {
						x.t.Error(err)
					}
					for _, r := range rs {
						names = append(names, r.Value)
					}
				}
				data, next = rest, b.LastOffset()+1
			}
		}
	}
	return names
}
