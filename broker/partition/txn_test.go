package partition

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

const transactional = 0x10

// txnBatch is a transactional batch of n records of now.
func txnBatch(pid int64, epoch int16, seq int32, n int) []byte {
	times := make([]int64, n)
	for i := range times {
		times[i] = time.Now().UnixMilli()
	}
	return batchSpec{pid: pid, epoch: epoch, seq: seq, times: times, attrs: transactional}.bytes()
}

// told is a coordinator that always says the same.
func told(n int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) { return n, nil }
}

// notAsked is a coordinator that must not be asked.
func notAsked(t *testing.T) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) {
		t.Error("the coordinator was asked")
		return 0, errors.New("not to be asked")
	}
}

func (g *gateway) txn(pid int64, epoch int16, seq int32, n int, verify func(context.Context) (int64, error)) AppendResult {
	return g.produce(AppendRequest{Records: txnBatch(pid, epoch, seq, n), Transactional: true, Verify: verify})
}

// inTxn stores a batch in transaction number txn.
func (g *gateway) inTxn(pid int64, epoch int16, seq int32, n int, txn int64) types.Offset {
	g.w.t.Helper()
	a := g.txn(pid, epoch, seq, n, told(txn))
	if a.Err != nil {
		g.w.t.Fatalf("producer %d epoch %d sequence %d in transaction %d: %v (%s)", pid, epoch, seq, txn, a.Err, a.Message)
	}
	return a.BaseOffset
}

func (g *gateway) end(m Marker) {
	g.w.t.Helper()
	if err := g.p.EndTransaction(g.w.t.Context(), m); err != nil {
		g.w.t.Fatalf("%+v: %v", m, err)
	}
}

func (g *gateway) committed(offset types.Offset) ReadResult {
	g.w.t.Helper()
	r, err := g.p.Read(g.w.t.Context(), ReadRequest{Offset: offset, MaxBytes: 1 << 20, Whole: true, Committed: true})
	if err != nil {
		g.w.t.Fatalf("read at %d: %v", offset, err)
	}
	return r
}

// everywhere calls fn for the gateway, one that reads the log, and one that
// starts from a snapshot.
func (w *world) everywhere(t *testing.T, g *gateway, fn func(what string, g *gateway)) {
	fn("the writer", g)
	fn("a reader of the log", w.gateway(memory.Faults{}))
	if err := g.host.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	fn("a reader of the snapshot", w.gateway(memory.Faults{}))
}

func TestC32OpenThenAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		if base := g.inTxn(7, 0, 0, 3, 1); base != 0 {
			t.Fatalf("base %d", base)
		}
		latest := func(g *gateway, committed bool) types.Offset {
			r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest, Committed: committed})
			if err != nil {
				t.Fatal(err)
			}
			return r.Offset
		}
		w.everywhere(t, g, func(what string, g *gateway) {
			r := g.committed(0)
			if r.Bytes != 0 || r.HighWatermark != 3 || r.LastStable != 0 || r.Aborted == nil || len(r.Aborted) != 0 {
				t.Errorf("open, %s, committed: %+v", what, r)
			}
			if bs := g.read(0); len(bs) != 1 || bs[0].Count() != 3 || !bs[0].Transactional() {
				t.Errorf("open, %s, uncommitted: %d batches", what, len(bs))
			}
			if a, b := latest(g, true), latest(g, false); a != 0 || b != 3 {
				t.Errorf("open, %s: latest %d committed, %d not", what, a, b)
			}
			if n, err := g.p.Available(t.Context(), 0, true); n != 0 || err != nil {
				t.Errorf("open, %s: %d bytes, %v", what, n, err)
			}
			if n, err := g.p.Available(t.Context(), 0, false); n == 0 || err != nil {
				t.Errorf("open, %s: %d bytes uncommitted, %v", what, n, err)
			}
			for at, want := range map[int64]types.Offset{0: -1, MaxTimestamp: -1} {
				if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: at, Committed: true}); err != nil || r.Offset != want {
					t.Errorf("open, %s: lookup of %d: %+v, %v", what, at, r, err)
				}
			}
		})
		g.end(Marker{ProducerID: 7, Epoch: 0, N: 1, CoordinatorEpoch: 5})
		w.everywhere(t, g, func(what string, g *gateway) {
			for from, want := range map[types.Offset][]Aborted{0: {{7, 0}}, 1: {{7, 0}}, 3: {{7, 0}}, 4: {}} {
				r := g.committed(from)
				if r.HighWatermark != 4 || r.LastStable != 4 || !slices.Equal(r.Aborted, want) {
					t.Errorf("aborted, %s, from %d: %+v", what, from, r)
				}
			}
			if bs := split(t, g.committed(0)); len(bs) != 2 || !bs[1].Control() || bs[1].BaseOffset() != 3 {
				t.Errorf("aborted, %s: %d batches", what, len(bs))
			}
			if a, b := latest(g, true), latest(g, false); a != 4 || b != 4 {
				t.Errorf("aborted, %s: latest %d committed, %d not", what, a, b)
			}
		})
	})
}

