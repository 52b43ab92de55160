package jetstream

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	rtt, publish           prometheus.Histogram
	connected              prometheus.GaugeFunc
	inflight               prometheus.GaugeFunc
	reconnects, apiRefused prometheus.Counter

	traffic []prometheus.Collector // set by measure

	reg prometheus.Registerer
}

func newMetrics(reg prometheus.Registerer, connected, inflight func() float64) (*metrics, error) {
	buckets := []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5}
	m := &metrics{
		reg:        reg,
		rtt:        prometheus.NewHistogram(prometheus.HistogramOpts{Name: "stream_nats_rtt_seconds", Help: "Round trip to the NATS server.", Buckets: buckets}),
		publish:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "stream_nats_publish_seconds", Help: "Time from sending an append to its acknowledgement.", Buckets: buckets}),
		connected:  prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "stream_nats_connected", Help: "1 while all connections to NATS are up."}, connected),
		inflight:   prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "stream_nats_api_inflight", Help: "JetStream API calls waiting for an answer."}, inflight),
		reconnects: prometheus.NewCounter(prometheus.CounterOpts{Name: "stream_nats_reconnects_total", Help: "Connections to NATS that were lost and came back."}),
		apiRefused: prometheus.NewCounter(prometheus.CounterOpts{Name: "stream_nats_api_refused_total", Help: "JetStream API calls refused as overloaded or unavailable."}),
	}
	if reg == nil {
		return m, nil
	}
	for i, c := range m.all() {
		if err := reg.Register(c); err != nil {
			for _, c := range m.all()[:i] {
				reg.Unregister(c)
			}
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.rtt, m.publish, m.connected, m.inflight, m.reconnects, m.apiRefused}
}

// measure counts the bytes that go over connections, by what they are for. They
// count headers and payloads as NATS carries them, so that what a read costs the
// store can be seen from outside. Call it once all are open.
func (m *metrics) measure(byUse map[string][]*conn) error {
	if m.reg == nil {
		return nil
	}
	for use, conns := range byUse {
		sum := func(of func(*conn) uint64) func() float64 {
			return func() float64 {
				n := uint64(0)
				for _, c := range conns {
					n += of(c)
				}
				return float64(n)
			}
		}
		labels := prometheus.Labels{"connection": use}
		for _, c := range []prometheus.Collector{
			prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "stream_nats_received_bytes_total",
				Help: "Bytes of messages and headers received from NATS.", ConstLabels: labels},
				sum((*conn).received)),
			prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "stream_nats_sent_bytes_total",
				Help: "Bytes of messages and headers sent to NATS.", ConstLabels: labels},
				sum(func(c *conn) uint64 { return c.nc.Stats().OutBytes })),
		} {
			if err := m.reg.Register(c); err != nil {
				return err
			}
			m.traffic = append(m.traffic, c)
		}
	}
	return nil
}

func (m *metrics) close() {
	if m.reg != nil {
		for _, c := range append(m.all(), m.traffic...) {
			m.reg.Unregister(c)
		}
	}
}
