package protocol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/logging"
)

// Server serves Kafka's protocol on any number of listeners.
type Server struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	budget  *budget
	handler *handler

	draining chan struct{} // closed by Shutdown
	ended    chan struct{} // closed when drained and the last connection is gone
	stop     context.CancelFunc
	ctx      context.Context // of all requests; ends when connections are cut
	tick     atomic.Int64    // coarse clock: nanoseconds since start, never 0; see watch
	start    time.Time
	wg       sync.WaitGroup // connections and the watch

	mu        sync.Mutex // guards: all below
	drained   bool
	watching  bool
	over      bool // ended is closed
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	perIP     map[string]int
	lastID    uint64
	accepts   *rate
}

// New makes a server. c must be valid. Requests are answered from b; metrics go
// to r unless it is nil.
func New(c Config, b Backend, log *slog.Logger, r prometheus.Registerer) *Server {
	s := &Server{
		config:    c,
		log:       log.With(logging.Component, "protocol"),
		budget:    &budget{max: c.QueuedMaxRequestBytes},
		accepts:   newRate(c.MaxConnectionRate),
		draining:  make(chan struct{}),
		ended:     make(chan struct{}),
		start:     time.Now(),
		listeners: map[net.Listener]struct{}{},
		conns:     map[*conn]struct{}{},
		perIP:     map[string]int{},
	}
	s.tick.Store(1)
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.handler = &handler{
		backend: b, config: c, apis: map[int16]*api{}, served: apis, draining: s.draining,
		answers: newAnswers(c.FetchHeldBytes), limits: newLimits(),
	}
	s.handler.sessions = newFetchSessions(c.FetchSessions, func() { s.handler.limits.hit(limitSessions) })
	for _, a := range apis {
		s.handler.apis[a.key] = a
	}
	s.metrics = newMetrics(r, s)
	return s
}

// Serve accepts connections from l until Shutdown (nil), until ctx ends (its
// error; all connections of the server are cut at once), or until l fails. It
// closes l. It may be called for several listeners.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.mu.Lock()
	if s.drained {
		s.mu.Unlock()
		return errors.Join(errors.New("serve: the server is shut down"), l.Close())
	}
	s.listeners[l] = struct{}{}
	if !s.watching {
		s.watching = true
		s.wg.Go(s.watch)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		_ = l.Close()
	}()
	end := context.AfterFunc(ctx, func() {
		_ = l.Close()
		s.cut()
	})
	defer end()

	for pause := time.Duration(0); ; {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.accept(nc)
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case s.isDraining():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		}
		// Out of file descriptors, or a connection that was reset before it was
		// accepted: go on, not at full speed.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.log.LogAttrs(ctx, slog.LevelError, "accept failed", slog.Any(logging.Error, err), slog.Duration("pause", pause))
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-s.draining:
		}
		t.Stop()
	}
}

// Shutdown drains: nothing is accepted any more, requests that were read are
// answered (waiting fetches at once), then connections are closed. When ctx
// ends first, what is left is cut and ctx's error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.drained {
		s.drained = true
		close(s.draining)
	}
	for l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.conns {
		c.drain()
	}
	s.endLocked()
	s.mu.Unlock()

	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		s.stop()
		return nil
	case <-ctx.Done():
	}
	s.cut()
	<-done
	return ctx.Err()
}

// cut ends all connections at once.
func (s *Server) cut() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.drained {
		s.drained = true
		close(s.draining)
	}
	for c := range s.conns {
		c.close("stopped")
	}
	s.endLocked()
}

// endLocked ends the watch when there is nothing left to watch.
func (s *Server) endLocked() {
	if s.drained && len(s.conns) == 0 && !s.over {
		s.over = true
		close(s.ended)
	}
}

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// accept starts a connection, or closes what is above a limit.
func (s *Server) accept(nc net.Conn) {
	host := hostOf(nc.RemoteAddr())
	if reason := s.admit(nc, host); reason != "" {
		s.metrics.rejected.WithLabelValues(reason).Inc()
		s.log.LogAttrs(s.ctx, slog.LevelDebug, "connection rejected", slog.String("peer", host), slog.String("reason", reason))
		_ = nc.Close()
	}
}

func (s *Server) admit(nc net.Conn, host string) (reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.drained:
		return "shutdown"
	case len(s.conns) >= s.config.MaxConnections:
		return "max.connections"
	case s.config.MaxConnectionsPerIP > 0 && s.perIP[host] >= s.config.MaxConnectionsPerIP:
		return "max.connections.per.ip"
	case !s.accepts.allow(time.Now()):
		return "max.connection.creation.rate"
	}
	s.lastID++
	c := newConn(s, nc, s.lastID, host)
	s.conns[c] = struct{}{}
	s.perIP[host]++
	s.metrics.accepted.Inc()
	s.metrics.connections.Inc()
	s.wg.Go(c.run)
	return ""
}

// gone forgets a connection that has ended.
func (s *Server) gone(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.perIP[c.host]--; s.perIP[c.host] <= 0 {
		delete(s.perIP, c.host)
	}
	s.metrics.connections.Dec()
	s.endLocked()
}

// watch enforces the time limits of all connections from one place, so that a
// request costs no timer: connections note what they wait for and since when.
func (s *Server) watch() {
	every := min(time.Second, s.config.FrameTimeout/4, s.config.WriteTimeout/4, s.config.IdleTimeout/4)
	t := time.NewTicker(max(every, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-s.ended:
			return
		}
		now := int64(time.Since(s.start)) + 1
		s.tick.Store(now)
		s.mu.Lock()
		for c := range s.conns {
			c.check(now)
		}
		s.evict(now)
		s.mu.Unlock()
	}
}

// hostOf is an address without its port.
func hostOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	if t, ok := a.(*net.TCPAddr); ok {
		return t.IP.String()
	}
	if host, _, err := net.SplitHostPort(a.String()); err == nil {
		return host
	}
	return a.String()
}
