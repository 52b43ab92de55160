package partition

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

func TestC20BatchLargerThanEveryLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		const size = 900072
		g.mustProduce(sized(size))
		g.mustProduce(sized(500))
		for _, g := range []*gateway{g, w.gateway(memory.Faults{})} {
			for _, x := range []struct {
				max   int
				whole bool
				bytes int
			}{
				{1024, true, size}, {1024, false, 0}, {0, true, size}, {0, false, 0}, {-5, false, 0},
				{size, false, size}, {size - 1, false, 0}, {size + 499, true, size}, {size + 500, false, size + 500},
			} {
				r, err := g.p.Read(t.Context(), ReadRequest{MaxBytes: x.max, Whole: x.whole})
				if err != nil || r.Bytes != x.bytes || r.HighWatermark != 2 {
					t.Errorf("max %d whole %v: %d bytes, hw %d, %v; want %d", x.max, x.whole, r.Bytes, r.HighWatermark, err, x.bytes)
				}
				split(t, r)
			}
		}
	})
}

func TestC21BeyondTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		a := w.gateway(memory.Faults{})
		late := w.gateway(memory.Faults{News: func(string, pubsub.Message) bool { return true }})
		a.mustProduce(batch(5))
		if bs := late.read(0); len(bs) != 1 {
			t.Fatalf("%d batches", len(bs))
		}
		a.mustProduce(batch(5))
		// late has not heard of the second batch: 5 is its end, 7 beyond it.
		if r, err := late.p.Read(t.Context(), ReadRequest{Offset: 7, MaxBytes: 1000, Whole: true}); err != nil || r.Bytes == 0 || r.HighWatermark != 10 {
			t.Errorf("fetch of an offset that exists: %+v, %v", r, err)
		}
		for _, o := range []types.Offset{11, 1000} {
			if _, err := late.p.Read(t.Context(), ReadRequest{Offset: o, MaxBytes: 1000, Whole: true}); !errors.Is(err, kerr.OffsetOutOfRange) {
				t.Errorf("fetch at %d: %v", o, err)
			}
			if _, err := late.p.Available(t.Context(), o, false); !errors.Is(err, kerr.OffsetOutOfRange) {
				t.Errorf("available at %d: %v", o, err)
			}
		}
		if r, err := late.p.Read(t.Context(), ReadRequest{Offset: 10, MaxBytes: 1000, Whole: true, Committed: true}); err != nil || r.Bytes != 0 || r.LastStable != 10 || r.Aborted == nil {
			t.Errorf("fetch at the end: %+v, %v", r, err)
		}
	})
}

// A reader that only polls, never waits, finds what others append.
func TestC21PollingReaderSeesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		a, b := w.gateway(memory.Faults{}), w.gateway(memory.Faults{})
		for i := range types.Offset(5) {
			if bs := b.read(i); len(bs) != 0 {
				t.Fatalf("%d batches at %d", len(bs), i)
			}
			a.mustProduce(batch(1))
			synctest.Wait()
			if bs := b.read(i); len(bs) != 1 {
				t.Fatalf("%d batches at %d after an append", len(bs), i)
			}
			time.Sleep(2 * followFor)
		}
	})
}

func TestC22WaitersAreWoken(t *testing.T) {
	for name, lossy := range map[string]bool{"news": false, "news lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				a := w.gateway(memory.Faults{})
				b := w.gateway(memory.Faults{News: func(string, pubsub.Message) bool { return lossy }})
				run(t, b)
				ch := make(chan struct{}, 1)
				cancel := b.p.Notify(ch)
				defer cancel()
				if n, err := b.p.Available(t.Context(), 0, false); n != 0 || err != nil {
					t.Fatal(n, err)
				}
				time.Sleep(200 * time.Millisecond)
				drained := func() {
					select {
					case <-ch:
					default:
					}
				}
				drained()
				produced := time.Now()
				data := batch(3)
				a.mustProduce(data)
				n := 0
				for n == 0 {
					<-ch
					var err error
					if n, err = b.p.Available(t.Context(), 0, false); err != nil {
						t.Fatal(err)
					}
				}
				if n != len(data) {
					t.Errorf("%d bytes available, want %d", n, len(data))
				}
				took := time.Since(produced)
				if !lossy && took > 0 || lossy && took > checkEvery+time.Second {
					t.Errorf("woken after %v", took)
				}
				if bs := b.read(0); len(bs) != 1 {
					t.Errorf("%d batches", len(bs))
				}
			})
		})
	}
}

