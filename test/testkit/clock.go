package testkit

import (
	"sync"
	"time"
	"unsafe"
)

// Skewed is a time whose wall clock and monotonic clock were moved apart, which
// package time has no way to make: the layout is that of time.Time with a monotonic
// reading, which times in a bubble of synctest lack.
func Skewed(t time.Time, wall, monotonic time.Duration) time.Time {
	const since1885 = (1969-1884)*365*86400 + 20*86400 // of 1970, in seconds: 20 leap years
	wt := t.Round(0).Add(wall)
	var s time.Time
	r := (*struct {
		wall uint64 // 1 bit, 33 bits of seconds, 30 of nanoseconds
		ext  int64  // monotonic
		loc  *time.Location
	})(unsafe.Pointer(&s))
	r.wall = 1<<63 | uint64(wt.Unix()+since1885)<<30 | uint64(wt.Nanosecond())
	r.ext = int64(t.Round(0).Sub(clocksBegin) + monotonic)
	return s
}

// clocksBegin is where monotonic clocks of tests begin.
var clocksBegin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Hour)

// Clock is a machine's clock that somebody sets, or that stands still. Safe for
// concurrent use; the zero Clock is right.
type Clock struct {
	mu              sync.Mutex // guards: all below
	wall, monotonic time.Duration
	frozen          time.Time // since when the wall clock stands; zero: it runs
}

// Now is what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, wall := time.Now(), c.wall
	if !c.frozen.IsZero() {
		wall -= t.Sub(c.frozen).Truncate(time.Second)
	}
	return Skewed(t, wall, c.monotonic)
}

// Move sets the wall clock forward, or back.
func (c *Clock) Move(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += by
}

// Stop lets the wall clock stand from now on.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = time.Now()
}

// Suspended holds the monotonic clock back by so much in all.
func (c *Clock) Suspended(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.monotonic = -d
}

// Mend makes the wall clock right again.
func (c *Clock) Mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.frozen = 0, time.Time{}
}
