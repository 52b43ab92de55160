package protocol

import "time"

// rate allows n events a second, with bursts of as many. 0 allows all. Its owner
// guards it.
type rate struct {
	n    float64
	left float64
	at   time.Time
}

func newRate(n int) *rate { return &rate{n: float64(n), left: float64(n)} }

func (r *rate) allow(now time.Time) bool {
	if r.n == 0 {
		return true
	}
	if !r.at.IsZero() {
		r.left = min(r.n, r.left+now.Sub(r.at).Seconds()*r.n)
	}
	r.at = now
	if r.left < 1 {
		return false
	}
	r.left--
	return true
}
