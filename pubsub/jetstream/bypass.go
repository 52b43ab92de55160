package jetstream

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// bypass takes the messages of reads out of what the server sends before
// nats.go's parser sees them. That parser reads 32 KiB at a time, clears memory
// for each message and copies it there, a third of what reading costs; here a
// message is read once, into the memory that the reader gets. All else is passed
// on as it is: nats.go keeps the connection, logs in, subscribes, pings and
// reconnects, and what is not recognised arrives through it, in order, at the
// same channel. On connections that are encrypted everything is passed on.
//
// One bypass belongs to a conn and outlives its reconnects.
type bypass struct {
	// received counts bytes of messages that nats.go did not see.
	received atomic.Uint64

	mu sync.RWMutex // guards: to
	// to has the channel of a slot by the prefix of its reply subjects, and by
	// the name of the consumer that delivers to it.
	to map[string]chan<- *nats.Msg
}

func newBypass() *bypass { return &bypass{to: map[string]chan<- *nats.Msg{}} }

func (b *bypass) add(key string, ch chan<- *nats.Msg) {
	b.mu.Lock()
	b.to[key] = ch
	b.mu.Unlock()
}

func (b *bypass) remove(key string) {
	b.mu.Lock()
	delete(b.to, key)
	b.mu.Unlock()
}

// find returns the channel that wants a message, nil for none.
func (b *bypass) find(subject, reply []byte) chan<- *nats.Msg {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if i := bytes.LastIndexByte(subject, '.'); i >= 0 {
		if ch := b.to[string(subject[:i+1])]; ch != nil {
			return ch
		}
	}
	if rest, ok := bytes.CutPrefix(reply, []byte("$JS.ACK.")); ok {
		if ch := b.to[string(consumerOf(rest))]; ch != nil {
			return ch
		}
	}
	return nil
}

// consumerOf is the consumer's name in a reply subject after $JS.ACK, see
// parsePosition.
func consumerOf(rest []byte) []byte {
	at := 1
	if bytes.Count(rest, []byte{'.'}) > 6 {
		at = 3
	}
	for range at {
		_, rest, _ = bytes.Cut(rest, []byte{'.'})
	}
	name, _, _ := bytes.Cut(rest, []byte{'.'})
	return name
}

// inProcess and dialer are how nats.go gets connections.
type inProcess struct {
	nats.InProcessConnProvider
	b *bypass
}

func (p inProcess) InProcessConn() (net.Conn, error) {
	c, err := p.InProcessConnProvider.InProcessConn()
	if err != nil {
		return nil, err
	}
	return p.b.wrap(c), nil
}

// dialer dials as nats.go does by itself.
type dialer struct {
	net.Dialer
	b *bypass
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.Dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return d.b.wrap(c), nil
}

func (b *bypass) wrap(c net.Conn) net.Conn {
	return &bypassConn{Conn: c, b: b, buf: make([]byte, bypassBuffer)}
}

const (
	// bypassBuffer holds at least one line of the protocol but for INFO.
	bypassBuffer = 16 << 10
	// bypassMax is the largest message taken; nats.go knows what to do about
	// larger ones.
	bypassMax = 80 << 20
)

// bypassConn is one connection. Read and Write may be called at the same time,
// each by one goroutine.
type bypassConn struct {
	net.Conn
	b *bypass

	// clear: the first thing we said was readable, so that the server speaks
	// its protocol and not TLS or websocket frames.
	clear atomic.Bool
	said  bool

	buf  []byte
	r, w int
	pass int   // bytes to pass on before the next line begins
	line bool  // … and until the end of the line that has begun
	off  bool  // pass on all
	err  error // of the connection, for the next Read
}

// Write implements net.Conn.
func (c *bypassConn) Write(p []byte) (int, error) {
	if !c.said && len(p) > 0 {
		c.said = true
		c.clear.Store(bytes.HasPrefix(p, []byte("CONNECT ")))
	}
	return c.Conn.Write(p)
}

