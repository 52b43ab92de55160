package admin

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry makes the registry of the process: Go runtime, process, and
// stream_build_info. The other packages register theirs with it.
func NewRegistry(version, commit, goVersion string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "stream_build_info",
		Help:        "Which build this is; the value is 1.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit, "go_version": goVersion},
	})
	info.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return r
}

// metricsHandler answers scrapes from memory, a few at a time.
func metricsHandler(g prometheus.Gatherer, timeout time.Duration, logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(logger.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError,
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: 4,
		Timeout:             timeout,
	})
}
