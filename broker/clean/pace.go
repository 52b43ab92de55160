package clean

import (
	"context"
	"sync"
	"time"
)

// busiest bounds what counts as work between two calls of pace: what took longer
// waited for the store, and a rest after it would only prolong that.
const busiest = 250 * time.Millisecond

// shortest is the shortest rest; less is saved up.
const shortest = 5 * time.Millisecond

// pacer slows a run down to the settings' rate and share. A run calls it from one
// goroutine at a time.
type pacer struct {
	settings func() Settings
	check    func() error // why the run must end
	now      func() time.Time

	mu      sync.Mutex // guards: all below
	in      Settings
	fresh   time.Time     // when the settings were looked at
	resumed time.Time     // end of the last call; zero before the first
	debt    time.Duration // of rest
}

// pace is called for bytes that were, or are about to be, read or written. It
// rests as long as is owed; its errors are the context's and why the run must end.
func (p *pacer) pace(ctx context.Context, bytes int) error {
	p.mu.Lock()
	now := p.now()
	if p.fresh.IsZero() || now.Sub(p.fresh) >= time.Second {
		p.in, p.fresh = p.settings(), now
	}
	worked := time.Duration(0)
	if !p.resumed.IsZero() {
		worked = min(max(now.Sub(p.resumed), 0), busiest)
	}
	rest := time.Duration(0)
	if s := p.in.Share; s > 0 && s < 1 {
		rest = time.Duration(float64(worked) * (1 - s) / s)
	}
	if p.in.Rate > 0 {
		rest = max(rest, time.Duration(float64(bytes)/p.in.Rate*float64(time.Second))-worked)
	}
	if p.debt += rest; p.debt < shortest {
		p.resumed = now
		p.mu.Unlock()
		return p.ends(ctx)
	}
	owed := p.debt
	p.debt = 0
	p.mu.Unlock()
	// A long rest is one in parts: the run may have to end meanwhile.
	for owed > 0 {
		if err := p.ends(ctx); err != nil {
			return err
		}
		part := min(owed, time.Second)
		t := time.NewTimer(part)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		owed -= part
	}
	p.mu.Lock()
	p.resumed = p.now()
	p.mu.Unlock()
	return p.ends(ctx)
}

func (p *pacer) ends(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return p.check()
}