func TestC35BytesOfAControlBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, commit := range []bool{false, true} {
			w := newWorld(t, memory.Config{})
			g := w.gateway(memory.Faults{})
			g.inTxn(7, 3, 0, 1, 1)
			now := time.Now().UnixMilli()
			g.end(Marker{ProducerID: 7, Epoch: 4, N: 1, Commit: commit, CoordinatorEpoch: 0x01020304})
			b := g.read(1)[0] // checks the checksum
			if len(b) != 78 || b[16] != 2 || b.Attributes() != 0x30 || b.Count() != 1 || b.BaseSequence() != -1 || b.ProducerID() != 7 || b.ProducerEpoch() != 4 ||
				b.LastOffsetDelta() != 0 || b.BaseTimestamp() != now || b.MaxTimestamp() != now || b.LeaderEpoch() != 0 {
				t.Errorf("commit %v: %x", commit, []byte(b))
			}
			kind := byte(0)
			if commit {
				kind = 1
			}
			want := []byte{0x20, 0, 0, 0, 8, 0, 0, 0, kind, 0x0c, 0, 0, 1, 2, 3, 4, 0}
			if !bytes.Equal(b.Records(), want) {
				t.Errorf("commit %v: records %x, want %x", commit, b.Records(), want)
			}
			if a := g.produce(AppendRequest{Records: b, Transactional: true, Verify: told(9)}); !errors.Is(a.Err, kerr.InvalidRecord) {
				t.Errorf("a client's marker: %v", a.Err)
			}
			w.config.LogAppendTime = true
			g.configure(func(c *Config) { c.LogAppendTime = true })
			time.Sleep(time.Second)
			g.inTxn(7, 4, 0, 1, 2)
			g.end(Marker{ProducerID: 7, Epoch: 5, N: 2, Commit: commit})
			if b := g.read(3)[0]; b.Attributes() != 0x38 || b.MaxTimestamp() != time.Now().UnixMilli() {
				t.Errorf("log append time: attributes %x, time %d", b.Attributes(), b.MaxTimestamp())
			}
		}
	})
}