// Read implements net.Conn: what is to be passed on.
func (c *bypassConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !c.clear.Load() {
		n, err := c.Conn.Read(p)
		if n == 0 || !c.clear.Load() {
			return n, err
		}
		// The server's answer to our first words.
		if n > len(c.buf) {
			c.buf = make([]byte, n)
		}
		c.w = copy(c.buf, p[:n])
		c.err = err
	}
	n := 0
	for n < len(p) {
		switch {
		case c.off || c.pass > 0:
			if c.r == c.w {
				if n > 0 {
					return n, nil
				}
				want := len(p)
				if !c.off {
					want = min(want, c.pass)
				}
				k, err := c.read(p[:want])
				if !c.off {
					c.pass -= k
				}
				return k, err
			}
			k := c.w - c.r
			if !c.off {
				k = min(k, c.pass)
			}
			k = copy(p[n:], c.buf[c.r:c.r+k])
			c.r += k
			n += k
			if !c.off {
				c.pass -= k
			}
			continue
		}
		i := bytes.IndexByte(c.buf[c.r:c.w], '\n')
		if i < 0 {
			if c.line || c.w-c.r == len(c.buf) {
				// Part of a line longer than the buffer. What follows a message's
				// line is not ours to read.
				c.off = c.off || !c.line && isMsg(c.buf[c.r:c.w])
				c.pass, c.line = c.w-c.r, true
				if c.pass > 0 {
					continue
				}
			}
			if n > 0 {
				return n, nil
			}
			if err := c.fill(); err != nil {
				return 0, err
			}
			continue
		}
		if c.line {
			c.pass, c.line = i+1, false
			continue
		}
		if err := c.op(c.buf[c.r : c.r+i+1]); err != nil {
			c.err = err
			if n > 0 {
				return n, nil
			}
			return 0, err
		}
	}
	return n, nil
}

// read reads from the connection, after an earlier error that error.
func (c *bypassConn) read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(p)
}

// fill reads more into the buffer. If the connection ends what is left of it is
// passed on first.
func (c *bypassConn) fill() error {
	if c.r > 0 {
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	n, err := c.read(c.buf[c.w:])
	c.w += n
	if err != nil && !isTimeout(err) {
		c.err = err
		if c.w > 0 {
			c.off = true
			return nil
		}
	}
	if n > 0 {
		return nil
	}
	return err
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// op handles one line, which is at the beginning of what is buffered.
func (c *bypassConn) op(line []byte) error {
	if !isMsg(line) {
		c.pass = len(line)
		return nil
	}
	m, ok := parseMsg(line)
	if !ok || m.total > bypassMax || m.header > m.total {
		c.off = true // where the next line begins is not known, or far away
		return nil
	}
	ch := c.b.find(m.subject, m.reply)
	if ch == nil {
		c.pass = len(line) + m.total + 2
		return nil
	}
	msg := &nats.Msg{Subject: string(m.subject), Reply: string(m.reply)}
	c.r += len(line)
	head := make([]byte, m.header)
	data := frame(m.total - m.header)
	for _, b := range [][]byte{head, data} {
		n := copy(b, c.buf[c.r:c.w])
		c.r += n
		if _, err := io.ReadFull(readerFunc(c.read), b[n:]); err != nil {
			return err
		}
	}
	for c.w-c.r < 2 {
		if err := c.fill(); err != nil {
			return err
		}
		if c.off {
			return c.err
		}
	}
	c.r += 2
	c.b.received.Add(uint64(m.total))
	if m.header > 0 {
		// A header that cannot be read is passed on as none, as nats.go does.
		msg.Header, _ = nats.DecodeHeadersMsg(head)
	}
	msg.Data = data
	select {
	case ch <- msg:
	default: // as nats.go does; the reader notices what is missing
	}
	return nil
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// msgLine is a parsed line MSG or HMSG.
type msgLine struct {
	subject, reply []byte
	header, total  int
}

func isMsg(line []byte) bool {
	return bytes.HasPrefix(line, []byte("MSG ")) || bytes.HasPrefix(line, []byte("HMSG "))
}

// parseMsg parses "MSG subject sid [reply] total" and "HMSG subject sid [reply]
// header total".
func parseMsg(line []byte) (m msgLine, ok bool) {
	want := 3
	switch {
	case bytes.HasPrefix(line, []byte("MSG ")):
	case bytes.HasPrefix(line, []byte("HMSG ")):
		want = 4
	default:
		return m, false
	}
	var args [5][]byte
	n := 0
	_, rest, _ := bytes.Cut(line, []byte{' '})
	rest = bytes.TrimRight(rest, "\r\n")
	for len(rest) > 0 {
		var arg []byte
		if i := bytes.IndexAny(rest, " \t"); i >= 0 {
			arg, rest = rest[:i], rest[i+1:]
		} else {
			arg, rest = rest, nil
		}
		if len(arg) == 0 {
			continue
		}
		if n == len(args) {
			return m, false
		}
		args[n] = arg
		n++
	}
	if n != want && n != want+1 {
		return m, false
	}
	m.subject = args[0]
	if n == want+1 {
		m.reply = args[2]
	}
	if m.total, ok = number(args[n-1]); ok && want == 4 {
		m.header, ok = number(args[n-2])
	}
	return m, ok
}

func number(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

var (
	_ nats.CustomDialer          = (*dialer)(nil)
	_ nats.InProcessConnProvider = inProcess{}
)
