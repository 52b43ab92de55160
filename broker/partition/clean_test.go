package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// put stores one batch of records of now, written key=value or, without a value,
// key= for a tombstone.
func (g *gateway) put(codec compress.Codec, kvs ...string) types.Offset {
	g.w.t.Helper()
	return g.mustProduce(keyed(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, codec, pairs(kvs)))
}

func pairs(kvs []string) (rs []serde.NewRecord) {
	for _, kv := range kvs {
		k, v, _ := strings.Cut(kv, "=")
		r := serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Key: []byte(k)}
		if v != "" {
			r.Value = []byte(v)
		}
		rs = append(rs, r)
	}
	return rs
}

func (g *gateway) compact(o CompactOptions) (CompactResult, error) {
	o.Now, o.Memory = time.Now(), max(o.Memory, 1<<16)
	if o.MaxLag == 0 {
		o.MaxLag = 1 << 62
	}
	return g.p.Compact(g.w.t.Context(), o)
}

func (g *gateway) mustCompact(o CompactOptions) CompactResult {
	g.w.t.Helper()
	res, err := g.compact(o)
	if err != nil {
		g.w.t.Fatal(err)
	}
	return res
}

// shows is what a reader sees from the log start on, as offset:key=value.
func (g *gateway) shows() (out []string) {
	g.w.t.Helper()
	if err := g.p.sync(g.w.t.Context()); err != nil {
		g.w.t.Fatal(err)
	}
	s, err := readAll(g.w.t, rand.New(rand.NewPCG(1, 1)), g, false, nil)
	if err != nil {
		g.w.t.Fatal(err)
	}
	for _, x := range s.records {
		if !x.control {
			out = append(out, fmt.Sprintf("%d:%s=%s", x.offset, x.key, strings.TrimPrefix(x.value, "\x00")))
		}
	}
	return out
}

func compacted(t testing.TB) *world {
	w := newWorld(t, memory.Config{Remember: true})
	w.config.Compacted, w.config.Retained = true, true
	return w
}

// TestCompactionAtEveryCall: the holder of the lease is killed, frozen or not
// answered at each call of the store that a run makes, before it or behind it. What
// is left is the log before or the log after; the next holder goes on, a holder that
// wakes up changes nothing, and nothing is left over.
func TestCompactionAtEveryCall(t *testing.T) {
	want := "[3:b=2 4:c=1 5:a=3 6:d=1]"
	for _, c := range []struct {
		name string
		kind int
		kill bool
	}{{"killed before", 0, true}, {"killed behind", 1, true}, {"frozen before", 0, false}, {"frozen behind", 1, false}, {"no answer", 2, false}} {
		t.Run(c.name, func(t *testing.T) {
			points := 0
			for done := false; !done && !t.Failed(); {
				points++
				synctest.Test(t, func(t *testing.T) {
					w := compacted(t)
					cs := &calls{r: rand.New(rand.NewPCG(1, 1))}
					a, lease := w.maintainer(cs.faults(), 3, true)
					a.host.sibling = siblingSizes{100, 1}
					a.put(0, "a=1", "b=1")
					a.put(compress.Gzip, "a=2", "b=2")
					a.mustCompact(CompactOptions{Force: true}) // so that there is a sibling before
					a.put(0, "c=1")
					a.put(0, "a=3")
					a.put(0, "d=1")
					cs.arm(a.client, points, c.kind, 0)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					ended := make(chan error, 1)
					go func() {
						_, err := a.p.Compact(ctx, CompactOptions{Now: time.Now(), Force: true, Memory: 1 << 16})
						ended <- err
					}()
					time.Sleep(time.Second)
					n, frozen := cs.disarm()
					done = n < points
					if !frozen {
						err := <-ended
						if err != nil && !errors.Is(err, pubsub.ErrUnavailable) {
							t.Errorf("call %d: %v", points, err)
						}
						if got := fmt.Sprint(a.shows()); err == nil && got != want {
							t.Errorf("call %d: %s, want %s", points, got, want)
						}
						if done {
							return
						}
					}
					was := fmt.Sprint(w.gateway(memory.Faults{}).shows())
					if all := "[0:a=1 1:b=1 2:a=2 3:b=2 4:c=1 5:a=3 6:d=1]"; was != want && was != all {
						t.Errorf("call %d: %s", points, was)
					}
					lease.set(3, false)
					if c.kill {
						cancel()
						a.kill()
						<-ended
					}
					b, _ := w.maintainer(memory.Faults{}, 4, true)
					b.host.sibling = siblingSizes{100, 1}
					if err := b.p.SweepClean(t.Context()); err != nil {
						t.Errorf("call %d: sweep: %v", points, err)
					}
					if _, err := b.compact(CompactOptions{Force: true}); err != nil && !errors.Is(err, ErrNothing) {
						t.Errorf("call %d: the next holder: %v", points, err)
					}
					now := w.stored()
					if frozen && !c.kill {
						a.client.Thaw()
						if err := <-ended; err == nil && now.Clean.Stream != w.stored().Clean.Stream {
							t.Errorf("call %d: a holder that woke up has switched", points)
						}
						if got := fmt.Sprint(a.shows()); got != want {
							t.Errorf("call %d: who woke up shows %s, want %s", points, got, want)
						}
					}
					if r := w.stored(); r.Clean == nil || r.Clean.Stream != now.Clean.Stream || r.Run != nil {
						t.Errorf("call %d: the record was changed: %+v", points, r)
					}
					for _, g := range []*gateway{b, w.gateway(memory.Faults{})} {
						if got := fmt.Sprint(g.shows()); got != want {
							t.Errorf("call %d: %s, want %s", points, got, want)
						}
					}
					if err := b.p.SweepClean(t.Context()); err != nil {
						t.Error(err)
					}
					if got, want := w.server.Logs(), []string{testLog, now.Clean.Stream}; !slices.Equal(got, want) {
						t.Errorf("call %d: streams %v, want %v", points, got, want)
					}
					if first := w.first(); first != now.First {
						b.retain()
						if first = w.first(); first != now.First {
							t.Errorf("call %d: the stream begins at %d, the record says %d", points, first, now.First)
						}
					}
				})
			}
			if points < 20 {
				t.Errorf("only %d calls were tried", points)
			}
		})
	}
}

