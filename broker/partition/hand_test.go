package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// team is several gateways that know each other. Requests between them pass the
// store, with its faults.
type team struct {
	w *world

	mu     sync.Mutex // guards: all below
	all    []*gateway
	hinted *gateway
}

// member is one gateway's Others.
type member struct {
	t *team
	g *gateway
}

// join makes a gateway that knows the others. The first one is the hinted
// appender.
func (t *team) join(f memory.Faults) *gateway {
	g := t.w.gateway(f)
	t.seat(g)
	return g
}

func (t *team) seat(g *gateway) {
	t.w.t.Helper()
	g.host.others = member{t, g}
	t.mu.Lock()
	t.all = append(t.all, g)
	if t.hinted == nil {
		t.hinted = g
	}
	t.mu.Unlock()
	cancel, err := g.client.Serve(g.subject(), func(ctx context.Context, request []byte) []byte {
		b, err := g.host.TakeOver(ctx, "g", request, func(context.Context, types.TopicID, int32) (*Partition, error) { return g.p, nil })
		if err != nil {
			return nil
		}
		return append([]byte{1}, b...)
	})
	if err != nil {
		t.w.t.Fatal(err)
	}
	t.w.t.Cleanup(cancel)
}

func (g *gateway) subject() string { return "gateways." + g.host.writer }

func (m member) send(to *gateway) Send {
	return func(ctx context.Context, request []byte) ([]byte, error) {
		b, err := m.g.client.Request(ctx, to.subject(), request)
		switch {
		case errors.Is(err, pubsub.ErrNotFound), err == nil && len(b) == 0:
			return nil, ErrNotHanded
		case err != nil:
			return nil, err
		}
		return b[1:], nil
	}
}

func (m member) Appender(types.TopicID, int32) Send {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	if m.t.hinted == m.g {
		return nil
	}
	return m.send(m.t.hinted)
}

func (m member) All() (all []Send) {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	for _, g := range m.t.all {
		if g != m.g {
			all = append(all, m.send(g))
		}
	}
	return all
}

// hand makes a gateway hand over what comes next.
func (g *gateway) hand() {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	g.p.rivals.handed, g.p.rivals.seen, g.p.rivals.pause = true, time.Now(), time.Time{}
}

func (g *gateway) wrote() (n int) {
	for _, m := range g.w.server.Messages(testLog) {
		if d, err := decodeLog(g.w.id.String(), &m); err == nil && !d.plain && g.host.wrote(d.id) {
			n++
		}
	}
	return n
}

// TestHandOverIsInvisible: what a client gets through a gateway that hands over
// is what it would have got from the other one, and the log is the same.
func TestHandOverIsInvisible(t *testing.T) {
	for _, appendTime := range []bool{false, true} {
		var want []AppendResult
		var stored [][]byte
		for _, hand := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				w.config.LogAppendTime = appendTime
				team := &team{w: w}
				b := team.join(memory.Faults{})
				a := team.join(memory.Faults{})
				at := a
				if !hand {
					at = b
				}
				var got []AppendResult
				for i, r := range []struct {
					pid   int64
					epoch int16
					seq   int32
					n     int
				}{
					{0, 0, 0, 3}, {5, 0, 0, 2}, {5, 0, 2, 1}, {5, 0, 0, 2}, {5, 0, 7, 1}, {5, 1, 0, 2}, {5, 0, 3, 1}, {0, 0, 0, 1},
					{6, 0, 7, 2}, {6, 0, 7, 2}, {5, 2, 3, 1},
				} {
					if hand {
						a.hand()
					}
					got = append(got, at.produce(AppendRequest{Records: idempotent(r.pid, r.epoch, r.seq, r.n), AcksAll: i%2 == 0}))
				}
				if n := a.wrote(); n != 0 {
					t.Errorf("the gateway that hands over appended %d messages", n)
				}
				var data [][]byte
				for _, m := range w.server.Messages(testLog) {
					data = append(data, m.Data)
				}
				if !hand {
					want, stored = got, data
					return
				}
				for i := range want {
					if !reflect.DeepEqual(got[i], want[i]) {
						t.Errorf("answer %d: %+v, want %+v", i, got[i], want[i])
					}
				}
				if !reflect.DeepEqual(data, stored) {
					t.Errorf("another log: %d messages, want %d", len(data), len(stored))
				}
				// What it acknowledged it shows, and reads.
				if r, err := a.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); err != nil || r.Offset != 11 {
					t.Errorf("latest %+v, %v", r, err)
				}
				if bs := a.read(0); len(bs) != len(data) {
					t.Errorf("%d batches", len(bs))
				}
			})
		}
	}
}

