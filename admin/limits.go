package admin

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// limits count how often a limit of HTTP was met. The family is shared with
// other packages.
type limits struct{ header, body, timeout prometheus.Counter }

func newLimits(r prometheus.Registerer) limits {
	counter := func(key string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stream_limit_hits_total", Help: "Times that a limit held something back, by its key.", ConstLabels: prometheus.Labels{"limit": key},
		})
		r.MustRegister(c)
		return c
	}
	return limits{counter("admin.header.max.bytes"), counter("admin.body.max.bytes"), counter("admin.timeout")}
}

// listener makes connections that see what net/http tells nobody: a header that
// is too large, a request that comes too slowly.
type listener struct {
	net.Listener
	limits limits
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watched{Conn: c, limits: l.limits}, nil
}

type watched struct {
	net.Conn
	limits limits
	idle   atomic.Bool // between two requests
	past   atomic.Bool // its read deadline is only there to end a read
}

// SetReadDeadline implements net.Conn.
func (w *watched) SetReadDeadline(t time.Time) error {
	w.past.Store(!t.IsZero() && t.Before(time.Now()))
	return w.Conn.SetReadDeadline(t)
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) && !w.idle.Load() && !w.past.Load() {
		w.limits.timeout.Inc()
	}
	return n, err
}

func (w *watched) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("HTTP/1.1 431 ")) {
		w.limits.header.Inc()
	}
	return w.Conn.Write(p)
}

// connState follows net/http's view of a connection.
func connState(c net.Conn, s http.ConnState) {
	if w, ok := c.(*watched); ok {
		w.idle.Store(s == http.StateIdle)
	}
}