// TestColdHolderCompacts: one that has loaded nothing but a snapshot knows the last
// message by its index only.
func TestColdHolderCompacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := compacted(t)
		g := w.gateway(memory.Faults{})
		g.put(0, "a=1")
		g.put(0, "a=2")
		g.put(0, "b=1")
		if err := g.host.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		cold := w.gateway(memory.Faults{})
		if x, err := cold.p.WantCompacted(t.Context()); x != 2 || err != nil {
			t.Errorf("%d, %v", x, err)
		}
		cold.mustCompact(CompactOptions{})
		if got := fmt.Sprint(cold.shows()); got != "[1:a=2 2:b=1]" {
			t.Error(got)
		}
	})
}

// TestCompactionBeginsWithinABatch: the log start lies within the first batch, of
// an aborted transaction too.
func TestCompactionBeginsWithinABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := compacted(t)
		g := w.gateway(memory.Faults{})
		g.put(0, "a=1", "b=1", "c=1")
		g.put(0, "d=1")
		g.put(0, "e=1")
		if _, err := g.p.DeleteRecords(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		g.mustCompact(CompactOptions{})
		if got := fmt.Sprint(g.shows()); got != "[1:b=1 2:c=1 3:d=1 4:e=1]" {
			t.Error(got)
		}
		if a := g.txn(7, 0, 0, 3, told(1)); a.Err != nil {
			t.Fatal(a.Err)
		}
		g.end(Marker{ProducerID: 7, N: 1})
		g.put(0, "f=1")
		if _, err := g.p.DeleteRecords(t.Context(), 6); err != nil {
			t.Fatal(err)
		}
		g.mustCompact(CompactOptions{})
		if got := fmt.Sprint(g.shows()); got != "[9:f=1]" {
			t.Error(got)
		}
		if bs := g.read(6); len(bs) == 0 || bs[0].LastOffset() != 7 || bs[0].Count() != 0 {
			t.Errorf("the producer's last batch: %v", bs)
		}
	})
}

