package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// MaxCall is the largest request, and the largest answer, in bytes.
const MaxCall = 64 << 20

const (
	// callPart is how much of a request or an answer goes into one message: the
	// connection is shared, and a renewal must not wait behind a large one.
	callPart = 256 << 10
	// callFrame is what one message is allowed beside its data.
	callFrame = 4 << 10
	// callAsk is the time between two questions whether a call still runs, and
	// how long one message of a call waits for its answer. The first question
	// comes callFirst after the call was sent, a tick later at most: a gateway that
	// was killed is found out by it.
	callAsk   = time.Second
	callFirst = 300 * time.Millisecond
	callTick  = 100 * time.Millisecond
	// callSilence is how long a gateway that membership calls alive may leave all
	// questions unanswered before a call to it is given up.
	callSilence = 10 * time.Second
)

// ErrNotDelivered: a call did not run, and will not: nobody listens there, the
// life it was meant for has ended, or what listens there does not know the
// method or has no room. It can be made again, there or elsewhere.
var ErrNotDelivered = errors.New("call not delivered")

// RemoteError is an error that a handler returned. What callers are to tell
// apart belongs into the handler's answer instead.
type RemoteError struct{ Text string }

// Error is what the handler's error said.
func (e RemoteError) Error() string { return "remote: " + e.Text }

// Call asks another gateway to run a method and returns its answer, which is the
// caller's. It may take as long as the handler does: meanwhile the other gateway
// is asked every second whether the call still runs. request must not change
// before Call returns.
//
// Errors: ErrNotDelivered (nothing ran); pubsub.ErrOutcomeUnknown (it may have
// run, may still run, and no answer will come: that life ended, or is silent);
// a RemoteError; ctx's error, after which the handler's ctx ends too.
func (c *Cluster) Call(ctx context.Context, to Identity, method string, request []byte) ([]byte, error) {
	answer, err := c.call(ctx, to, method, request)
	if err != nil {
		if _, remote := errors.AsType[RemoteError](err); remote {
			return nil, err
		}
		if cerr := ctx.Err(); cerr != nil {
			err = cerr
		}
		return nil, fmt.Errorf("call %s of gateway %d: %w", method, to.Node, err)
	}
	return answer, nil
}

