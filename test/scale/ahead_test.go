package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// pipeline publishes to streams without waiting for each acknowledgement, and
// checks every one.
type pipeline struct {
	nc    *nats.Conn
	inbox string
	slots chan struct{} // one per message in flight

	mu   sync.Mutex // guards: logs, err, and the counts of the logs
	cond *sync.Cond // an acknowledgement came
	logs []*ahead
	err  error // the first failure
}

// inFlight bounds the messages without acknowledgement.
const inFlight = 4096

// natsConn connects to NATS until the end of the test.
func natsConn(t *testing.T, url, name string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.Name(name), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() {
		nc.Close()
		<-closed
	})
	return nc
}

func newPipeline(t *testing.T, url string) *pipeline {
	t.Helper()
	nc := natsConn(t, url, "scale")
	p := &pipeline{nc: nc, inbox: nc.NewInbox(), slots: make(chan struct{}, inFlight)}
	p.cond = sync.NewCond(&p.mu)
	sub, err := nc.Subscribe(p.inbox+".*", p.acknowledged)
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pipeline) acknowledged(m *nats.Msg) {
	<-p.slots
	var ack struct {
		Stream string
		Seq    uint64
		Error  *struct{ Description string }
	}
	err := json.Unmarshal(m.Data, &ack)
	n, _ := strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.logs[n]
	switch {
	case p.err != nil:
	case err != nil:
		p.err = fmt.Errorf("acknowledgement %q: %w", m.Data, err)
	case ack.Error != nil:
		p.err = fmt.Errorf("append to %s: %s", l.Name(), ack.Error.Description)
	case ack.Stream != l.Name() || pubsub.Seq(ack.Seq) != l.stored+1:
		p.err = fmt.Errorf("append %d to %s was stored in %s at %d", l.stored+1, l.Name(), ack.Stream, ack.Seq)
	}
	l.stored++
	p.cond.Broadcast()
}

// ahead is a log whose Append answers before the message is stored: it goes out
// at once with the expectation that it directly follows the last one, so what is
// stored in the end is what waiting would have stored. Everything else first
// waits for what is in flight. One wrong acknowledgement fails all that follows.
type ahead struct {
	pubsub.Log
	p       *pipeline
	subject string
	reply   string

	sent   pubsub.Seq // by Append, which is called one at a time
	stored pubsub.Seq // guarded by p.mu
}

// log makes one that goes on after the message last.
func (p *pipeline) log(l pubsub.Log, subject string, last pubsub.Seq) *ahead {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &ahead{Log: l, p: p, subject: subject, reply: p.inbox + "." + strconv.Itoa(len(p.logs)), sent: last, stored: last}
	p.logs = append(p.logs, a)
	return a
}

// Append implements pubsub.Log.
func (a *ahead) Append(_ context.Context, prev pubsub.Seq, e pubsub.Entry) (pubsub.Seq, error) {
	a.p.mu.Lock()
	err, sent := a.p.err, a.sent
	a.p.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", pubsub.ErrUnavailable, err)
	}
	if prev != sent {
		return 0, pubsub.ErrConflict
	}
	h := make(nats.Header, len(e.Header)+2)
	for k, v := range e.Header {
		h[k] = v
	}
	h["Nats-Expected-Last-Sequence"] = []string{strconv.FormatUint(uint64(prev), 10)}
	h["Nats-Expected-Stream"] = []string{a.Name()}
	a.p.slots <- struct{}{}
	if err := a.p.nc.PublishMsg(&nats.Msg{Subject: a.subject, Reply: a.reply, Header: h, Data: e.Data}); err != nil {
		return 0, fmt.Errorf("%w: %w", pubsub.ErrOutcomeUnknown, err)
	}
	a.p.mu.Lock()
	a.sent++
	a.p.mu.Unlock()
	return prev + 1, nil
}

// flush waits until everything is stored.
func (a *ahead) flush(ctx context.Context) error {
	defer context.AfterFunc(ctx, a.p.cond.Broadcast)()
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	for a.stored < a.sent && a.p.err == nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", pubsub.ErrUnavailable, ctx.Err())
		}
		a.p.cond.Wait()
	}
	return a.p.err
}

// Bounds implements pubsub.Log.
func (a *ahead) Bounds(ctx context.Context) (pubsub.Bounds, error) {
	if err := a.flush(ctx); err != nil {
		return pubsub.Bounds{}, err
	}
	return a.Log.Bounds(ctx)
}

// Get implements pubsub.Log.
func (a *ahead) Get(ctx context.Context, seq pubsub.Seq) (pubsub.Message, error) {
	if err := a.flush(ctx); err != nil {
		return pubsub.Message{}, err
	}
	return a.Log.Get(ctx, seq)
}

// Headers implements pubsub.Log.
func (a *ahead) Headers(ctx context.Context, from, to pubsub.Seq, fn func(pubsub.Message) error) error {
	if err := a.flush(ctx); err != nil {
		return err
	}
	return a.Log.Headers(ctx, from, to, fn)
}

// Read implements pubsub.Log.
func (a *ahead) Read(ctx context.Context, from pubsub.Seq, limit pubsub.Limit) ([]pubsub.Message, error) {
	if err := a.flush(ctx); err != nil {
		return nil, err
	}
	return a.Log.Read(ctx, from, limit)
}

// flushAll waits until everything of all logs is stored.
func (p *pipeline) flushAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	p.mu.Lock()
	logs := p.logs
	p.mu.Unlock()
	var errs []error
	for _, l := range logs {
		errs = append(errs, l.flush(ctx))
	}
	return errors.Join(errs...)
}