// TestCompactionWhileTheStartMoves: the log start moves beyond the sibling between a
// plan and its run, and the manifest goes.
func TestCompactionWhileTheStartMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for call := int64(1); call < 40; call++ {
			w := compacted(t)
			var g *gateway
			var n atomic.Int64
			other := w.gateway(memory.Faults{})
			other.put(0, "a=1")
			other.put(0, "a=2", "b=1")
			other.put(0, "b=2")
			other.mustCompact(CompactOptions{})
			other.put(0, "c=1")
			other.put(0, "d=1")
			move := func() {
				if n.Add(1) == call {
					if _, err := other.p.DeleteRecords(t.Context(), 4); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
			}
			read := func(memory.Op) (f memory.ReadFault) { move(); return f }
			write := func(memory.Op) (f memory.WriteFault) { move(); return f }
			g = w.gateway(memory.Faults{Append: write, Set: write, Create: write, Read: read, Get: read, Bounds: read, TableGet: read})
			if _, err := g.compact(CompactOptions{Force: true}); err != nil && !errors.Is(err, ErrNothing) {
				t.Errorf("call %d: %v", call, err)
			}
			if got := fmt.Sprint(w.gateway(memory.Faults{}).shows()); got != "[4:c=1 5:d=1]" && n.Load() >= call {
				t.Errorf("call %d: %s", call, got)
			}
			g.kill()
			other.kill()
		}
	})
}

// TestCompactionOfOneMessageAtATime: the log start is in the main stream, and the
// keys of the message there are more than the memory holds (simulated seed 1844).
func TestCompactionOfOneMessageAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := compacted(t)
		g := w.gateway(memory.Faults{})
		g.put(0, "a=1")
		g.put(0, "b=1", "c=1", "b=2", "d=1")
		g.put(0, "c=2", "e=1")
		g.put(0, "f=1")
		// Moved, and nothing was purged yet.
		if err := g.p.updateRecord(t.Context(), func(r *record) bool { r.Start = 1; return true }); err != nil {
			t.Fatal(err)
		}
		res, err := g.p.Compact(t.Context(), CompactOptions{Now: time.Now(), Memory: 1, Force: true, MaxLag: 1 << 62})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(g.shows()); got != "[3:b=2 4:d=1 5:c=2 6:e=1 7:f=1]" || res.Passes < 2 {
			t.Errorf("%s after %d passes", got, res.Passes)
		}
	})
}

// TestCompactionBounds: the last message, what an open transaction may hide and what
// is too young are left alone; a run that has nothing to do says so.
func TestCompactionBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := compacted(t)
		g := w.gateway(memory.Faults{})
		nothing := func(what string, o CompactOptions) {
			t.Helper()
			if _, err := g.compact(o); !errors.Is(err, ErrNothing) {
				t.Errorf("%s: %v", what, err)
			}
		}
		nothing("an empty log", CompactOptions{Force: true})
		g.put(0, "a=1")
		nothing("the last message", CompactOptions{Force: true})
		time.Sleep(time.Minute)
		g.put(0, "a=2")
		g.put(0, "a=3")
		nothing("below the ratio", CompactOptions{Ratio: 1})
		nothing("too young", CompactOptions{Ratio: 1, MinLag: time.Hour})
		if res := g.mustCompact(CompactOptions{MinLag: time.Second}); res.Upto != 1 {
			t.Errorf("what is a minute old: %+v", res)
		}
		nothing("too young for an operator", CompactOptions{Force: true, MinLag: time.Second})
		g.inTxn(7, 0, 0, 1, 1) // 3
		g.put(0, "b=1")        // 4
		g.put(0, "b=2")        // 5
		if res := g.mustCompact(CompactOptions{Force: true}); res.Upto != 3 {
			t.Errorf("an open transaction: %+v", res)
		}
		g.end(Marker{ProducerID: 7, N: 1, Commit: true})
		g.put(0, "a=4", "b=3")
		if res := g.mustCompact(CompactOptions{Force: true}); res.Upto != 7 {
			t.Errorf("%+v", res)
		}
		if got := fmt.Sprint(g.shows()); got != "[3:k=v 7:a=4 8:b=3]" && got != "[2:a=3 3:k=v 5:b=2 7:a=4 8:b=3]" {
			t.Error(got)
		}
		// By age: whatever the ratio.
		g.put(0, "c=1")
		g.put(0, "c=2")
		nothing("young and below the ratio", CompactOptions{Ratio: 1, MaxLag: time.Hour})
		time.Sleep(time.Hour + time.Second)
		if _, err := g.compact(CompactOptions{Ratio: 1, MaxLag: time.Hour}); err != nil {
			t.Errorf("an hour old: %v", err)
		}
	})
}

