package group

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	rebalances *prometheus.CounterVec
}

func (m *metrics) register(r prometheus.Registerer) {
	m.rebalances = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stream_group_rebalances_total",
		Help: "Rebalances begun by groups that this gateway owns, by group protocol and reason.",
	}, []string{"protocol", "reason"})
	if r != nil {
		r.MustRegister(m.rebalances)
	}
}

// rebalanced counts one rebalance that has begun.
func (m *metrics) rebalanced(reason string) {
	m.rebalances.WithLabelValues(classic, reason).Inc()
}
