package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// callers are two gateways of which b answers "echo" at once, "wait" when told,
// and counts what ran. faults are a's.
type callers struct {
	a, b  *gateway
	ran   atomic.Int32
	begun chan struct{} // one per "wait" that began
	ended chan error    // how the ctx of each "wait" was when it ended
	free  chan struct{}
}

func twoCallers(t *testing.T, cfg memory.Config, faults memory.Faults) *callers {
	t.Helper()
	srv := memory.NewServer(cfg)
	x := &callers{a: startWith(t, srv, Config{}, faults), b: start(t, srv, Config{}),
		begun: make(chan struct{}, 100), ended: make(chan error, 100), free: make(chan struct{})}
	x.b.Handle("echo", func(_ context.Context, from Identity, request []byte) ([]byte, error) {
		x.ran.Add(1)
		if from != x.a.Self() {
			return nil, fmt.Errorf("called by %v", from)
		}
		return append([]byte("re: "), request...), nil
	})
	x.b.Handle("wait", func(ctx context.Context, _ Identity, request []byte) ([]byte, error) {
		x.ran.Add(1)
		x.begun <- struct{}{}
		select {
		case <-x.free:
		case <-ctx.Done():
		}
		x.ended <- ctx.Err()
		return request, ctx.Err()
	})
	x.b.Handle("fail", func(context.Context, Identity, []byte) ([]byte, error) { return nil, errors.New("no luck") })
	time.Sleep(3 * time.Second) // both know each other
	return x
}

func (x *callers) call(t *testing.T, method, request string) (string, error) {
	t.Helper()
	b, err := x.a.Call(t.Context(), x.b.Self(), method, []byte(request))
	return string(b), err
}

func wantCall(t *testing.T, got string, err error, want string) {
	t.Helper()
	if err != nil || got != want {
		t.Fatalf("answer of %d bytes, %v; want %.40q (%d bytes)", len(got), err, want, len(want))
	}
}

func wantCallErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
	if both := errors.Is(err, ErrNotDelivered) && errors.Is(err, pubsub.ErrOutcomeUnknown); both {
		t.Fatalf("%v says both that it did not run and that it may have", err)
	}
}

func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := twoCallers(t, memory.Config{MaxPayload: 64 << 10}, memory.Faults{})
		for _, n := range []int{0, 1, 1000, 60 << 10, 64 << 10, 1 << 20, 10<<20 + 1} {
			q := strings.Repeat("x", n)
			got, err := x.call(t, "echo", q)
			wantCall(t, got, err, "re: "+q)
		}
		_, err := x.call(t, "fail", "q")
		if e, ok := errors.AsType[RemoteError](err); !ok || e.Text != "no luck" {
			t.Errorf("handler's error: %v", err)
		}
		_, err = x.call(t, "unheard", "q")
		wantCallErr(t, err, ErrNotDelivered)
		_, err = x.a.Call(t.Context(), x.b.Self(), "echo", make([]byte, MaxCall+1))
		wantCallErr(t, err, ErrNotDelivered)
		wantCallErr(t, err, pubsub.ErrTooLarge)
		was := x.ran.Load()
		for _, to := range []Identity{
			{Node: x.b.Self().Node, Incarnation: "EARLIER"}, // another life answers there
			{Node: 9, Incarnation: "NOBODY"},
		} {
			_, err = x.a.Call(t.Context(), to, "echo", nil)
			wantCallErr(t, err, ErrNotDelivered)
		}
		if n := x.ran.Load(); n != was {
			t.Errorf("%d calls ran that were not delivered", n-was)
		}
		// Oneself is a gateway like any other.
		x.a.Handle("self", func(context.Context, Identity, []byte) ([]byte, error) { return []byte("me"), nil })
		b, err := x.a.Call(t.Context(), x.a.Self(), "self", nil)
		wantCall(t, string(b), err, "me")
	})
}

