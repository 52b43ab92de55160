package txn

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	ended      *prometheus.CounterVec
	unfinished prometheus.Gauge
}

func (m *metrics) register(r prometheus.Registerer) {
	m.ended = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stream_transactions_total",
		Help: "Transactions decided by this gateway, by outcome: commit, abort, timeout, or fenced by another producer with the same transactional id.",
	}, []string{"outcome"})
	m.unfinished = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "stream_transactions_unfinished",
		Help: "Transactions that this gateway has decided, or found decided, and that not all partitions and groups know the end of.",
	})
	if r != nil {
		r.MustRegister(m.ended, m.unfinished)
	}
}

func outcome(commit bool) string {
	if commit {
		return "commit"
	}
	return "abort"
}
