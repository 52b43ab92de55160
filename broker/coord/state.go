package coord

import (
	"context"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// State is one record in memory, with its timers, the answers it will give and
// whoever waits on it. It is the caller's pure part: it knows no store (but in
// Flush), no goroutine and no clock. The runtime calls it from one goroutine at
// a time and forgets it whenever a write fails, so that memory never runs ahead
// of the store.
type State interface {
	// Decode fills a new state from a stored record's body, which it may keep.
	Decode(body []byte) error
	// Encode gives the body to store, as a JSON object with e's fields, and the
	// headers that watches shall see.
	Encode(e Envelope) ([]byte, pubsub.Header, error)
	// Dirty reports whether the record differs from what was decoded or last
	// encoded: then it is stored before any answer leaves.
	Dirty() bool

	// Value takes one value stored below the record's key while the record is
	// loaded, delete markers included.
	Value(v pubsub.Value)
	// Start ends loading. All timers begin in full at now. Values below the key
	// with a term lower than e.Fence may still be written by an earlier owner.
	Start(now time.Time, e Envelope)
	// Flush writes what the events of the turn left to be written below the
	// record's key, after the record itself was stored. An error drops the state;
	// ErrNotOwner says that a value of a later owner was met.
	Flush(ctx context.Context, e Envelope) error
	// Deliver lets the answers go that the turn has made: as they are, or err
	// in their place. More is called after it than before: none of its callees
	// may block.
	Deliver(err error)
	// Drop ends the state: everybody who waits or has an answer due gets err.
	Drop(err error)

	// Next is a lower bound of the time at which Expire has something to do;
	// zero if nothing is timed.
	Next() time.Time
	// Expire runs what is due at now.
	Expire(now time.Time)
	// Restart begins all timers anew, in full: for a while nobody could reach us.
	Restart(now time.Time)
	// Idle reports that a state without a stored record holds nothing worth
	// keeping.
	Idle() bool
}

// Turn is what an event sees while it runs: the record is its own meanwhile.
type Turn[S State] struct {
	State S
	Now   time.Time

	after  []func()
	remove bool
}

// After registers fn to run when all that this turn has to write is stored, in
// the order registered, still inside the turn. It does not run if the turn fails.
func (t *Turn[S]) After(fn func()) { t.after = append(t.after, fn) }

// Remove deletes the record when everything else of the turn is stored.
func (t *Turn[S]) Remove() { t.remove = true }