// TestCallLong: a call may take minutes; its caller asks every second, and
// nothing is sent once it has ended.
func TestCallLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		x := twoCallers(t, memory.Config{}, memory.Faults{Request: func(memory.Op) memory.WriteFault {
			requests.Add(1)
			return memory.WriteFault{}
		}})
		was := requests.Load()
		time.AfterFunc(5*time.Minute+callAsk/2, func() { close(x.free) })
		got, err := x.call(t, "wait", "q")
		wantCall(t, got, err, "q")
		if n := requests.Load() - was; n < 295 || n > 305 {
			t.Errorf("%d requests in 300 s, want one per second", n)
		}
		was = requests.Load()
		time.Sleep(time.Minute)
		if n := requests.Load(); n != was {
			t.Errorf("%d requests while nothing is called", n-was)
		}
	})
}

// TestCallMany: waiting calls are asked after together, and hold up no other.
func TestCallMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		x := twoCallers(t, memory.Config{}, memory.Faults{Request: func(memory.Op) memory.WriteFault {
			requests.Add(1)
			return memory.WriteFault{}
		}})
		x.begun, x.ended = make(chan struct{}, 1500), make(chan error, 1500)
		var wg sync.WaitGroup
		for range 1500 {
			wg.Go(func() {
				got, err := x.call(t, "wait", "q")
				if err != nil || got != "q" {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		for range 1500 {
			<-x.begun
		}
		was := requests.Load()
		time.Sleep(60 * time.Second)
		if n := requests.Load() - was; n < 100 || n > 140 {
			t.Errorf("%d questions in a minute after 1500 calls, want two a second", n)
		}
		got, err := x.call(t, "echo", "q")
		wantCall(t, got, err, "re: q")
		close(x.free)
		wg.Wait()
	})
}

// TestCallLostAnswer: the answer is lost, and fetched again.
func TestCallLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lose atomic.Int32
		x := twoCallers(t, memory.Config{MaxPayload: 64 << 10}, memory.Faults{Request: func(memory.Op) memory.WriteFault {
			return memory.WriteFault{LoseAck: lose.Add(-1) >= 0}
		}})
		for _, n := range []int{10, 200 << 10} {
			lose.Store(4)
			q := strings.Repeat("x", n)
			began := time.Now()
			got, err := x.call(t, "echo", q)
			wantCall(t, got, err, "re: "+q)
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("took %v", d)
			}
		}
		if n := x.ran.Load(); n != 2 {
			t.Errorf("ran %d times, want 2", n)
		}
	})
}

// TestCallLostRequest: what did not arrive in time never runs, even if it comes
// later.
func TestCallLostRequest(t *testing.T) {
	for _, fault := range []memory.WriteFault{{Drop: true}, {Before: 5 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			var hit atomic.Bool
			x := twoCallers(t, memory.Config{}, memory.Faults{Request: func(memory.Op) memory.WriteFault {
				if hit.CompareAndSwap(true, false) {
					return fault
				}
				return memory.WriteFault{}
			}})
			hit.Store(true)
			began := time.Now()
			_, err := x.call(t, "echo", "q")
			wantCallErr(t, err, ErrNotDelivered)
			if d := time.Since(began); d > 3*time.Second {
				t.Errorf("known after %v", d)
			}
			time.Sleep(time.Minute)
			if n := x.ran.Load(); n != 0 {
				t.Error("it ran")
			}
		})
	}
}

// TestCallDeath: the callee is killed, or freezes, while a call waits.
func TestCallDeath(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(*gateway)
	}{
		{"killed", func(g *gateway) { g.store.Disconnect(); g.stop() }},
		{"ended", (*gateway).stop},
		{"frozen", func(g *gateway) { g.store.Freeze() }},
		{"cut off", func(g *gateway) { g.store.Disconnect() }},
	} {
		t.Run(end.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := twoCallers(t, memory.Config{}, memory.Faults{})
				to := x.b.Self()
				result := make(chan error, 1)
				go func() {
					_, err := x.call(t, "wait", "q")
					result <- err
				}()
				<-x.begun
				time.Sleep(10 * time.Second)
				began := time.Now()
				end.do(x.b)
				wantCallErr(t, <-result, pubsub.ErrOutcomeUnknown)
				if d := time.Since(began); d > 4*time.Second {
					t.Errorf("noticed after %v", d)
				}
				time.Sleep(3 * time.Second)
				_, err := x.a.Call(t.Context(), to, "echo", nil)
				wantCallErr(t, err, ErrNotDelivered)
				x.b.store.Thaw()
			})
		})
	}
}

