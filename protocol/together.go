package protocol

import (
	"sync"
	"sync/atomic"
)

// atOnce is how many partitions of one request are asked together where each may
// ask the store.
const atOnce = 16

// together runs what was added with add, a few at a time.
type together struct {
	wg       sync.WaitGroup
	slots    chan struct{}
	panicked atomic.Pointer[any] // carried over to the connection's goroutine
}

func newTogether() *together { return &together{slots: make(chan struct{}, atOnce)} }

// add runs fn in a goroutine, once there is a place.
func (t *together) add(fn func()) {
	t.slots <- struct{}{}
	t.wg.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				t.panicked.Store(&p)
			}
			<-t.slots
		}()
		fn()
	})
}

// wait returns when all have ended; a panic of one of them is its own.
func (t *together) wait() {
	t.wg.Wait()
	if p := t.panicked.Load(); p != nil {
		panic(*p)
	}
}
