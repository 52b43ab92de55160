package protocol

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// try takes n bytes. It returns when they were given or are waited for; the
// channel tells when they were given, and when the test ends.
func try(t *testing.T, b *budget, h *hold, n int64) chan error {
	done, waits := make(chan error, 1), make(chan struct{})
	go func() {
		done <- b.take(h, n, t.Context().Done(), func(on bool) {
			if on {
				close(waits)
			}
		})
	}()
	select {
	case err := <-done:
		done <- err
	case <-waits:
	}
	return done
}

// TestBudget: the rules of budget.go on the thing itself.
func TestBudget(t *testing.T) {
	t.Parallel()
	b := &budget{max: 100}
	var big, x, y, z hold
	if err := b.take(&big, 150, nil, nil); err != nil || b.held() != 150 {
		t.Fatal("a frame above the limit must pass when it is alone")
	}
	b.completed(&big)
	wx, wy := try(t, b, &x, 60), try(t, b, &y, 30)
	if len(wx) != 0 || len(wy) != 0 {
		t.Fatal("took what there was not")
	}
	b.give(&big)
	if err := errors.Join(<-wx, <-wy); err != nil || b.held() != 90 {
		t.Fatalf("%v, %d held", err, b.held())
	}
	// Two incomplete frames hold it all, each needs more: the older goes beyond.
	wx, wy = try(t, b, &x, 60), try(t, b, &y, 30)
	if <-wx != nil || len(wy) != 0 {
		t.Fatal("nobody went on, or both did")
	}
	if w := try(t, b, &x, 500); <-w != nil || len(wy) != 0 { // until it is complete
		t.Fatal("x must go on")
	}
	b.completed(&x)
	if len(wy) != 0 {
		t.Fatal("y must wait for x to be answered")
	}
	b.give(&x)
	if <-wy != nil {
		t.Fatal("y must go on")
	}
	// A waiter whose connection ends leaves the line.
	stop := make(chan struct{})
	b.completed(&y)
	left := make(chan error, 1)
	waiting := make(chan struct{})
	go func() {
		left <- b.take(&z, 90, stop, func(on bool) {
			if on {
				close(waiting)
			}
		})
	}()
	<-waiting
	w := try(t, b, &x, 30)
	if len(w) != 0 {
		t.Fatal("x must not overtake z")
	}
	close(stop)
	if !errors.Is(<-left, errStopped) || <-w != nil {
		t.Fatal("z left, x must go on")
	}
	b.give(&x)
	b.give(&y)
	b.give(&z)
	if b.held() != 0 || b.busy != 0 || b.beyond != nil || b.growing != 0 || len(b.more)+len(b.last) != 0 {
		t.Errorf("%+v", b)
	}
}

// TestBudgetSmallFrames: large frames that are half received leave room for
// small ones, whatever requests of a slow partition hold meanwhile.
func TestBudgetSmallFrames(t *testing.T) {
	t.Parallel()
	b := &budget{max: 1000}
	slow := hold{whole: 600}
	if err := b.take(&slow, 600, nil, nil); err != nil {
		t.Fatal(err)
	}
	b.completed(&slow)
	var large [40]hold
	var waits []chan error
	for i := range large {
		large[i].whole = 100
		if w := try(t, b, &large[i], 25); len(w) == 0 {
			waits = append(waits, w)
		}
	}
	if len(waits) != 29 || b.held() != 600+275 { // a quarter, and who goes beyond it
		t.Fatalf("%d wait, %d held", len(waits), b.held())
	}
	small := hold{whole: 60}
	if len(try(t, b, &small, 60)) == 0 {
		t.Error("the small frame waits for large ones")
	}
	// The one beyond goes on whatever there is, and hands its place over.
	if w := try(t, b, &large[10], 75); len(w) == 0 {
		t.Fatal("nobody goes on")
	}
	b.completed(&large[10])
	b.give(&small)
	b.give(&large[10])
	if err := <-waits[0]; err != nil || b.held() != 600+275 {
		t.Errorf("%v, %d held", err, b.held())
	}
}

// TestBudgetProgress: whatever frames of all sizes do, each one is complete one
// day if those that are complete are answered, and no more than one frame is
// held beyond the limit.
func TestBudgetProgress(t *testing.T) {
	t.Parallel()
	const limit, most, step = 1000, 900, 20
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		b := &budget{max: limit}
		type frame struct {
			hold
			asked int64 // n when it was given what it asked for
		}
		start := func() *frame {
			f := &frame{}
			if f.whole = 1 + rnd.Int64N(most); rnd.IntN(2) == 0 {
				f.whole = 1 + rnd.Int64N(step)
			}
			return f
		}
		frames := make([]*frame, 60)
		for i := range frames {
			frames[i] = start()
		}
		state := func(f *frame) hold {
			b.mu.Lock()
			defer b.mu.Unlock()
			return f.hold
		}
		for left, idle := 500, 0; left > 0; {
			i := rnd.IntN(len(frames))
			f := frames[i]
			switch h := state(f); {
			case h.complete:
				b.give(&f.hold)
				frames[i] = start()
				left--
			case h.n < f.asked:
				if idle++; idle > 100*len(frames) {
					t.Fatalf("seed %d: nobody goes on: %+v", seed, b)
				}
				continue
			case h.n == h.whole:
				b.completed(&f.hold)
			default:
				n := min(h.whole-h.n, max(h.n, step))
				f.asked = h.n + n
				try(t, b, &f.hold, n)
			}
			idle = 0
			if n := b.held(); n > limit+most {
				t.Fatalf("seed %d: %d held", seed, n)
			}
		}
	}
}
