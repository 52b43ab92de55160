package partition

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// TestMinInsyncOfRealCopies: acks=all is refused while fewer copies are up to date
// than the topic wants, at most some seconds after they went and until a second or
// two after they are back; who does not ask for all is not held to it; and what
// cannot be known is tried.
func TestMinInsyncOfRealCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		var away atomic.Bool
		g := w.gateway(memory.Faults{Bounds: func(memory.Op) (f memory.ReadFault) {
			if away.Load() {
				f.Err = pubsub.ErrUnavailable
			}
			return f
		}})
		run(t, g)
		g.configure(func(c *Config) { c.MinInsync = 2 })
		send := func(all bool) error { return g.produce(AppendRequest{Records: batch(1), AcksAll: all}).Err }
		// after repeats a write with acks=all until it gets what is wanted.
		after := func(want error, atMost time.Duration) {
			t.Helper()
			began := time.Now()
			for {
				err := send(true)
				if errors.Is(err, want) || want == nil && err == nil {
					break
				}
				if time.Since(began) > atMost {
					t.Fatalf("%v after %v, want %v", err, time.Since(began), want)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		for range 3 {
			w.server.SetBehind(testLog, 1, 1) // two of three are enough
			time.Sleep(checkEvery + time.Second)
			if err := send(true); err != nil {
				t.Fatalf("two copies of three: %v", err)
			}
			w.server.SetBehind(testLog, 2, 1)
			after(kerr.NotEnoughReplicas, checkEvery+2*time.Second)
			before := len(w.server.Messages(testLog))
			if err := send(true); !errors.Is(err, kerr.NotEnoughReplicas) || len(w.server.Messages(testLog)) != before {
				t.Fatalf("one copy of three: %v, %d messages after %d", err, len(w.server.Messages(testLog)), before)
			}
			if err := send(false); err != nil {
				t.Fatalf("acks=1 on one copy of three: %v", err)
			}
			w.server.SetBehind(testLog, 0, 0)
			after(nil, shortEvery+2*time.Second)
		}
		// Old knowledge counts for nothing.
		w.server.SetBehind(testLog, 2, 2)
		after(kerr.NotEnoughReplicas, checkEvery+2*time.Second)
		away.Store(true)
		after(nil, copiesFor+2*time.Second)
	})
}

// TestCopies: what is known of copies comes from any answer, from one listing at a
// time and only while somebody wants to know; a stream without a leader is told
// apart from one that has all its copies.
func TestCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer(memory.Config{MaxReplicas: 3})
		var listings atomic.Int64
		var deny atomic.Bool
		c := server.Client(memory.Faults{Find: func(op memory.Op) (f memory.ReadFault) {
			if op.Name == "kafka-clean.>" { // goes with each
				return f
			}
			listings.Add(1)
			f.Deny = deny.Load()
			return f
		}})
		tab, err := c.Table(t.Context(), pubsub.TableConfig{Name: "kafka-partitions"})
		if err != nil {
			t.Fatal(err)
		}
		h := NewHost(Env{Store: c, Records: tab, Gateway: "g", Subjects: "kafka.>"})
		g := &gateway{w: &world{t: t, server: server}, client: c, host: h}
		run(t, g)
		name := func(i int) string { return fmt.Sprintf("kafka-t-%d", i) }
		for i := range 50 {
			if err := c.CreateLog(t.Context(), pubsub.LogConfig{Name: name(i), Subject: fmt.Sprintf("kafka.t.%d", i), Replicas: 3}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if n := listings.Load(); n != 0 {
			t.Errorf("%d listings although nobody wants to know", n)
		}
		if c, ok := h.Copies(name(0)); ok {
			t.Errorf("known from nowhere: %+v", c)
		}
		server.SetBehind(name(7), 1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 10 { // one listing serves all who come
			go h.RefreshCopies(ctx)
		}
		h.RefreshCopies(ctx)
		if n := listings.Load(); n != 1 {
			t.Errorf("%d listings for one question", n)
		}
		for i, want := range map[int]Copies{0: {Replicas: 3, InSync: 3}, 7: {Replicas: 3, InSync: 2, Offline: 1}} {
			c, ok := h.Copies(name(i))
			if c.At, c.Leader = (time.Time{}), ""; !ok || c != want || c.Under() != (want.InSync < 3) {
				t.Errorf("copies of %d: %+v, %v", i, c, ok)
			}
		}
		time.Sleep(copiesFor + 2*time.Second)
		server.SetBehind(name(7), 0, 0)
		deny.Store(true)
		time.Sleep(copiesFor + 2*time.Second)
		if c, _ := h.Copies(name(0)); !c.Silent || !c.Under() || c.InSync != 3 {
			t.Errorf("a stream that does not answer: %+v", c)
		}
		deny.Store(false)
		time.Sleep(copiesFor + 2*time.Second)
		if c, _ := h.Copies(name(7)); c.Under() || c.InSync != 3 {
			t.Errorf("all are back: %+v", c)
		}
		listings.Store(0)
		time.Sleep(time.Minute)
		if n := listings.Load(); n < 4 || n > 7 {
			t.Errorf("%d listings in a minute", n)
		}
		time.Sleep(copiesWanted)
		listings.Store(0)
		time.Sleep(time.Hour)
		if n := listings.Load(); n != 0 {
			t.Errorf("%d listings in an hour in which nobody wants to know", n)
		}
	})
}

