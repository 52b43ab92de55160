package protocol

import (
	"errors"
	"sync"
)

// budget bounds the bytes of all requests held by the process. A frame takes
// bytes as they are about to be received and gives them back when its request
// was answered. Who finds none left waits, and its socket is not read.
//
// Partly received frames could fill the budget and wait for each other for
// ever. So when nothing held belongs to a complete frame, one waiter at a time,
// the oldest, may go beyond the limit until its frame is complete: progress is
// certain, and the excess is one frame.
type budget struct {
	max int64

	mu      sync.Mutex // guards: all below, and the fields of every hold
	used    int64
	busy    int64 // of used, what belongs to complete frames
	beyond  *hold // who may exceed max
	waiters []*waiter
}

// hold is what one frame has taken.
type hold struct {
	n        int64
	complete bool
}

type waiter struct {
	h  *hold
	n  int64
	ok chan struct{} // closed when granted
}

var errStopped = errors.New("connection ended while waiting for memory")

// take adds n bytes to h. waiting is called before it blocks and after, with
// true and false. It fails only when stop is closed.
func (b *budget) take(h *hold, n int64, stop <-chan struct{}, waiting func(bool)) error {
	b.mu.Lock()
	if b.beyond == h || (len(b.waiters) == 0 && (b.used+n <= b.max || b.used == 0)) {
		b.used += n
		h.n += n
		b.mu.Unlock()
		return nil
	}
	w := &waiter{h, n, make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.wakeLocked()
	b.mu.Unlock()

	waiting(true)
	defer waiting(false)
	select {
	case <-w.ok:
		return nil
	case <-stop:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range b.waiters {
		if o == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			b.wakeLocked()
			break
		}
	}
	return errStopped
}

// completed says that h's frame is whole.
func (b *budget) completed(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.complete = true
	b.busy += h.n
	if b.beyond == h {
		b.beyond = nil
	}
}

// give returns all of h.
func (b *budget) give(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= h.n
	if h.complete {
		b.busy -= h.n
	}
	if b.beyond == h {
		b.beyond = nil
	}
	*h = hold{}
	b.wakeLocked()
}

func (b *budget) wakeLocked() {
	for len(b.waiters) > 0 {
		w := b.waiters[0]
		fits := b.used+w.n <= b.max || b.used == 0
		if !fits && (b.busy > 0 || b.beyond != nil) {
			return
		}
		if !fits {
			b.beyond = w.h
		}
		b.used += w.n
		w.h.n += w.n
		b.waiters = b.waiters[1:]
		close(w.ok)
	}
}

// held is the number of bytes in use.
func (b *budget) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
