package partition

import (
	"context"
	"errors"
	"fmt"
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

func (g *gateway) delete(to types.Offset) types.Offset {
	g.w.t.Helper()
	start, err := g.p.DeleteRecords(g.w.t.Context(), to)
	if err != nil {
		g.w.t.Fatalf("delete up to %d: %v", to, err)
	}
	return start
}

// purged waits until the background work of a deletion has ended.
func (g *gateway) purged() {
	synctest.Wait()
	g.w.t.Helper()
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	if g.p.purge.running {
		g.w.t.Fatal("the purge has not ended")
	}
}

func (g *gateway) lookup(at int64) types.Offset {
	g.w.t.Helper()
	r, err := g.p.Lookup(g.w.t.Context(), LookupRequest{Timestamp: at})
	if err != nil {
		g.w.t.Fatalf("lookup %d: %v", at, err)
	}
	return r.Offset
}

func (w *world) first() pubsub.Seq { return w.server.Messages(testLog)[0].Seq }

// TestC44DeleteRecordsEdges: offsets 0 to 32, the first batch is 0 to 9.
func TestC44DeleteRecordsEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		w.config.Retained = true
		g, other := w.gateway(memory.Faults{}), w.gateway(memory.Faults{})
		for _, n := range []int{10, 10, 10, 3} {
			g.mustProduce(batch(n))
		}
		for _, c := range []struct {
			at, want types.Offset
			err      error
			first    pubsub.Seq
		}{
			{0, 0, nil, 1},
			{5, 5, nil, 1},
			{3, 5, nil, 1},
			{5, 5, nil, 1},
			{10000, -1, kerr.OffsetOutOfRange, 1},
			{34, -1, kerr.OffsetOutOfRange, 1},
			{-2, -1, kerr.OffsetOutOfRange, 1},
			{10, 10, nil, 2},
			{29, 29, nil, 3},
			{-1, 33, nil, 4},
			{33, 33, nil, 4},
			{-1, 33, nil, 4},
		} {
			got, err := g.p.DeleteRecords(t.Context(), c.at)
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("delete up to %d: %d, %v, want %d, %v", c.at, got, err, c.want, c.err)
			}
			g.purged()
			if first := w.first(); first != c.first {
				t.Errorf("after a delete up to %d the stream begins at %d, want %d", c.at, first, c.first)
			}
			if c.err != nil {
				continue
			}
			for i, g := range []*gateway{g, other, w.gateway(memory.Faults{})} {
				if o := g.lookup(Earliest); o != c.want {
					t.Errorf("gateway %d: earliest %d, want %d", i, o, c.want)
				}
				if o := g.lookup(Latest); o != 33 {
					t.Errorf("gateway %d: latest %d, want 33", i, o)
				}
				if c.want > 0 {
					if _, err := g.p.Read(t.Context(), ReadRequest{Offset: c.want - 1, MaxBytes: 100, Whole: true}); !errors.Is(err, kerr.OffsetOutOfRange) {
						t.Errorf("gateway %d: read at %d: %v", i, c.want-1, err)
					}
				}
				bs := g.read(c.want)
				if base := int64(c.want) / 10 * 10; c.want < 33 && (len(bs) == 0 || bs[0].BaseOffset() != base) || c.want == 33 && len(bs) > 0 {
					t.Errorf("gateway %d: read at %d: %v", i, c.want, offsets(bs))
				}
				if o, want := g.lookup(0), c.want; o != want && (want < 33 || o != -1) {
					t.Errorf("gateway %d: first record of all is %d, want %d", i, o, want)
				}
			}
		}
		if base := other.mustProduce(batch(1)); base != 33 {
			t.Errorf("next base %d, want 33", base)
		}
		synctest.Wait() // news of it
		if bs := g.read(33); len(bs) != 1 {
			t.Errorf("read at 33: %v", offsets(bs))
		}
		c := *g.p.Config()
		c.Retained = false
		g.p.Configure(c)
		if _, err := g.p.DeleteRecords(t.Context(), 34); !errors.Is(err, kerr.PolicyViolation) {
			t.Errorf("a topic that is only compacted: %v", err)
		}
	})
}

// TestDeleteEmpty: there is nothing to delete, and nothing is sent.
func TestDeleteEmpty(t *testing.T) {
	w := newWorld(t, memory.Config{})
	w.config.Retained = true
	g := w.gateway(memory.Faults{Set: func(memory.Op) memory.WriteFault { t.Error("a write"); return memory.WriteFault{} }})
	for _, to := range []types.Offset{0, -1} {
		if o := g.delete(to); o != 0 {
			t.Errorf("delete up to %d: %d", to, o)
		}
	}
	if _, err := g.p.DeleteRecords(t.Context(), 1); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("delete up to 1: %v", err)
	}
}

// TestDeleteBeyondOnReplicas: "beyond the end" is believed twice, a second apart:
// a leader that woke from a freeze does not know the end.
func TestDeleteBeyondOnReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		w.config.Retained = true
		lies := 0
		g, other := w.gateway(memory.Faults{}), w.gateway(memory.Faults{Bounds: func(memory.Op) memory.ReadFault {
			if lies--; lies >= 0 {
				return memory.ReadFault{Behind: 1}
			}
			return memory.ReadFault{}
		}})
		g.mustProduce(batch(5))
		other.lookup(Latest)
		g.mustProduce(batch(5))
		lies = 1
		if o := other.delete(10); o != 10 {
			t.Errorf("delete up to 10: %d", o)
		}
		if lies >= 0 {
			t.Error("the leader never lied")
		}
	})
}