// A thousand consumers that wait for ten minutes cost no goroutine each, are all
// woken by one batch, and leave nothing behind.
func TestC22ThousandIdleWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newWorld(t, memory.Config{}).gateway(memory.Faults{})
		run(t, g)
		if n, err := g.p.Available(t.Context(), 0, false); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		before := runtime.NumGoroutine()
		woken := make([]chan struct{}, 1000)
		cancels := make([]func(), len(woken))
		for i := range woken {
			woken[i] = make(chan struct{}, 1)
			cancels[i] = g.p.Notify(woken[i])
		}
		time.Sleep(10 * time.Minute)
		if n := runtime.NumGoroutine(); n > before+10 { // some follow the news
			t.Errorf("%d goroutines, %d before", n, before)
		}
		for _, ch := range woken { // a wake-up without news is allowed
			select {
			case <-ch:
			default:
			}
		}
		g.mustProduce(batch(1))
		for i, ch := range woken {
			<-ch
			cancels[i]()
		}
		g.p.mu.Lock()
		left := len(g.p.waiters)
		g.p.mu.Unlock()
		if left != 0 {
			t.Errorf("%d waiters are left", left)
		}
	})
}

// run lets a host do its background work until the gateway is killed.
func run(t *testing.T, g *gateway) {
	done := make(chan error, 1)
	go func() { done <- g.host.Run(context.Background()) }()
	t.Cleanup(func() {
		g.kill()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What can be read and what is available are the same, cold and warm, from
// every offset.
func TestAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		sizes := []int{}
		for range 40 {
			b := batch(1)
			sizes = append(sizes, len(b))
			g.mustProduce(b)
		}
		if err := g.host.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		cold := w.gateway(memory.Faults{})
		cold.mustProduce(batch(1))
		sizes = append(sizes, len(batch(1)))
		want := 0
		for i := len(sizes) - 1; i >= 0; i-- {
			want += sizes[i]
			for _, g := range []*gateway{g, cold, w.gateway(memory.Faults{})} {
				g.p.mu.Lock()
				asked := g.p.replicas != 0
				g.p.mu.Unlock()
				if !asked {
					_, _ = g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest})
				}
				if n, err := g.p.Available(t.Context(), types.Offset(i), false); err != nil || n != want {
					t.Fatalf("%d available at %d, want %d (%v)", n, i, want, err)
				}
			}
		}
	})
}

