package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// Op tells a hook what is being asked. Fields that do not belong to the
// operation are zero.
type Op struct {
	Name string     // the log's or table's name; the subject of a request
	Key  string     // table key
	Seq  pubsub.Seq // Append: prev; Read, Headers: from; Get: the sequence; Trim: to
	Rev  pubsub.Rev // Set: the expectation; Scan: until; TableRead: from, 0 for Bounds
	Size int        // bytes of data of a write
	// Delete marks a Set that writes a delete marker, and DeleteLog.
	Delete bool
}

// WriteFault says what happens to one write. The zero value is no fault. At
// most one of Err, Drop, LoseAck and Late is meant to be set.
type WriteFault struct {
	// Before delays the write on its way to the server: other writes overtake
	// it. A caller whose context ends meanwhile gets ErrOutcomeUnknown and the
	// write arrives all the same.
	Before time.Duration
	// Err is returned and nothing is stored: ErrUnavailable or ErrFull.
	Err error
	// Drop loses the write before it reaches the server: ErrOutcomeUnknown,
	// never stored.
	Drop bool
	// LoseAck lets the server do it (and perhaps refuse it) and loses the
	// answer: ErrOutcomeUnknown either way.
	LoseAck bool
	// Late gives the caller ErrOutcomeUnknown first; the write arrives that
	// long after it, and is then stored or refused like any other.
	Late time.Duration
	// After delays the answer.
	After time.Duration
}

// ReadFault says what happens to one read. The zero value is no fault.
type ReadFault struct {
	// Delay comes before the read.
	Delay time.Duration
	// Err is returned instead of an answer.
	Err error
	// Behind hides the newest messages, so many of them: a lagging replica in
	// Read, a leader that woke from a freeze in Get, Bounds and Headers.
	Behind uint64
	// Short breaks a Read off after so many messages, if > 0; Headers then
	// ends with ErrUnavailable.
	Short int
	// Deny makes Get (of a log or table) and FindLog say ErrNotFound, with
	// revision 0, whatever is there. Logs then puts all it found in missing.
	Deny bool
	// Old makes a table's Get answer with the key's previous value.
	Old bool
}

// Faults are a client's hooks, one per operation; nil means no fault. They are
// called without any lock held, from the goroutine of the operation, and must
// be safe for concurrent use.
type Faults struct {
	Append func(Op) WriteFault
	Set    func(Op) WriteFault
	Trim   func(Op) WriteFault
	// Create is asked by CreateLog and by Table, Delete by DeleteLog. An
	// outcome that is unknown comes back as ErrUnavailable from CreateLog.
	Create func(Op) WriteFault
	Delete func(Op) WriteFault
	// Request is asked on the requester's side: Drop means that it never
	// reaches a handler, LoseAck that the answer is lost; both wait for the
	// context to end, as a requester does.
	Request func(Op) WriteFault

	Read     func(Op) ReadFault
	Get      func(Op) ReadFault
	Bounds   func(Op) ReadFault
	Headers  func(Op) ReadFault
	TableGet func(Op) ReadFault
	// TableRead is asked by a table's Read and Bounds: Delay, Err, Behind, Short.
	TableRead func(Op) ReadFault
	// Scan is asked at the beginning of a Scan: Delay and Err count.
	Scan func(Op) ReadFault
	// Find is asked by FindLog and Logs.
	Find func(Op) ReadFault

	// News reports whether this client misses the news of an append.
	News func(log string, m pubsub.Message) (lost bool)
	// Watch is how much later changes of a table reach this client's scans and
	// watches.
	Watch func(table string) time.Duration
}

func writeFault(hook func(Op) WriteFault, op Op) WriteFault {
	if hook == nil {
		return WriteFault{}
	}
	return hook(op)
}

func readFault(hook func(Op) ReadFault, op Op) ReadFault {
	if hook == nil {
		return ReadFault{}
	}
	return hook(op)
}

// limited is what one read may bring: the caller's limits, or the store's own
// where it has none, cut short by the fault.
func (f ReadFault) limited(l pubsub.Limit) pubsub.Limit {
	if l.MaxBytes <= 0 {
		l.MaxBytes = 1 << 20
	}
	if l.MaxMessages <= 0 {
		l.MaxMessages = 1000
	}
	if f.Short > 0 {
		l.MaxMessages = min(l.MaxMessages, f.Short)
	}
	return l
}

// errClosed is what a closed client answers.
var errClosed = fmt.Errorf("client closed: %w", pubsub.ErrUnavailable)

// outcome is what the server did with a write.
type outcome struct {
	n   uint64
	err error
}

// write carries one write through the faults: do runs on the server's side,
// once or never, and must not block.
func (c *Client) write(ctx context.Context, f WriteFault, do func() (uint64, error)) (uint64, error) {
	if err := c.ready(ctx); err != nil {
		return 0, err
	}
	if f.Err == nil && !f.Drop && c.swallowed(func() { _, _ = do() }) {
		if err := c.heard(ctx); err != nil {
			return 0, unknown(err)
		}
		// It arrived with Rejoin; its answer did not come back.
		return 0, unknown(nil)
	}
	if f == (WriteFault{}) {
		n, err := do()
		if gerr := c.heard(ctx); gerr != nil {
			return 0, unknown(gerr)
		}
		return n, err
	}
	switch {
	case f.Err != nil:
		if err := c.sleep(ctx, f.Before); err != nil {
			return 0, unknown(err)
		}
		return 0, f.Err
	case f.Drop:
		if err := c.sleep(ctx, f.Before+f.After); err != nil {
			return 0, unknown(err)
		}
		return 0, unknown(nil)
	case f.Late > 0:
		err := c.sleep(ctx, f.Before+f.After)
		time.AfterFunc(f.Late, func() { _, _ = do() })
		return 0, unknown(err)
	}
	var o outcome
	if f.Before > 0 {
		done := make(chan outcome, 1)
		time.AfterFunc(f.Before, func() {
			n, err := do()
			done <- outcome{n, err}
		})
		select {
		case o = <-done:
		case <-ctx.Done():
			return 0, unknown(ctx.Err())
		case <-c.life():
			return 0, unknown(nil)
		}
	} else {
		o.n, o.err = do()
	}
	if err := c.sleep(ctx, f.After); err != nil || f.LoseAck {
		return 0, unknown(err)
	}
	if err := c.heard(ctx); err != nil {
		return 0, unknown(err)
	}
	return o.n, o.err
}

// read passes a read's delays and refusals; the read itself comes after it.
func (c *Client) read(ctx context.Context, f ReadFault) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	if f.Delay > 0 {
		if err := c.sleep(ctx, f.Delay); err != nil {
			return unavailable(err)
		}
		if err := c.ready(ctx); err != nil {
			return err
		}
	}
	if err := c.heard(ctx); err != nil {
		return unavailable(err)
	}
	return f.Err
}

// sleep waits unless the context ends or the connection breaks.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life():
		return errDisconnected
	}
}

var errDisconnected = errors.New("disconnected")

func unknown(cause error) error {
	if cause == nil {
		return pubsub.ErrOutcomeUnknown
	}
	return fmt.Errorf("%w: %w", pubsub.ErrOutcomeUnknown, cause)
}

func unavailable(cause error) error {
	return fmt.Errorf("%w: %w", pubsub.ErrUnavailable, cause)
}
