package clean

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/broker/partition"
)

// What a Compactor is at.
const (
	Idle          = "idle"           // this gateway compacts, and nothing is to be done
	Busy          = "running"        // a run is under way
	Elsewhere     = "elsewhere"      // another gateway holds the maintenance lease
	Off           = "off"            // log.cleaner.enable=false on this gateway, which holds the lease
	OlderGateways = "older gateways" // one that lives does not know compacted logs
	ClockOff      = "clock"          // the store's time is not known, or our clock is too far off
	Unknown       = "unknown"        // of another one: it cannot be asked
)

// State is what a Compactor tells operators. Gateways send it to each other: the
// names in its JSON stay.
type State struct {
	State   string   `json:"state"`             // one of the constants above
	Running *Running `json:"running,omitempty"` // nil: none
	Last    *Last    `json:"last,omitempty"`    // the last run of this process; nil: none yet
	// Failing are the partitions whose last run failed.
	Failing map[string]Failure `json:"failing,omitempty"`
}

// Running is a run under way.
type Running struct {
	Partition string    `json:"partition"`
	Since     time.Time `json:"since"`
	Done      int64     `json:"done"` // bytes, of so many
	Of        int64     `json:"of"`
}

// Last is a run that came to its end.
type Last struct {
	Partition string                  `json:"partition"`
	Ended     time.Time               `json:"ended"`
	Took      time.Duration           `json:"took"` // rests included
	Result    partition.CompactResult `json:"result"`
}

// Failure is why a partition's last run failed.
type Failure struct {
	Error string    `json:"error"`
	At    time.Time `json:"at"`
	Again time.Time `json:"again"` // it is not tried before, unless somebody asks
}

// State tells what it does. It never looks as if this gateway compacted when it does
// not hold the lease, nor the other way round.
func (c *Compactor) State() State {
	term, held := c.d.Lease.Holds()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := State{State: c.state}
	switch {
	case !held:
		s.State = Elsewhere
	case term != c.term: // it came a moment ago: what was found before is not of this term
		s.State = Idle
	default:
		s.Failing = maps.Clone(c.failing)
		if s.State == Elsewhere {
			s.State = Idle
		}
		if c.running != nil {
			r := *c.running
			s.State, s.Running = Busy, &r
		}
	}
	if c.last != nil {
		l := *c.last
		s.Last = &l
	}
	return s
}

type compactMetrics struct {
	runs          *prometheus.CounterVec // result: done, failed, given_up
	read, removed prometheus.Counter     // bytes
	dropped       prometheus.Counter     // records
}

func newCompactMetrics(r prometheus.Registerer, c *Compactor) *compactMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &compactMetrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stream_compaction_runs_total", Help: "Runs of compaction on this gateway, one partition each, by result.",
		}, []string{"result"}),
		read:    counter("stream_compaction_read_bytes_total", "Bytes of batches that runs of compaction have gone over."),
		removed: counter("stream_compaction_removed_bytes_total", "Bytes of batches that runs of compaction have removed."),
		dropped: counter("stream_compaction_removed_records_total", "Records that runs of compaction have removed."),
	}
	for _, result := range []string{"done", "failed", "given_up"} {
		m.runs.WithLabelValues(result)
	}
	if r != nil {
		r.MustRegister(m.runs, m.read, m.removed, m.dropped,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "stream_compaction_running", Help: "1 while this gateway compacts a partition."}, func() float64 {
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.running != nil {
					return 1
				}
				return 0
			}),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "stream_compaction_failing_partitions", Help: "Partitions whose last run of compaction on this gateway failed."}, func() float64 {
				c.mu.Lock()
				defer c.mu.Unlock()
				return float64(len(c.failing))
			}))
	}
	return m
}

func (m *compactMetrics) done(r partition.CompactResult) {
	m.runs.WithLabelValues("done").Inc()
	m.read.Add(float64(max(r.BytesIn, 0)))
	m.removed.Add(float64(max(r.BytesIn-r.BytesOut, 0)))
	m.dropped.Add(float64(max(r.RecordsIn-r.RecordsOut, 0)))
}
