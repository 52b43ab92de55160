package partition

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// led is a log whose leader is told, and may have woken from a freeze: then it
// denies what was stored last.
type led struct {
	pubsub.Log
	mu     sync.Mutex // guards: all below
	leader string
	denies pubsub.Seq
	hold   time.Duration // before the next answer arrives
	frozen bool
}

func (l *led) Bounds(ctx context.Context) (pubsub.Bounds, error) {
	b, err := l.Log.Bounds(ctx)
	l.mu.Lock()
	b.Leader, b.Last = l.leader, b.Last-l.denies
	hold, frozen := l.hold, l.frozen
	l.hold = 0
	l.mu.Unlock()
	time.Sleep(hold)
	if frozen {
		return pubsub.Bounds{}, pubsub.ErrUnavailable
	}
	return b, err
}

func (l *led) by(leader string, denies pubsub.Seq) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader, l.denies = leader, denies
}

// lead gives a gateway a log with a leader. The background work of its host runs.
func lead(t *testing.T, g *gateway, leader string) *led {
	t.Helper()
	l := &led{Log: g.p.log, leader: leader}
	g.p.log = l
	run(t, g)
	return l
}

func latest(t *testing.T, g *gateway) (types.Offset, time.Duration) {
	t.Helper()
	began := time.Now()
	r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest})
	if err != nil {
		t.Fatal(err)
	}
	return r.Offset, time.Since(began)
}

// TestC36EndAfterALeaderWoke: what one gateway has shown as the end of the log, no
// other falls short of, although the leader it asks has just woken from a freeze
// and denies the newest messages.
func TestC36EndAfterALeaderWoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		a, b := w.gateway(memory.Faults{}), w.gateway(memory.Faults{})
		la, lb := lead(t, a, "n1"), lead(t, b, "n1")
		a.mustProduce(batch(3))
		// Nobody knows anything of the leader yet: it is asked twice.
		if end, took := latest(t, b); end != 3 || took != pubsub.SecondLook {
			t.Errorf("end %d after %v", end, took)
		}
		// From now on it is known to be awake, also a while later.
		for _, pause := range []time.Duration{0, time.Minute, 5 * time.Minute} {
			time.Sleep(pause)
			if end, took := latest(t, b); end != 3 || took != 0 {
				t.Errorf("end %d after %v", end, took)
			}
		}
		// n1 freezes, n2 is elected and takes five messages, n1 wakes up and answers
		// b for 900 ms.
		freeze := func(frozen bool) {
			lb.mu.Lock()
			defer lb.mu.Unlock()
			lb.frozen = frozen
		}
		freeze(true)
		time.Sleep(8 * time.Second)
		la.by("n2", 0)
		for range 5 {
			a.mustProduce(batch(1))
		}
		if end, _ := latest(t, a); end != 8 {
			t.Fatalf("end %d", end)
		}
		lb.by("n1", 5)
		freeze(false)
		time.AfterFunc(900*time.Millisecond, func() { lb.by("n2", 0) })
		if end, took := latest(t, b); end != 8 || took > 2*pubsub.SecondLook {
			t.Errorf("end %d after %v, where 8 was shown before", end, took)
		}
		// A time beyond all records: that there is none is absence as well.
		lb.by("n3", 5)
		time.AfterFunc(900*time.Millisecond, func() { lb.by("n2", 0) })
		c := w.gateway(memory.Faults{})
		lc := lead(t, c, "n3")
		lc.by("n3", 5)
		time.AfterFunc(900*time.Millisecond, func() { lc.by("n2", 0) })
		at := time.Now().UnixMilli()
		late := batchSpec{times: []int64{at + 60_000}}.bytes()
		a.mustProduce(late)
		if r, err := c.p.Lookup(t.Context(), LookupRequest{Timestamp: at + 30_000}); err != nil || r.Offset != 8 {
			t.Errorf("by time: %+v, %v", r, err)
		}
	})
}

