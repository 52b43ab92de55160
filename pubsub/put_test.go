package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// open makes a table whose writes suffer the faults given, one after another;
// then none. A second client sees the truth.
func open(t interface {
	Fatal(...any)
	Cleanup(func())
}, faults ...memory.WriteFault) (tb, truth pubsub.Table, calls *atomic.Int32) {
	srv := memory.NewServer(memory.Config{})
	calls = &atomic.Int32{}
	c := srv.Client(memory.Faults{Set: func(memory.Op) memory.WriteFault {
		if n := int(calls.Add(1)); n <= len(faults) {
			return faults[n-1]
		}
		return memory.WriteFault{}
	}})
	c2 := srv.Client(memory.Faults{})
	t.Cleanup(c.Close)
	t.Cleanup(c2.Close)
	tb, err := c.Table(context.Background(), pubsub.TableConfig{Name: "t"})
	if err != nil {
		t.Fatal(err)
	}
	truth, err = c2.Table(context.Background(), pubsub.TableConfig{Name: "t"})
	if err != nil {
		t.Fatal(err)
	}
	return tb, truth, calls
}

func TestPutResolvesLostAck(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string][]memory.WriteFault{
		"stored, ack lost":              {{LoseAck: true}},
		"stored, ack lost three times":  {{LoseAck: true}, {LoseAck: true}, {LoseAck: true}},
		"never arrived":                 {{Drop: true}},
		"never arrived, then ack lost":  {{Drop: true}, {LoseAck: true}},
		"first copy after the second":   {{Late: time.Minute}},
		"first copy before the second":  {{Late: time.Millisecond}},
		"ack lost, then unavailable":    {{LoseAck: true}, {Err: pubsub.ErrUnavailable}, {Err: pubsub.ErrFull}},
		"dropped, then full, then well": {{Drop: true}, {Err: pubsub.ErrFull}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tb, truth, _ := open(t, faults...)
				rev, err := pubsub.Put(t.Context(), tb, pubsub.Write{Key: "k", Data: []byte("v")})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute) // any late copy has come by now
				v, err := truth.Get(t.Context(), "k")
				if err != nil || v.Rev != rev || string(v.Data) != "v" {
					t.Errorf("Put said %d, stored is %+v, %v", rev, v, err)
				}
				if rev != 1 {
					t.Errorf("stored %d times", rev)
				}
			})
		})
	}
}

func TestPutPassesRefusalsOn(t *testing.T) {
	t.Parallel()
	for _, want := range []error{pubsub.ErrUnavailable, pubsub.ErrFull, pubsub.ErrConflict, pubsub.ErrTooLarge, errors.New("other")} {
		tb, _, calls := open(t, memory.WriteFault{Err: want})
		_, err := pubsub.Put(t.Context(), tb, pubsub.Write{Key: "k"})
		if !errors.Is(err, want) || errors.Is(err, pubsub.ErrOutcomeUnknown) {
			t.Errorf("Put of a write that fails with %v: %v", want, err)
		}
		if calls.Load() != 1 {
			t.Errorf("%v: tried %d times", want, calls.Load())
		}
	}
}

// TestPutConflictAfterUnknown: our copy was dropped and another writer won.
func TestPutConflictAfterUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tb, truth, _ := open(t, memory.WriteFault{Drop: true, After: time.Second})
		time.AfterFunc(500*time.Millisecond, func() {
			if _, err := truth.Set(context.Background(), pubsub.Write{Key: "k", Data: []byte("theirs")}); err != nil {
				t.Error(err)
			}
		})
		_, err := pubsub.Put(t.Context(), tb, pubsub.Write{Key: "k", Data: []byte("ours")})
		if !errors.Is(err, pubsub.ErrConflict) {
			t.Errorf("Put: %v, want a conflict", err)
		}
	})
}

func TestPutGivesUpWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := make([]memory.WriteFault, 100)
		for i := range faults {
			faults[i].Drop = true
		}
		tb, _, calls := open(t, faults...)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := pubsub.Put(ctx, tb, pubsub.Write{Key: "k"})
		if !errors.Is(err, pubsub.ErrOutcomeUnknown) {
			t.Errorf("Put: %v, want an unknown outcome", err)
		}
		if n := calls.Load(); n < 5 || n > 20 {
			t.Errorf("%d tries in 10 s", n)
		}
	})
}