// TestCallOwnConnection: the caller loses its connection for a moment; the call
// goes on, and its answer is got afterwards.
func TestCallOwnConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := twoCallers(t, memory.Config{}, memory.Faults{})
		result := make(chan error, 1)
		go func() {
			got, err := x.call(t, "wait", "q")
			if err == nil && got != "q" {
				err = fmt.Errorf("answer %q", got)
			}
			result <- err
		}()
		<-x.begun
		x.a.store.Disconnect()
		_, err := x.call(t, "echo", "q")
		wantCallErr(t, err, ErrNotDelivered)
		time.Sleep(time.Second)
		x.a.store.Reconnect()
		time.Sleep(5 * time.Second)
		close(x.free)
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if n := x.ran.Load(); n != 1 {
			t.Errorf("ran %d times", n)
		}
	})
}

// TestCallGivenUp: a handler's ctx ends when the caller gives up, when the
// message that says so is lost, and when the caller dies.
func TestCallGivenUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		lost  bool
		kill  bool
		limit time.Duration
	}{
		{"told", false, false, 10 * time.Millisecond},
		{"untold", true, false, callLease + 2*callAsk},
		{"dead", false, true, 4 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lost atomic.Bool
				x := twoCallers(t, memory.Config{}, memory.Faults{Request: func(memory.Op) memory.WriteFault {
					return memory.WriteFault{Drop: lost.Load()}
				}})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				result := make(chan error, 1)
				go func() {
					_, err := x.a.Call(ctx, x.b.Self(), "wait", nil)
					result <- err
				}()
				<-x.begun
				time.Sleep(20 * time.Second)
				lost.Store(c.lost)
				began := time.Now()
				if c.kill {
					x.a.stop()
				} else {
					cancel()
					wantCallErr(t, <-result, context.Canceled)
				}
				if err := <-x.ended; !errors.Is(err, context.Canceled) {
					t.Errorf("the handler's ctx: %v", err)
				}
				if d := time.Since(began); d > c.limit {
					t.Errorf("after %v", d)
				}
				cancel()
			})
		})
	}
}

// TestCallHandleCancel: ending a handler ends and awaits what runs of it.
func TestCallHandleCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := twoCallers(t, memory.Config{}, memory.Faults{})
		begun, ended := make(chan struct{}), false
		cancel := x.b.Handle("more", func(ctx context.Context, _ Identity, _ []byte) ([]byte, error) {
			close(begun)
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return []byte("late"), nil
		})
		result := make(chan error, 1)
		go func() {
			got, err := x.call(t, "more", "q")
			if err == nil && got != "late" {
				err = fmt.Errorf("answer %q", got)
			}
			result <- err
		}()
		<-begun
		cancel()
		if !ended {
			t.Error("cancel did not wait")
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
		_, err := x.call(t, "more", "q")
		wantCallErr(t, err, ErrNotDelivered)
	})
}

