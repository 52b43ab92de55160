package history

import (
	"fmt"
	"time"
)

// Outcome is what a client knows of an operation that changes something.
type Outcome string

// Outcomes.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"  // it certainly did nothing, and never will
	Unknown Outcome = "unknown" // it may have happened, or may happen yet
)

// Log is one partition of one incarnation of a topic. ID is empty where clients
// cannot tell incarnations apart; then the topic must not be made again.
type Log struct {
	Topic     string `json:"topic"`
	ID        string `json:"id,omitempty"`
	Partition int32  `json:"partition"`
}

// String is topic-partition, with the incarnation if there is one.
func (l Log) String() string {
	if l.ID == "" {
		return fmt.Sprintf("%s-%d", l.Topic, l.Partition)
	}
	return fmt.Sprintf("%s-%d (%s)", l.Topic, l.Partition, l.ID)
}

// Span is when an operation was under way. Ticks of one Recorder are never
// equal; the wall clock is for people.
type Span struct {
	Call   int64     `json:"call"`
	Return int64     `json:"return"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
}

// before reports that s was over when o began.
func (s Span) before(o Span) bool { return s.Return < o.Call }

// Send is one record that a producer was asked to send, all its attempts
// together.
type Send struct {
	Span
	Log Log `json:"log"`
	// Producer names whose order counts among the idempotent ones: its sends to
	// one log are stored in the order in which they began, those of one batch
	// in the order in which they were recorded. A producer that gave up a record and went on is another one.
	Producer   string `json:"producer"`
	Idempotent bool   `json:"idempotent,omitempty"`
	// Attempts is how often one that is not idempotent was sent: so often it may
	// be stored. 0: nobody counted.
	Attempts int     `json:"attempts,omitempty"`
	Key      string  `json:"key,omitempty"`
	Value    string  `json:"value"`
	Outcome  Outcome `json:"outcome"`
	// Offset is where it was acknowledged, with OK; -1 if that is not known.
	Offset int64 `json:"offset"`
}

// Record is one record that was read.
type Record struct {
	Offset int64  `json:"offset"`
	Value  string `json:"value"`
}

// Poll is one answer with records of one log.
type Poll struct {
	Span
	Consumer string   `json:"consumer"`
	Log      Log      `json:"log"`
	Records  []Record `json:"records"`
	// HighWatermark as told with the records; 0 if it was not.
	HighWatermark int64 `json:"high_watermark,omitempty"`
}

// Seek says that a consumer's position changed by something else than reading:
// a partition was assigned, or it was sent elsewhere. Offset is the next one it
// wants, -1 if it does not know.
type Seek struct {
	Span
	Consumer string `json:"consumer"`
	Log      Log    `json:"log"`
	Offset   int64  `json:"offset"`
}

// End is an answer to "where does the log end".
type End struct {
	Span
	Log    Log   `json:"log"`
	Offset int64 `json:"offset"`
}

// Deletion is a wish to forget what is below an offset: DeleteRecords, or
// retention, which may take everything (Offset math.MaxInt64).
type Deletion struct {
	Span
	Log     Log     `json:"log"`
	Offset  int64   `json:"offset"`
	Outcome Outcome `json:"outcome"`
}

// Commit is one committed offset. Offset -1 takes it away (the group or the
// offset was deleted).
type Commit struct {
	Span
	Group string `json:"group"`
	// Generation and Member of a member's commit; Generation is -1 for others.
	Generation int32   `json:"generation"`
	Member     string  `json:"member,omitempty"`
	Log        Log     `json:"log"`
	Offset     int64   `json:"offset"`
	Outcome    Outcome `json:"outcome"`
}

// Committed is an answer to "what is committed": -1 for nothing.
type Committed struct {
	Span
	Group  string `json:"group"`
	Log    Log    `json:"log"`
	Offset int64  `json:"offset"`
}

// Assignment is what a member was given: the span is that of its joining.
type Assignment struct {
	Span
	Group      string `json:"group"`
	Generation int32  `json:"generation"`
	Member     string `json:"member"`
	Logs       []Log  `json:"logs"`
}

// Final is a read of a whole log from its start to its end, when everything was
// over. There may be several of a log.
type Final struct {
	Span
	Reader  string   `json:"reader"`
	Log     Log      `json:"log"`
	Start   int64    `json:"start"` // the log start
	End     int64    `json:"end"`   // the offset after the last
	Records []Record `json:"records"`
	// Gaps says that offsets may hold nothing that a consumer is given (markers
	// of transactions, compaction).
	Gaps bool `json:"gaps,omitempty"`
}

// History is all that the clients of a run recorded.
type History struct {
	Sends       []Send       `json:"sends"`
	Polls       []Poll       `json:"polls"`
	Seeks       []Seek       `json:"seeks"`
	Ends        []End        `json:"ends"`
	Deletions   []Deletion   `json:"deletions"`
	Commits     []Commit     `json:"commits"`
	Committed   []Committed  `json:"committed"`
	Assignments []Assignment `json:"assignments"`
	Finals      []Final      `json:"finals"`
}
