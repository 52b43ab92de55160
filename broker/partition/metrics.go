package partition

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of all partitions of a gateway.
type metrics struct {
	batches, records, bytes prometheus.Counter
	group                   prometheus.Histogram
	conflicts, duplicates   prometheus.Counter
	plain, taken            prometheus.Counter
	lost                    *prometheus.CounterVec // winner: gateway, publisher
	handed                  *prometheus.CounterVec // result: answered, declined, undelivered, unanswered
	unknown                 *prometheus.CounterVec // result: stored, absent, unresolved
	reads                   *prometheus.CounterVec // source: cache, store
	corruption              *prometheus.CounterVec // kind: gap, order, header, back
	retained                *prometheus.CounterVec // reason: time, size
	markers                 *prometheus.CounterVec // result: commit, abort
}

// lateAfter is the age from which an open transaction is late: the longest timeout
// that clients may have by default, and five minutes, as in Kafka
// (PartitionsWithLateTransactionsCount).
const lateAfter = 20 * time.Minute

// Late lists the partitions, of those that are in use here, whose oldest open
// transaction has had nothing appended for 20 minutes, by topic and partition.
func (h *Host) Late() (all []LateTransaction) {
	now := h.clock()
	for _, p := range h.all() {
		p.mu.Lock()
		if p.st != nil {
			if x, age := p.st.oldestOpen(now); x != nil && now.UnixMilli()-x.at > lateAfter.Milliseconds() {
				all = append(all, LateTransaction{Topic: p.topic, Partition: p.n, ProducerID: p.st.open[0].pid, First: x.start, OpenFor: age})
			}
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b LateTransaction) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all
}

// newMetrics registers the metrics with r, which may be nil.
func newMetrics(r prometheus.Registerer, h *Host) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		batches:    counter("stream_appended_batches_total", "Record batches appended by this gateway."),
		records:    counter("stream_appended_records_total", "Records appended by this gateway."),
		bytes:      counter("stream_appended_bytes_total", "Bytes of record batches appended by this gateway."),
		conflicts:  counter("stream_append_conflicts_total", "Appends that lost to another writer and were decided again."),
		duplicates: counter("stream_duplicate_batches_total", "Batches that were stored already and were answered with their first offset."),
		plain:      counter("stream_plain_messages_total", "Messages of plain NATS publishers that this gateway heard of."),
		taken:      counter("stream_append_taken_batches_total", "Batches that other gateways handed over to be appended here."),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_append_lost_rounds_total", Help: "Appends that lost and were decided again, by who won.",
		}, []string{"winner"}),
		handed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_append_handovers_total", Help: "Groups of batches handed over to another gateway to be appended there, by result.",
		}, []string{"result"}),
		group: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "stream_append_group_size", Help: "Batches per stored message.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
		unknown: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_append_unknown_outcome_total", Help: "Appends without acknowledgement, by what was found out about them.",
		}, []string{"result"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_fetch_reads_total", Help: "Reads of batches, by where they came from.",
		}, []string{"source"}),
		retained: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_retention_deleted_bytes_total", Help: "Bytes that retention let go of, by the limit that did not keep them.",
		}, []string{"reason"}),
		markers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_transaction_markers_total", Help: "Markers appended by this gateway, each of which ended a transaction on a partition, by result.",
		}, []string{"result"}),
		corruption: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_partition_corruption_total", Help: "Partitions stopped because of their log, by kind.",
		}, []string{"kind"}),
	}
	for _, l := range []string{"stored", "absent", "unresolved"} {
		m.unknown.WithLabelValues(l)
	}
	for _, l := range []string{"gateway", "publisher"} {
		m.lost.WithLabelValues(l)
	}
	for _, l := range []string{"answered", "declined", "undelivered", "unanswered"} {
		m.handed.WithLabelValues(l)
	}
	for _, l := range []string{"commit", "abort"} {
		m.markers.WithLabelValues(l)
	}
	for _, l := range []string{"time", "size"} {
		m.retained.WithLabelValues(l)
	}
	for _, l := range []string{"cache", "store"} {
		m.reads.WithLabelValues(l)
	}
	for _, l := range []string{"crc", "gap", "order", "header", "back"} {
		m.corruption.WithLabelValues(l)
	}
	if r != nil {
		used := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "stream_memory_used_bytes", Help: "Bytes held, by pool.", ConstLabels: prometheus.Labels{"pool": "tail_cache"},
		}, func() float64 { return float64(h.cache.used()) })
		late := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "stream_partitions_late_transactions", Help: "Partitions in use here whose oldest open transaction has had nothing appended for 20 minutes: committed readers wait for its end.",
		}, func() float64 { return float64(len(h.Late())) })
		budget := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "stream_memory_budget_bytes", Help: "Bytes allowed, by pool.", ConstLabels: prometheus.Labels{"pool": "tail_cache"},
		}, func() float64 { return float64(h.cache.budget) })
		r.MustRegister(m.batches, m.records, m.bytes, m.group, m.conflicts, m.duplicates, m.plain, m.taken, m.lost, m.handed, m.unknown, m.reads, m.corruption, m.retained, m.markers, used, budget, late)
	}
	return m
}