// What counts is who gave the answer that was applied. While it is on its way others
// ask, and hear from a server that is known to be awake: that does not vouch for it.
func TestC36EndWhileOthersAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		a, b := w.gateway(memory.Faults{}), w.gateway(memory.Faults{})
		lead(t, a, "n1")
		lb := lead(t, b, "n1")
		a.mustProduce(batch(3))
		if end, took := latest(t, b); end != 3 || took != pubsub.SecondLook {
			t.Fatalf("end %d after %v", end, took)
		}
		for range 5 {
			a.mustProduce(batch(1))
		}
		if end, _ := latest(t, a); end != 8 {
			t.Fatalf("end %d", end)
		}
		// n2 led, woke up and denies the newest five; its answer takes 300 ms. 100 ms
		// after that was asked, b asks for another reason, and n1 answers at once.
		time.Sleep(50 * time.Millisecond) // beside the ticks of the host
		lb.by("n2", 5)
		lb.mu.Lock()
		lb.hold = 300 * time.Millisecond
		lb.mu.Unlock()
		time.AfterFunc(100*time.Millisecond, func() {
			lb.by("n1", 0)
			if _, err := b.p.bounds(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if end, took := latest(t, b); end != 8 || took < 300*time.Millisecond {
			t.Errorf("end %d after %v, where 8 was shown before", end, took)
		}
	})
}

// A gateway that has forgotten its state loads no older one from a leader that woke
// from a freeze: what it has shown of the log is not taken back.
func TestC36ReloadAfterALeaderWoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		g := w.gateway(memory.Faults{})
		l := lead(t, g, "n1")
		for range 5 {
			g.mustProduce(batch(1))
		}
		read := func() (types.Offset, error) {
			r, err := g.p.Read(t.Context(), ReadRequest{Offset: 0, MaxBytes: 1})
			return r.HighWatermark, err
		}
		if hw, err := read(); hw != 5 || err != nil {
			t.Fatalf("high watermark %d, %v", hw, err)
		}
		l.by("n2", 2)
		g.p.mu.Lock()
		g.p.unloadLocked()
		g.p.mu.Unlock()
		if hw, err := read(); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("high watermark %d, %v", hw, err)
		}
		l.by("n2", 0)
		if hw, err := read(); hw != 5 || err != nil {
			t.Errorf("high watermark %d, %v", hw, err)
		}
	})
}

// With one replica there is nobody else: one question.
func TestEndWithOneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		g.mustProduce(batch(3))
		if end, took := latest(t, g); end != 3 || took != 0 {
			t.Errorf("end %d after %v", end, took)
		}
	})
}

// Cut off together with a minority of the store, a gateway does not say where
// the log ends.
func TestEndWhileNotFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		g := w.gateway(memory.Faults{})
		g.host.fresh = func() bool { return false }
		if _, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

// What is appended elsewhere while the leader is being asked is no reason to doubt
// its answer.
func TestEndDuringAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		team := &team{w: w}
		team.join(memory.Faults{})
		a := team.join(memory.Faults{})
		l := lead(t, a, "n1")
		a.mustProduce(batch(1))
		time.Sleep(50 * time.Millisecond) // beside the ticks of the host
		l.mu.Lock()
		l.hold = 300 * time.Millisecond
		l.mu.Unlock()
		handed := make(chan AppendResult, 1)
		time.AfterFunc(100*time.Millisecond, func() {
			a.hand()
			handed <- a.produce(AppendRequest{Records: batch(2)})
		})
		if end, took := latest(t, a); end < 1 || took < 300*time.Millisecond {
			t.Errorf("end %d after %v", end, took)
		}
		if r := <-handed; r.Err != nil || r.BaseOffset != 1 || a.wrote() != 1 {
			t.Errorf("%+v, %d appended here", r, a.wrote())
		}
		if end, _ := latest(t, a); end != 3 {
			t.Errorf("end %d", end)
		}
	})
}

// A gateway never falls short of what was appended elsewhere for its own clients.
func TestEndAfterAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		team := &team{w: w}
		team.join(memory.Faults{})
		a := team.join(memory.Faults{})
		l := lead(t, a, "n1")
		a.mustProduce(batch(1))
		a.hand()
		a.mustProduce(batch(2))
		l.by("n1", 1)
		if r, err := a.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("%+v, %v", r, err)
		}
		l.by("n1", 0)
		if end, _ := latest(t, a); end != 3 {
			t.Errorf("end %d", end)
		}
		// A log that has lost it for good stops the partition.
		a.hand()
		a.mustProduce(batch(2))
		l.by("n1", 1)
		deadline := time.Now().Add(time.Minute)
		for a.p.stopMessage() == "" && time.Now().Before(deadline) {
			_ = a.p.sync(t.Context())
			time.Sleep(time.Second)
		}
		if a.p.stopMessage() == "" {
			t.Error("not stopped")
		}
	})
}