// TestTombstonesAndMarkersGo: not before delete.retention.ms after the first run that
// met them, and then without anything new in the log.
func TestTombstonesAndMarkersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := compacted(t)
		g := w.gateway(memory.Faults{})
		g.put(0, "a=1")
		g.put(0, "a=")
		g.inTxn(7, 0, 0, 1, 1)
		g.end(Marker{ProducerID: 7, N: 1}) // 3
		g.inTxn(7, 0, 1, 1, 2)             // 4, its newest batch: only the one before may go
		g.end(Marker{ProducerID: 7, N: 2, Commit: true})
		g.put(0, "b=1")
		g.put(0, "c=1")
		o := CompactOptions{DeleteRetention: time.Hour}
		g.mustCompact(o)
		horizon := g.p.Clean().Horizon
		if !horizon.Equal(time.UnixMilli(time.Now().Add(time.Hour).UnixMilli())) {
			t.Errorf("horizon %v", horizon)
		}
		if got := fmt.Sprint(g.shows()); got != "[1:a=null 4:k=v 6:b=1 7:c=1]" {
			t.Error(got)
		}
		time.Sleep(time.Hour - time.Millisecond)
		if _, err := g.compact(o); !errors.Is(err, ErrNothing) {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(2 * time.Millisecond)
		g.mustCompact(o)
		if got := fmt.Sprint(g.shows()); got != "[4:k=v 6:b=1 7:c=1]" {
			t.Error(got)
		}
		// The marker's data went in the first run, so the second set its horizon.
		time.Sleep(time.Hour + time.Millisecond)
		g.mustCompact(o)
		if h := g.p.Clean().Horizon; !h.IsZero() {
			t.Errorf("horizon %v, nothing is left that may go", h)
		}
		for _, b := range g.read(0) {
			if b.BaseOffset() == 3 {
				t.Errorf("the marker is left at %d", b.BaseOffset())
			}
		}
	})
}

// TestCompactionKeepsCodecs: what is written anew has the codec it had.
func TestCompactionKeepsCodecs(t *testing.T) {
	w := compacted(t)
	g := w.gateway(memory.Faults{})
	var want []string
	for c := range compress.Codec(5) {
		g.put(c, "x=1", fmt.Sprintf("%v=1", c))
		want = append(want, fmt.Sprintf("%d:%v=1", 2*int(c)+1, c))
	}
	g.put(0, "x=2")
	g.put(0, "y=1")
	if res := g.mustCompact(CompactOptions{}); res.RecordsIn != 11 || res.RecordsOut != 6 || res.Upto != 11 {
		t.Errorf("%+v", res)
	}
	if got := g.shows(); !slices.Equal(got, append(want, "10:x=2", "11:y=1")) {
		t.Error(got)
	}
	for i, b := range g.read(0)[:5] {
		if int(b.Codec()) != i || b.BaseOffset() != int64(2*i) || b.Count() != 1 {
			t.Errorf("batch %d has codec %d, base %d, %d records", i, b.Codec(), b.BaseOffset(), b.Count())
		}
	}
}

// many makes a log that is compacted into many messages: keys k0 to k(n-1) twice.
func many(t *testing.T, n int) (*world, *gateway) {
	w := compacted(t)
	g := w.gateway(memory.Faults{})
	g.host.sibling = siblingSizes{1, 4}
	for range 2 {
		for i := range n {
			g.put(0, fmt.Sprintf("k%d=%d", i, i))
		}
	}
	g.put(0, "end=1")
	g.mustCompact(CompactOptions{})
	return w, g
}

// TestSiblingIndexLost: parts of the index that are lost are made again from headers.
func TestSiblingIndexLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := many(t, 10)
		want := fmt.Sprint(g.shows())
		for _, k := range w.server.Keys("kafka-partitions") {
			if strings.Contains(k, ".k.") {
				w.server.Forget("kafka-partitions", k)
			}
		}
		if got := fmt.Sprint(w.gateway(memory.Faults{}).shows()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestDestroyDeletesSiblings: also those that nobody names.
func TestDestroyDeletesSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := many(t, 10)
		if err := g.p.createSibling(t.Context(), siblingName(testLog)); err != nil {
			t.Fatal(err)
		}
		if n := len(w.server.Logs()); n != 3 {
			t.Fatalf("%d streams", n)
		}
		if err := g.host.Destroy(t.Context(), DestroySpec{ID: w.id, Log: testLog}); err != nil {
			t.Fatal(err)
		}
		if l, k := w.server.Logs(), w.server.Keys("kafka-partitions"); len(l)+len(k) > 0 {
			t.Errorf("left: %v, %v", l, k)
		}
	})
}