// TestDeleteSurvives: a process that dies at any step, or whose writes get lost,
// leaves a log that goes on as it should; the next pass finishes the work. The
// producer's window is known also when all its messages are gone.
func TestDeleteSurvives(t *testing.T) {
	faults := map[string]memory.WriteFault{
		"dropped": {Drop: true}, "lost ack": {LoseAck: true}, "refused": {Err: pubsub.ErrUnavailable}, "late": {Late: 2 * time.Second},
	}
	for name, f := range faults {
		for step := 1; ; step++ {
			var hit atomic.Bool
			t.Run(fmt.Sprintf("%s %d", name, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, memory.Config{})
					w.config.Retained = true
					var armed atomic.Bool
					var n atomic.Int32
					client := make(chan *memory.Client, 1)
					hook := func(memory.Op) memory.WriteFault {
						if !armed.Load() || n.Add(1) != int32(step) {
							return memory.WriteFault{}
						}
						hit.Store(true)
						c := <-client
						time.AfterFunc(time.Millisecond, c.Disconnect) // nothing goes out after this one
						return f
					}
					g := w.gateway(memory.Faults{Set: hook, Trim: hook})
					client <- g.client
					for i := range 40 {
						g.mustProduce(idempotent(7, 0, int32(3*i), 3))
					}
					armed.Store(true)
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // the client's
					_, err := g.p.DeleteRecords(ctx, -1)
					cancel()
					time.Sleep(time.Minute)
					g.kill()
					next := w.gateway(memory.Faults{})
					start := next.lookup(Earliest)
					if err == nil && start != 120 || start != 0 && start != 120 {
						t.Errorf("log start %d after %v", start, err)
					}
					b, berr := next.p.log.Bounds(t.Context())
					if berr != nil {
						t.Fatal(berr)
					}
					if err := next.p.Retain(t.Context(), time.Now(), b); err != nil {
						t.Fatal(err)
					}
					if first := w.first(); start == 120 && first != 40 || start == 0 && first != 1 {
						t.Errorf("log start %d, the stream begins at %d", start, first)
					}
					for i, g := range []*gateway{next, w.gateway(memory.Faults{})} {
						// The fourth of the last five, which is gone.
						if a := g.produce(AppendRequest{Records: idempotent(7, 0, 111, 3)}); a.Err != nil || a.BaseOffset != 111 {
							t.Errorf("gateway %d: a batch again: %+v", i, a)
						}
						if base := g.mustProduce(idempotent(7, 0, int32(120+i), 1)); base != types.Offset(120+i) {
							t.Errorf("gateway %d: next base %d", i, base)
						}
						if bs := g.read(120); len(bs) != 1+i {
							t.Errorf("gateway %d: read at 120: %v", i, offsets(bs))
						}
					}
				})
			})
			if t.Failed() {
				break
			}
			if !hit.Load() {
				if step < 4 {
					t.Fatalf("%s: only %d writes", name, step-1)
				}
				break
			}
		}
	}
}

// TestLookupsRespectTheStart: times and ends as of the log start, message by
// message and record by record, before the stream was purged and after, warm and
// cold.
func TestLookupsRespectTheStart(t *testing.T) {
	for _, trim := range []bool{false, true} {
		t.Run(fmt.Sprint(trim), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				w.config.Retained = true
				blocked := memory.Faults{Trim: func(memory.Op) memory.WriteFault {
					if trim {
						return memory.WriteFault{}
					}
					return memory.WriteFault{Err: pubsub.ErrUnavailable}
				}}
				g := w.gateway(blocked)
				now := time.Now().UnixMilli()
				// 700 messages of three records, rising; the largest timestamps of all
				// stand in messages 100 and 500, the latter in its first record.
				var times []int64
				for i := range int64(700) {
					ts := []int64{now - 1e6 + 10*i, now - 1e6 + 10*i + 1, now - 1e6 + 10*i + 2}
					switch i {
					case 100:
						ts[1] = now + 100
					case 500:
						ts[0] = now + 50
					}
					times = append(times, ts...)
					g.mustProduce(batchSpec{times: ts}.bytes())
				}
				for _, start := range []types.Offset{1, 299, 301, 302, 700, 768, 1499, 1500, 1501, 2098, 2099} {
					g.delete(start)
					g.purged()
					for who, g := range map[string]*gateway{"warm": g, "cold": w.gateway(blocked)} {
						rest := times[start:]
						want := start + types.Offset(slices.Index(rest, slices.Max(rest)))
						if o := g.lookup(MaxTimestamp); o != want {
							t.Errorf("%s, start %d: largest timestamp at %d, want %d", who, start, o, want)
						}
						for _, at := range []int64{0, rest[0], times[max(0, start-1)], rest[len(rest)-1], now + 50, now + 51, now + 101} {
							want := types.NoOffset
							if i := slices.IndexFunc(rest, func(x int64) bool { return x >= at }); i >= 0 {
								want = start + types.Offset(i)
							}
							if o := g.lookup(at); o != want {
								t.Errorf("%s, start %d: time %d at %d, want %d", who, start, at-now, o, want)
							}
						}
						if bs := g.read(start); len(bs) == 0 || bs[0].BaseOffset() != int64(start)/3*3 {
							t.Errorf("%s: read at %d: %v", who, start, offsets(bs))
						}
					}
				}
				if first := w.first(); trim && first != 700 || !trim && first != 1 {
					t.Errorf("the stream begins at %d", first)
				}
			})
		})
	}
}
