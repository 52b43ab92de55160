package broker

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
)

// Copies tells on how many servers a partition is, from memory. Before anything is
// known, and for the internal topic, all copies count as in sync.
func (b *Broker) Copies(t *topic.Topic, n int32) partition.Copies {
	want := partition.Copies{Replicas: max(t.Replicas, 1), InSync: max(t.Replicas, 1)}
	if t.Replicas <= 1 || b.offsets.Is(t.ID) {
		return want
	}
	if c, ok := b.host.Copies(b.topics.Partition(t, n).LogConfig.Name); ok {
		return c
	}
	return want
}

// RefreshCopies makes what Copies tells of these topics new, if it is old, and
// waits for that as long as ctx lasts.
func (b *Broker) RefreshCopies(ctx context.Context, topics ...*topic.Topic) {
	for _, t := range topics {
		if t.Replicas > 1 && !b.offsets.Is(t.ID) {
			b.host.RefreshCopies(ctx)
			return
		}
	}
}

// maxSeries bounds the series of partitions that one scrape gets.
const maxSeries = 10_000

// copiesMetrics are the series about copies, under the names of kafka_exporter.
// Dashboards add them up over all gateways, so only the one that maintains tells
// them.
type copiesMetrics struct {
	b                       *Broker
	replicas, inSync, under *prometheus.Desc
	sum                     *prometheus.Desc
	tooMany                 atomic.Bool // said once
}

func newCopiesMetrics(b *Broker) *copiesMetrics {
	labels := []string{"topic", "partition"}
	return &copiesMetrics{
		b:        b,
		replicas: prometheus.NewDesc("kafka_topic_partition_replicas", "Replicas of the partition's stream.", labels, nil),
		inSync:   prometheus.NewDesc("kafka_topic_partition_in_sync_replica", "Replicas that are up to date, the leader included.", labels, nil),
		under:    prometheus.NewDesc("kafka_topic_partition_under_replicated_partition", "1 if fewer replicas are up to date than there should be.", labels, nil),
		sum:      prometheus.NewDesc("stream_under_replicated_partitions", "Partitions of which fewer replicas are up to date than there should be.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *copiesMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.replicas, m.inSync, m.under, m.sum} {
		ch <- d
	}
}

// Collect implements prometheus.Collector, from memory.
func (m *copiesMetrics) Collect(ch chan<- prometheus.Metric) {
	b := m.b
	b.mu.Lock()
	ready := b.ready
	b.mu.Unlock()
	if !ready || !b.maintains() {
		return
	}
	topics := b.Known()
	series := 0
	for _, t := range topics {
		series += 3 * int(t.Partitions)
	}
	if series > maxSeries && !m.tooMany.Swap(true) {
		b.logger.Warn("too many partitions for metrics of each: only their sums are told", "series", series, "most", maxSeries)
	}
	sum := 0
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	for _, t := range topics {
		for n := range t.Partitions {
			c := b.Copies(t, n)
			under := 0
			if c.Under() {
				under = 1
			}
			sum += under
			if series <= maxSeries {
				number := strconv.Itoa(int(n))
				gauge(m.replicas, c.Replicas, t.Name, number)
				gauge(m.inSync, c.InSync, t.Name, number)
				gauge(m.under, under, t.Name, number)
			}
		}
	}
	gauge(m.sum, sum)
}
