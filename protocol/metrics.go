package protocol

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metrics are the package's Prometheus metrics. Labels come from closed sets.
type metrics struct {
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	connections prometheus.Gauge
	accepted    prometheus.Counter
	rejected    *prometheus.CounterVec
	closed      *prometheus.CounterVec
	bad         *prometheus.CounterVec
	trailing    prometheus.Counter
	panics      prometheus.Counter
	perAPI      map[int16]*apiMetrics
}

// apiMetrics are one API's, looked up once.
type apiMetrics struct {
	name     string
	ok       prometheus.Counter
	duration prometheus.Observer
	requests *prometheus.CounterVec
	mu       sync.Mutex // guards: failed
	failed   map[int16]prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Server) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_kafka_requests_total",
			Help: "Kafka requests answered, by API and the first error code of the answer.",
		}, []string{"api", "error"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "stream_kafka_request_duration_seconds",
			Help:    "Time from a Kafka request's last byte to its answer, waiting included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"api"}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stream_connections",
			Help: "Open Kafka connections.",
		}),
		accepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stream_connections_accepted_total",
			Help: "Kafka connections accepted and served.",
		}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_connections_rejected_total",
			Help: "Kafka connections closed at accept, by the limit that they were above.",
		}, []string{"reason"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_connections_closed_total",
			Help: "Kafka connections that the server closed, by reason.",
		}, []string{"reason"}),
		bad: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_bad_requests_total",
			Help: "Bytes that were no request, and requests that could not be decoded or are not served.",
		}, []string{"reason"}),
		trailing: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stream_trailing_bytes_requests_total",
			Help: "Requests with bytes after their end, served all the same.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stream_panics_total", Help: "Panics that were caught.", ConstLabels: prometheus.Labels{"where": "protocol"},
		}),
		perAPI: map[int16]*apiMetrics{},
	}
	for _, a := range apis {
		name := kmsg.NameForKey(a.key)
		m.perAPI[a.key] = &apiMetrics{
			name: name, ok: m.requests.WithLabelValues(name, "NONE"), duration: m.duration.WithLabelValues(name),
			requests: m.requests, failed: map[int16]prometheus.Counter{},
		}
	}
	if r != nil {
		r.MustRegister(m.requests, m.duration, m.connections, m.accepted, m.rejected, m.closed, m.bad, m.trailing, m.panics,
			pool("used", "requests", func() int64 { return s.budget.held() }), pool("budget", "requests", func() int64 { return s.budget.max }),
			pool("used", "answers", s.handler.answers.held.Load), pool("budget", "answers", func() int64 { return s.handler.answers.max }))
		s.handler.limits.register(r)
	}
	return m
}

// pool is a gauge of a part of the memory; the families are shared with other
// packages: requests read and not yet answered, answers not yet written out.
func pool(what, name string, f func() int64) prometheus.Collector {
	help := "Bytes held, by pool."
	if what == "budget" {
		help = "Bytes allowed, by pool."
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stream_memory_" + what + "_bytes", Help: help, ConstLabels: prometheus.Labels{"pool": name},
	}, func() float64 { return float64(f()) })
}

// Limits that shape answers instead of refusing something, by their keys.
const (
	limitQueued    = "queued.max.request.bytes"
	limitInflight  = "max.inflight.per.connection"
	limitFetchMax  = "fetch.max.bytes"
	limitFetchHeld = "fetch.held.bytes"
	limitFetchWait = "fetch.max.wait"
	limitSessions  = "max.incremental.fetch.session.cache.slots"
)

// limits counts how often each of them was met. What is refused, or ends a
// connection, is counted by its error or its reason.
type limits map[string]prometheus.Counter

func newLimits() *limits {
	l := limits{}
	for _, key := range []string{limitQueued, limitInflight, limitFetchMax, limitFetchHeld, limitFetchWait, limitSessions} {
		l[key] = prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stream_limit_hits_total", Help: "Times that a limit held something back, by its key.", ConstLabels: prometheus.Labels{"limit": key},
		})
	}
	return &l
}

func (l *limits) hit(key string) { (*l)[key].Inc() }

func (l *limits) register(r prometheus.Registerer) {
	for _, c := range *l {
		r.MustRegister(c)
	}
}

// answered counts one request.
func (a *apiMetrics) answered(code int16, d time.Duration) {
	a.duration.Observe(d.Seconds())
	if code == 0 {
		a.ok.Inc()
		return
	}
	a.mu.Lock()
	c := a.failed[code]
	if c == nil {
		c = a.requests.WithLabelValues(a.name, errorName(code))
		a.failed[code] = c
	}
	a.mu.Unlock()
	c.Inc()
}

// errorName is a code's name as Kafka spells it.
func errorName(code int16) string {
	if code == 0 {
		return "NONE"
	}
	if k := kerr.TypedErrorForCode(code); k != nil {
		return k.Message
	}
	return strconv.Itoa(int(code))
}
