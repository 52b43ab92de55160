package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hanzoai/stream/logging"
)

// A NATS server whose write met a full disk takes no more writes for that
// stream, without a word to the client, until it is started again. So room is
// kept: below a reserve HasRoom says no, and callers do not write. If the disk
// fills up faster than we look, or fails in another way, the server is started
// again in this process once there is room.
const (
	lookEvery = 100 * time.Millisecond
	mendEvery = time.Second // while something is wrong
	// healFor is how long a server of a cluster may be unwell before it is started
	// again: it first catches up with the others.
	healFor    = 30 * time.Second
	minReserve = 4 << 20
	maxReserve = 64 << 20
)

// room is what is known about the disk.
type room struct {
	full    atomic.Bool
	suspect atomic.Bool // a write may have failed: check before all is well
}

// reserve is how many free bytes a disk of that size must have: writes are
// refused below.
func reserve(total uint64) uint64 { return min(max(total/32, minReserve), maxReserve) }

// HasRoom reports whether the disk has room for more. With less, reads work and
// a write could end the stream's writes until the server is started again.
func (s *Server) HasRoom() bool { return !s.room.full.Load() }

// Disk tells the folder, the bytes of its disk and how many of them may still be
// written before HasRoom says no.
func (s *Server) Disk() (dir string, total, free int64, err error) {
	f, t, err := diskSpace(s.config.Dir)
	if err != nil {
		return "", 0, 0, fmt.Errorf("space below %s: %w", s.config.Dir, err)
	}
	return s.config.Dir, int64(t), int64(f - min(f, reserve(t))), nil
}

// look measures the disk.
func (s *Server) look() {
	free, total, err := diskSpace(s.config.Dir)
	if err != nil {
		return // not known is no reason to refuse
	}
	limit := reserve(total)
	was := s.room.full.Load()
	// It must be clearly better before it counts as over.
	full := free < limit || was && free < limit+limit/2
	if full == was {
		return
	}
	s.room.full.Store(full)
	attrs := []slog.Attr{slog.String(logging.Component, "nats"), slog.Uint64("free", free), slog.Uint64("reserve", limit)}
	if full {
		s.room.suspect.Store(true)
		s.config.Logger.LogAttrs(context.Background(), slog.LevelError, "the disk is full: writes are refused until there is room", attrs...)
		return
	}
	s.config.Logger.LogAttrs(context.Background(), slog.LevelInfo, "the disk has room again", attrs...)
}

// watch looks after the disk and mends what failed for want of it, until ctx ends.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var checked, since time.Time
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.look()
		if !s.HasRoom() || !s.room.suspect.Load() || time.Since(checked) < mendEvery {
			continue
		}
		checked = time.Now()
		bad := s.unhealthy()
		if bad == "" {
			s.room.suspect.Store(false)
			last = ""
			continue
		}
		// Said twice: a stream that is being created or deleted is not sick.
		if bad != last {
			if last == "" {
				since = checked
			}
			last = bad
			continue
		}
		if s.config.Cluster != nil && (checked.Sub(since) < healFor || s.Waiting() != "") {
			continue
		}
		last = ""
		s.config.Logger.LogAttrs(ctx, slog.LevelWarn, "starting the embedded NATS server again: it takes no more writes", slog.String(logging.Component, "nats"), slog.String(logging.Error, bad))
		if err := s.restart(ctx); err != nil {
			s.config.Logger.LogAttrs(ctx, slog.LevelError, "the embedded NATS server did not start again", slog.String(logging.Component, "nats"), slog.String(logging.Error, err.Error()))
		}
	}
}

// unhealthy asks the server's own health check, which knows of failed writes;
// "" if all is well.
func (s *Server) unhealthy() string {
	s.mu.Lock()
	srv := s.srv
	s.mu.Unlock()
	if !srv.Running() {
		return "it does not run"
	}
	if !srv.JetStreamEnabled() {
		return "JetStream is off"
	}
	a := &answer{header: http.Header{}}
	srv.HandleHealthz(a, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/healthz"}})
	if a.code == 0 || a.code == http.StatusOK {
		return ""
	}
	return string(a.body)
}

// answer is what the health check writes.
type answer struct {
	header http.Header
	code   int
	body   []byte
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) { a.code = code }

func (a *answer) Write(b []byte) (int, error) {
	a.body = append(a.body, b...)
	return len(b), nil
}

// restart ends the server and starts a new one on the same folder and port.
// Connections are lost and come back.
func (s *Server) restart(ctx context.Context) error {
	s.mu.Lock()
	old := s.srv
	s.mu.Unlock()
	old.Shutdown()
	old.WaitForShutdown()
	srv, err := s.start(ctx)
	if err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.srv = srv
	if ctx.Err() != nil {
		return errors.New("stopped meanwhile")
	}
	return nil
}
