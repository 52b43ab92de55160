package partition

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// retain makes one pass, as the cleaner does.
func (g *gateway) retain() {
	g.w.t.Helper()
	b, err := g.p.log.Bounds(g.w.t.Context())
	if err != nil {
		g.w.t.Fatal(err)
	}
	if err := g.p.Retain(g.w.t.Context(), time.Now(), b); err != nil {
		g.w.t.Fatal(err)
	}
}

func (g *gateway) configure(change func(c *Config)) {
	c := *g.p.Config()
	change(&c)
	g.p.Configure(c)
}

func at(ts ...int64) []byte { return batchSpec{times: ts}.bytes() }

// TestRetentionByTime: a message goes when its largest timestamp is older than
// retention.ms, not before, from the front only; the last one stays in the stream
// and its records go. Plain messages count by the store's time.
func TestRetentionByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.config.Retained, w.config.RetentionMillis = true, 60_000
		g := w.gateway(memory.Faults{})
		check := func(what string, start types.Offset, first pubsub.Seq) {
			t.Helper()
			g.retain()
			if o := g.lookup(Earliest); o != start || w.first() != first {
				t.Errorf("%s: log start %d, first message %d, want %d, %d", what, o, w.first(), start, first)
			}
		}
		now := func() int64 { return time.Now().UnixMilli() }
		g.mustProduce(at(now()-50_000, now()-59_000)) // 0, 1
		g.mustProduce(at(now() - 500_000))            // 2: behind a younger one
		if _, err := w.server.Publish(testSubject, nil, []byte("plain")); err != nil {
			t.Fatal(err)
		}
		g.mustProduce(at(now() + 30_000)) // 4
		check("at once", 0, 1)
		time.Sleep(10 * time.Second)
		check("as old as may be", 0, 1)
		time.Sleep(9 * time.Second)
		check("so old, but just written", 0, 1)
		time.Sleep(2 * time.Second)
		check("two messages", 3, 3)
		time.Sleep(39 * time.Second)
		check("the plain one is 60 s old", 3, 3)
		time.Sleep(time.Millisecond)
		check("older", 4, 4)
		time.Sleep(30*time.Second - time.Millisecond)
		check("the last one is not old", 4, 4)
		time.Sleep(time.Millisecond)
		check("the last one", 5, 4)
		if bs := g.read(5); len(bs) != 0 {
			t.Errorf("read at 5: %v", offsets(bs))
		}
		if o := w.gateway(memory.Faults{}).mustProduce(at(now())); o != 5 {
			t.Errorf("next base %d, want 5", o)
		}
		check("a new one", 5, 5)
		g.configure(func(c *Config) { c.RetentionMillis = 1 })
		time.Sleep(time.Minute)
		g.configure(func(c *Config) { c.Retained = false })
		check("a topic without delete", 5, 5)
		g.configure(func(c *Config) { c.Retained, c.RetentionMillis = true, -1 })
		check("no limit", 5, 5)
		g.configure(func(c *Config) { c.RetentionMillis = 0 })
		check("nothing is kept", 6, 5)
	})
}

// TestRetentionWithoutTimes: records that have no time are as old as their append.
func TestRetentionWithoutTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.config.Retained, w.config.RetentionMillis = true, 100_000
		g := w.gateway(memory.Faults{})
		g.mustProduce(at(-1))
		g.mustProduce(at(time.Now().UnixMilli()))
		time.Sleep(99 * time.Second)
		if g.retain(); w.first() != 1 {
			t.Error("too early")
		}
		time.Sleep(2 * time.Second)
		if g.retain(); w.first() != 2 {
			t.Error("not deleted")
		}
	})
}