// TestWantCompacted: what an operator asked for is in the record until it is done, or
// until nothing can be done.
func TestWantCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := compacted(t)
		g, other := w.gateway(memory.Faults{}), w.gateway(memory.Faults{})
		g.put(0, "a=1")
		if x, err := other.p.WantCompacted(t.Context()); x != 0 || err != nil || w.stored().Want != 0 {
			t.Errorf("nothing can be compacted: %d, %v", x, err)
		}
		g.put(0, "a=2")
		g.put(0, "a=3")
		x, err := other.p.WantCompacted(t.Context())
		if x != 2 || err != nil || w.stored().Want != 2 {
			t.Errorf("%d, %v, %+v", x, err, w.stored())
		}
		g.put(0, "b=1")
		if res := g.mustCompact(CompactOptions{Force: true}); res.Upto < x || g.p.Clean().Want != 0 || g.p.Clean().X < x {
			t.Errorf("%+v, %+v", res, g.p.Clean())
		}
		if x, err := other.p.WantCompacted(t.Context()); x != 0 || err != nil {
			t.Errorf("all is compacted: %d, %v", x, err)
		}
		g.put(0, "b=2")
		if x, err := other.p.WantCompacted(t.Context()); x != 4 || err != nil {
			t.Errorf("%d, %v", x, err)
		}
		if _, err := g.compact(CompactOptions{Force: true, MinLag: time.Hour}); !errors.Is(err, ErrNothing) || w.stored().Want != 0 {
			t.Errorf("a wish that cannot be fulfilled: %v, %+v", err, w.stored())
		}
		g.configure(func(c *Config) { c.Compacted = false })
		if _, err := g.p.WantCompacted(t.Context()); !errors.Is(err, kerr.PolicyViolation) {
			t.Error(err)
		}
	})
}

// TestCompactionWithLittleMemory: a run makes as many rewrites as it needs, with
// memory for one key too.
func TestCompactionWithLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, memoryFor := range []int{1, 200, 1000} {
			w := compacted(t)
			g := w.gateway(memory.Faults{})
			for range 3 {
				g.put(0, "a=1", "b=1", "c=1", "d=1", "e=1")
				g.put(0, "a=2", "b=2", "c=2")
			}
			g.put(0, "z=1")
			res, err := g.p.Compact(t.Context(), CompactOptions{Now: time.Now(), Memory: memoryFor})
			if err != nil || res.Upto != 24 || memoryFor == 1 && res.Passes < 2 {
				t.Fatalf("%d bytes: %+v, %v", memoryFor, res, err)
			}
			if got := fmt.Sprint(g.shows()); got != "[19:d=1 20:e=1 21:a=2 22:b=2 23:c=2 24:z=1]" {
				t.Errorf("%d bytes: %s", memoryFor, got)
			}
			if m := w.stored().Clean; m.Dirty != m.X {
				t.Errorf("%+v", m)
			}
		}
	})
}

// TestTombstonesStayAfterALongRun: a tombstone can be read for delete.retention.ms
// from the end of the run that has met it first, until which readers see what it
// hides, not from its beginning (simulated seed 5667).
func TestTombstonesStayAfterALongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := compacted(t)
		g := w.gateway(memory.Faults{})
		g.put(0, "a=1")
		g.put(0, "a=")
		g.put(0, "b=1")
		g.put(0, "end=1")
		o := CompactOptions{Force: true, DeleteRetention: 10 * time.Second}
		slow := o
		slow.Pace = func(context.Context, int) error { time.Sleep(5 * time.Second); return nil }
		if res := g.mustCompact(slow); res.Took < 15*time.Second {
			t.Fatalf("it took %v", res.Took)
		}
		stays, gone := "[1:a=null 2:b=1 3:end=1]", "[2:b=1 3:end=1]"
		if got := fmt.Sprint(g.shows()); got != stays {
			t.Errorf("after the run: %s", got)
		}
		at := g.p.Clean().Horizon
		if d := time.Until(at); d < 9*time.Second || d > 10*time.Second {
			t.Errorf("it may go in %v", d)
		}
		if _, err := g.compact(o); !errors.Is(err, ErrNothing) {
			t.Error(err)
		}
		g.put(0, "end=2")
		g.mustCompact(o)
		if got := fmt.Sprint(g.shows()); !strings.HasPrefix(got, stays[:len(stays)-1]) {
			t.Errorf("after another run: %s", got)
		}
		time.Sleep(10 * time.Second)
		g.put(0, "end=3")
		g.mustCompact(o)
		if got := fmt.Sprint(g.shows()); strings.Contains(got, "1:a=") || !strings.Contains(got, gone[1:6]) {
			t.Errorf("at last: %s", got)
		}
	})
}