// Every verdict on batches and markers, the same on any gateway.
func TestTransactionVerdicts(t *testing.T) {
	type step struct {
		batch  func(g *gateway) AppendResult
		marker *Marker
		err    error
		base   types.Offset // -1: nothing is stored
	}
	data := func(epoch int16, seq int32, verify func(context.Context) (int64, error)) func(g *gateway) AppendResult {
		return func(g *gateway) AppendResult { return g.txn(7, epoch, seq, 1, verify) }
	}
	bumping := func(epoch int16, seq int32, verify func(context.Context) (int64, error)) func(g *gateway) AppendResult {
		return func(g *gateway) AppendResult {
			return g.produce(AppendRequest{Records: txnBatch(7, epoch, seq, 1), Transactional: true, Verify: verify, FromZero: true})
		}
	}
	plain := func(epoch int16, seq int32) func(g *gateway) AppendResult {
		return func(g *gateway) AppendResult {
			return g.produce(AppendRequest{Records: idempotent(7, epoch, seq, 1)})
		}
	}
	says := func(err error) func(context.Context) (int64, error) {
		return func(context.Context) (int64, error) { return 0, err }
	}
	inTurn := func(ns ...int64) func(context.Context) (int64, error) {
		return func(context.Context) (int64, error) {
			n := ns[0]
			if len(ns) > 1 {
				ns = ns[1:]
			}
			return n, nil
		}
	}
	mark := func(epoch int16, n int64, coordinator int32) *Marker {
		return &Marker{ProducerID: 7, Epoch: epoch, N: n, CoordinatorEpoch: coordinator}
	}
	asked := notAsked(t)
	for name, steps := range map[string][]step{
		"an open transaction goes on without a question": {
			{batch: data(0, 0, told(1)), base: 0},
			{batch: data(0, 1, asked), base: 1},
			{batch: data(0, 0, asked), base: 0}, // again
			{batch: data(0, 3, asked), err: kerr.OutOfOrderSequenceNumber, base: -1},
			{batch: plain(0, 2), err: kerr.InvalidTxnState, base: -1},
			{batch: plain(1, 0), err: kerr.InvalidTxnState, base: -1},
			{batch: data(0, 2, asked), base: 2},
		},
		"the coordinator refuses": {
			{batch: data(0, 0, says(kerr.InvalidTxnState)), err: kerr.InvalidTxnState, base: -1},
			{batch: data(0, 0, says(kerr.InvalidProducerEpoch)), err: kerr.InvalidProducerEpoch, base: -1},
			{batch: data(0, 0, says(kerr.TransactionAbortable)), err: kerr.TransactionAbortable, base: -1},
			{batch: data(0, 0, told(1)), base: 0},
		},
		"a marker of the same epoch": {
			{batch: data(0, 0, told(1)), base: 0},
			{marker: mark(0, 1, 0), base: 1},
			{batch: data(0, 0, asked), base: 0}, // stored before
			{batch: data(0, 1, told(1)), err: kerr.InvalidTxnState, base: -1},
			{batch: data(0, 1, inTurn(1, 2)), base: 2}, // the next one began meanwhile
			{marker: mark(0, 1, 0), base: -1},          // late
			{batch: data(0, 2, asked), base: 3},
		},
		"a marker that raises the epoch": {
			{batch: data(0, 0, told(1)), base: 0},
			{batch: data(0, 1, asked), base: 1},
			{marker: mark(1, 1, 0), base: 2},
			{batch: data(0, 2, asked), err: kerr.InvalidProducerEpoch, base: -1},
			{batch: data(0, 1, asked), err: kerr.InvalidProducerEpoch, base: -1},
			{batch: data(1, 2, told(2)), err: kerr.OutOfOrderSequenceNumber, base: -1},
			{batch: data(1, 0, told(2)), base: 3},
			{marker: mark(1, 1, 0), base: -1},
			{marker: mark(2, 2, 0), base: 4},
			{marker: mark(2, 2, 0), base: -1},
		},
		"a marker with nothing open": {
			{marker: mark(3, 4, 0), base: 0},
			{batch: data(2, 0, asked), err: kerr.InvalidProducerEpoch, base: -1},
			{batch: data(3, 0, told(4)), err: kerr.InvalidTxnState, base: -1},
			{batch: data(3, 1, told(5)), err: kerr.OutOfOrderSequenceNumber, base: -1},
			{batch: data(3, 0, told(5)), base: 1},
		},
		"an earlier transaction is open": {
			{batch: data(0, 0, told(1)), base: 0},
			{batch: data(1, 0, told(2)), err: kerr.InvalidTxnState, base: -1},
			{marker: mark(1, 1, 0), base: 1},
			{batch: data(1, 0, told(2)), base: 2},
		},
		"a tool ends what is open": {
			{batch: data(4, 0, told(3)), base: 0},
			{marker: mark(3, 0, 7), err: kerr.InvalidProducerEpoch, base: -1},
			{marker: mark(4, 0, 7), base: 1},
			{marker: mark(4, 3, 7), base: -1},
			{batch: data(4, 1, told(3)), err: kerr.InvalidTxnState, base: -1},
			{batch: data(4, 1, told(4)), base: 2},
			{marker: mark(4, 0, 6), err: kerr.TransactionCoordinatorFenced, base: -1},
			{marker: mark(4, 0, 7), base: 3},
			{batch: plain(4, 2), base: 4},
		},
		"an unknown producer begins anywhere": {
			{batch: data(0, 5, told(1)), base: 0},
			{batch: bumping(0, 6, told(1)), base: 1},
		},
		"an unknown producer of version 2 begins at 0": {
			{batch: bumping(0, 5, told(1)), err: kerr.OutOfOrderSequenceNumber, base: -1},
			{batch: bumping(0, 0, told(1)), base: 0},
			{batch: bumping(0, 1, told(1)), base: 1},
			{marker: mark(1, 1, 0), base: 2},
			{batch: bumping(1, 2, told(2)), err: kerr.OutOfOrderSequenceNumber, base: -1},
			{batch: bumping(1, 0, told(2)), base: 3},
		},
		"the coordinator's refusal comes before that of the sequence": {
			{batch: bumping(0, 5, says(kerr.InvalidTxnState)), err: kerr.InvalidTxnState, base: -1},
			{batch: bumping(0, 5, told(1)), err: kerr.OutOfOrderSequenceNumber, base: -1},
		},
	} {
		for _, how := range []string{"one gateway", "two in turn", "restarts", "handed over"} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, memory.Config{})
					gs := []*gateway{w.gateway(memory.Faults{})}
					switch how {
					case "two in turn":
						gs = append(gs, w.gateway(memory.Faults{}))
					case "handed over":
						team := &team{w: w}
						team.join(memory.Faults{})
						b := team.join(memory.Faults{})
						b.hands = true
						gs[0] = b
					}
					next := types.Offset(0)
					for i, s := range steps {
						g := gs[i%len(gs)]
						var err error
						base := types.NoOffset
						if g.hands {
							g.hand()
						}
						if s.marker != nil {
							err = g.p.EndTransaction(t.Context(), *s.marker)
							if r, rerr := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); rerr != nil {
								t.Fatal(rerr)
							} else if r.Offset > next {
								base = next
							}
						} else {
							a := s.batch(g)
							err, base = a.Err, a.BaseOffset
						}
						if !errors.Is(err, s.err) || base != s.base {
							t.Fatalf("step %d: base %d, %v, want %d, %v", i+1, base, err, s.base, s.err)
						}
						next = max(next, base+1)
						if how == "restarts" {
							if i%2 == 0 {
								if err := g.host.Drain(t.Context()); err != nil {
									t.Fatal(err)
								}
							}
							g.kill()
							gs[0] = w.gateway(memory.Faults{})
						}
					}
				})
			})
		}
	}
}