// busy is a producer that keeps a few batches in flight through one gateway, and
// measures.
type busy struct {
	pid     int64 // 0: plain
	acked   []types.Offset
	unknown int
	other   []error
	longest time.Duration
}

func (b *busy) run(ctx context.Context, g *gateway, depth int) {
	type sent struct {
		at  time.Time
		seq int32
		r   chan AppendResult
	}
	var window []sent
	seq := int32(0)
	submit := func(s int32) sent {
		x := sent{time.Now(), s, make(chan AppendResult, 1)}
		g.p.Submit(AppendRequest{Records: idempotent(b.pid, 0, s, 1)}, func(a AppendResult) { x.r <- a })
		return x
	}
	for ctx.Err() == nil || len(window) > 0 {
		for len(window) < depth && ctx.Err() == nil {
			window = append(window, submit(seq))
			seq++
		}
		first := window[0]
		window = window[1:]
		a := <-first.r
		b.longest = max(b.longest, time.Since(first.at))
		switch {
		case a.Err == nil:
			b.acked = append(b.acked, a.BaseOffset)
		case errors.Is(a.Err, kerr.RequestTimedOut):
			b.unknown++
		default:
			b.other = append(b.other, a.Err)
		}
	}
}

// slowly is a store with a round trip of 2 ms.
func slowly(memory.Op) memory.WriteFault {
	return memory.WriteFault{Before: time.Millisecond, After: time.Millisecond}
}

func slowRead(memory.Op) memory.ReadFault { return memory.ReadFault{Delay: 2 * time.Millisecond} }

// TestManyWriters lets gateways press on one partition, the producers of each at
// full speed: nobody waits for long because others win, and the log is right.
func TestManyWriters(t *testing.T) {
	for _, x := range []struct{ gateways, plain int }{{2, 0}, {5, 0}, {5, 1}} {
		t.Run(fmt.Sprintf("%d gateways, %d publishers", x.gateways, x.plain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				team := &team{w: w}
				ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
				defer stop()
				var wait sync.WaitGroup
				var all []*busy
				for i := range x.gateways {
					f := memory.Faults{Append: slowly, Read: slowRead, Get: slowRead}
					if i == 0 { // the hinted one is further from the store than the others
						f.Append = func(memory.Op) memory.WriteFault {
							return memory.WriteFault{Before: 2 * time.Millisecond, After: time.Millisecond}
						}
					}
					g := team.join(f)
					for j := range 2 {
						b := &busy{pid: int64(j * (1 + i))}
						all = append(all, b)
						wait.Go(func() { b.run(ctx, g, 5) })
					}
				}
				for range x.plain {
					wait.Go(func() {
						for ctx.Err() == nil {
							_, _ = w.server.Publish(testSubject, nil, []byte("x"))
							time.Sleep(20 * time.Millisecond)
						}
					})
				}
				wait.Wait()
				seen := map[types.Offset]bool{}
				n, longest := 0, time.Duration(0)
				for i, b := range all {
					if b.unknown > 0 || len(b.other) > 0 {
						t.Errorf("producer %d: %d unknown, errors %v", i, b.unknown, b.other)
					}
					if !slices.IsSorted(b.acked) {
						t.Errorf("producer %d: not in order", i)
					}
					for _, o := range b.acked {
						if seen[o] {
							t.Errorf("offset %d twice", o)
						}
						seen[o] = true
					}
					n += len(b.acked)
					longest = max(longest, b.longest)
					if len(b.acked) < 100 {
						t.Errorf("producer %d got %d batches in", i, len(b.acked))
					}
				}
				t.Logf("%d batches in %d messages, longest wait %v", n, len(w.server.Messages(testLog)), longest)
				if longest > 100*time.Millisecond { // without hand-overs it is three times that
					t.Errorf("a producer waited %v", longest)
				}
				at := int64(0)
				for _, m := range w.server.Messages(testLog) {
					if m.Header.Get(headerLog) == "" {
						at++
						continue
					}
					for data := m.Data; len(data) > 0; {
						b, rest, err := serde.ParseBatch(data)
						if err != nil || b.BaseOffset() != at {
							t.Fatalf("batch at %d, want %d (%v)", b.BaseOffset(), at, err)
						}
						at, data = b.LastOffset()+1, rest
					}
				}
			})
		})
	}
}

