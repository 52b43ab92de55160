package group

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	rebalances *prometheus.CounterVec
}

func (m *metrics) register(r prometheus.Registerer) error {
	m.rebalances = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stream_group_rebalances_total",
		Help: "Rebalances begun by groups that this gateway owns, by group protocol and reason.",
	}, []string{"protocol", "reason"})
	if r == nil {
		return nil
	}
	if err := r.Register(m.rebalances); err != nil {
		return fmt.Errorf("register metrics of groups: %w", err)
	}
	return nil
}

// rebalanced counts one rebalance that has begun.
func (m *metrics) rebalanced(reason string) {
	m.rebalances.WithLabelValues(classic, reason).Inc()
}
