package compact

import (
	"errors"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// ErrUnreadable: a batch that cannot be understood, or decompresses to more than
// allowed. Nobody knows what may go of it, so a run that meets one ends.
var ErrUnreadable = errors.New("batch cannot be compacted")

// Env is what decides beside the keys, and the state of one pass. A pass takes
// the batches in order from the log's start; the next one begins with Restart.
// Not safe for concurrent use.
type Env struct {
	// Now is the store's time, ms.
	Now int64
	// DeleteRetention is how long a tombstone or a marker stays after the first
	// pass that met it, ms.
	DeleteRetention int64
	// Late is by how much delete horizons that are set already are later, ms: readers
	// see what a pass has left from its end on, and it went by its beginning.
	Late int64
	// From is where Index begins; what lies below was compacted before, so that
	// no two records there have the same key.
	From types.Offset
	// Upto is the end of what the map covers: Keys.Upto. Records at it and above
	// stay.
	Upto types.Offset
	// End is the end of the pass, which is where the log goes on: the last batch
	// before it stays, at least without records. 0: none does.
	End types.Offset
	// Aborted tells whether the transactional batch of a producer that holds o
	// belongs to an aborted transaction. nil: none does. All must be decided.
	Aborted func(pid int64, o types.Offset) bool
	// LastOf gives the base offset of the newest batch of data that a live
	// producer wrote in this epoch, its present one, or of its newest marker if
	// there is none (LastRecord): that batch stays, at least without records.
	// nil: none lives.
	LastOf func(pid int64, epoch int16) (types.Offset, bool)
	// MaxBatch is the largest batch that can be stored, bytes. One that would
	// grow beyond it and beyond its size before (a delete horizon takes room,
	// and codecs have levels) is split. 0: no bound.
	MaxBatch int
	// Budget is how much a batch's records may decompress to, bytes; eight times
	// their compressed size is always allowed.
	Budget int

	open    map[int64]struct{} // producers with batches of the present transaction in this pass
	plain   []byte             // decompressed records of the present batch
	kept    []byte             // those that stay of a batch without compression
	moved   []byte             // the same with other deltas
	encoded []byte             // the same compressed
}

// Restart begins a new pass: it forgets which transactions were met.
func (e *Env) Restart() { clear(e.open) }

// due reports that a delete horizon has passed.
func (e *Env) due(horizon int64) bool { return horizon <= e.Now-e.Late }

// aborted reports whether a data batch's records count for nothing.
func (e *Env) aborted(b serde.Batch) bool {
	return b.Transactional() && e.Aborted != nil && e.Aborted(b.ProducerID(), types.Offset(b.BaseOffset()))
}
