package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// TestIsolate shows a client whose network swallows everything: calls end after
// the time they wait for answers, and what they sent arrives when it is over.
func TestIsolate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Faults{})
		heard := make(chan pubsub.Seq, 10)
		cancel, err := w.log.Follow(func(m pubsub.Message) { heard <- m.Seq })
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		stop, err := w.faulty.Serve("q", func(context.Context, []byte) []byte { return nil })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		synctest.Wait()
		w.faulty.Isolate()
		began := time.Now()
		if _, err := w.log.Append(t.Context(), 0, pubsub.Entry{}); !errors.Is(err, pubsub.ErrOutcomeUnknown) || time.Since(began) != 5*time.Second {
			t.Errorf("append: %v after %v", err, time.Since(began))
		}
		began = time.Now()
		if _, err := w.log.Bounds(t.Context()); !errors.Is(err, pubsub.ErrUnavailable) || time.Since(began) != 5*time.Second {
			t.Errorf("bounds: %v after %v", err, time.Since(began))
		}
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		if _, err := w.good.Request(ctx, "q", nil); !errors.Is(err, pubsub.ErrOutcomeUnknown) {
			t.Errorf("a request to it: %v", err)
		}
		end()
		if len(w.srv.Messages("l")) != 0 || len(heard) != 1 || !w.faulty.Connected() {
			t.Errorf("%d messages, %d news, connected %v", len(w.srv.Messages("l")), len(heard), w.faulty.Connected())
		}
		w.faulty.Rejoin()
		synctest.Wait()
		if len(w.srv.Messages("l")) != 1 || len(heard) != 2 {
			t.Errorf("after it: %d messages, %d news", len(w.srv.Messages("l")), len(heard))
		}
		if _, err := w.log.Append(t.Context(), 1, pubsub.Entry{}); err != nil {
			t.Error(err)
		}
		// A connection that breaks loses what was under way.
		w.faulty.Isolate()
		sent := make(chan error, 1)
		go func() {
			_, err := w.log.Append(t.Context(), 2, pubsub.Entry{})
			sent <- err
		}()
		synctest.Wait()
		w.faulty.Disconnect()
		if err := <-sent; !errors.Is(err, pubsub.ErrOutcomeUnknown) {
			t.Errorf("cut while isolated: %v", err)
		}
		w.faulty.Rejoin()
		w.faulty.Reconnect()
		if n := len(w.srv.Messages("l")); n != 2 {
			t.Errorf("%d messages after the cut", n)
		}
		w.faulty.Isolate()
		w.faulty.Close()
	})
}

// TestWatchLag shows changes that come late, all of them and in order.
func TestWatchLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Faults{Watch: func(string) time.Duration { return time.Second }})
		ctx, stop := context.WithCancel(t.Context())
		seen := make(chan pubsub.Rev, 10)
		ended := make(chan error, 1)
		go func() {
			ended <- w.table.Watch(ctx, pubsub.WatchOptions{}, func(v pubsub.Value) error {
				seen <- v.Rev
				return nil
			})
		}()
		time.Sleep(2 * time.Second)
		for i := range 3 {
			if _, err := w.rows.Set(t.Context(), pubsub.Write{Key: "k", Expect: pubsub.Rev(i)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if len(seen) != 0 {
			t.Errorf("%d changes already", len(seen))
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if len(seen) != 3 {
			t.Errorf("%d changes, want 3", len(seen))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
