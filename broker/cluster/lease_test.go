package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// holder is a gateway with a lease, and a record that only holders write.
type holder struct {
	*gateway
	lease  *Lease
	ledger pubsub.Table
	end    context.CancelFunc
	ended  chan error
}

func startHolder(t *testing.T, srv *memory.Server, f memory.Faults) *holder {
	t.Helper()
	return startHolderAt(t, srv, f, nil)
}

func startHolderAt(t *testing.T, srv *memory.Server, f memory.Faults, clock func() time.Time) *holder {
	t.Helper()
	g, err := joinAt(t, srv, Config{}, f, clock)
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{gateway: g, ended: make(chan error, 1)}
	for name, to := range map[string]*pubsub.Table{"kafka-leases": nil, "ledger": &h.ledger} {
		var table pubsub.Table
		for { // a fault may meet the opening
			var err error
			if table, err = g.store.Table(t.Context(), pubsub.TableConfig{Name: name, Replicas: 1}); err == nil {
				break
			} else if !errors.Is(err, pubsub.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if to != nil {
			*to = table
		} else {
			h.lease = g.Lease(table, "maintenance")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.end = cancel
	go func() { h.ended <- h.lease.Run(ctx) }()
	t.Cleanup(h.stopLease)
	return h
}

func (h *holder) stopLease() {
	h.end()
	<-h.ended
	h.ended <- nil
}

func (h *holder) die() {
	h.stopLease()
	h.stop()
}

func (h *holder) holds() bool {
	_, ok := h.lease.Holds()
	return ok
}

// entry is the last line of the ledger.
type entry struct {
	Term   uint64 `json:"term"`
	By     string `json:"by"`
	Number int    `json:"number"`
}

var errFenced = errors.New("a later term has written")

// enter writes the next line as what is maintained under a lease is written: the
// right is asked for last, the term only grows, compare-and-set decides.
func (h *holder) enter(ctx context.Context) error {
	for {
		v, err := h.ledger.Get(ctx, "line")
		if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
			return err
		}
		var e entry
		if err == nil {
			if err := json.Unmarshal(v.Data, &e); err != nil {
				return err
			}
		}
		self := h.Self().Incarnation
		term, ok := h.lease.Holds()
		switch {
		case !ok:
			return errors.New("no holder")
		case e.Term > term:
			return errFenced
		}
		data, err := json.Marshal(entry{term, self, e.Number + 1})
		if err != nil {
			return err
		}
		_, err = pubsub.Put(ctx, h.ledger, pubsub.Write{Key: "line", Data: data, Expect: v.Rev})
		if !errors.Is(err, pubsub.ErrConflict) {
			return err
		}
	}
}

// one waits until exactly one holds the lease.
func one(t *testing.T, hs ...*holder) *holder {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var got []*holder
		for _, h := range hs {
			if h.holds() {
				got = append(got, h)
			}
		}
		if len(got) > 1 {
			t.Fatalf("%d hold the lease", len(got))
		}
		if len(got) == 1 {
			return got[0]
		}
	}
	t.Fatal("nobody holds the lease")
	return nil
}

func without(h *holder, hs ...*holder) (others []*holder) {
	for _, o := range hs {
		if o != h {
			others = append(others, o)
		}
	}
	return others
}

// TestLease: one holds it, without writes of its own; it is taken over from a
// dead one after its time to live, from one that lets go at once, and terms grow.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var mu sync.Mutex
		writes := 0
		f := memory.Faults{Set: func(op memory.Op) memory.WriteFault {
			if op.Name == "kafka-leases" {
				mu.Lock()
				writes++
				mu.Unlock()
			}
			return memory.WriteFault{}
		}}
		hs := []*holder{startHolder(t, srv, f), startHolder(t, srv, f), startHolder(t, srv, f)}
		first := one(t, hs...)
		term, _ := first.lease.Holds()
		time.Sleep(time.Second)
		mu.Lock()
		before := writes
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		mu.Lock()
		if writes != before || before > 3 {
			t.Errorf("%d writes to take it, %d in ten idle minutes", before, writes-before)
		}
		mu.Unlock()
		if !first.holds() {
			t.Fatal("lost while its holder lived")
		}

		killed := time.Now()
		first.die()
		rest := without(first, hs...)
		second := one(t, rest...)
		if d := time.Since(killed); d < 1500*time.Millisecond || d > 5*time.Second {
			t.Errorf("taken over %v after the kill", d)
		}
		if next, _ := second.lease.Holds(); next <= term {
			t.Errorf("term %d after %d", next, term)
		} else {
			term = next
		}

		changed := without(second, rest...)[0].lease.Changed()
		second.stopLease()
		if err := second.lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if second.holds() {
			t.Error("holds what it let go")
		}
		let := time.Now()
		third := one(t, without(second, rest...)...)
		if d := time.Since(let); d > 100*time.Millisecond {
			t.Errorf("taken %v after it was let go", d)
		}
		if next, _ := third.lease.Holds(); next <= term {
			t.Errorf("term %d after %d", next, term)
		}
		select {
		case <-changed:
		default:
			t.Error("nobody was told of another holder")
		}
		if err := second.lease.Release(t.Context()); err != nil || !third.holds() {
			t.Errorf("a second release: %v, the new holder holds: %v", err, third.holds())
		}
	})
}

