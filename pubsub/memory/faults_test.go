package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// world is one server with a log "l" and a table "t", a client with faults
// and one without.
type world struct {
	srv          *memory.Server
	faulty, good *memory.Client
	log, truth   pubsub.Log
	table, rows  pubsub.Table
}

func newWorld(t *testing.T, f memory.Faults) *world {
	t.Helper()
	w := &world{srv: memory.NewServer(memory.Config{})}
	w.good = w.srv.Client(memory.Faults{})
	w.faulty = w.srv.Client(f)
	t.Cleanup(w.good.Close)
	t.Cleanup(w.faulty.Close)
	if err := w.good.CreateLog(t.Context(), pubsub.LogConfig{Name: "l", Subject: "s.l"}); err != nil {
		t.Fatal(err)
	}
	w.log, w.truth = w.faulty.Log("l", "s.l"), w.good.Log("l", "s.l")
	var err error
	if w.rows, err = w.good.Table(t.Context(), pubsub.TableConfig{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	if w.table, err = w.faulty.Table(t.Context(), pubsub.TableConfig{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) publish(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		if _, err := w.srv.Publish("s.l", nil, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWriteFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  memory.WriteFault
		err    error
		took   time.Duration // until Append returned
		at     time.Duration // when it is stored; -1: never
		ctxEnd time.Duration
	}{
		"none":              {memory.WriteFault{}, nil, 0, 0, 0},
		"slow":              {memory.WriteFault{Before: time.Second, After: 2 * time.Second}, nil, 3 * time.Second, time.Second, 0},
		"refused":           {memory.WriteFault{Err: pubsub.ErrFull}, pubsub.ErrUnavailable, 0, -1, 0},
		"refused slowly":    {memory.WriteFault{Before: time.Second, Err: pubsub.ErrUnavailable}, pubsub.ErrUnavailable, time.Second, -1, 0},
		"dropped":           {memory.WriteFault{Drop: true, After: time.Second}, pubsub.ErrOutcomeUnknown, time.Second, -1, 0},
		"ack lost":          {memory.WriteFault{LoseAck: true, After: time.Second}, pubsub.ErrOutcomeUnknown, time.Second, 0, 0},
		"late":              {memory.WriteFault{Late: 3 * time.Second, After: time.Second}, pubsub.ErrOutcomeUnknown, time.Second, 4 * time.Second, 0},
		"caller gave up":    {memory.WriteFault{Before: 2 * time.Second}, pubsub.ErrOutcomeUnknown, time.Second, 2 * time.Second, time.Second},
		"caller gave up on": {memory.WriteFault{After: 2 * time.Second}, pubsub.ErrOutcomeUnknown, time.Second, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Faults{
					Append: func(memory.Op) memory.WriteFault { return c.fault },
					Set:    func(memory.Op) memory.WriteFault { return c.fault },
				})
				for what, write := range map[string]func(context.Context) error{
					"append": func(ctx context.Context) error {
						_, err := w.log.Append(ctx, 0, pubsub.Entry{Data: []byte("x")})
						return err
					},
					"set": func(ctx context.Context) error {
						_, err := w.table.Set(ctx, pubsub.Write{Key: "k", Data: []byte("x")})
						return err
					},
				} {
					ctx := t.Context()
					if c.ctxEnd > 0 {
						var cancel func()
						ctx, cancel = context.WithTimeout(ctx, c.ctxEnd)
						defer cancel()
					}
					begin := time.Now()
					if err := write(ctx); !errors.Is(err, c.err) {
						t.Errorf("%s: %v, want %v", what, err, c.err)
					}
					if took := time.Since(begin); took != c.took {
						t.Errorf("%s took %v, want %v", what, took, c.took)
					}
					time.Sleep(time.Hour)
					var stored time.Time
					if what == "append" {
						if ms := w.srv.Messages("l"); len(ms) > 0 {
							stored = ms[0].Time
						}
					} else if v, err := w.rows.Get(t.Context(), "k"); err == nil {
						stored = v.Time
					}
					if c.at < 0 != stored.IsZero() || c.at >= 0 && stored.Sub(begin) != c.at {
						t.Errorf("%s was stored at %v, began at %v, want %v later", what, stored, begin, c.at)
					}
				}
			})
		})
	}
}

