package testkit

import (
	"testing"
	"time"
)

// Poll calls f until it returns nil, and fails the test with its last error
// when that took longer than limit. It is for conditions of another process,
// which no channel can announce.
func Poll(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	if err := poll(limit, pace, nil, f); err != nil {
		t.Fatalf("%s: not within %v: %v", what, limit, err)
	}
}

// Within is Poll for goroutines other than the test's: it returns f's last error,
// and calls f every so often.
func Within(limit, every time.Duration, f func() error) error { return poll(limit, every, nil, f) }

// pace is how often Poll asks.
const pace = 20 * time.Millisecond

// poll is Within that gives up early once stop is closed.
func poll(limit, every time.Duration, stop <-chan struct{}, f func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-deadline.C:
			return err
		case <-stop:
			return err
		case <-tick.C:
		}
	}
}