func TestC23EndOfANewTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newWorld(t, memory.Config{}).gateway(memory.Faults{})
		for _, at := range []int64{Latest, Earliest, EarliestLocal} {
			if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: at}); err != nil || r != (LookupResult{Offset: 0, Timestamp: -1}) {
				t.Errorf("%d: %+v, %v", at, r, err)
			}
		}
		for _, at := range []int64{MaxTimestamp, 0, 5} {
			if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: at}); err != nil || r != (LookupResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}) {
				t.Errorf("%d: %+v, %v", at, r, err)
			}
		}
		r, err := g.p.Read(t.Context(), ReadRequest{MaxBytes: 1000, Whole: true})
		if err != nil || r.Bytes != 0 || r.HighWatermark != 0 || r.LastStable != 0 || r.LogStart != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestC24LookupByTime(t *testing.T) {
	type row struct {
		at     int64
		offset types.Offset
		time   int64
	}
	for _, x := range []struct {
		name    string
		batches []batchSpec
		rows    []row
	}{
		{"four batches", []batchSpec{{times: []int64{5000}}, {times: []int64{1000}}, {times: []int64{9000}}, {times: []int64{3000}}},
			[]row{{0, 0, 5000}, {1000, 0, 5000}, {3000, 0, 5000}, {5000, 0, 5000}, {6000, 2, 9000}, {9000, 2, 9000}, {MaxTimestamp, 2, 9000}, {9001, -1, -1}, {Latest, 4, -1}, {Earliest, 0, -1}}},
		{"one batch", []batchSpec{{times: []int64{2, 4, 6, 8}}},
			[]row{{1, 0, 2}, {2, 0, 2}, {3, 1, 4}, {4, 1, 4}, {5, 2, 6}, {6, 2, 6}, {7, 3, 8}, {8, 3, 8}, {9, -1, -1}}},
		{"one batch, gzip", []batchSpec{{times: []int64{2, 4, 6, 8}, attrs: 1, body: gzipped(t)}},
			[]row{{1, 0, 2}, {3, 1, 4}, {5, 2, 6}, {7, 3, 8}, {9, -1, -1}, {MaxTimestamp, 3, 8}}},
		{"not in order", []batchSpec{{times: []int64{10, 4, 30, 8}}, {times: []int64{5, 40, 1}}},
			[]row{{9, 0, 10}, {11, 2, 30}, {31, 5, 40}, {MaxTimestamp, 5, 40}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				g := w.gateway(memory.Faults{})
				for _, b := range x.batches {
					g.mustProduce(b.bytes())
				}
				for _, g := range []*gateway{g, w.gateway(memory.Faults{})} {
					for _, r := range x.rows {
						got, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: r.at})
						if err != nil || got.Offset != r.offset || got.Timestamp != r.time {
							t.Errorf("lookup %d: %+v, %v; want %d, %d", r.at, got, err, r.offset, r.time)
						}
					}
				}
			})
		})
	}
}

// Offsets and times are found over many intervals and stored index parts,
// whatever is in memory: compared with a walk over the log.
func TestC24LookupOverALongLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		r := rand.New(rand.NewPCG(7, 7))
		type rec struct{ time int64 }
		var all []rec
		bases := []types.Offset{}
		base := time.Now().UnixMilli()
		for i := range 3000 {
			if r.IntN(10) == 0 {
				if _, err := w.server.Publish(testSubject, nil, []byte("x")); err != nil {
					t.Fatal(err)
				}
				bases = append(bases, types.Offset(len(all)))
				all = append(all, rec{time.Now().UnixMilli()})
				continue
			}
			s := batchSpec{}
			for range 1 + r.IntN(4) {
				s.times = append(s.times, base+int64(i)*10+r.Int64N(200)-100)
			}
			bases = append(bases, g.mustProduce(s.bytes()))
			for _, ts := range s.times {
				all = append(all, rec{ts})
			}
			if i%700 == 0 {
				if err := g.host.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		cold := w.gateway(memory.Faults{})
		for i := range 400 {
			g := []*gateway{g, cold}[i%2]
			o := types.Offset(r.IntN(len(all)))
			j, found := slices.BinarySearch(bases, o)
			if !found {
				j--
			}
			res, err := g.p.Read(t.Context(), ReadRequest{Offset: o, MaxBytes: 300, Whole: true})
			if err != nil {
				t.Fatal(err)
			}
			if bs := split(t, res); bs[0].BaseOffset() != int64(bases[j]) {
				t.Fatalf("read at %d starts at %d, want %d", o, bs[0].BaseOffset(), bases[j])
			}
			at := base + r.Int64N(31000) - 500
			want := slices.IndexFunc(all, func(x rec) bool { return x.time >= at })
			got, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: at})
			if err != nil || got.Offset != types.Offset(want) {
				t.Fatalf("lookup %d: %+v, %v; want %d", at-base, got, err, want)
			}
		}
	})
}

