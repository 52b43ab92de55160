package protocol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/utils/killpoint"
)

// conn is one client connection: a queue of requests with a goroutine at each
// end.
//
// The reader cuts frames and starts what may overlap (Produce) at once, as long
// as everything before it was started too: from socket to partition there is no
// hand-off. All else it leaves to the answerer, which takes the requests in
// order: waits for those that were started, serves the others, and writes each
// answer before the next. So answers leave in request order, a request that is
// not a Produce is handled when all answers before it are ready, and at most
// MaxInflight requests are read ahead.
type conn struct {
	id       uint64
	listener string // name of the listener it came in by
	host     string // peer address without port; DescribeGroups shows "/"+host
	local    string // the address of ours that the client has reached, without port
	// softwareName and softwareVersion are what ApiVersions (v3+) announced,
	// else "". Read and written only while a request of this connection is
	// being handled.
	softwareName, softwareVersion string
	// gone is closed when no more requests come, because the client or the
	// server ended the connection: nobody waits for records any more.
	gone chan struct{}

	srv    *Server
	nc     net.Conn
	frames *serde.FrameReader
	ctx    context.Context // of its requests
	cancel context.CancelFunc
	once   sync.Once // for close
	closed atomic.Bool

	clientID atomic.Pointer[string] // the last one
	draining atomic.Bool

	// What the watch looks at: times of the server's coarse clock, 0 for "not
	// now".
	frameAt  atomic.Int64 // a frame began to arrive
	received atomic.Int64 // bytes since then
	writeAt  atomic.Int64 // a write made its last progress
	activeAt atomic.Int64 // the last request was read or answered

	mu      sync.Mutex // guards: queue, blocked, ended
	queue   []*call    // read and not yet answered, oldest first
	blocked int        // of queue, those that are neither started nor served
	ended   bool       // nothing more comes
	more    chan struct{}
	room    chan struct{}

	out     []byte // answers not written yet; the answerer's
	counted int64  // bytes of them among the server's answers
	// building is set while a large answer is being made; the answerer's.
	building bool
}