func TestReadFaults(t *testing.T) {
	t.Parallel()
	var fault atomic.Pointer[memory.ReadFault]
	hook := func(memory.Op) memory.ReadFault { return *fault.Load() }
	fault.Store(&memory.ReadFault{})
	w := newWorld(t, memory.Faults{Read: hook, Get: hook, Bounds: hook, Headers: hook, TableGet: hook, Find: hook})
	w.publish(t, 10)
	w.srv.Remove("l", 9)
	ctx := t.Context()
	count := func() (n int, err error) {
		err = w.log.Headers(ctx, 1, 10, func(pubsub.Message) error { n++; return nil })
		return n, err
	}

	fault.Store(&memory.ReadFault{Behind: 3})
	ms, err := w.log.Read(ctx, 1, pubsub.Limit{})
	if err != nil || len(ms) != 7 {
		t.Errorf("read 3 behind: %d messages, %v", len(ms), err)
	}
	if ms, err = w.log.Read(ctx, 8, pubsub.Limit{}); err != nil || len(ms) != 0 {
		t.Errorf("read beyond the replica: %d messages, %v", len(ms), err)
	}
	if _, err = w.log.Get(ctx, 8); !errors.Is(err, pubsub.ErrNotFound) {
		t.Errorf("get beyond the replica: %v", err)
	}
	if b, err := w.log.Bounds(ctx); err != nil || b.Last != 7 || b.Messages != 7 {
		t.Errorf("bounds 3 behind: %+v, %v", b, err)
	}
	if n, err := count(); err != nil || n != 7 {
		t.Errorf("headers 3 behind: %d, %v", n, err)
	}

	fault.Store(&memory.ReadFault{Short: 2})
	if ms, err = w.log.Read(ctx, 1, pubsub.Limit{}); err != nil || len(ms) != 2 {
		t.Errorf("short read: %d messages, %v", len(ms), err)
	}
	if n, err := count(); n != 2 || !errors.Is(err, pubsub.ErrUnavailable) {
		t.Errorf("short headers: %d, %v", n, err)
	}

	fault.Store(&memory.ReadFault{Deny: true})
	if _, err = w.log.Get(ctx, 1); !errors.Is(err, pubsub.ErrNotFound) {
		t.Errorf("denied get: %v", err)
	}
	if _, err = w.faulty.FindLog(ctx, "l"); !errors.Is(err, pubsub.ErrNotFound) {
		t.Errorf("denied FindLog: %v", err)
	}
	if logs, missing, err := w.faulty.Logs(ctx, ">"); err != nil || len(logs) != 0 || !slices.Equal(missing, []string{"l"}) {
		t.Errorf("denied Logs: %v, %v, %v", logs, missing, err)
	}
	rev, _ := w.rows.Set(ctx, pubsub.Write{Key: "k", Data: []byte("1")})
	_, _ = w.rows.Set(ctx, pubsub.Write{Key: "k", Data: []byte("2"), Expect: rev})
	if v, err := w.table.Get(ctx, "k"); !errors.Is(err, pubsub.ErrNotFound) || v.Rev != 0 {
		t.Errorf("denied table get: %+v, %v", v, err)
	}
	fault.Store(&memory.ReadFault{Old: true})
	if v, err := w.table.Get(ctx, "k"); err != nil || v.Rev != rev || string(v.Data) != "1" {
		t.Errorf("old table get: %+v, %v", v, err)
	}
	fault.Store(&memory.ReadFault{Err: pubsub.ErrUnavailable})
	if _, err = w.log.Read(ctx, 1, pubsub.Limit{}); !errors.Is(err, pubsub.ErrUnavailable) {
		t.Errorf("failing read: %v", err)
	}
	fault.Store(&memory.ReadFault{})
	if ms, err = w.log.Read(ctx, 1, pubsub.Limit{}); err != nil || len(ms) != 9 || ms[8].Seq != 10 {
		t.Errorf("read over a hole: %d messages, %v", len(ms), err)
	}
}

func TestRequestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault   memory.WriteFault
		err     error
		handled int32
	}{
		"none":        {memory.WriteFault{}, nil, 1},
		"slow":        {memory.WriteFault{Before: time.Second, After: time.Second}, nil, 1},
		"too slow":    {memory.WriteFault{After: time.Minute}, pubsub.ErrOutcomeUnknown, 1},
		"refused":     {memory.WriteFault{Err: pubsub.ErrNotFound}, pubsub.ErrNotFound, 0},
		"dropped":     {memory.WriteFault{Drop: true}, pubsub.ErrOutcomeUnknown, 0},
		"answer lost": {memory.WriteFault{LoseAck: true}, pubsub.ErrOutcomeUnknown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Faults{Request: func(memory.Op) memory.WriteFault { return c.fault }})
				var handled atomic.Int32
				cancel, err := w.good.Serve("q", func(_ context.Context, b []byte) []byte { handled.Add(1); return b })
				if err != nil {
					t.Fatal(err)
				}
				defer cancel()
				ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
				defer stop()
				if a, err := w.faulty.Request(ctx, "q", []byte("x")); !errors.Is(err, c.err) || err == nil && string(a) != "x" {
					t.Errorf("Request: %q, %v, want %v", a, err, c.err)
				}
				synctest.Wait()
				if n := handled.Load(); n != c.handled {
					t.Errorf("handled %d times, want %d", n, c.handled)
				}
			})
		})
	}
}

func TestNewsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Faults{News: func(_ string, m pubsub.Message) bool { return m.Seq%2 == 0 }})
		var heard []pubsub.Seq
		cancel, err := w.log.Follow(func(m pubsub.Message) { heard = append(heard, m.Seq) })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.publish(t, 5)
		synctest.Wait()
		cancel()
		if !slices.Equal(heard, []pubsub.Seq{0, 1, 3, 5}) {
			t.Errorf("heard %v", heard)
		}
	})
}

// TestDisconnect: news and changes are lost, and said to be; watches end up
// with the truth.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Faults{})
		ctx := t.Context()
		var states []bool
		w.faulty.OnConnection(func(up bool) { states = append(states, up) })
		var heard []pubsub.Seq
		cancel, err := w.log.Follow(func(m pubsub.Message) { heard = append(heard, m.Seq) })
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		wctx, end := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			done <- w.table.Watch(wctx, pubsub.WatchOptions{
				Synced: func() { seen = append(seen, "synced") }, Reset: func() { seen = append(seen, "reset") },
			}, func(v pubsub.Value) error { seen = append(seen, v.Key); return nil })
		}()
		synctest.Wait()
		w.publish(t, 1)
		_, _ = w.rows.Set(ctx, pubsub.Write{Key: "a"})
		synctest.Wait()
		w.faulty.Disconnect()
		if _, err := w.log.Append(ctx, 1, pubsub.Entry{}); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("append while disconnected: %v", err)
		}
		w.publish(t, 1)
		_, _ = w.rows.Set(ctx, pubsub.Write{Key: "b"})
		synctest.Wait()
		w.faulty.Reconnect()
		synctest.Wait()
		w.publish(t, 1)
		synctest.Wait()
		end()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
		cancel()
		if want := []pubsub.Seq{0, 1, 0, 3}; !slices.Equal(heard, want) {
			t.Errorf("heard %v, want %v", heard, want)
		}
		if want := []string{"synced", "a", "reset", "a", "b"}; !slices.Equal(seen, want) {
			t.Errorf("saw %v, want %v", seen, want)
		}
		if !slices.Equal(states, []bool{false, true}) {
			t.Errorf("states %v", states)
		}
	})
}