// Producers with an open transaction never expire, and what has expired is asked
// for again.
func TestOpenTransactionsDoNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		g.inTxn(7, 0, 0, 1, 1)
		g.inTxn(8, 0, 0, 1, 1)
		g.end(Marker{ProducerID: 8, N: 1, Commit: true, CoordinatorEpoch: 2})
		time.Sleep(48 * time.Hour)
		g.mustProduce(batch(1))
		if l := g.host.Late(); !slices.Equal(l, []LateTransaction{{Topic: "t", ProducerID: 7, OpenFor: 48 * time.Hour}}) {
			t.Errorf("late transactions: %+v", l)
		}
		if s, err := g.p.Status(t.Context()); err != nil || s.LastStable != 0 || s.OpenFor != 48*time.Hour {
			t.Errorf("%+v, %v", s, err)
		}
		w.everywhere(t, g, func(what string, g *gateway) {
			ps, err := g.p.Producers(t.Context())
			if err != nil || len(ps) != 1 || ps[0].ID != 7 || ps[0].TxnStart != 0 || ps[0].LastSequence != 0 || ps[0].CoordinatorEpoch != -1 {
				t.Errorf("%s: %+v, %v", what, ps, err)
			}
			if r := g.committed(0); r.LastStable != 0 || r.HighWatermark != 4 {
				t.Errorf("%s: %+v", what, r)
			}
		})
		if a := g.txn(7, 0, 1, 1, notAsked(t)); a.Err != nil {
			t.Error(a.Err)
		}
		g.end(Marker{ProducerID: 7, Epoch: 1, N: 1, CoordinatorEpoch: 3})
		ps, err := g.p.Producers(t.Context())
		if err != nil || len(ps) != 1 || ps[0].TxnStart != -1 || ps[0].CoordinatorEpoch != 3 || ps[0].Epoch != 1 || ps[0].LastSequence != -1 || ps[0].LastTime != time.Now().UnixMilli() {
			t.Errorf("%+v, %v", ps, err)
		}
		if l := g.host.Late(); len(l) != 0 {
			t.Errorf("late transactions: %+v", l)
		}
		if s, err := g.p.Status(t.Context()); err != nil || s.LastStable != 6 || s.OpenFor != 0 {
			t.Errorf("%+v, %v", s, err)
		}
		if r := g.committed(0); r.LastStable != 6 || !slices.Equal(r.Aborted, []Aborted{{7, 0}}) {
			t.Errorf("%+v", r)
		}
	})
}