// TestPutDelete: a marker's write id settles a lost acknowledgement too.
func TestPutDelete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tb, truth, _ := open(t, memory.WriteFault{}, memory.WriteFault{LoseAck: true})
		rev, err := pubsub.Put(t.Context(), tb, pubsub.Write{Key: "k", Data: []byte("v")})
		if err != nil {
			t.Fatal(err)
		}
		del, err := pubsub.Put(t.Context(), tb, pubsub.Write{Key: "k", Expect: rev, Delete: true})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := truth.Get(t.Context(), "k"); !errors.Is(err, pubsub.ErrNotFound) || v.Rev != del {
			t.Errorf("Put said %d, stored is %+v, %v", del, v, err)
		}
	})
}

// TestPutKeepsCallersHeader: the write id is not left in the caller's map.
func TestPutKeepsCallersHeader(t *testing.T) {
	t.Parallel()
	tb, truth, _ := open(t)
	h := pubsub.Header{"A": {"1"}}
	if _, err := pubsub.Put(t.Context(), tb, pubsub.Write{Key: "k", Header: h}); err != nil {
		t.Fatal(err)
	}
	v, err := truth.Get(t.Context(), "k")
	if err != nil || v.Header.Get("A") != "1" || v.Header.Get(pubsub.WriteIDHeader) == "" {
		t.Errorf("stored: %+v, %v", v, err)
	}
	if len(h) != 1 {
		t.Errorf("the caller's headers became %v", h)
	}
}

func TestPutAllOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := make([]memory.WriteFault, 100)
		for i := range faults {
			faults[i].Before = time.Duration(100-i) * time.Millisecond
		}
		tb, truth, _ := open(t, faults...)
		var ws []pubsub.Write
		for i := range 100 {
			ws = append(ws, pubsub.Write{Key: fmt.Sprintf("k%d", i)})
		}
		ws[30].Expect = 77
		for i, r := range pubsub.PutAll(t.Context(), tb, ws) {
			v, err := truth.Get(t.Context(), ws[i].Key)
			switch {
			case i == 30:
				if !errors.Is(r.Err, pubsub.ErrConflict) {
					t.Errorf("write 30: %+v", r)
				}
			case r.Err != nil || err != nil || v.Rev != r.Rev:
				t.Errorf("write %d: %+v, stored %+v, %v", i, r, v, err)
			}
		}
		if rs := pubsub.PutAll(t.Context(), tb, nil); len(rs) != 0 {
			t.Errorf("PutAll of nothing: %v", rs)
		}
	})
}

// TestPutProperty: whatever the faults, a Put that succeeds stored its value
// exactly once, and one that says conflict or gave a plain failure never did.
func TestPutProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var faults []memory.WriteFault
		for i := range rapid.IntRange(0, 5).Draw(rt, "faults") {
			d := time.Duration(rapid.IntRange(0, 50).Draw(rt, fmt.Sprint("delay", i))) * time.Millisecond
			faults = append(faults, rapid.SampledFrom([]memory.WriteFault{
				{}, {LoseAck: true, After: d}, {Drop: true, After: d}, {Late: d + 1}, {Before: d}, {Err: pubsub.ErrUnavailable},
			}).Draw(rt, fmt.Sprint("fault", i)))
		}
		rival := time.Duration(rapid.IntRange(0, 60).Draw(rt, "rival")) * time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			tb, truth, _ := open(t, faults...)
			history := make(chan string, 10)
			watched := make(chan struct{})
			ctx, end := context.WithCancel(t.Context())
			go func() {
				defer close(watched)
				_ = truth.Watch(ctx, pubsub.WatchOptions{}, func(v pubsub.Value) error { history <- string(v.Data); return nil })
			}()
			synctest.Wait()
			rivalDone := make(chan struct{})
			go func() {
				defer close(rivalDone)
				time.Sleep(rival)
				v, _ := truth.Get(ctx, "k")
				_, _ = truth.Set(ctx, pubsub.Write{Key: "k", Data: []byte("theirs"), Expect: v.Rev})
			}()
			rev, err := pubsub.Put(ctx, tb, pubsub.Write{Key: "k", Data: []byte("ours")})
			<-rivalDone
			time.Sleep(time.Second)
			synctest.Wait()
			end()
			<-watched
			close(history)
			ours, n := 0, pubsub.Rev(0)
			for h := range history {
				n++
				if h == "ours" {
					ours++
					if err == nil && rev != n {
						rt.Errorf("Put said revision %d, it was %d", rev, n)
					}
				}
			}
			switch {
			case err == nil && ours != 1:
				rt.Errorf("Put succeeded, stored %d times", ours)
			case ours > 1:
				rt.Errorf("stored %d times", ours)
			case err != nil && !errors.Is(err, pubsub.ErrConflict) && !errors.Is(err, pubsub.ErrOutcomeUnknown) && ours != 0:
				rt.Errorf("Put failed with %v, yet it is stored", err)
			}
		})
	})
}
