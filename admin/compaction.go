package admin

import (
	"net/http"
	"time"
)

// Compaction is what status says of compaction: of the gateway that compacts, whoever
// is asked.
type Compaction struct {
	Cleaner
	Topics int               `json:"topics"`         // whose cleanup.policy has compact
	Last   *CompactionResult `json:"last,omitempty"` // of that process; none before its first
	// Failing are the partitions whose last run failed.
	Failing []CompactionFailure `json:"failing"`
}

// Cleaner is the gateway that compacts, and what it is at.
type Cleaner struct {
	// State is idle, running, off, older gateways (one that lives does not know
	// compacted topics), clock (the store's time is not known, or that gateway's
	// clock is too far off) or unknown: Detail says why.
	State   string         `json:"state"`
	Gateway int32          `json:"gateway,omitempty"` // its node id; 0: none at this moment
	Detail  string         `json:"detail,omitempty"`
	Running *CompactionRun `json:"running,omitempty"`
}

// CompactionRun is a run of compaction under way.
type CompactionRun struct {
	Partition string    `json:"partition"` // topic-number
	Since     time.Time `json:"since"`
	DoneBytes int64     `json:"done_bytes"`
	OfBytes   int64     `json:"of_bytes"`
}

// CompactionResult is a run of compaction that came to its end.
type CompactionResult struct {
	Partition   string    `json:"partition"`
	Ended       time.Time `json:"ended"`
	Seconds     float64   `json:"seconds"`
	CompactedTo int64     `json:"compacted_to"` // offset
	RecordsIn   int64     `json:"records_in"`
	RecordsOut  int64     `json:"records_out"`
	BytesIn     int64     `json:"bytes_in"`
	BytesOut    int64     `json:"bytes_out"`
	Passes      int       `json:"passes"` // that the memory for keys needed
}

// CompactionFailure is a partition whose last run failed.
type CompactionFailure struct {
	Partition string    `json:"partition"`
	Error     string    `json:"error"`
	At        time.Time `json:"at"`
	Again     time.Time `json:"again"` // it is not tried before, unless somebody asks
}

// TopicCompaction is /v1/stream/topics/{topic}/compaction.
type TopicCompaction struct {
	Topic      string                `json:"topic"`
	Compacted  bool                  `json:"compacted"` // cleanup.policy has compact
	Cleaner    Cleaner               `json:"cleaner"`
	Partitions []PartitionCompaction `json:"partitions"`
}

// PartitionCompaction is how far a partition is compacted.
type PartitionCompaction struct {
	Partition int32 `json:"partition"`
	// CompactedTo is the offset below which all is compacted; Wanted is to where an
	// operator asked for, 0 if nobody did or it is done.
	CompactedTo int64 `json:"compacted_to"`
	Wanted      int64 `json:"wanted"`
	// Records and Bytes are what compaction has left below it.
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// LastRun is when the last run began that came to its end; nil: none yet.
	LastRun *time.Time     `json:"last_run,omitempty"`
	Running *CompactionRun `json:"running,omitempty"`
	// Error is why the last run failed, Again when the next one is, unless somebody
	// asks.
	Error string     `json:"error,omitempty"`
	Again *time.Time `json:"again,omitempty"`
}

func (s *Server) compaction(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.context(r)
	defer cancel()
	c, err := s.backend.Compaction(ctx, r.PathValue("topic"))
	if err != nil {
		s.failure(w, r, err)
		return
	}
	c.Partitions = notNil(c.Partitions)
	writeJSON(w, http.StatusOK, c)
}

// compact answers at once: the work is done by whichever gateway compacts.
func (s *Server) compact(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.context(r)
	defer cancel()
	c, err := s.backend.Compact(ctx, r.PathValue("topic"))
	if err != nil {
		s.failure(w, r, err)
		return
	}
	c.Partitions = notNil(c.Partitions)
	writeJSON(w, http.StatusAccepted, c)
}
