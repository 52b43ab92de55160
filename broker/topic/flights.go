package topic

import (
	"context"
	"sync"
	"time"
)

// flights runs at most one question per key at a time. Whoever asks gets the
// outcome of a question that was sent after it asked: one that is under way
// already may have been answered before, so it would prove nothing about now.
// Everybody who asks meanwhile shares the next one.
type flights struct {
	mu sync.Mutex // guards: keys and what is in it
	// keys holds the keys with a question under way.
	keys map[string]*queue
}

type queue struct {
	next *flight // not sent yet; nil if nobody waits for one
	fn   func(context.Context) error
}

type flight struct {
	done chan struct{} // closed when err is set
	err  error
}

// patience bounds one question, whoever has given up on it.
const patience = 10 * time.Second

// do runs fn, or shares a run of it that begins after this call.
func (f *flights) do(ctx context.Context, key string, fn func(context.Context) error) error {
	fl := &flight{done: make(chan struct{})}
	f.mu.Lock()
	switch q := f.keys[key]; {
	case q == nil:
		if f.keys == nil {
			f.keys = map[string]*queue{}
		}
		f.keys[key] = &queue{}
		go f.run(context.WithoutCancel(ctx), key, fl, fn)
	case q.next == nil:
		q.next, q.fn = fl, fn
	default:
		fl = q.next
	}
	f.mu.Unlock()
	select {
	case <-fl.done:
		return fl.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run ends when nobody waits any more, patience at the latest after the last.
func (f *flights) run(ctx context.Context, key string, fl *flight, fn func(context.Context) error) {
	for fl != nil {
		bounded, cancel := context.WithTimeout(ctx, patience)
		fl.err = fn(bounded)
		cancel()
		close(fl.done)
		f.mu.Lock()
		q := f.keys[key]
		fl, fn = q.next, q.fn
		q.next, q.fn = nil, nil
		if fl == nil {
			delete(f.keys, key)
		}
		f.mu.Unlock()
	}
}