// A batch that waits for its coordinator holds up its producer only, keeps that
// one's order, and gets its answer whatever happens.
func TestParkedBatches(t *testing.T) {
	start := func(t *testing.T) (*world, *gateway, chan int64, []chan AppendResult) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		tell := make(chan int64)
		verify := func(ctx context.Context) (int64, error) {
			select {
			case n := <-tell:
				return n, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		var answers []chan AppendResult
		for seq := range int32(5) {
			ch := make(chan AppendResult, 1)
			answers = append(answers, ch)
			g.p.Submit(AppendRequest{Records: txnBatch(7, 0, seq, 1), Transactional: true, Verify: verify}, func(a AppendResult) { ch <- a })
		}
		synctest.Wait()
		if base := g.mustProduce(batch(1)); base != 0 {
			t.Fatalf("another producer's batch at %d", base)
		}
		return w, g, tell, answers
	}
	all := func(t *testing.T, answers []chan AppendResult, want error) {
		t.Helper()
		for i, ch := range answers {
			if a := <-ch; !errors.Is(a.Err, want) || want == nil && a.BaseOffset != types.Offset(1+i) {
				t.Errorf("batch %d: base %d, %v, want %v", i, a.BaseOffset, a.Err, want)
			}
		}
		synctest.Wait()
	}
	empty := func(t *testing.T, g *gateway) {
		t.Helper()
		g.p.mu.Lock()
		defer g.p.mu.Unlock()
		if len(g.p.parked) != 0 || g.p.queueBytes != 0 || g.p.appending {
			t.Errorf("parked %d, queue of %d bytes, appending %v", len(g.p.parked), g.p.queueBytes, g.p.appending)
		}
	}
	for name, fn := range map[string]func(t *testing.T){
		"told": func(t *testing.T) {
			_, g, tell, answers := start(t)
			tell <- 4
			all(t, answers, nil)
			empty(t, g)
		},
		"a marker meanwhile": func(t *testing.T) {
			_, g, tell, answers := start(t)
			g.end(Marker{ProducerID: 7, Epoch: 0, N: 4})
			tell <- 4 // of before
			tell <- 4
			if a := <-answers[0]; !errors.Is(a.Err, kerr.InvalidTxnState) {
				t.Error(a.Err)
			}
		},
		"no answer": func(t *testing.T) {
			_, g, _, answers := start(t)
			began := time.Now()
			all(t, answers, context.DeadlineExceeded)
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("after %v", took)
			}
			empty(t, g)
			if a := g.txn(7, 0, 1, 1, told(4)); !errors.Is(a.Err, kerr.OutOfOrderSequenceNumber) {
				t.Errorf("a later batch before the first: %v", a.Err)
			}
			if a := g.txn(7, 0, 0, 1, told(4)); a.Err != nil {
				t.Error(a.Err)
			}
		},
		"closed": func(t *testing.T) {
			w, g, _, answers := start(t)
			began := time.Now()
			g.host.Close(w.id, 0)
			all(t, answers, kerr.UnknownTopicOrPartition)
			if time.Since(began) > time.Second {
				t.Error("late")
			}
			empty(t, g)
		},
		"drained": func(t *testing.T) {
			_, g, _, answers := start(t)
			if err := g.host.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, ch := range answers {
				if len(ch) != 1 {
					t.Error("not answered")
				}
			}
		},
		"stopped": func(t *testing.T) {
			_, g, _, answers := start(t)
			g.kill()
			all(t, answers, errClosed)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, fn) })
	}
}

