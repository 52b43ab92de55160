package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/logging"
)

// Server serves HTTP on listeners that its owner opened.
type Server struct {
	config  Config
	backend Backend
	metrics http.Handler
	logger  *slog.Logger
	table   []route
	handler http.Handler
	http    http.Server
	panics  prometheus.Counter
	limits  limits
}

// New makes a server; g is what /metrics shows and where it registers its own.
func New(c Config, b Backend, g *prometheus.Registry, logger *slog.Logger) *Server {
	c = c.withDefaults()
	logger = logger.With(slog.String(logging.Component, "admin"))
	s := &Server{config: c, backend: b, logger: logger, metrics: metricsHandler(g, c.Timeout/2, logger)}
	s.panics = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stream_panics_total", Help: "Panics that were caught.", ConstLabels: prometheus.Labels{"where": "admin"},
	})
	g.MustRegister(s.panics)
	s.limits = newLimits(g)
	s.table = s.routes()
	s.build()
	s.http = http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: min(10*time.Second, c.Timeout),
		ReadTimeout:       c.Timeout,
		WriteTimeout:      c.Timeout,
		IdleTimeout:       2 * time.Minute,
		ConnState:         connState,
		// net/http adds 4 KiB of its own.
		MaxHeaderBytes: max(c.MaxHeaderBytes-4<<10, 1),
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	return s
}

// build makes the handler from the table.
func (s *Server) build() {
	mux := http.NewServeMux()
	for _, rt := range s.table {
		mux.HandleFunc(rt.pattern, s.method(rt))
	}
	mux.HandleFunc("/", notFound)
	s.handler = s.guard(mux)
}

// Handler is the whole HTTP side without sockets.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers on l until Shutdown or Close; then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(listener{l, s.limits}); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http on %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown closes the listeners, lets running requests finish and closes what
// is left when ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // ctx ended: the first error counts
		return fmt.Errorf("http shutdown: %w", err)
	}
	return nil
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, http.StatusNotFound, codeNotFound, "there is nothing at "+logging.Printable(r.URL.Path), "GET /v1/stream/ lists the endpoints")
}

// method lets GET and HEAD through, POST where there is something for it, and what
// is local for this machine only.
func (s *Server) method(rt route) http.HandlerFunc {
	allow := "GET, HEAD"
	if rt.post != nil {
		allow += ", POST"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		serve, local := rt.serve, rt.local
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodPost:
			serve, local = rt.post, true
		default:
			serve = nil
		}
		switch {
		case serve == nil:
			w.Header().Set("Allow", allow)
			writeProblem(w, http.StatusMethodNotAllowed, codeMethod, logging.Printable(r.Method)+" is not allowed here", "use "+strings.ReplaceAll(allow, ", HEAD", ""))
		case local && !isLocal(r):
			writeProblem(w, http.StatusForbidden, codeForbidden, "no login is configured, so this is served to this machine only", "ask from the machine itself, by http://localhost")
		default:
			serve(w, r)
		}
	}
}

// isLocal reports a loopback peer that sends a loopback Host: the second keeps
// out a web page whose name was rebound to 127.0.0.1.
func isLocal(r *http.Request) bool {
	peer, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if o := r.Header.Get("Origin"); o != "" && o != "http://"+r.Host {
		return false
	}
	return isLoopback(peer) && (strings.EqualFold(host, "localhost") || isLoopback(host))
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// guard is what every request passes: headers, size, odd paths, panics.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				s.panics.Inc()
				s.logger.LogAttrs(r.Context(), slog.LevelError, "panic in an http handler",
					slog.String(logging.Error, fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
				writeProblem(w, http.StatusInternalServerError, codeInternal, "the request failed", "the log has the details")
			}
		}()
		if r.ContentLength > s.config.MaxBodyBytes {
			s.limits.body.Inc()
			h.Set("Connection", "close")
			writeProblem(w, http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", s.config.MaxBodyBytes), "")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, s.config.MaxBodyBytes)
		// ServeMux would redirect a/../b: such a path names nothing here.
		if clean := path.Clean(r.URL.Path); r.URL.Path != clean && (clean == "/" || r.URL.Path != clean+"/") {
			notFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// failure answers an error of the backend; 503 is logged, once.
func (s *Server) failure(w http.ResponseWriter, r *http.Request, err error) {
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		writeRefusal(w, refusal)
		return
	}
	s.logger.LogAttrs(r.Context(), slog.LevelWarn, "the store could not be asked",
		slog.String("path", r.URL.Path), slog.Any(logging.Error, err))
	writeProblem(w, http.StatusServiceUnavailable, codeStoreFailure, err.Error(), "see /readyz; try again when NATS answers")
}
