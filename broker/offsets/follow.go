package offsets

import (
	"context"
	"sync"
	"time"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

// Notify implements protocol.Partition.
func (v *View) Notify(ch chan<- struct{}) (cancel func()) {
	v.mu.Lock()
	v.waiter++
	n := v.waiter
	v.waiters[n] = ch
	v.interest = v.d.Clock()
	follow := !v.following
	v.mu.Unlock()
	if follow {
		signal(v.want)
	}
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.waiters, n)
		v.interest = v.d.Clock()
	}
}

// Run follows the table while somebody waits for changes, until ctx ends.
func (v *View) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-v.create:
				v.appear(ctx)
			}
		}
	})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-v.want:
			v.follow(ctx)
		}
	}
}

// follow hears of every change until nobody waits any more.
func (v *View) follow(ctx context.Context) {
	if !v.begin() {
		return
	}
	defer v.unfollow()
	// What is known already need not be heard of again.
	if err := v.ask(ctx); err != nil {
		v.mu.Lock()
		v.wakeLocked() // reading begins to fail
		v.mu.Unlock()
		sleep(ctx, time.Second)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	v.mu.Lock()
	after := pubsub.Rev(v.end)
	v.mu.Unlock()
	wg.Go(func() { v.tend(ctx, cancel) })
	err := v.d.Table.Watch(ctx, pubsub.WatchOptions{
		After: after, HeadersOnly: true, Synced: func() { v.setSynced(true) }, Reset: func() { v.setSynced(false) },
	}, func(val pubsub.Value) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.confirmed = v.d.Clock()
		v.setEndLocked(offsetOf(val) + 1)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		v.d.Logger.Warn("changes of committed offsets are not followed", logging.Error, err)
		sleep(ctx, time.Second)
	}
}

func (v *View) setSynced(synced bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.synced = synced
}

// begin reports whether somebody waits, and notes that changes are followed.
func (v *View) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.following = len(v.waiters) > 0
	return v.following
}

// unfollow ends it; who came meanwhile begins anew.
func (v *View) unfollow() {
	v.mu.Lock()
	v.following, v.synced = false, false
	again := len(v.waiters) > 0
	v.mu.Unlock()
	if again {
		signal(v.want)
	}
}

// tend asks the leader from time to time while somebody waits: a store that
// fails is told, not waited for. It ends the following when nobody has waited
// for long.
func (v *View) tend(ctx context.Context, cancel context.CancelFunc) {
	t := time.NewTicker(checkEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		v.mu.Lock()
		waiting := len(v.waiters) > 0
		idle := !waiting && v.d.Clock().Sub(v.interest) >= followFor
		v.mu.Unlock()
		if idle {
			cancel()
			return
		}
		if !waiting {
			continue
		}
		if v.ask(ctx) != nil {
			v.mu.Lock()
			v.wakeLocked()
			v.mu.Unlock()
		}
	}
}