// TestLeaseFrozenHolder: a write of the holder is under way for a minute. Another
// takes over, writes, and the late one counts no more; frozen itself, the holder
// says nothing any more before the other begins.
func TestLeaseFrozenHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var mu sync.Mutex
		late := true
		a := startHolder(t, srv, memory.Faults{Set: func(op memory.Op) memory.WriteFault {
			mu.Lock()
			defer mu.Unlock()
			if op.Name == "ledger" && late {
				late = false
				return memory.WriteFault{Before: time.Minute}
			}
			return memory.WriteFault{}
		}})
		one(t, a)
		b := startHolder(t, srv, memory.Faults{})
		time.Sleep(5 * time.Second)
		wrote := make(chan error, 1)
		go func() { wrote <- a.enter(t.Context()) }()
		synctest.Wait()
		a.store.Freeze()
		for !b.holds() {
			if a.holds() && b.holds() {
				t.Fatal("two hold the lease")
			}
			time.Sleep(time.Millisecond)
		}
		if a.holds() {
			t.Fatal("two hold the lease")
		}
		if err := b.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		a.store.Thaw()
		if err := <-wrote; err == nil {
			t.Error("a holder that was replaced has written")
		}
		var e entry
		v, err := b.ledger.Get(t.Context(), "line")
		if err != nil || json.Unmarshal(v.Data, &e) != nil || e.Number != 1 || e.By != b.Self().Incarnation {
			t.Errorf("ledger %s, %v", v.Data, err)
		}
		time.Sleep(5 * time.Second)
		if a.holds() || !b.holds() {
			t.Errorf("a holds %v, b %v", a.holds(), b.holds())
		}
		// A new life of the same process may become the next holder.
		b.die()
		one(t, a)
		if err := a.enter(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLeaseFaults: lost and late acknowledgements, freezes, cuts and kills from
// seeds. At no moment two hold the lease, terms in what holders write never go
// back, each belongs to one life, and when all is well again somebody holds it.
func TestLeaseFaults(t *testing.T) {
	for seed := range uint64(15) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex // guards: rng, calm, owners, last
			calm := false
			owners, last := map[uint64]string{}, entry{}
			fault := func(op memory.Op) (f memory.WriteFault) {
				mu.Lock()
				defer mu.Unlock()
				if calm || op.Name == "kafka-gateways" && rng.IntN(4) > 0 {
					return f
				}
				d := time.Duration(rng.IntN(8000)) * time.Millisecond
				switch rng.IntN(8) {
				case 0:
					f.LoseAck = true
				case 1:
					f.Drop = true
				case 2:
					f.Late = d
				case 3:
					f.Before = d
				case 4:
					f.After = d
				}
				return f
			}
			srv := memory.NewServer(memory.Config{})
			watcher := startHolder(t, srv, memory.Faults{})
			watcher.stopLease()
			if err := watcher.lease.Release(t.Context()); err != nil { // it may have been the first to take it
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var work sync.WaitGroup
			// The ledger's lines in the order of the store.
			work.Go(func() {
				_ = watcher.ledger.Watch(ctx, pubsub.WatchOptions{}, func(v pubsub.Value) error {
					var e entry
					if err := json.Unmarshal(v.Data, &e); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if e.Term < last.Term || e.Number != last.Number+1 {
						t.Errorf("seed %d: %+v after %+v", seed, e, last)
					}
					if by := owners[e.Term]; by != "" && by != e.By {
						t.Errorf("seed %d: term %d of two lives", seed, e.Term)
					}
					owners[e.Term], last = e.By, e
					return nil
				})
			})
			var hs []*holder
			add := func() {
				h := startHolder(t, srv, memory.Faults{Set: fault})
				hs = append(hs, h)
				life, end := context.WithCancel(ctx)
				stop := h.end
				h.end = func() { end(); stop() }
				work.Go(func() {
					for life.Err() == nil {
						attempt, cancel := context.WithTimeout(life, 20*time.Second)
						_ = h.enter(attempt)
						cancel()
						time.Sleep(250 * time.Millisecond)
					}
				})
			}
			add()
			add()
			add()
			check := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					n := 0
					for _, h := range hs {
						if h.holds() {
							n++
						}
					}
					if n > 1 {
						t.Fatalf("seed %d: %d hold the lease", seed, n)
					}
				}
			}
			for range 12 {
				mu.Lock()
				i, what := rng.IntN(len(hs)), rng.IntN(5)
				d := time.Duration(rng.IntN(10_000)) * time.Millisecond
				mu.Unlock()
				h := hs[i]
				switch what {
				case 0:
					h.die()
					hs = without(h, hs...)
					add()
				case 1:
					h.store.Freeze()
					check(d)
					h.store.Thaw()
				case 2:
					h.store.Disconnect()
					check(d)
					h.store.Reconnect()
				case 3:
					h.stopLease()
					if _ = h.lease.Release(ctx); h.holds() {
						t.Errorf("seed %d: holds what it let go", seed)
					}
					h.die()
					hs = without(h, hs...)
					add()
				}
				check(d)
			}
			mu.Lock()
			calm = true
			mu.Unlock()
			time.Sleep(20 * time.Second)
			one(t, hs...)
			mu.Lock()
			before := last.Number
			mu.Unlock()
			time.Sleep(5 * time.Second)
			mu.Lock()
			if last.Number == before {
				t.Errorf("seed %d: the holder writes nothing", seed)
			}
			mu.Unlock()
			cancel()
			for _, h := range hs {
				h.die()
			}
			work.Wait()
		})
		if t.Failed() {
			return
		}
	}
}