// TestC12RetentionByTrueTimes: what a client's header claims does not count.
func TestC12RetentionByTrueTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.config.Retained, w.config.RetentionMillis = true, 60_000
		g := w.gateway(memory.Faults{})
		now := time.Now().UnixMilli()
		for _, claim := range []int64{-1, now - 100_000} { // both below the base
			g.mustProduce(batchSpec{times: []int64{now, now + 9}, maxTime: &claim}.bytes())
		}
		g.mustProduce(at(now + 100_000))
		time.Sleep(60*time.Second + 9*time.Millisecond)
		if g.retain(); w.first() != 1 {
			t.Errorf("the stream begins at %d, nothing is older than its retention", w.first())
		}
		time.Sleep(time.Millisecond)
		if g.retain(); w.first() != 3 {
			t.Errorf("the stream begins at %d, want 3", w.first())
		}
	})
}

// TestRetentionBySize: what is left holds retention.bytes at least, less than one
// message more, of whatever sizes; across index intervals and with two doing it at
// the same time.
func TestRetentionBySize(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprint("plain ", plain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				w.config.Retained, w.config.RetentionBytes = true, 100_000
				g, other := w.gateway(memory.Faults{}), w.gateway(memory.Faults{})
				end := types.Offset(0)
				for i := range 1200 {
					if plain {
						if _, err := w.server.Publish(testSubject, nil, make([]byte, 10+i)); err != nil {
							t.Fatal(err)
						}
					} else {
						g.mustProduce(batchSpec{times: []int64{time.Now().UnixMilli()}, values: [][]byte{make([]byte, 10+i)}}.bytes())
					}
					end++
					if i%100 != 99 {
						continue
					}
					before, err := g.p.log.Bounds(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					done := make(chan bool)
					for _, g := range []*gateway{g, other} {
						go func() { g.retain(); done <- true }()
					}
					<-done
					<-done
					b, err := other.p.log.Bounds(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if before.Bytes < 100_000 && b != before {
						t.Fatalf("%d bytes were cut to %d", before.Bytes, b.Bytes)
					}
					if b.Last != pubsub.Seq(end) || before.Bytes >= 100_000 && (b.Bytes < 100_000 || b.Bytes > 103_000) {
						t.Fatalf("after %d: %+v", i, b)
					}
					for _, g := range []*gateway{g, other, w.gateway(memory.Faults{})} {
						if o := g.lookup(Earliest); o != types.Offset(b.First-1) {
							t.Fatalf("log start %d, the stream begins at %d", o, b.First)
						}
						if bs := g.read(types.Offset(b.First - 1)); bs[0].BaseOffset() != int64(b.First-1) {
							t.Fatalf("read at the start: %v", offsets(bs[:1]))
						}
					}
				}
			})
		})
	}
}

// TestRetentionAsksLittle: a pass over a partition where nothing is due sends
// nothing, also when all its records have been let go of.
func TestRetentionAsksLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.config.Retained, w.config.RetentionMillis = true, 60_000
		asked := 0
		count := func(memory.Op) memory.ReadFault { asked++; return memory.ReadFault{} }
		g := w.gateway(memory.Faults{Headers: count, TableGet: count, Get: count})
		for range 5 {
			g.mustProduce(batch(1))
		}
		for _, want := range []pubsub.Seq{1, 5} {
			g.retain()
			asked = 0
			for range 10 {
				g.retain()
			}
			if asked != 0 || w.first() != want {
				t.Errorf("%d questions, the stream begins at %d, want %d", asked, w.first(), want)
			}
			time.Sleep(2 * time.Minute)
		}
	})
}

// TestRetentionOfAStoppedPartition: what may be damaged is not touched.
func TestRetentionOfAStoppedPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.config.Retained, w.config.RetentionMillis = true, 0
		g := w.gateway(memory.Faults{})
		for range 5 {
			g.mustProduce(batch(1))
		}
		g.p.stopFor(&corruption{kind: "gap", seq: 3})
		synctest.Wait()
		time.Sleep(time.Minute)
		for _, g := range []*gateway{g, w.gateway(memory.Faults{})} {
			g.retain()
			if w.first() != 1 {
				t.Errorf("the stream begins at %d", w.first())
			}
		}
	})
}