// The hinted appender loses to one that wins every round and so never learns of
// it: it is told.
func TestHintedAppenderIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		team := &team{w: w}
		far := team.join(memory.Faults{Append: func(memory.Op) memory.WriteFault {
			return memory.WriteFault{Before: 20 * time.Millisecond, After: 20 * time.Millisecond}
		}})
		near := team.join(memory.Faults{Append: slowly})
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		var wait sync.WaitGroup
		var a, b busy
		wait.Go(func() { a.run(ctx, far, 1) })
		wait.Go(func() { b.run(ctx, near, 1) })
		wait.Wait()
		if a.longest > time.Second || b.longest > time.Second || len(a.acked) < 30 || len(b.acked) < 30 {
			t.Errorf("far: %d, longest %v; near: %d, longest %v", len(a.acked), a.longest, len(b.acked), b.longest)
		}
	})
}

// Alone again, a gateway appends itself.
func TestHandOverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		team := &team{w: w}
		b := team.join(memory.Faults{Append: slowly})
		a := team.join(memory.Faults{Append: slowly})
		a.hand()
		b.mustProduce(batch(1))
		for range 100 {
			a.mustProduce(batch(1))
			time.Sleep(30 * time.Millisecond)
		}
		if n, m := a.wrote(), b.wrote(); n < 50 || m < 20 {
			t.Errorf("%d appended here, %d there", n, m)
		}
	})
}

