package pubsub

import (
	"context"
	"time"
)

// Seq is a stream sequence: it counts stored messages from 1 and is never
// reused within a log. 0 means "before the first message".
type Seq uint64

// Header holds a message's NATS headers. Keys are case-sensitive.
type Header map[string][]string

// Get returns the first value of key, or "".
func (h Header) Get(key string) string {
	if v := h[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Entry is a message to append. The callee may read Data and Header until
// Append returns and keeps neither after that.
type Entry struct {
	Header Header
	Data   []byte
}

// Message is a stored message. Data and Header belong to the receiver, who may
// keep and slice Data but must not write to what others may share.
type Message struct {
	Seq    Seq
	Time   time.Time // the store's clock when it was stored
	Header Header    // without the Nats-* headers that only steered the publish
	Data   []byte    // nil in News and in Headers
	Size   int       // bytes of Data, also where Data itself was not sent
	// Release, unless nil, gives the memory of Data back. Its receiver may call
	// it, once, when nobody will look at Data any more, or leave it.
	Release func()
}

// Bounds of a log as its leader knows them. Empty: First = Last+1.
type Bounds struct {
	First, Last Seq
	Messages    uint64 // stored messages
	Bytes       uint64
	LastTime    time.Time // store time of the last message ever stored; zero if none
	Replicas    int       // configured
	InSync      int       // replicas that are up to date, the leader included
	Offline     int       // replicas on servers that are away
	Leader      string    // name of the leader's server; "" if it has none
}

// Limit bounds a Read: it stops at MaxBytes (at least one message is returned)
// and at MaxMessages. 0 takes the implementation's default (1 MiB, 1000).
type Limit struct {
	MaxBytes    int
	MaxMessages int
}

// Log is one append-only log (a JetStream stream with one subject). Methods are
// safe for concurrent use. A Log handle costs nothing until used; a handle to a
// log that does not exist answers ErrNotFound.
type Log interface {
	// Name is the log's (stream's) name: one incarnation, for ever.
	Name() string

	// Append stores e directly after the message prev: it succeeds only while
	// prev is the last sequence ever assigned, and then returns prev+1.
	// Errors: ErrConflict, ErrOutcomeUnknown, ErrUnavailable, ErrFull,
	// ErrTooLarge, ErrNotFound (no such log, or the subject belongs to another
	// incarnation). It never retries by itself. A ctx that ends after the
	// message was sent gives ErrOutcomeUnknown, before it ctx.Err().
	Append(ctx context.Context, prev Seq, e Entry) (Seq, error)

	// Read returns stored messages from the first with sequence >= from, in
	// order, from any replica: what it returns is true, or was a moment ago (a
	// reader that goes on at once may get what was read ahead for it), what it
	// leaves out may exist (stale replica, hole, end). Holes show in the sequences. An empty
	// result without error means only that this replica knew of none. A read
	// that breaks off returns what came before the break, without error if
	// that is at least one message; else ErrUnavailable or ErrNotFound (no such log).
	Read(ctx context.Context, from Seq, limit Limit) ([]Message, error)

	// Get reads one message from the leader. ErrNotFound: it says there is none.
	Get(ctx context.Context, seq Seq) (Message, error)

	// Bounds asks the leader.
	Bounds(ctx context.Context) (Bounds, error)

	// Headers calls fn for each stored message with from <= sequence <= to, in
	// order, with Size but without Data, cheaper than Read for long ranges. It
	// ends when `to` or anything later was seen, or at the end of the log as
	// the leader knew it when asked. Errors: of fn, ErrUnavailable (what fn saw
	// is true, later messages are missing), ErrNotFound (no such log).
	Headers(ctx context.Context, from, to Seq, fn func(Message) error) error

	// Follow calls fn, one call at a time, with each append that this process
	// hears of, headers only, at most once, possibly before the append's own
	// acknowledgement. It is for what others append: of this Store's own appends
	// news need not come. News may be lost, and after a reconnect news was lost:
	// fn is then called with a zero Message, as it is once when following has
	// begun. cancel ends it and waits for a running fn.
	Follow(fn func(Message)) (cancel func(), err error)

	// Trim removes the messages below `to` and never the last one. It changes
	// nothing in how sequences go on.
	Trim(ctx context.Context, to Seq) error
}