// Cut off together with a minority of the store, whose deposed leader answers for as
// long as it likes, a gateway says "no" to nothing, and stops no partition.
func TestCutOffWithAMinority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		var denying, away atomic.Bool
		a := w.gateway(memory.Faults{})
		b := w.gateway(memory.Faults{Get: func(op memory.Op) (f memory.ReadFault) {
			f.Deny = denying.Load() && op.Name == testLog
			return f
		}})
		lead(t, a, "n1")
		l := lead(t, b, "n2")
		b.configure(func(c *Config) { c.Retained = true })
		produce := func(g *gateway, seq int32) AppendResult {
			return g.produce(AppendRequest{Records: idempotent(7, 0, seq, 1)})
		}
		for seq := range int32(3) {
			if r := produce(a, seq); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if end, _ := latest(t, b); end != 3 {
			t.Fatalf("end %d", end)
		}
		for seq := int32(3); seq < 8; seq++ {
			if r := produce(a, seq); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		l.by("n2", 5)
		away.Store(true)
		b.host.fresh = func() bool { return !away.Load() }
		questions := map[string]func() error{
			"read": func() error {
				_, err := b.p.Read(t.Context(), ReadRequest{Offset: 6, MaxBytes: 1 << 20})
				return err
			},
			"available":    func() error { _, err := b.p.Available(t.Context(), 6, false); return err },
			"delete":       func() error { _, err := b.p.DeleteRecords(t.Context(), 6); return err },
			"delete all":   func() error { _, err := b.p.DeleteRecords(t.Context(), HighWatermark); return err },
			"latest":       func() error { _, err := b.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); return err },
			"out of order": func() error { return produce(b, 8).Err },
			"by time": func() error {
				_, err := b.p.Lookup(t.Context(), LookupRequest{Timestamp: time.Now().Add(time.Minute).UnixMilli()})
				return err
			},
		}
		for name, ask := range questions {
			if err := ask(); !errors.Is(err, pubsub.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// What is there is there, whoever says so.
		if bs := b.read(1); len(bs) == 0 {
			t.Error("nothing read")
		}
		if r := produce(b, 2); r.Err != nil || r.BaseOffset != 2 {
			t.Errorf("a duplicate: %+v", r)
		}
		// A message that the leader denies, and an end before what is known.
		denying.Store(true)
		if _, err := b.p.hole(t.Context(), 3, pubsub.Bounds{Last: 3, Replicas: 3}); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("a message that is denied: %v", err)
		}
		denying.Store(false)
		l.by("n2", 7)
		for range 60 {
			_ = b.p.sync(t.Context())
			time.Sleep(time.Second)
		}
		if s := b.p.stopMessage(); s != "" {
			t.Fatalf("stopped: %s", s)
		}
		// It has come back.
		l.by("n1", 0)
		away.Store(false)
		for name, ask := range questions {
			if name == "delete all" {
				continue
			}
			if err := ask(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if start, err := b.p.DeleteRecords(t.Context(), HighWatermark); err != nil || start != 9 {
			t.Errorf("deleted up to %d, %v", start, err)
		}
	})
}

// "Everything there is" is deleted up to the end that is certain.
func TestDeleteAllAfterALeaderWoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		a, b := w.gateway(memory.Faults{}), w.gateway(memory.Faults{})
		a.mustProduce(batch(3))
		if end, _ := latest(t, b); end != 3 {
			t.Fatalf("end %d", end)
		}
		a.mustProduce(batch(5))
		b.configure(func(c *Config) { c.Retained = true })
		l := lead(t, b, "n2")
		l.by("n2", 1)
		time.AfterFunc(900*time.Millisecond, func() { l.by("n1", 0) })
		if start := b.delete(HighWatermark); start != 8 {
			t.Errorf("deleted up to %d, the log ends at 8", start)
		}
	})
}
