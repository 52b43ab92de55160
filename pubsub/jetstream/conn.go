package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/utils/killpoint"
)

// conn is one connection with its pool of reply slots.
type conn struct {
	nc *nats.Conn
	// batched reports whether the server now connected answers batched Direct
	// Gets (2.11); it may change with a reconnect.
	batched atomic.Bool
	// bypass takes messages past nats.go; nil on connections that do not read.
	bypass *bypass
	// budget bounds the bytes asked for and not yet received.
	budget *budget

	mu   sync.Mutex // guards: lost, free, wide
	lost chan struct{}
	free []*slot // for one answer each
	wide []*slot // for batched reads
}

// slot is a subscription whose messages nats.go's read loop puts straight into
// the channel of the one goroutine that holds the slot. Answers carry a number
// in their subject, so that a late answer to an earlier request is recognised.
type slot struct {
	c      *conn
	sub    *nats.Subscription
	prefix string
	ch     chan *nats.Msg
	n      uint64
	timer  *time.Timer
}

const (
	// slotDepth leaves room for late answers and for those of strangers who
	// answer on the subject too: nats.go drops what does not fit.
	slotDepth = 128
	// wideDepth is the capacity for batched reads: all messages of a read and
	// its end marker, with room for a few strays.
	wideDepth = maxBatch + 24
)

func newConn(readBudget int) *conn {
	return &conn{lost: make(chan struct{}), budget: newBudget(readBudget)}
}

// received is the number of bytes of messages that came.
func (c *conn) received() uint64 {
	n := c.nc.Stats().InBytes
	if c.bypass != nil {
		n += c.bypass.received.Load()
	}
	return n
}

// down is called when the connection is lost or closed: whoever waits for an
// answer will not get one.
func (c *conn) down() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.lost)
	c.lost = make(chan struct{})
}

// lostCh is closed at the next loss of the connection. Take it before sending.
func (c *conn) lostCh() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func (c *conn) newSlot(depth int) (*slot, error) {
	s := &slot{c: c, prefix: c.nc.NewInbox() + ".", ch: make(chan *nats.Msg, depth)}
	sub, err := c.nc.ChanSubscribe(s.prefix+"*", s.ch)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	s.sub = sub
	s.timer = time.NewTimer(time.Hour)
	s.timer.Stop()
	if c.bypass != nil {
		c.bypass.add(s.prefix, s.ch)
	}
	return s, nil
}

// drop ends a slot.
func (s *slot) drop() {
	s.timer.Stop()
	if s.c.bypass != nil {
		s.c.bypass.remove(s.prefix)
	}
	_ = s.sub.Unsubscribe() // fails only on a closed connection
}

// take pops a slot of the pool or makes one, and empties it of late answers.
func (c *conn) take(pool *[]*slot, depth int) (*slot, <-chan struct{}, error) {
	c.mu.Lock()
	lost := c.lost
	var s *slot
	if n := len(*pool); n > 0 {
		s = (*pool)[n-1]
		*pool = (*pool)[:n-1]
	}
	c.mu.Unlock()
	if s == nil {
		var err error
		if s, err = c.newSlot(depth); err != nil {
			return nil, nil, err
		}
	}
	for {
		select {
		case <-s.ch:
			continue
		default:
		}
		return s, lost, nil
	}
}

func (c *conn) put(pool *[]*slot, s *slot) {
	s.timer.Stop()
	c.mu.Lock()
	*pool = append(*pool, s)
	c.mu.Unlock()
}

// reply starts a new request on the slot and returns its reply subject.
func (s *slot) reply() string {
	s.n++
	return s.prefix + strconv.FormatUint(s.n, 10)
}

// send publishes. Its error says whether anything can have left.
func (c *conn) send(m *nats.Msg) error {
	err := c.nc.PublishMsg(m)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrConnectionDraining),
		errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrHeadersNotSupported), errors.Is(err, nats.ErrInvalidConnection):
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	// A failed write: the server may have got all of it.
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// call sends one request and waits for its answer: the first message for which
// accept (if set) is true. Errors: errNotSent, errNoAnswer, errNoResponders.
func (c *conn) call(ctx context.Context, m *nats.Msg, timeout time.Duration, accept func(*nats.Msg) bool) (*nats.Msg, error) {
	return c.callAgain(ctx, m, timeout, timeout, accept)
}

// callAgain is call for requests that change nothing: they are sent again after
// each silence of every.
func (c *conn) callAgain(ctx context.Context, m *nats.Msg, timeout, every time.Duration, accept func(*nats.Msg) bool) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	s, lost, err := c.take(&c.free, slotDepth)
	if err != nil {
		return nil, err
	}
	defer c.put(&c.free, s)
	m.Reply = s.reply()
	killpoint.AtKey("request.sending", m.Subject)
	if err := c.send(m); err != nil {
		return nil, err
	}
	killpoint.AtKey("request.sent", m.Subject)
	left := timeout
	s.timer.Reset(min(every, left))
	for {
		select {
		case a := <-s.ch:
			if ok, err := answers(a, m.Reply, accept); ok {
				return a, err
			}
		case <-lost:
			// The answer may have come just before the loss.
			for {
				select {
				case a := <-s.ch:
					if ok, err := answers(a, m.Reply, accept); ok {
						return a, err
					}
					continue
				default:
				}
				return nil, fmt.Errorf("%w: connection lost", errNoAnswer)
			}
		case <-s.timer.C:
			if left -= every; left <= 0 {
				return nil, fmt.Errorf("%w within %v", errNoAnswer, timeout)
			}
			s.timer.Reset(min(every, left))
			if err := c.send(m); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		}
	}
}

func answers(a *nats.Msg, reply string, accept func(*nats.Msg) bool) (bool, error) {
	if a.Subject != reply {
		return false, nil
	}
	if isNoResponders(a) {
		return true, errNoResponders
	}
	return accept == nil || accept(a), nil
}

func isNoResponders(m *nats.Msg) bool { return len(m.Data) == 0 && status(m) == "503" }

// status is the NATS status of a message without content, "" for a message that
// was stored: a plain publisher may have given it a header of the same name.
func status(m *nats.Msg) string {
	if m.Header == nil || len(m.Header[hdrSequence]) > 0 {
		return ""
	}
	return m.Header.Get("Status")
}