// Nothing of a transaction is stored where an older gateway could read it.
func TestTransactionsNeedTheFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		format := FormatTransactions - 1
		g.host.format = func() int { return format }
		if a := g.txn(7, 0, 0, 1, notAsked(t)); !errors.Is(a.Err, errEarlierFormat) || !kerr.IsRetriable(a.Err) {
			t.Errorf("%v", a.Err)
		}
		if err := g.p.EndTransaction(t.Context(), Marker{ProducerID: 7, N: 1}); !errors.Is(err, errEarlierFormat) {
			t.Error(err)
		}
		format++
		g.inTxn(7, 0, 0, 1, 1)
		g.end(Marker{ProducerID: 7, N: 1})
	})
}

// However many transactions were aborted, each read gets those of its range, and
// what is deleted is forgotten.
func TestManyAbortedTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.config.Retained = true
		g := w.gateway(memory.Faults{})
		g.inTxn(1, 0, 0, 1, 1) // open for long
		const n = 3*abortedSpan + 100
		for i := range n {
			g.inTxn(7, int16(i), 0, 1, int64(i+1))
			g.end(Marker{ProducerID: 7, Epoch: int16(i + 1), N: int64(i + 1)})
		}
		g.end(Marker{ProducerID: 1, N: 1})
		check := func(what string, g *gateway, from types.Offset) {
			t.Helper()
			for ; from <= 2*n; from += 997 {
				r := g.committed(from)
				bs := split(t, r)
				to := types.Offset(bs[len(bs)-1].LastOffset()) + 1
				want := []Aborted{{1, 0}}
				for i := range n {
					if first := types.Offset(1 + 2*i); first < to && first+1 >= from {
						want = append(want, Aborted{7, first})
					}
				}
				if !slices.Equal(r.Aborted, want) {
					t.Fatalf("%s, from %d to %d: %d aborted, want %d", what, from, to, len(r.Aborted), len(want))
				}
			}
		}
		w.everywhere(t, g, func(what string, g *gateway) { check(what, g, 0) })
		g.p.mu.Lock()
		parts, tail := slices.Clone(g.p.st.aborted.parts), len(g.p.st.aborted.tail)
		g.p.mu.Unlock()
		if len(parts) != 2 || tail != n+1-2*abortedSpan {
			t.Errorf("%d parts, %d in memory", len(parts), tail)
		}
		// A part that is lost is made again.
		tab := g.host.records
		v, err := tab.Get(t.Context(), g.p.abortedKey(parts[1]))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pubsub.Put(t.Context(), tab, pubsub.Write{Key: v.Key, Expect: v.Rev, Delete: true}); err != nil {
			t.Fatal(err)
		}
		check("a lost part", w.gateway(memory.Faults{}), 0)
		if _, err := g.p.DeleteRecords(t.Context(), 2*abortedSpan+1); err != nil {
			t.Fatal(err)
		}
		g.mustProduce(batch(1))
		time.Sleep(2 * snapshotKeep)
		if err := g.p.writeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		fresh := w.gateway(memory.Faults{})
		check("after a deletion", fresh, 2*abortedSpan+1)
		if got := len(fresh.p.st.aborted.parts); got != 1 {
			t.Errorf("%d parts after a deletion", got)
		}
	})
}