func TestC41ReadThatFails(t *testing.T) {
	type fault struct {
		name string
		read func(n int64) memory.ReadFault
		get  memory.ReadFault
		ok   bool
	}
	for _, x := range []fault{
		{name: "times out once", ok: true, read: func(n int64) (f memory.ReadFault) {
			if n == 1 {
				f.Err = pubsub.ErrUnavailable
			}
			return f
		}},
		{name: "times out", read: func(int64) memory.ReadFault { return memory.ReadFault{Err: pubsub.ErrUnavailable} }},
		{name: "hangs", read: func(int64) memory.ReadFault { return memory.ReadFault{Delay: time.Hour} }},
		{name: "lagging replica", ok: true, read: func(int64) memory.ReadFault { return memory.ReadFault{Behind: 1000} }},
		{name: "lagging replica, silent leader", read: func(int64) memory.ReadFault { return memory.ReadFault{Behind: 1000} }, get: memory.ReadFault{Err: pubsub.ErrUnavailable}},
		{name: "half", ok: true, read: func(int64) memory.ReadFault { return memory.ReadFault{Short: 3} }},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				g := w.gateway(memory.Faults{})
				for range 100 {
					g.mustProduce(batch(1))
				}
				var n atomic.Int64
				bad := w.gateway(memory.Faults{
					Read: func(memory.Op) memory.ReadFault { return x.read(n.Add(1)) },
					Get:  func(memory.Op) memory.ReadFault { return x.get },
				})
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				r, err := bad.p.Read(ctx, ReadRequest{Offset: 50, MaxBytes: 1 << 20, Whole: true})
				switch {
				case x.ok && (err != nil || r.Bytes == 0):
					t.Errorf("%d bytes, %v", r.Bytes, err)
				case !x.ok && err == nil:
					t.Errorf("success with %d bytes", r.Bytes)
				case errors.Is(err, kerr.OffsetOutOfRange):
					t.Error(err)
				}
				if err == nil {
					bs := split(t, r)
					for i, b := range bs {
						if b.BaseOffset() != int64(50+i) {
							t.Errorf("batch %d at %d", i, b.BaseOffset())
						}
					}
				}
			})
		})
	}
}

// A store that hangs is a failure in time, not a wait without end, whatever
// call it hangs in.
func TestC41StoreThatHangs(t *testing.T) {
	hang := func(memory.Op) memory.ReadFault { return memory.ReadFault{Delay: time.Hour} }
	for name, f := range map[string]memory.Faults{
		"read": {Read: hang, Get: hang}, "bounds": {Bounds: hang}, "record": {TableGet: hang}, "headers": {Headers: hang},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				w.gateway(memory.Faults{}).mustProduce(batch(1))
				g := w.gateway(f)
				began := time.Now()
				if r, err := g.p.Read(t.Context(), ReadRequest{MaxBytes: 100, Whole: true}); !errors.Is(err, pubsub.ErrUnavailable) {
					t.Errorf("%+v, %v", r, err)
				}
				if name != "read" {
					if a := g.produce(AppendRequest{Records: batch(1)}); !errors.Is(a.Err, pubsub.ErrUnavailable) {
						t.Errorf("%+v", a)
					}
				}
				limit := 2 * (askTimeout + time.Second)
				if name == "headers" {
					limit = 2 * openTimeout // a long tail takes its time
				}
				if took := time.Since(began); took > limit {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// A slow partition does not hold up others, and a reader who gives up does not
// end what others wait for.
func TestSlowLoadDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.gateway(memory.Faults{}).mustProduce(batch(1))
		g := w.gateway(memory.Faults{Bounds: func(op memory.Op) (f memory.ReadFault) {
			f.Delay = 3 * time.Second
			return f
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.p.Read(ctx, ReadRequest{MaxBytes: 1, Whole: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		if bs := g.read(0); len(bs) != 1 {
			t.Errorf("%d batches", len(bs))
		}
	})
}