// TestCallNewLife: a callee that was found dead and begins a new life runs
// nothing that was meant for the old one, and ends what it was running.
func TestCallNewLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := twoCallers(t, memory.Config{}, memory.Faults{})
		was := x.b.Self()
		go func() { _, _ = x.call(t, "wait", "q") }()
		<-x.begun
		x.b.store.Freeze()
		time.Sleep(10 * time.Second)
		x.b.store.Thaw()
		time.Sleep(5 * time.Second)
		if x.b.Self() == was {
			t.Fatal("still the same life")
		}
		if err := <-x.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the old life's handler: %v", err)
		}
		n := x.ran.Load()
		// As a gateway would whose watch is behind.
		x.a.mu.Lock()
		delete(x.a.lives, was.Incarnation)
		x.a.mu.Unlock()
		_, err := x.a.Call(t.Context(), was, "echo", nil)
		wantCallErr(t, err, ErrNotDelivered)
		if x.ran.Load() != n {
			t.Error("ran in a life it was not meant for")
		}
		got, err := x.call(t, "echo", "q")
		wantCall(t, got, err, "re: q")
	})
}

// TestCallOfTheDead: a gateway that stood still with a request in hand until it was
// held for dead sends it when it goes on: it must not run, what it asks is long
// past.
func TestCallOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := twoCallers(t, memory.Config{}, memory.Faults{})
		x.a.store.Freeze()
		done := make(chan error, 1)
		go func() {
			_, err := x.a.Call(t.Context(), x.b.Self(), "echo", nil)
			done <- err
		}()
		time.Sleep(10 * time.Second)
		x.a.store.Thaw()
		if err := <-done; !errors.Is(err, ErrNotDelivered) && !errors.Is(err, pubsub.ErrOutcomeUnknown) {
			t.Errorf("error %v", err)
		}
		time.Sleep(time.Second)
		if n := x.ran.Load(); n != 0 {
			t.Errorf("it ran %d times", n)
		}
		time.Sleep(5 * time.Second)
		got, err := x.call(t, "echo", "q")
		wantCall(t, got, err, "re: q")
	})
}

// TestCallMemory: what is kept for callers is bounded, and let go of in time.
func TestCallMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := twoCallers(t, memory.Config{}, memory.Faults{})
		x.b.Handle("big", func(_ context.Context, _ Identity, request []byte) ([]byte, error) {
			return make([]byte, 200<<10), nil
		})
		for range 100 {
			if _, err := x.call(t, "big", ""); err != nil {
				t.Fatal(err)
			}
		}
		d := x.b.desk
		d.mu.Lock()
		if d.kept > keepBytes || len(d.calls) > keepBytes/(200<<10) {
			t.Errorf("%d bytes of %d calls kept", d.kept, len(d.calls))
		}
		d.mu.Unlock()
		// Requests of which the rest never comes.
		const room = 32
		d.mu.Lock()
		d.room = room * callPart
		d.mu.Unlock()
		h := callHeader{V: callVersion, Kind: kindPart, To: x.b.Self().Incarnation, From: x.a.Self(), Caller: "other"}
		ok := 0
		for h.ID = 1; h.ID <= room+1; h.ID++ {
			a, _, err := decodeAnswer(d.serve(t.Context(), encodeCall(h, make([]byte, callPart))))
			if err == nil && a.Status == statusOK {
				ok++
			} else if err != nil || a.Status != statusBusy {
				t.Fatalf("part of call %d: %v, %v", h.ID, a, err)
			}
		}
		if ok != room {
			t.Errorf("%d parts taken", ok)
		}
		// Beyond one request's limit.
		time.Sleep(keepCall + 2*callAsk)
		h.ID = 1000
		d.mu.Lock()
		d.room = maxCallBytes
		d.mu.Unlock()
		var a answerHeader
		for h.At = 0; h.At <= MaxCall; h.At += callPart {
			a, _, _ = decodeAnswer(d.serve(t.Context(), encodeCall(h, make([]byte, callPart))))
			if a.Status != statusOK {
				break
			}
		}
		if h.At != MaxCall || a.Status != statusBusy {
			t.Errorf("refused with %q at byte %d", a.Status, h.At)
		}
		time.Sleep(2 * (keepCall + 2*callAsk)) // the rest, then that it shall never run
		d.mu.Lock()
		if len(d.calls) != 0 || d.parts != 0 || d.kept != 0 || d.large != 0 || d.ended.Len() != 0 || d.sweeper != nil {
			t.Errorf("left: %d calls, %d, %d, %d bytes", len(d.calls), d.parts, d.kept, d.large)
		}
		d.mu.Unlock()
	})
}

