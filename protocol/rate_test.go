package protocol

import (
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	t.Parallel()
	r := newRate(10)
	now := time.Unix(100, 0)
	count := func(tries int) (ok int) {
		for range tries {
			if r.allow(now) {
				ok++
			}
		}
		return ok
	}
	for i, c := range []struct {
		pass time.Duration
		want int
	}{{0, 10}, {100 * time.Millisecond, 1}, {250 * time.Millisecond, 2}, {50 * time.Millisecond, 1}, {time.Hour, 10}, {0, 0}} {
		now = now.Add(c.pass)
		if got := count(20); got != c.want {
			t.Errorf("step %d: %d allowed, want %d", i, got, c.want)
		}
	}
	r = newRate(0)
	if count(20) != 20 {
		t.Error("0 is no limit")
	}
}