func newConn(s *Server, nc net.Conn, id uint64, host string) *conn {
	c := &conn{
		id: id, listener: s.config.Listener, host: host, local: hostOf(nc.LocalAddr()), gone: make(chan struct{}), srv: s, nc: nc,
		more: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	c.activeAt.Store(s.tick.Load())
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.frames = serde.NewFrameReader(wire{c}, s.config.MaxRequestBytes)
	tuneSocket(nc, 2*s.config.WriteTimeout)
	return c
}

// run serves the connection until it ends.
func (c *conn) run() {
	defer c.srv.gone(c)
	var reader sync.WaitGroup
	reader.Go(c.read)
	c.answerAll()
	c.built()
	c.uncount()
	if c.draining.Load() && !c.closed.Load() {
		c.linger()
	}
	c.close("")
	reader.Wait()
	c.mu.Lock()
	left := c.queue
	c.queue = nil
	c.mu.Unlock()
	for _, k := range left {
		k.letGo()
	}
}

// close cuts the connection. reason is the server's, "" if it is the client's.
func (c *conn) close(reason string) {
	c.once.Do(func() {
		c.closed.Store(true)
		if reason != "" {
			c.srv.metrics.closed.WithLabelValues(reason).Inc()
			c.log(closeLevel(reason), "connection closed", slog.String("reason", reason))
		}
		c.cancel()
		_ = c.nc.Close()
	})
}

// closeLevel is how loud an end is: what was logged already, or happens to any
// good client, is not.
func closeLevel(reason string) slog.Level {
	switch reason {
	case "frame.timeout", "write.timeout", limitFetchHeld:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// cut is closed when the connection is cut; left when no more requests come.
// Both are nil on a conn that was made for a test.
func (c *conn) cut() <-chan struct{} {
	if c.ctx == nil {
		return nil
	}
	return c.ctx.Done()
}

func (c *conn) left() <-chan struct{} { return c.gone }

// drain lets the requests that were read be answered, and no others.
func (c *conn) drain() {
	c.draining.Store(true)
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

// linger lets the last answer reach a client that has sent more than was read:
// closing at once would reset the connection and could take the answer with it.
func (c *conn) linger() {
	t, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || t.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, c.nc, 64<<20)
}

// check closes the connection if it is beyond one of its time limits.
func (c *conn) check(now int64) {
	cfg := &c.srv.config
	if at := c.writeAt.Load(); at != 0 && now-at > int64(cfg.WriteTimeout) {
		c.close("write.timeout")
	}
	if at := c.frameAt.Load(); at != 0 {
		took := time.Duration(now - at)
		if took > cfg.FrameTimeout && float64(c.received.Load()) < took.Seconds()*float64(cfg.FrameMinRate) {
			c.close("frame.timeout")
		}
		return
	}
	if now-c.activeAt.Load() > int64(cfg.IdleTimeout) {
		c.mu.Lock()
		busy := len(c.queue) > 0
		c.mu.Unlock()
		if !busy {
			c.close("connections.max.idle.ms")
		}
	}
}

// log writes one line with the connection's attributes.
func (c *conn) log(level slog.Level, msg string, attrs ...slog.Attr) {
	if c.srv.log.Enabled(c.srv.ctx, level) {
		attrs = append(attrs, slog.Uint64(logging.ConnID, c.id), slog.String("peer", c.host))
		c.srv.log.LogAttrs(context.Background(), level, msg, attrs...)
	}
}

// caught turns a panic into a closed connection.
func (c *conn) caught() {
	if p := recover(); p != nil {
		c.srv.metrics.panics.Inc()
		c.log(slog.LevelError, "panic in a connection", slog.String(logging.Error, fmt.Sprintf("%T: %.200v", p, p)), slog.String("stack", string(debug.Stack())))
		c.close("panic")
	}
}

// wire is the connection's socket as the frame reader sees it: it notes what
// arrives.
type wire struct{ c *conn }

func (w wire) Read(p []byte) (int, error) {
	n, err := w.c.nc.Read(p)
	if n > 0 {
		w.c.received.Add(int64(n))
		if w.c.frameAt.Load() == 0 {
			w.c.frameAt.Store(w.c.srv.tick.Load())
		}
	}
	return n, err
}

// read is the reader's loop.
func (c *conn) read() {
	defer c.end()
	defer c.caught()
	h := &hold{}
	waiting := func(on bool) {
		// Our own lack of memory is not the client's slowness.
		at := c.srv.tick.Load()
		if on {
			at = 0
			c.srv.handler.limits.hit(limitQueued)
		}
		c.received.Store(0)
		c.frameAt.Store(at)
	}
	take := func(n int) error { return c.srv.budget.take(h, int64(n), c.ctx.Done(), waiting) }
	for {
		n, err := c.frames.Length()
		if err != nil {
			c.readFailed(err)
			return
		}
		f := newFrame(c.srv, n)
		h = &f.hold
		h.whole = int64(n)
		f.buf, err = c.frames.Body(f.buf, n, take)
		if err != nil {
			f.release()
			c.readFailed(err)
			return
		}
		killpoint.At("frame.read")
		c.srv.budget.completed(h)
		now := c.srv.tick.Load()
		c.received.Store(int64(c.frames.Buffered()))
		if c.frames.Buffered() == 0 {
			c.frameAt.Store(0)
		} else {
			c.frameAt.Store(now)
		}
		c.activeAt.Store(now)
		k := c.parse(f)
		if !c.push(k) {
			return
		}
	}
}

// readFailed tells the log why nothing more is read.
func (c *conn) readFailed(err error) {
	var le *serde.LengthError
	switch {
	case c.draining.Load():
	case errors.As(err, &le):
		c.srv.metrics.bad.WithLabelValues("length").Inc()
		c.log(slog.LevelWarn, "connection closed: no Kafka request", slog.Any(logging.Error, err))
		c.close("length")
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
	default:
		c.log(slog.LevelDebug, "connection lost", slog.Any(logging.Error, err))
	}
}

// end says that nothing more comes. Requests that were read are still handled,
// as their client may have sent its last words and left; those that wait for
// others (JoinGroup) get a short time.
func (c *conn) end() {
	close(c.gone)
	c.mu.Lock()
	c.ended = true
	busy := len(c.queue) > 0
	c.mu.Unlock()
	signal(c.more)
	if busy && !c.draining.Load() {
		t := time.NewTimer(c.srv.config.GoneGrace)
		defer t.Stop()
		select {
		case <-t.C:
			c.cancel()
		case <-c.ctx.Done():
		}
	}
}

// push queues a request, started if it may be, and reports whether to go on
// reading. It blocks while MaxInflight requests are queued.
func (c *conn) push(k *call) bool {
	queued := false
	defer func() {
		if !queued { // cut, or a panic in start: a partition may have it for ever
			c.srv.budget.give(&k.frame.hold)
			k.frame.release()
		}
	}()
	c.mu.Lock()
	if len(c.queue) >= c.srv.config.MaxInflight {
		c.srv.handler.limits.hit(limitInflight)
	}
	for len(c.queue) >= c.srv.config.MaxInflight {
		c.mu.Unlock()
		select {
		case <-c.room:
		case <-c.ctx.Done():
			return false
		}
		c.mu.Lock()
	}
	direct := k.err == nil && k.api.submit != nil && c.blocked == 0
	if direct {
		// Nothing before it waits to be started, and only this goroutine adds:
		// the order holds without the lock.
		c.mu.Unlock()
		k.start()
		c.mu.Lock()
	} else {
		c.blocked++
	}
	more := k.err == nil // from here on the call is the answerer's
	c.queue = append(c.queue, k)
	queued = true
	c.mu.Unlock()
	signal(c.more)
	return more
}

// next is the oldest unanswered request, nil at the end.
func (c *conn) next() *call {
	for {
		c.mu.Lock()
		switch {
		case len(c.queue) > 0:
			k := c.queue[0]
			c.mu.Unlock()
			return k
		case c.ended:
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		<-c.more // the reader always signals its end
	}
}

// served says that the oldest request, which the reader did not start, is done,
// and starts what directly follows it and may overlap.
func (c *conn) served() {
	c.mu.Lock()
	c.blocked--
	for i := 1; i < len(c.queue); i++ {
		k := c.queue[i]
		if k.err != nil || k.api.submit == nil {
			break
		}
		if k.started {
			continue // by the reader, when blocked was 0
		}
		// blocked stays above 0 meanwhile, so the reader starts nothing.
		c.mu.Unlock()
		k.start()
		c.mu.Lock()
		c.blocked--
	}
	c.mu.Unlock()
}

// pop removes the oldest request.
func (c *conn) pop() {
	c.mu.Lock()
	k := c.queue[0]
	c.queue[0] = nil
	if c.queue = c.queue[1:]; len(c.queue) == 0 {
		c.queue = nil
	}
	c.mu.Unlock()
	signal(c.room)
	k.letGo()
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