// TestLeaseRecords: what else may stand in the table. A deleted key is free, and
// terms grow nevertheless; a record of a later version is nobody's to take; fields
// of later versions stay; a term from before the table was lost is outgrown.
func TestLeaseRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := startHolder(t, srv, memory.Faults{})
		one(t, a)
		set := func(data string, del bool) {
			t.Helper()
			v, err := a.lease.table.Get(t.Context(), "maintenance")
			if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
				t.Fatal(err)
			}
			if _, err := a.lease.table.Set(t.Context(), pubsub.Write{Key: "maintenance", Data: []byte(data), Expect: v.Rev, Delete: del}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		term, _ := a.lease.Holds()
		set("", true)
		one(t, a)
		if next, _ := a.lease.Holds(); next <= term {
			t.Errorf("term %d after %d", next, term)
		}
		for _, odd := range []string{`{"v":2,"incarnation":"X"}`, `not JSON`} {
			set(odd, false)
			time.Sleep(time.Minute)
			if v, err := a.lease.table.Get(t.Context(), "maintenance"); err != nil || string(v.Data) != odd || a.holds() {
				t.Errorf("%s became %s (%v), held: %v", odd, v.Data, err, a.holds())
			}
		}
		set(`{"v":1,"node":9,"incarnation":"GHOST","term":70,"color":"red"}`, false)
		one(t, a)
		v, err := a.lease.table.Get(t.Context(), "maintenance")
		if err != nil || !strings.Contains(string(v.Data), `"color":"red"`) {
			t.Errorf("%s, %v", v.Data, err)
		}
		if term, _ := a.lease.Holds(); term != 71 {
			t.Errorf("term %d after 70", term)
		}
		for _, c := range []struct{ met, want uint64 }{{60, 71}, {71, 72}, {500, 501}} {
			if err := a.lease.Outgrow(t.Context(), c.met); err != nil {
				t.Fatal(err)
			}
			if term, ok := a.lease.Holds(); term != c.want || !ok {
				t.Errorf("term %d (%v) after it met %d, want %d", term, ok, c.met, c.want)
			}
		}
		b := startHolder(t, srv, memory.Faults{})
		time.Sleep(time.Second)
		if err := b.lease.Outgrow(t.Context(), 9000); err != nil || b.holds() {
			t.Errorf("outgrown by a gateway that does not hold it: %v", err)
		}
		if term, _ := a.lease.Holds(); term != 501 {
			t.Errorf("term %d", term)
		}
	})
}
