package partition

import (
	"context"
	"errors"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// ErrNothing: a run of compaction found nothing worth doing.
var ErrNothing = errors.New("there is nothing to compact")

// CompactOptions say how a run of compaction goes.
type CompactOptions struct {
	Now             time.Time     // the store's time
	Ratio           float64       // min.cleanable.dirty.ratio
	MinLag, MaxLag  time.Duration // younger records are left alone; older ones are due whatever Ratio says
	DeleteRetention time.Duration // of tombstones and markers
	Memory          int           // bytes for the map of keys
	// Pace is called for what is read and written, with its bytes; it blocks for as
	// long as the rate limit wants, and its error ends the run. nil: no limit.
	Pace func(ctx context.Context, bytes int) error
	// Force: an operator asked, or a delete horizon is due: Ratio is not asked.
	Force bool
	// Later: that a delete horizon is due is no reason for a run.
	Later bool
	// Enough is asked after each pass, if the memory for keys did not last for all:
	// with true the rest is left to the next run. nil: the run goes on.
	Enough func() bool
	// Progress is told how many bytes of how many are done; nil: nobody is told.
	Progress func(done, of int64)

	began time.Time // Now, by our clock
}

// CompactResult is what a run of compaction did. Gateways send it to each other: the
// names in its JSON stay.
type CompactResult struct {
	Upto       types.Offset  `json:"upto"` // compacted below it
	RecordsIn  int64         `json:"records_in"`
	RecordsOut int64         `json:"records_out"`
	BytesIn    int64         `json:"bytes_in"`
	BytesOut   int64         `json:"bytes_out"`
	Passes     int           `json:"passes"`
	More       bool          `json:"more,omitempty"` // CompactOptions.Enough said so
	Left       bool          `json:"left,omitempty"` // what was replaced could not be removed: SweepClean is to
	Took       time.Duration `json:"took"`
}

// CleanState is what is known of a partition's compaction, without the store.
type CleanState struct {
	// Known: the partition record was read; without it all else is zero.
	Known bool
	// X is the offset below which all is compacted, Seq the main stream's message
	// that begins there, or the first one of a stream that was lost and made again;
	// both 0 where the log was never compacted.
	X   types.Offset
	Seq pubsub.Seq
	// Dirty are the bytes from X on as far as they are known, -1 where they are not.
	Dirty int64
	// Stream is the sibling that holds what is below X, "" if there is none, with
	// its records and bytes.
	Stream         string
	Records, Bytes int64
	// Last is when the last run that came to its end began, in the store's time;
	// zero: never.
	Last time.Time
	// Running is the sibling of a run that is under way, or was given up; "": none.
	Running string
	// Horizon is when the first of the tombstones and markers may go; zero: there
	// are none.
	Horizon time.Time
	// Want is the offset below which an operator asked for compaction; 0: nobody.
	Want types.Offset
}