// TestDisconnectInFlight: a write that is on its way has an unknown outcome and
// arrives.
func TestDisconnectInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Faults{Append: func(memory.Op) memory.WriteFault { return memory.WriteFault{Before: time.Second} }})
		time.AfterFunc(time.Millisecond, w.faulty.Disconnect)
		if _, err := w.log.Append(t.Context(), 0, pubsub.Entry{}); !errors.Is(err, pubsub.ErrOutcomeUnknown) {
			t.Errorf("append: %v", err)
		}
		time.Sleep(time.Minute)
		if len(w.srv.Messages("l")) != 1 {
			t.Error("the write did not arrive")
		}
	})
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Faults{})
		heard := make(chan pubsub.Seq, 10)
		cancel, err := w.log.Follow(func(m pubsub.Message) { heard <- m.Seq })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.faulty.Freeze()
		appended := make(chan error, 1)
		go func() {
			_, err := w.log.Append(t.Context(), 0, pubsub.Entry{})
			appended <- err
		}()
		w.publish(t, 1)
		synctest.Wait()
		if len(appended) != 0 || len(heard) != 1 {
			t.Errorf("a frozen client works: %d, %d", len(appended), len(heard))
		}
		w.faulty.Thaw()
		if err := <-appended; !errors.Is(err, pubsub.ErrConflict) {
			t.Errorf("append after the thaw: %v", err)
		}
		synctest.Wait()
		if len(heard) != 2 {
			t.Errorf("%d news, want 2", len(heard))
		}
		// A frozen client's follow and the client itself can be ended.
		w.faulty.Freeze()
		cancel()
		w.faulty.Close()
	})
}

func TestTamper(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memory.Faults{})
	ctx := t.Context()
	w.publish(t, 4)
	old := w.srv.Snapshot("l")
	if !w.srv.Rewrite("l", 2, func(m *pubsub.Message) { m.Data = []byte("forged") }) || !w.srv.Remove("l", 3) || w.srv.Remove("l", 3) {
		t.Error("tampering failed")
	}
	w.publish(t, 1)
	ms, err := w.log.Read(ctx, 1, pubsub.Limit{})
	if err != nil || len(ms) != 4 || string(ms[1].Data) != "forged" || ms[1].Size != 6 || ms[3].Seq != 5 {
		t.Errorf("after tampering: %+v, %v", ms, err)
	}
	w.srv.Restore(old)
	b, err := w.log.Bounds(ctx)
	if err != nil || b.Last != 4 || b.Messages != 4 {
		t.Errorf("restored: %+v, %v", b, err)
	}
	if m, _ := w.log.Get(ctx, 2); string(m.Data) != "1" {
		t.Errorf("restored message 2: %q", m.Data)
	}
	rev, _ := w.rows.Set(ctx, pubsub.Write{Key: "k", Data: []byte("1")})
	rows := w.srv.Snapshot("t")
	_, _ = w.rows.Set(ctx, pubsub.Write{Key: "k", Data: []byte("2"), Expect: rev})
	w.srv.Restore(rows)
	if v, err := w.table.Get(ctx, "k"); err != nil || string(v.Data) != "1" || v.Rev != rev {
		t.Errorf("restored row: %+v, %v", v, err)
	}
	w.srv.Forget("t", "k")
	if v, err := w.table.Get(ctx, "k"); !errors.Is(err, pubsub.ErrNotFound) || v.Rev != 0 {
		t.Errorf("forgotten row: %+v, %v", v, err)
	}
	if w.srv.Snapshot("nobody") != nil {
		t.Error("a snapshot of nothing")
	}
	if _, err := w.srv.Publish("s.nobody", nil, nil); !errors.Is(err, pubsub.ErrNotFound) {
		t.Errorf("publish to nobody: %v", err)
	}
}

func BenchmarkAppend(b *testing.B) {
	srv := memory.NewServer(memory.Config{})
	c := srv.Client(memory.Faults{})
	defer c.Close()
	_ = c.CreateLog(b.Context(), pubsub.LogConfig{Name: "l", Subject: "s"})
	l := c.Log("l", "s")
	e := pubsub.Entry{Header: pubsub.Header{"A": {"1"}, "B": {"2"}}, Data: make([]byte, 200)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := l.Append(b.Context(), pubsub.Seq(i), e); err != nil {
			b.Fatal(err)
		}
	}
}