// Every way in which a hand-over can end badly: an idempotent batch is stored
// exactly once and acknowledged where it is; another is stored at most once, and
// answered with 7 if nobody knows.
func TestHandOverFails(t *testing.T) {
	for _, x := range []struct {
		name    string
		hinted  memory.Faults
		sender  memory.Faults
		before  func(b *gateway) // to the hinted one, before
		after   func(b *gateway) // 5 s later
		unknown bool             // for plain batches
		late    bool             // a plain batch is stored all the same
		limit   time.Duration
	}{
		{name: "no gateway there", before: func(b *gateway) { b.kill() }, limit: 10 * time.Millisecond},
		{name: "cut off", before: func(b *gateway) { b.client.Disconnect() }, limit: 10 * time.Millisecond},
		{name: "request lost", sender: memory.Faults{Request: func(memory.Op) memory.WriteFault { return memory.WriteFault{Drop: true} }}, unknown: true, limit: handLimit},
		{name: "answer lost", sender: memory.Faults{Request: func(memory.Op) memory.WriteFault { return memory.WriteFault{LoseAck: true} }}, unknown: true, late: true, limit: handLimit},
		{name: "frozen", before: func(b *gateway) { b.client.Freeze() }, after: func(b *gateway) { b.client.Thaw() }, unknown: true, late: true, limit: handLimit},
		{name: "slow store there", hinted: memory.Faults{Append: func(memory.Op) memory.WriteFault { return memory.WriteFault{Before: 3 * time.Second} }}, unknown: true, late: true, limit: handLimit},
		{name: "store refuses there", hinted: memory.Faults{Append: func(memory.Op) memory.WriteFault { return memory.WriteFault{Err: pubsub.ErrUnavailable} }}, limit: 10 * time.Millisecond},
		{name: "store is full there", hinted: memory.Faults{Append: func(memory.Op) memory.WriteFault { return memory.WriteFault{Err: pubsub.ErrFull} }}, limit: 10 * time.Millisecond},
		{name: "ack lost there", hinted: memory.Faults{Append: func(memory.Op) memory.WriteFault { return memory.WriteFault{LoseAck: true} }}, limit: 10 * time.Millisecond},
		{name: "append dies there", hinted: memory.Faults{Append: func(memory.Op) memory.WriteFault { return memory.WriteFault{Drop: true} }}, unknown: true, limit: handLimit},
		{name: "clock off there", before: func(b *gateway) { b.host.ahead = func() (time.Duration, bool) { return time.Hour, true } }, limit: 10 * time.Millisecond},
		{name: "stopped there", before: func(b *gateway) {
			b.p.mu.Lock()
			b.p.stop = &stopInfo{Kind: "gap"}
			b.p.mu.Unlock()
		}, limit: 10 * time.Millisecond},
		{name: "it hands over itself", before: func(b *gateway) {
			b.p.mu.Lock()
			b.p.rivals.busy = true
			b.p.mu.Unlock()
		}, limit: 10 * time.Millisecond},
		{name: "its store was slow", before: func(b *gateway) {
			b.p.mu.Lock()
			b.p.rivals.took, b.p.rivals.tookAt = 2*time.Second, time.Now()
			b.p.mu.Unlock()
		}, limit: 10 * time.Millisecond},
	} {
		for _, pid := range []int64{0, 9} {
			t.Run(fmt.Sprintf("%s, producer %d", x.name, pid), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, memory.Config{})
					team := &team{w: w}
					b := team.join(x.hinted)
					a := team.join(x.sender)
					for _, g := range []*gateway{a, b} {
						if err := g.p.ready(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if x.before != nil {
						x.before(b)
					}
					a.hand()
					began := time.Now()
					r := a.produce(AppendRequest{Records: idempotent(pid, 0, 0, 2)})
					unknown := x.unknown && pid == 0
					if unknown && !errors.Is(r.Err, kerr.RequestTimedOut) || !unknown && r.Err != nil {
						t.Errorf("%+v", r)
					}
					if took := time.Since(began); took > x.limit+100*time.Millisecond {
						t.Errorf("took %v", took)
					}
					time.Sleep(5 * time.Second)
					if x.after != nil {
						x.after(b)
					}
					time.Sleep(time.Minute)
					bs := w.gateway(memory.Faults{}).read(0)
					want := 1
					if unknown && !x.late {
						want = 0
					}
					if len(bs) != want {
						t.Errorf("batches at %v, want %d", offsets(bs), want)
					}
				})
			})
		}
	}
}

