package protocol

import (
	"errors"
	"slices"
	"sync"
)

// budget bounds the bytes of all requests held by the process. A frame takes
// bytes as they are about to be received and gives them back when its request
// was answered. Who finds none left waits, and its socket is not read.
//
// Frames that will take more, those that grow, hold at most a quarter: the rest
// is for last takes, which need nothing more from anybody here. So whoever sends
// small frames does not wait behind large ones that wait for each other.
//
// Growing frames could fill their quarter, or all, and wait for each other for
// ever. So one at a time, the oldest waiter, goes beyond what they may have,
// and, when nothing held belongs to a complete frame, beyond the limit, until
// its frame is complete: progress is certain, and the excess is one frame.
type budget struct {
	max int64

	mu      sync.Mutex // guards: all below, and the fields of every hold
	used    int64
	busy    int64 // of used, what belongs to complete frames
	growing int64 // of used, what belongs to frames that will take more
	beyond  *hold // who may exceed the limits
	// waiters stand in two lines: those who will take more, which may stand still
	// alone, and those who will not.
	more, last []*waiter
	tickets    uint64
}

// hold is what one frame has taken.
type hold struct {
	whole    int64 // bytes of the frame; set before the first take
	n        int64
	complete bool
}

// grows says whether h, given n bytes, will take more.
func (h *hold) grows(n int64) bool { return h.n+n < h.whole }

type waiter struct {
	h      *hold
	n      int64
	ticket uint64        // the least was here first
	ok     chan struct{} // closed when granted
}

var errStopped = errors.New("connection ended while waiting for memory")

// take adds n bytes to h. waiting is called before it blocks and after, with
// true and false. It fails only when stop is closed.
func (b *budget) take(h *hold, n int64, stop <-chan struct{}, waiting func(bool)) error {
	b.mu.Lock()
	if b.beyond == h || (len(b.more)+len(b.last) == 0 && b.fits(n) && !(h.grows(n) && b.grown(n))) {
		b.grantLocked(h, n)
		b.mu.Unlock()
		return nil
	}
	b.tickets++
	w := &waiter{h, n, b.tickets, make(chan struct{})}
	line := &b.last
	if h.grows(n) {
		line = &b.more
	}
	*line = append(*line, w)
	b.wakeLocked()
	b.mu.Unlock()

	select {
	case <-w.ok: // it stood behind nobody that counts
		return nil
	default:
	}
	waiting(true)
	defer waiting(false)
	select {
	case <-w.ok:
		return nil
	case <-stop:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(*line, w); i >= 0 {
		*line = slices.Delete(*line, i, i+1)
		b.wakeLocked()
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
		b.wakeLocked()
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
	if h.grows(0) {
		b.growing -= h.n
	}
	if b.beyond == h {
		b.beyond = nil
	}
	*h = hold{}
	b.wakeLocked()
}

// fits says whether there are n bytes left. One frame alone may be larger than
// the limit.
func (b *budget) fits(n int64) bool { return b.used+n <= b.max || b.used == 0 }

// grown says whether n bytes more are too many for frames that grow.
func (b *budget) grown(n int64) bool { return b.growing+n > b.max/4 && b.growing > 0 }

func (b *budget) grantLocked(h *hold, n int64) {
	if h.grows(0) {
		b.growing -= h.n
	}
	b.used += n
	h.n += n
	if h.grows(0) {
		b.growing += h.n
	}
}

// wakeLocked grants what can be granted, the oldest waiter first.
func (b *budget) wakeLocked() {
	for {
		line, exceeds := b.nextLocked()
		if line == nil {
			return
		}
		w := (*line)[0]
		if !b.fits(w.n) {
			if b.busy > 0 || b.beyond != nil {
				return
			}
			exceeds = true
		}
		if exceeds {
			b.beyond = w.h
		}
		b.grantLocked(w.h, w.n)
		*line = (*line)[1:]
		close(w.ok)
	}
}

// nextLocked is the line whose first waiter is the next, nil when nobody is, and
// whether that one will exceed what growing frames may have.
func (b *budget) nextLocked() (line *[]*waiter, exceeds bool) {
	if len(b.more) > 0 {
		if exceeds = b.grown(b.more[0].n); !exceeds || b.beyond == nil {
			line = &b.more
		}
	}
	if len(b.last) > 0 && (line == nil || b.last[0].ticket < (*line)[0].ticket) {
		line, exceeds = &b.last, false
	}
	return line, exceeds
}

// held is the number of bytes in use.
func (b *budget) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