// TestCompactionLetsOthersHaveTheirTurn: between two passes it may end, but not
// within a message, which nobody would know of.
func TestCompactionLetsOthersHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := compacted(t)
		g := w.gateway(memory.Faults{})
		g.put(0, "a=1", "b=1", "c=1", "d=1", "e=1")
		for _, kv := range []string{"a=2", "b=2", "c=2", "d=2", "e=2", "z=1"} {
			g.put(0, kv)
		}
		runs := 0
		for more := true; more; runs++ {
			res, err := g.p.Compact(t.Context(), CompactOptions{Now: time.Now(), Memory: 100, Force: true, Enough: func() bool { return true }})
			if err != nil {
				t.Fatal(err)
			}
			if m := w.stored().Clean; m.Dirty != m.X {
				t.Errorf("run %d ends within a message: %+v", runs, m)
			}
			more = res.More
		}
		if got := fmt.Sprint(g.shows()); runs < 2 || got != "[5:a=2 6:b=2 7:c=2 8:d=2 9:e=2 10:z=1]" {
			t.Errorf("%d runs: %s", runs, got)
		}
	})
}

// TestCompactedRecordsLost: reads of what is lost fail and say so; everything else
// goes on; a repair moves the log start behind it, and no further.
func TestCompactedRecordsLost(t *testing.T) {
	for name, lose := range map[string]func(w *world, m *manifest){
		"one message": func(w *world, m *manifest) { w.server.Remove(m.Stream, 5) },
		"the first":   func(w *world, m *manifest) { w.server.Remove(m.Stream, 1) },
		"the last":    func(w *world, m *manifest) { w.server.Remove(m.Stream, m.Last) },
		"all": func(w *world, m *manifest) {
			c := w.server.Client(memory.Faults{})
			defer c.Close()
			if err := c.DeleteLog(context.Background(), m.Stream); err != nil {
				panic(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, g := many(t, 10)
				all, m := g.shows(), w.stored().Clean
				lose(w, m)
				g = w.gateway(memory.Faults{})
				failed := false
				for o := range types.Offset(20) {
					r, err := g.p.Read(t.Context(), ReadRequest{Offset: o, MaxBytes: 1, Whole: true})
					failed = failed || err != nil
					if err == nil && r.Bytes == 0 || err != nil && !errors.Is(err, pubsub.ErrUnavailable) {
						t.Errorf("at %d: %d bytes, %v", o, r.Bytes, err)
					}
				}
				if !failed {
					t.Error("nobody noticed")
				}
				if bs := g.read(20); len(bs) != 1 {
					t.Errorf("behind it: %d batches", len(bs))
				}
				if _, err := g.compact(CompactOptions{Force: true}); err == nil {
					t.Error("it was compacted")
				}
				env := RepairEnv{Store: g.client, Records: g.host.records, Alone: true, By: "test"}
				spec := RepairSpec{Topic: "t", ID: w.id, Log: pubsub.LogConfig{Name: testLog, Subject: testSubject, Replicas: 1}}
				rep, err := Survey(t.Context(), env, spec)
				if err != nil || len(rep.Trouble) != 1 || len(rep.Remedies) != 2 {
					t.Fatalf("%+v, %v", rep, err)
				}
				if rep, err = AcceptLoss(t.Context(), env, spec); err != nil || len(rep.Trouble) != 0 {
					t.Fatalf("%+v, %v", rep, err)
				}
				got := w.gateway(memory.Faults{}).shows()
				if n := len(got); n == 0 || !slices.Equal(got, all[len(all)-n:]) || name == "the first" && n < len(all)-2 || name == "one message" && n < 2 {
					t.Errorf("%s: left are %v of %v (%s)", name, got, all, rep.Done)
				}
				b, _ := w.maintainer(memory.Faults{}, 1, true)
				b.put(0, "new=1")
				if _, err := b.compact(CompactOptions{Force: true}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