// TestCallFaults: whatever is lost, delayed or broken, a call ends, runs at most
// once, has run if it is answered, and has not if it was not delivered.
func TestCallFaults(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { callFaults(t, seed) })
		})
	}
}

func callFaults(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	n := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	fault := func(op memory.Op) (f memory.WriteFault) {
		if !strings.HasSuffix(op.Name, ".call") {
			return f
		}
		switch n(12) {
		case 0:
			f.Drop = true
		case 1:
			f.LoseAck = true
		case 2:
			f.Before = time.Duration(n(3000)) * time.Millisecond
		case 3:
			f.After = time.Duration(n(3000)) * time.Millisecond
		}
		return f
	}
	srv := memory.NewServer(memory.Config{MaxPayload: 16 << 10})
	gs := []*gateway{startWith(t, srv, Config{}, memory.Faults{Request: fault}), startWith(t, srv, Config{}, memory.Faults{Request: fault})}
	time.Sleep(3 * time.Second)
	ran := map[string]int{}
	for _, g := range gs {
		g.Handle("work", func(ctx context.Context, _ Identity, request []byte) ([]byte, error) {
			id := string(request[:8])
			mu.Lock()
			ran[id]++
			mu.Unlock()
			select {
			case <-time.After(time.Duration(n(20)*n(20)) * 30 * time.Millisecond):
			case <-ctx.Done():
			}
			return bytes.Repeat([]byte(id), 1+n(2)*n(8000)), nil
		})
	}
	type result struct {
		id  string
		err error
	}
	var results []result
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 10 {
				id := fmt.Sprintf("%04d%04d", w, i)
				from := gs[n(2)]
				other := gs[0]
				if from == other {
					other = gs[1]
				}
				began := time.Now()
				b, err := from.Call(t.Context(), other.Self(), "work", bytes.Repeat([]byte(id), 1+n(2)*n(8000)))
				if err == nil && (len(b) == 0 || string(b) != strings.Repeat(id, len(b)/8)) {
					t.Errorf("call %s: an answer of %d bytes that is not its own", id, len(b))
				}
				if d := time.Since(began); d > 2*time.Minute {
					t.Errorf("call %s took %v", id, d)
				}
				mu.Lock()
				results = append(results, result{id, err})
				mu.Unlock()
			}
		})
	}
	stop := make(chan struct{})
	var chaos sync.WaitGroup
	chaos.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(500+n(8000)) * time.Millisecond):
			}
			g := gs[n(2)]
			if n(2) == 0 {
				g.store.Disconnect()
				time.Sleep(time.Duration(n(4000)) * time.Millisecond)
				g.store.Reconnect()
			} else {
				g.store.Freeze()
				time.Sleep(time.Duration(n(4000)) * time.Millisecond)
				g.store.Thaw()
			}
		}
	})
	wg.Wait()
	close(stop)
	chaos.Wait()
	time.Sleep(time.Minute)
	answered := 0
	mu.Lock()
	defer mu.Unlock()
	for _, r := range results {
		switch {
		case r.err == nil:
			answered++
			if ran[r.id] != 1 {
				t.Errorf("call %s was answered and ran %d times", r.id, ran[r.id])
			}
		case errors.Is(r.err, ErrNotDelivered):
			if ran[r.id] != 0 {
				t.Errorf("call %s: %v, and ran %d times", r.id, r.err, ran[r.id])
			}
		case errors.Is(r.err, pubsub.ErrOutcomeUnknown):
			if ran[r.id] > 1 {
				t.Errorf("call %s ran %d times", r.id, ran[r.id])
			}
		default:
			t.Errorf("call %s: %v", r.id, r.err)
		}
	}
	if answered == 0 {
		t.Error("none was answered")
	}
}