// A hand-over waits its turn, is not passed on, and what has waited too long
// goes back to be appended by its own gateway, without any doubt.
func TestHandOverWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		team := &team{w: w}
		var hold atomic.Int64
		b := team.join(memory.Faults{Append: func(memory.Op) memory.WriteFault {
			return memory.WriteFault{Before: time.Duration(hold.Load())}
		}})
		a := team.join(memory.Faults{})
		b.mustProduce(batch(1))
		b.hand() // it would like to hand over as well, but nobody takes it
		hold.Store(int64(500 * time.Millisecond))
		first := make(chan AppendResult, 1)
		b.p.Submit(AppendRequest{Records: batch(1)}, func(r AppendResult) { first <- r })
		synctest.Wait()
		a.hand()
		began := time.Now()
		if r := a.produce(AppendRequest{Records: batch(1)}); r.Err != nil || r.BaseOffset != 2 || time.Since(began) != time.Second {
			t.Errorf("behind another append: %+v after %v", r, time.Since(began))
		}
		if r := <-first; r.Err != nil || r.BaseOffset != 1 {
			t.Errorf("%+v", r)
		}
		if n := a.wrote(); n != 0 {
			t.Errorf("%d appended here", n)
		}
		b.p.mu.Lock()
		b.p.rivals.took = 0
		b.p.mu.Unlock()
		hold.Store(int64(1900 * time.Millisecond))
		b.p.Submit(AppendRequest{Records: batch(1)}, func(r AppendResult) { first <- r })
		synctest.Wait()
		a.hand()
		began = time.Now()
		if r := a.produce(AppendRequest{Records: batch(1)}); r.Err != nil || r.BaseOffset != 3 || time.Since(began) != handHold {
			t.Errorf("behind a slow append: %+v after %v", r, time.Since(began))
		}
		if n := a.wrote(); n != 1 {
			t.Errorf("%d appended here", n)
		}
		if r := <-first; r.Err != nil || r.BaseOffset != 4 {
			t.Errorf("%+v", r)
		}
	})
}

// The first batch of a producer failed here; the second, handed over, must not
// become the first one stored, also through a gateway that knows of no failure.
func TestHandOverAfterAFailedFirstBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		team := &team{w: w}
		team.join(memory.Faults{})
		a := team.join(memory.Faults{Append: (&script{faults: []memory.WriteFault{{Err: pubsub.ErrUnavailable}}}).append})
		send := func(seq int32) AppendResult { return a.produce(AppendRequest{Records: idempotent(6, 0, seq, 2)}) }
		if r := send(0); r.Err == nil {
			t.Fatal("no failure")
		}
		a.hand()
		if r := send(2); !errors.Is(r.Err, kerr.OutOfOrderSequenceNumber) {
			t.Errorf("second: %+v", r)
		}
		for i, seq := range []int32{0, 2, 4} {
			if r := send(seq); r.Err != nil || r.BaseOffset != types.Offset(2*i) {
				t.Errorf("sequence %d: %+v", seq, r)
			}
		}
		if n := a.wrote(); n != 0 {
			t.Errorf("%d appended here", n)
		}
	})
}

// A batch that another gateway declined and one behind it that it refused, since
// the first was missing: both are decided again, in order.
func TestHandOverInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		a := w.gateway(memory.Faults{})
		a.mustProduce(idempotent(6, 0, 0, 2))
		g := group{}
		var got []AppendResult
		for i := range int32(2) {
			m := &pending{done: func(r AppendResult) { got = append(got, r) }}
			m.batch = idempotent(6, 0, 2+2*i, 2)
			m.entry = entryOf(m.batch)
			g.members = append(g.members, m)
		}
		if a.p.handedOver(&g, []handVerdict{{kind: handDeclined}, {kind: handRefused, code: kerr.OutOfOrderSequenceNumber.Code}}, time.Now()) {
			t.Fatalf("answered: %+v", got)
		}
		g.cut = time.Now()
		a.p.commit(&g)
		if len(got) != 2 || got[0].Err != nil || got[1].Err != nil || got[1].BaseOffset != 4 {
			t.Errorf("%+v", got)
		}
	})
}

