package protocol

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/utils/killpoint"
)

// call is one request on its way through a connection.
type call struct {
	request
	header serde.RequestHeader
	api    *api
	m      *apiMetrics
	rest   []byte // what follows the header's fixed part, until decoded
	began  time.Time
	// started is set once submit ran; then wait has the answer.
	started bool
	many    bool // it may name more than manyElements topics or partitions
	wait    func() (kmsg.Response, error)
	err     error // ends the connection when its turn comes
}

// manyElements is from where on a request carries what was asked of the store on
// its behalf: below, that costs more than asking.
const manyElements = 64

// context is for the API's function.
func (k *call) context() context.Context {
	if k.many {
		return topic.ForMany(k.conn.ctx)
	}
	return k.conn.ctx
}

// badRequest is a request that ends its connection. reason is a metric label.
type badRequest struct {
	reason string
	err    error
}

func (e *badRequest) Error() string { return "bad request: " + e.err.Error() }
func (e *badRequest) Unwrap() error { return e.err }

// parse reads what says how a request is to be treated. A fault is kept in the
// call, so that the answers before it still leave.
func (c *conn) parse(f *frame) *call {
	k := &call{began: time.Now()}
	k.conn, k.frame = c, f
	var err error
	if k.header, k.rest, err = serde.ParseRequestHeader(f.buf); err != nil {
		k.err = &badRequest{"header", err}
		return k
	}
	k.api = c.srv.handler.apis[k.header.Key]
	if k.api == nil {
		k.err = &badRequest{"api", fmt.Errorf("api key %d is not served", k.header.Key)}
		return k
	}
	k.m = c.srv.metrics.perAPI[k.header.Key]
	if v := k.header.Version; (v < k.api.min || v > k.api.max) && k.header.Key != keyAPIVersions {
		k.err = &badRequest{"version", fmt.Errorf("%s is not served in version %d", k.m.name, v)}
	}
	return k
}

// decode reads the rest of the header and the body.
func (k *call) decode() error {
	c := k.conn
	k.Request = kmsg.RequestForKey(k.header.Key)
	k.Request.SetVersion(k.header.Version)
	if k.header.Version < k.api.min || k.header.Version > k.api.max {
		return nil // ApiVersions answers without reading more
	}
	flexible := k.Request.IsFlexible()
	id, body, err := serde.ParseClientID(k.rest, flexible)
	if err != nil {
		return &badRequest{"header", err}
	}
	k.clientID = c.intern(id)
	trailing, elements, err := measure(shapes[k.header.Key], k.header.Version, flexible, body, c.srv.config.MaxElements)
	switch {
	case errors.Is(err, errElements):
		return &badRequest{"elements", fmt.Errorf("%s v%d: %w", k.m.name, k.header.Version, err)}
	case err != nil:
		return &badRequest{"body", fmt.Errorf("%s v%d: %w", k.m.name, k.header.Version, err)}
	case trailing > 0:
		c.srv.metrics.trailing.Inc()
	}
	k.many = elements > manyElements
	if !k.api.lends {
		// Somebody may keep a piece of it: the frame's buffer is used again.
		body = bytes.Clone(body)
	}
	if err := k.Request.ReadFrom(body); err != nil {
		return &badRequest{"body", fmt.Errorf("%s v%d: %w", k.m.name, k.header.Version, err)}
	}
	return nil
}

// intern gives a client id as a string; most requests of a connection carry the
// same one.
func (c *conn) intern(id []byte) string {
	if last := c.clientID.Load(); last != nil && *last == string(id) {
		return *last
	}
	s := string(id)
	c.clientID.Store(&s)
	return s
}

// letGo gives up the request's own hold of its frame, once.
func (k *call) letGo() {
	if k.frame != nil {
		k.frame.release()
		k.frame = nil
	}
}

// start submits a request whose API can overlap.
func (k *call) start() {
	k.started = true
	if k.err = k.decode(); k.err == nil {
		k.wait, k.err = k.api.submit(k.conn.srv.handler, k.context(), &k.request)
	}
	if k.err == nil {
		// What is still needed of it is held by those who do: the bytes of a
		// batch that was refused go before its answer does.
		k.letGo()
	}
}

// result is the answer to the oldest request.
func (c *conn) result(k *call) (kmsg.Response, error) {
	if !k.started && k.err == nil {
		if k.err = k.decode(); k.err == nil {
			var resp kmsg.Response
			if k.api.large {
				if k.err = c.srv.handler.answers.enter(c.cut()); k.err != nil {
					return nil, k.err
				}
				c.building = true
			}
			if resp, k.err = k.api.serve(c.srv.handler, k.context(), &k.request); k.err == nil {
				c.served()
				return resp, nil
			}
		}
	}
	if k.err != nil {
		return nil, k.err
	}
	return k.wait()
}

