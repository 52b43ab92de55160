package jetstream

import (
	"context"
	"sync"
)

// budget is a weighted semaphore, first come first served.
type budget struct {
	size int

	mu    sync.Mutex // guards: used, queue
	used  int
	queue []*waiter
}

type waiter struct {
	n     int
	ready chan struct{}
}

func newBudget(size int) *budget { return &budget{size: size} }

// take waits until n (capped to the whole budget) are free and returns what was
// taken, to be given back.
func (b *budget) take(ctx context.Context, n int) (int, error) {
	n = min(n, b.size)
	b.mu.Lock()
	if len(b.queue) == 0 && b.used+n <= b.size {
		b.used += n
		b.mu.Unlock()
		return n, nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	b.queue = append(b.queue, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return n, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // granted meanwhile
		b.used -= n
	default:
		for i, q := range b.queue {
			if q == w {
				b.queue = append(b.queue[:i], b.queue[i+1:]...)
				break
			}
		}
	}
	b.grantLocked()
	return 0, ctx.Err()
}

func (b *budget) give(n int) {
	b.mu.Lock()
	b.used -= n
	b.grantLocked()
	b.mu.Unlock()
}

func (b *budget) grantLocked() {
	for len(b.queue) > 0 && b.used+b.queue[0].n <= b.size {
		w := b.queue[0]
		b.queue = b.queue[1:]
		b.used += w.n
		close(w.ready)
	}
}