func (c *Cluster) call(ctx context.Context, to Identity, method string, request []byte) ([]byte, error) {
	if len(request) > MaxCall {
		return nil, fmt.Errorf("%w: %d bytes: %w", ErrNotDelivered, len(request), pubsub.ErrTooLarge)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	changed := c.Changed()
	if c.buried(to) {
		return nil, fmt.Errorf("%w: that life has ended", ErrNotDelivered)
	}
	o := c.caller.begin(to)
	// Ends whatever of this call is under way.
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	head := callHeader{V: callVersion, To: to.Incarnation, From: c.Self(), Caller: c.caller.token, ID: o.id}
	x := &exchange{c: c, o: o, to: to, head: head}
	answer, err := x.run(rctx, method, request, changed)
	c.caller.end(to, o)
	_, ran := errors.AsType[RemoteError](err)
	if err != nil && x.begun && !ran && !(errors.Is(err, ErrNotDelivered) && x.head.At == 0) {
		x.forget()
	}
	return answer, err
}

// exchange is one call from the caller's side.
type exchange struct {
	c    *Cluster
	o    *outgoing
	to   Identity
	head callHeader

	begun      bool // something was sent
	running    bool // the callee said that it runs
	waiting    int  // requests on their way whose answer is the call's
	collecting bool // one of them is for an answer that is there
}

type reply struct {
	head answerHeader
	data []byte
	err  error
	kind string // what was asked
	now  bool   // for an answer that is there
}

// run sends the request and waits for the answer.
func (x *exchange) run(ctx context.Context, method string, request []byte, changed <-chan struct{}) ([]byte, error) {
	part := x.c.partSize()
	for at := 0; len(request)-at > part; at += part {
		h := x.head
		h.Kind, h.At = kindPart, at
		a, _, err := x.insist(ctx, h, request[at:at+part])
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrNotDelivered, err)
		}
		if a.Status != statusOK {
			return nil, a.refused()
		}
		x.head.At = at + part
	}
	h := x.head
	h.Kind, h.Method = kindCall, method
	replies := make(chan reply, 1)
	x.send(ctx, h, request[x.head.At:], replies, false)
	x.c.caller.sent(x.to, x.o)
	for {
		select {
		case r := <-replies:
			x.waiting--
			x.collecting = x.collecting && !r.now
			if r.err == nil && r.head.Status == statusDone {
				return x.take(ctx, r)
			}
			if err := x.judge(r); err != nil {
				return nil, err
			}
		case state := <-x.o.news:
			switch state {
			case stateUnknown:
				if x.running {
					return nil, fmt.Errorf("%w: forgotten there", pubsub.ErrOutcomeUnknown)
				}
				return nil, fmt.Errorf("%w: lost on the way", ErrNotDelivered)
			case stateEvicted:
				return nil, fmt.Errorf("%w: the answer was let go of", pubsub.ErrOutcomeUnknown)
			case stateAbsent:
				return nil, fmt.Errorf("%w: nobody listens there any more", pubsub.ErrOutcomeUnknown)
			case stateSilent:
				return nil, fmt.Errorf("%w: silent for %v", pubsub.ErrOutcomeUnknown, callSilence)
			case stateRunning:
				x.running = true
				if x.waiting == 0 { // the connection broke meanwhile
					x.collect(ctx, replies, false)
				}
			case stateEnded:
				x.running = true
				if !x.collecting { // the answer was lost, or is on its way
					x.collecting = true
					x.collect(ctx, replies, true)
				}
			}
		case <-changed:
			changed = x.c.Changed()
			if x.c.buried(x.to) {
				return nil, fmt.Errorf("%w: that life has ended", pubsub.ErrOutcomeUnknown)
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// judge looks at a reply that is not the answer; nil: go on waiting.
func (x *exchange) judge(r reply) error {
	switch {
	case r.err == nil && r.kind == kindCollect && r.head.Status != statusCut:
		return nil // gone: the next question tells
	case r.err == nil && r.head.Status == statusCut:
		return fmt.Errorf("%w: cut short there", pubsub.ErrOutcomeUnknown)
	case r.err == nil:
		return r.head.refused()
	case errors.Is(r.err, pubsub.ErrNotFound) && r.kind == kindCall:
		return fmt.Errorf("%w: %v", ErrNotDelivered, r.err)
	case errors.Is(r.err, pubsub.ErrUnavailable) && r.kind == kindCall: // never left
		return fmt.Errorf("%w: %v", ErrNotDelivered, r.err)
	}
	return nil // the watch asks what became of it
}

func (x *exchange) collect(ctx context.Context, replies chan<- reply, now bool) {
	h := x.head
	h.Kind, h.At = kindCollect, 0
	x.send(ctx, h, nil, replies, now)
}

// send asks without waiting; the reply comes to replies unless ctx ends. now
// says that the answer is there, so that it comes soon or never.
func (x *exchange) send(ctx context.Context, h callHeader, data []byte, replies chan<- reply, now bool) {
	x.begun = true
	x.waiting++
	m := encodeCall(h, data)
	go func() {
		r := reply{kind: h.Kind, now: now}
		rctx := ctx
		if now {
			var cancel context.CancelFunc
			rctx, cancel = context.WithTimeout(ctx, callAsk)
			defer cancel()
		}
		var b []byte
		if b, r.err = x.c.deps.Store.Request(rctx, x.c.callSubject(x.to.Node), m); r.err == nil {
			r.head, r.data, r.err = decodeAnswer(b)
		}
		select {
		case replies <- r:
		case <-ctx.Done():
		}
	}()
}

// insist asks until there is an answer, for what may be asked twice.
func (x *exchange) insist(ctx context.Context, h callHeader, data []byte) (answerHeader, []byte, error) {
	m := encodeCall(h, data)
	x.begun = true
	first := time.Now()
	for {
		rctx, cancel := context.WithTimeout(ctx, callAsk)
		b, err := x.c.deps.Store.Request(rctx, x.c.callSubject(x.to.Node), m)
		cancel()
		switch {
		case err == nil:
			return decodeAnswer(b)
		case ctx.Err() != nil:
			return answerHeader{}, nil, ctx.Err()
		case !errors.Is(err, pubsub.ErrOutcomeUnknown) && !errors.Is(err, context.DeadlineExceeded):
			return answerHeader{}, nil, err
		case x.c.buried(x.to):
			return answerHeader{}, nil, fmt.Errorf("that life has ended: %w", err)
		case time.Since(first) > callSilence:
			return answerHeader{}, nil, err
		}
	}
}

// take gets the rest of an answer that did not fit one message.
func (x *exchange) take(ctx context.Context, r reply) ([]byte, error) {
	if r.head.Error != nil {
		return nil, RemoteError{Text: *r.head.Error}
	}
	answer := r.data
	if len(answer) == r.head.Size {
		return answer, nil
	}
	for len(answer) < r.head.Size {
		h := x.head
		h.Kind, h.At = kindFetch, len(answer)
		a, data, err := x.insist(ctx, h, nil)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: rest of the answer: %w", pubsub.ErrOutcomeUnknown, err)
		case a.Status != statusDone || len(data) == 0:
			return nil, fmt.Errorf("%w: the answer was let go of", pubsub.ErrOutcomeUnknown)
		}
		answer = append(answer, data...)
	}
	x.forget()
	return answer, nil
}

// forget tells the callee, without waiting, that nobody is interested any more.
func (x *exchange) forget() {
	h := x.head
	h.Kind, h.At = kindForget, 0
	m := encodeCall(h, nil)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), callAsk)
		defer cancel()
		// Lost, it is noticed by the callee some seconds later.
		_, _ = x.c.deps.Store.Request(ctx, x.c.callSubject(x.to.Node), m)
	}()
}

// buried reports that a life has certainly ended, as far as the watch tells.
func (c *Cluster) buried(id Identity) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[id.Node]
	switch {
	case p == nil:
		return false
	case p.Incarnation == id.Incarnation:
		return p.State != Alive
	}
	// Another life under this number: a later one if we saw the first.
	_, seen := c.lives[id.Incarnation]
	return seen
}

// partSize is how many bytes of data one message carries.
func (c *Cluster) partSize() int {
	return min(callPart, c.deps.Store.Info().MaxPayload-callFrame)
}

func (c *Cluster) callSubject(node int32) string { return c.subject(node) + ".call" }