// A break of the log that an operator accepts ends what was open there, by abort:
// the marker may be what was lost. Readers on either side of it see neither too much
// nor too little, and what the coordinator still asks for is done.
func TestRepairEndsTransactions(t *testing.T) {
	for _, hole := range []pubsub.Seq{3, 4, 5} { // a batch, a marker, the last message
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, memory.Config{})
			g := r.gateway(memory.Faults{})
			run(t, g)
			g.inTxn(7, 0, 0, 1, 1)                                     // offset 0
			g.inTxn(8, 0, 0, 1, 1)                                     // 1
			g.inTxn(7, 0, 1, 1, 1)                                     // 2
			g.end(Marker{ProducerID: 7, Epoch: 1, N: 1, Commit: true}) // 3
			g.inTxn(7, 1, 0, 1, 2)                                     // 4
			r.server.Remove(testLog, hole)
			cold := r.gateway(memory.Faults{})
			run(t, cold)
			cold.stopped("gap")
			r.mend()
			fresh := r.gateway(memory.Faults{})
			for _, g := range []*gateway{g, fresh} {
				end, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest})
				if err != nil {
					t.Fatal(err)
				}
				if res := g.committed(0); res.LastStable != end.Offset {
					t.Errorf("without message %d the last stable offset is %d, the end %d", hole, res.LastStable, end.Offset)
				}
			}
			// What was open does not go on.
			if a := fresh.txn(8, 0, 1, 1, told(1)); !errors.Is(a.Err, kerr.InvalidTxnState) {
				t.Errorf("without message %d: %v", hole, a.Err)
			}
			// Transactions that a lost marker has ended elsewhere do not hide the next.
			fresh.end(Marker{ProducerID: 8, Epoch: 1, N: 1, Commit: true})
			fresh.end(Marker{ProducerID: 7, Epoch: 2, N: 2, Commit: true})
			fresh.inTxn(8, 1, 0, 1, 2)
			fresh.inTxn(7, 2, 0, 1, 3)
			fresh.end(Marker{ProducerID: 8, Epoch: 2, N: 2, Commit: true})
			fresh.end(Marker{ProducerID: 7, Epoch: 3, N: 3})
			for _, g := range []*gateway{g, fresh, r.gateway(memory.Faults{})} {
				end, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest, Committed: true})
				if err != nil {
					t.Fatal(err)
				}
				var pids []int64
				aborted, skip := []Aborted{}, map[int64]bool{}
				for next := types.Offset(0); next < end.Offset; {
					res := g.committed(next)
					aborted, skip = res.Aborted, map[int64]bool{}
					bs := split(t, res)
					if len(bs) == 0 {
						t.Fatalf("nothing at %d of %d", next, end.Offset)
					}
					for _, b := range bs {
						for len(aborted) > 0 && aborted[0].First <= types.Offset(b.LastOffset()) {
							skip[aborted[0].ProducerID], aborted = true, aborted[1:]
						}
						if !b.Control() && !skip[b.ProducerID()] {
							pids = append(pids, b.ProducerID())
						}
						next = types.Offset(b.LastOffset()) + 1
					}
				}
				want := []int64{8}
				if hole == 5 { // its marker came before the break
					want = []int64{7, 7, 8}
				}
				if !slices.Equal(pids, want) {
					t.Errorf("without message %d committed readers see batches of %v, want %v", hole, pids, want)
				}
			}
		})
	}
}

// TestRefusedAfterAnOpenOutcome: a batch was handed over and stored, the answer is
// lost, and its transaction ends with a new epoch, so that the log forgets the
// batch. Then it is late, but "refused" would say that it is not stored.
func TestRefusedAfterAnOpenOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		team := &team{w: w}
		team.join(memory.Faults{})
		a := team.join(memory.Faults{Request: func(memory.Op) memory.WriteFault { return memory.WriteFault{LoseAck: true} }})
		a.inTxn(7, 0, 0, 1, 1)
		a.hand()
		answer := make(chan AppendResult, 1)
		a.p.Submit(AppendRequest{Records: txnBatch(7, 0, 1, 1), Transactional: true, Verify: told(1)}, func(r AppendResult) { answer <- r })
		time.Sleep(time.Second) // it is stored, and a waits for an answer
		c := w.gateway(memory.Faults{})
		c.end(Marker{ProducerID: 7, Epoch: 1, N: 1, Commit: true})
		if r := <-answer; !errors.Is(r.Err, kerr.RequestTimedOut) {
			t.Errorf("the late batch: %v (%s)", r.Err, r.Message)
		}
		if bs := c.read(0); len(bs) != 3 {
			t.Errorf("batches at %v, want two and a marker", offsets(bs))
		}
		if r := a.txn(7, 0, 1, 1, told(1)); !errors.Is(r.Err, kerr.InvalidProducerEpoch) {
			t.Errorf("and again: %v", r.Err)
		}
	})
}