// answerAll is the answerer's loop.
func (c *conn) answerAll() {
	defer c.caught()
	for {
		if len(c.out) > 0 && !c.nextReady() {
			if err := c.flush(); err != nil {
				c.ends(nil, err)
				return
			}
		}
		k := c.next()
		if k == nil {
			return
		}
		resp, err := c.result(k)
		if err != nil {
			_ = c.flush() // the answers before it
			c.ends(k, err)
			return
		}
		k.observe(resp)
		if resp != nil {
			if err := c.write(k, resp); err != nil {
				c.ends(k, err)
				return
			}
		}
		c.activeAt.Store(c.srv.tick.Load())
		c.pop()
	}
}

// built ends the making of a large answer.
func (c *conn) built() {
	if c.building {
		c.building = false
		c.srv.handler.answers.leave()
	}
}

// uncount gives back what the answers in out have counted.
func (c *conn) uncount() {
	if c.counted > 0 {
		c.srv.handler.answers.add(-c.counted)
		c.counted = 0
	}
}

// maxJoined is how many bytes of answers are gathered before they are written.
const maxJoined = 32 << 10

// nextReady reports whether the next answer is there already and small.
func (c *conn) nextReady() bool {
	if len(c.out) >= maxJoined {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return false
	}
	k := c.queue[0]
	return k.started && k.err == nil && k.ready != nil && k.ready()
}

// observe counts and logs one answered request.
func (k *call) observe(resp kmsg.Response) {
	took := time.Since(k.began)
	var code int16
	if resp != nil {
		code = firstError(resp)
	}
	k.m.answered(code, took)
	if log := k.conn.srv.log; log.Enabled(k.conn.ctx, slog.LevelDebug) {
		log.LogAttrs(context.Background(), slog.LevelDebug, "request",
			slog.Uint64(logging.ConnID, k.conn.id), slog.String(logging.API, k.m.name), slog.Int("version", int(k.header.Version)),
			slog.Int(logging.CorrID, int(k.header.CorrelationID)), slog.String(logging.ClientID, cut(k.clientID)),
			slog.Duration("took", took), slog.String(logging.Error, errorName(code)))
	}
}

// cut keeps what a client chose short in logs.
func cut(s string) string { return s[:min(len(s), 64)] }

// ends closes the connection for a request's or a write's error.
func (c *conn) ends(k *call, err error) {
	var bad *badRequest
	switch {
	case errors.As(err, &bad):
		c.srv.metrics.bad.WithLabelValues(bad.reason).Inc()
		c.log(slog.LevelWarn, "connection closed", slog.Any(logging.Error, err), slog.String(logging.ClientID, cut(k.clientID)))
		c.close("bad request")
	case c.ctx.Err() != nil, errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF):
		c.close("")
	default:
		c.log(slog.LevelDebug, "connection closed", slog.Any(logging.Error, err))
		c.close("error")
	}
}

// write encodes an answer behind those not written yet. Small ones stay there
// for flush.
func (c *conn) write(k *call, resp kmsg.Response) error {
	start := len(c.out)
	b := append(c.out, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(k.header.CorrelationID))
	// ApiVersions has no tag section in any version's header (KIP-511): its
	// reader does not know yet what we speak.
	if resp.IsFlexible() && resp.Key() != keyAPIVersions {
		b = append(b, 0)
	}
	if f, ok := resp.(*fetchResponse); ok {
		defer f.release()
		pieces, buf := f.encode(b, start)
		err := c.send(pieces)
		if c.out = buf[:0]; cap(buf) > 2*maxJoined {
			c.out = nil
		}
		return err
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	c.out = b
	if n := int64(len(b) - start); n > maxJoined {
		c.counted += n
		c.srv.handler.answers.add(n)
	}
	c.built()
	return nil
}

// flush writes the gathered answers.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	err := c.send(net.Buffers{c.out})
	killpoint.At("answer.sent")
	c.uncount()
	if c.out = c.out[:0]; cap(c.out) > 2*maxJoined {
		c.out = nil
	}
	return err
}

// writeStep is what a client must take within the write timeout.
const writeStep = 256 << 10

// send writes all of bufs, a step at a time: each step that a slow client takes
// is progress.
func (c *conn) send(bufs net.Buffers) error {
	defer c.writeAt.Store(0)
	var step net.Buffers
	for len(bufs) > 0 {
		step = step[:0]
		for n := 0; n < writeStep && len(bufs) > 0; {
			b := bufs[0]
			if len(b) > writeStep-n {
				b, bufs[0] = b[:writeStep-n], b[writeStep-n:]
			} else {
				bufs = bufs[1:]
			}
			n += len(b)
			step = append(step, b)
		}
		c.writeAt.Store(c.srv.tick.Load())
		if len(step) == 1 {
			if _, err := c.nc.Write(step[0]); err != nil {
				return fmt.Errorf("write an answer: %w", err)
			}
			continue
		}
		w := step // WriteTo consumes it
		if _, err := w.WriteTo(c.nc); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
	return nil
}
