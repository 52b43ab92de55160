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
			Name: "stream_kafka_connections",
			Help: "Open Kafka connections.",
		}),
		accepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stream_kafka_connections_accepted_total",
			Help: "Kafka connections accepted and served.",
		}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_kafka_connections_rejected_total",
			Help: "Kafka connections closed at accept, by the limit that they were above.",
		}, []string{"reason"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_kafka_connections_closed_total",
			Help: "Kafka connections that the server closed, by reason.",
		}, []string{"reason"}),
		bad: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_kafka_bad_requests_total",
			Help: "Bytes that were no request, and requests that could not be decoded or are not served.",
		}, []string{"reason"}),
		trailing: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stream_kafka_trailing_bytes_requests_total",
			Help: "Requests with bytes after their end, served all the same.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "stream_kafka_panics_total",
			Help: "Panics that ended a connection. Each one is a bug.",
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
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "stream_kafka_request_bytes",
				Help: "Bytes of Kafka requests read and not yet answered.",
			}, func() float64 { return float64(s.budget.held()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "stream_kafka_fetch_bytes",
				Help: "Bytes of records in fetch answers not yet written out.",
			}, func() float64 { return float64(s.handler.fetchHeld.Load()) }))
	}
	return m
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