func TestHandOverForm(t *testing.T) {
	h := handOver{kind: handBatches, id: types.NewTopicID(), n: 7, members: []handedBatch{
		{batch: batch(3), acksAll: true, after: -1}, {batch: idempotent(4, 1, 9, 2), logAppendTime: true, after: 5},
		{batch: txnBatch(4, 1, 0, 2), after: -1, txn: 9, fromZero: true},
	}}
	if got, err := decodeHandOver(encodeHandOver(h)); err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("%+v, %v", got, err)
	}
	a := handAnswer{quiet: 3 * time.Second, end: 77, verdicts: []handVerdict{
		{kind: handStored, base: 5, start: 2, time: -1}, {kind: handRefused, code: 45, text: "why"}, {kind: handDeclined}, {kind: handUnknown, text: "x"},
	}}
	if got, err := decodeHandAnswer(encodeHandAnswer(a), 4); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("%+v, %v", got, err)
	}
	longest := handAnswer{quiet: math.MaxInt64, end: -1}
	if got, err := decodeHandAnswer(encodeHandAnswer(longest), 0); err != nil || got.quiet != maxQuiet*time.Millisecond {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range 6 {
		if _, err := decodeHandAnswer(encodeHandAnswer(a), n); (err == nil) != (n == 4) {
			t.Errorf("read as %d verdicts: %v", n, err)
		}
	}
}

// A gateway that has heard nothing of the log for long does not learn of it 64
// messages per lost round.
func TestFarBehindAtAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		var tries atomic.Int64
		a := w.gateway(memory.Faults{Append: func(memory.Op) memory.WriteFault { tries.Add(1); return memory.WriteFault{} }})
		a.mustProduce(batch(1))
		b := w.gateway(memory.Faults{})
		for range 1000 {
			b.mustProduce(batch(1))
		}
		tries.Store(0)
		if got := a.mustProduce(batch(1)); got != 1001 || tries.Load() > 2 {
			t.Errorf("offset %d after %d attempts", got, tries.Load())
		}
	})
}

// One of three replicas is frozen and is asked all the same: the leader answers
// instead, an append goes through and a reader gets on.
func TestFrozenReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		b := w.gateway(memory.Faults{})
		a := w.gateway(memory.Faults{Read: func(memory.Op) memory.ReadFault { return memory.ReadFault{Delay: time.Hour} }})
		a.mustProduce(batch(1))
		b.mustProduce(batch(1))
		began := time.Now()
		if got := a.mustProduce(batch(1)); got != 2 || time.Since(began) > 2*replicaTimeout {
			t.Errorf("offset %d after %v", got, time.Since(began))
		}
		began = time.Now()
		if bs := a.read(0); len(bs) == 0 || time.Since(began) > 2*replicaTimeout {
			t.Errorf("%d batches after %v", len(bs), time.Since(began))
		}
	})
}

// Handing over does not help against a plain publisher, who expects nothing and
// so always wins: rounds are lost, counted and told of, and nothing is handed
// over.
func TestPlainPublisherWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		team := &team{w: w}
		team.join(memory.Faults{})
		var log bytes.Buffer
		published := 0
		var a *gateway
		a = team.join(memory.Faults{Append: func(op memory.Op) memory.WriteFault {
			if published < 10 { // between the decision and the append
				published++
				if _, err := w.server.Publish(testSubject, nil, []byte("x")); err != nil {
					t.Error(err)
				}
			}
			return memory.WriteFault{}
		}})
		a.host.log = slog.New(slog.NewTextHandler(&log, nil))
		if got := a.mustProduce(batch(1)); got != 10 {
			t.Errorf("offset %d", got)
		}
		if n := count(t, a.host.metrics.lost.WithLabelValues("publisher")); n != 10 {
			t.Errorf("%v rounds lost to a publisher", n)
		}
		if n := count(t, a.host.metrics.plain); n != 10 {
			t.Errorf("%v plain messages", n)
		}
		if n := count(t, a.host.metrics.lost.WithLabelValues("gateway")); n != 0 || a.wrote() != 1 {
			t.Errorf("%v rounds lost to a gateway, %d appended here", n, a.wrote())
		}
		if !strings.Contains(log.String(), "plain NATS publisher") {
			t.Errorf("no warning: %s", log.String())
		}
	})
}

func count(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	all, err := r.Gather()
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0].Metric[0].GetCounter().GetValue()
}
