package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxKinds bounds what the throttle remembers.
const maxKinds = 1024

// throttle lets Burst lines of a kind pass per Window. The next line of that
// kind after the window tells how many were left out.
type throttle struct {
	slog.Handler
	component string
	shared    *throttleState
}

type kind struct {
	level          slog.Level
	msg, component string
}

type count struct {
	start            time.Time
	passed, withheld int
}

type throttleState struct {
	burst  int
	window time.Duration
	now    func() time.Time

	mu    sync.Mutex // guards: kinds
	kinds map[kind]*count
}

func newThrottle(h slog.Handler, o Options) *throttle {
	s := &throttleState{burst: o.Burst, window: o.Window, now: o.Now, kinds: map[kind]*count{}}
	if s.window <= 0 {
		s.window = DefaultWindow
	}
	if s.now == nil {
		s.now = time.Now
	}
	return &throttle{Handler: h, shared: s}
}

// Handle implements slog.Handler.
func (t *throttle) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return t.Handler.Handle(ctx, r)
	}
	component := t.component
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == Component {
			component = a.Value.String()
		}
		return true
	})
	pass, withheld := t.shared.admit(kind{r.Level, r.Message, component})
	if !pass {
		return nil
	}
	if withheld > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int(Suppressed, withheld))
	}
	return t.Handler.Handle(ctx, r)
}

func (s *throttleState) admit(k kind) (pass bool, withheld int) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.kinds[k]
	if c == nil {
		if len(s.kinds) >= maxKinds {
			s.forget(now)
		}
		c = &count{start: now}
		s.kinds[k] = c
	}
	if now.Sub(c.start) >= s.window || now.Before(c.start) {
		withheld = c.withheld
		*c = count{start: now}
	}
	if c.passed >= s.burst {
		c.withheld++
		return false, 0
	}
	c.passed++
	return true, withheld
}

// forget makes room: kinds whose window is over go first, then all. What was
// withheld of them is not told any more.
func (s *throttleState) forget(now time.Time) {
	for k, c := range s.kinds {
		if now.Sub(c.start) >= s.window {
			delete(s.kinds, k)
		}
	}
	if len(s.kinds) >= maxKinds {
		clear(s.kinds)
	}
}

// WithAttrs implements slog.Handler.
func (t *throttle) WithAttrs(as []slog.Attr) slog.Handler {
	n := &throttle{Handler: t.Handler.WithAttrs(as), component: t.component, shared: t.shared}
	for _, a := range as {
		if a.Key == Component {
			n.component = a.Value.String()
		}
	}
	return n
}

// WithGroup implements slog.Handler.
func (t *throttle) WithGroup(name string) slog.Handler {
	return &throttle{Handler: t.Handler.WithGroup(name), component: t.component, shared: t.shared}
}