// TestCopiesOfSiblings: a partition has no more copies than the stream of what is
// compacted of it; siblings that are gone count no more.
func TestCopiesOfSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		g := w.gateway(memory.Faults{})
		g.host.list = "kafka.>"
		run(t, g)
		g.configure(func(c *Config) { c.Compacted = true })
		inSync := func(want int) {
			t.Helper()
			time.Sleep(copiesFor + 2*time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			g.host.RefreshCopies(ctx)
			if c, ok := g.host.Copies(testLog); !ok || c.InSync != want || c.Replicas != 3 || c.Under() != (want < 3) {
				t.Errorf("%d in sync wanted: %+v, %v", want, c, ok)
			}
			if s, err := g.p.Status(t.Context()); err != nil || s.InSync != want || s.Offline != 3-want {
				t.Errorf("%d in sync wanted: %+v, %v", want, s, err)
			}
		}
		sibling := func() string {
			t.Helper()
			g.put(compress.None, "k=1", "k=2")
			g.put(compress.None, "k=3")
			g.put(compress.None, "last=1")
			g.mustCompact(CompactOptions{})
			info, err := g.client.FindLog(t.Context(), g.p.Clean().Stream)
			if err != nil || info.Replicas != 3 {
				t.Fatalf("%+v, %v", info, err)
			}
			return info.Name
		}
		first := sibling()
		inSync(3)
		w.server.SetBehind(first, 1, 1)
		inSync(2)
		w.server.SetBehind(testLog, 2, 2)
		inSync(1)
		w.server.SetBehind(testLog, 0, 0)
		inSync(2)
		if second := sibling(); second == first {
			t.Fatal("not compacted again")
		}
		inSync(3)
		if _, known := g.host.known(first); known {
			t.Error("a sibling that is gone is still known")
		}
	})
}

// TestC40LeaderMoved: an append that the old leader took along is cleared up a
// second later, not after the whole wait for its acknowledgement, and is stored
// once; while the leader stays, a slow acknowledgement is waited for.
func TestC40LeaderMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		var fault atomic.Pointer[memory.WriteFault]
		var sent atomic.Int64
		g := w.gateway(memory.Faults{Append: func(memory.Op) memory.WriteFault {
			sent.Add(1)
			if f := fault.Swap(nil); f != nil {
				return *f
			}
			return memory.WriteFault{}
		}})
		run(t, g)
		g.mustProduce(batch(1))
		for i, f := range []memory.WriteFault{{Drop: true, After: time.Minute}, {LoseAck: true, After: time.Minute}} {
			fault.Store(&f)
			time.AfterFunc(200*time.Millisecond, func() { w.server.SetLeader(testLog, fmt.Sprint("other", i)) })
			began := time.Now()
			g.mustProduce(batch(1))
			if took := time.Since(began); took < movedAfter || took > movedAfter+time.Second {
				t.Errorf("%+v: cleared up after %v", f, took)
			}
		}
		sent.Store(0)
		fault.Store(&memory.WriteFault{After: 4 * time.Second})
		began := time.Now()
		g.mustProduce(batch(1))
		if took := time.Since(began); took != 4*time.Second || sent.Load() != 1 {
			t.Errorf("a slow acknowledgement: %v, sent %d times", took, sent.Load())
		}
		if n := len(w.server.Messages(testLog)); n != 4 {
			t.Errorf("%d messages are stored, want 4", n)
		}
	})
}
