package cluster

import "time"

// A machine that was suspended stops its monotonic clock, and its wall clock may be
// set while it runs. So elapsed time is bracketed (design rule 13): what must not
// happen too late takes the larger difference. What must not happen too early takes
// the monotonic one, which never tells more time than passed; the wall clock would
// hold up a takeover for as long as it was set back.

func atMost(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

func atLeast(from, to time.Time) time.Duration { return to.Sub(from) }

func (c *Cluster) now() time.Time { return c.deps.Clock() }
