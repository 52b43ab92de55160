package cluster

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hanzoai/stream/logging"
)

const (
	// maxCalls bounds the calls that run here at a time, for all callers.
	maxCalls = 10_000
	// maxCallBytes bounds the requests that are coming in in parts, together, and
	// the large answers that are kept.
	maxCallBytes = 4 * MaxCall
)

// Handle answers calls of a method, each in a goroutine of its own. The request
// is the handler's. ctx ends when the caller gives up or its life has ended,
// and with cancel, which also waits for running handlers: an error returned then
// is an unknown outcome to the caller. A method has one handler; Handle panics
// if it has one already.
func (c *Cluster) Handle(method string, fn func(ctx context.Context, from Identity, request []byte) ([]byte, error)) (cancel func()) {
	d := c.desk
	m := &handler{fn: fn}
	m.ctx, m.stop = context.WithCancel(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.methods[method] != nil {
		panic("cluster: two handlers for " + method)
	}
	d.methods[method] = m
	return func() {
		d.mu.Lock()
		if d.methods[method] == m {
			delete(d.methods, method)
		}
		d.mu.Unlock()
		m.stop()
		m.running.Wait()
	}
}

type handler struct {
	fn      func(ctx context.Context, from Identity, request []byte) ([]byte, error)
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup // Add under desk.mu while registered
}

// desk is where calls of other gateways come in.
type desk struct {
	c *Cluster

	mu      sync.Mutex // guards: all below
	methods map[string]*handler
	calls   map[callKey]*incoming
	closed  bool
	running int
	room    int        // maxCallBytes but in tests
	parts   int        // bytes of requests that are not complete
	ended   *list.List // of *incoming, by the time they ended
	kept    int        // bytes of ended ones, large answers aside
	large   int        // bytes of large answers kept
	// evicted has, by caller, the highest id that is not in calls any more: what
	// became of it and of those below that are not in calls is not known here.
	evicted map[string]uint64
	sweeper *time.Timer // runs while calls is not empty
}

type callKey struct {
	caller string
	id     uint64
}

// incoming is one call from its first part until its answer is let go of. Its
// fields are guarded by desk.mu; answer and err are fixed once done is closed.
type incoming struct {
	key     callKey
	from    Identity
	to      string // the life of ours it was meant for
	request []byte
	state   byte // 'p' while parts come in, else stateRunning, stateEnded, stateUnknown
	seen    time.Time
	stop    context.CancelFunc
	done    chan struct{}
	answer  []byte
	err     *string
	cut     bool // the handler's ctx ended, and it returned an error
	at      *list.Element
}

// stateParts: its request is coming in.
const stateParts = 'p'

func newDesk(c *Cluster) *desk {
	return &desk{c: c, methods: map[string]*handler{}, calls: map[callKey]*incoming{}, room: maxCallBytes, ended: list.New(), evicted: map[string]uint64{}}
}

// serve answers one message.
func (d *desk) serve(ctx context.Context, m []byte) []byte {
	h, data, err := decodeCall(m)
	if err != nil {
		d.c.deps.Logger.Warn("unreadable call", logging.Error, err)
		return encodeAnswer(answerHeader{V: callVersion, Status: statusUnknown}, nil)
	}
	a := answerHeader{Status: statusOther}
	var out []byte
	// One that is held for dead may have stood still with the request in hand: its
	// client has asked elsewhere since, and perhaps for something newer.
	if h.To == d.c.Self().Incarnation && !d.c.buried(h.From) {
		a, out = d.take(ctx, h, data)
	}
	a.V = callVersion
	return encodeAnswer(a, out)
}

func (d *desk) take(ctx context.Context, h callHeader, data []byte) (answerHeader, []byte) {
	switch h.Kind {
	case kindPart:
		return answerHeader{Status: d.part(h, data)}, nil
	case kindCall:
		in, status := d.start(h, data)
		if in == nil {
			return answerHeader{Status: status}, nil
		}
		return d.wait(ctx, in)
	case kindCollect:
		d.mu.Lock()
		in := d.calls[callKey{h.Caller, h.ID}]
		d.mu.Unlock()
		if in == nil || in.done == nil {
			return answerHeader{Status: statusUnknown}, nil
		}
		return d.wait(ctx, in)
	case kindFetch:
		return d.fetch(h)
	case kindAsk:
		return answerHeader{Status: statusOK, States: d.states(h)}, nil
	case kindForget:
		d.forget(h)
		return answerHeader{Status: statusOK}, nil
	}
	return answerHeader{Status: statusUnknown}, nil
}

// part takes in one part of a request. Parts come in order, perhaps twice.
func (d *desk) part(h callHeader, data []byte) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	in, status := d.receiveLocked(h, data)
	if in == nil {
		return status
	}
	return statusOK
}

// receiveLocked adds data to a call that has not begun to run.
func (d *desk) receiveLocked(h callHeader, data []byte) (*incoming, string) {
	key := callKey{h.Caller, h.ID}
	in := d.calls[key]
	switch {
	case d.closed:
		return nil, statusOther
	case in != nil && in.state != stateParts:
		return nil, statusUnknown // it runs or ran, or shall never run
	case in == nil && (h.ID <= d.evicted[h.Caller] || h.At != 0):
		return nil, statusUnknown // late: its caller may have been told that it never ran
	case in != nil && h.At < len(in.request) && h.Kind == kindPart:
		return in, statusOK // again
	case in != nil && h.At != len(in.request):
		return nil, statusUnknown
	case in != nil && len(in.request)+len(data) > MaxCall, d.parts+len(data) > d.room:
		return nil, statusBusy
	}
	if in == nil {
		in = &incoming{key: key, from: h.From, to: h.To, state: stateParts}
		d.calls[key] = in
		d.sweepSoonLocked()
	}
	in.seen = time.Now()
	in.request = append(in.request, data...)
	d.parts += len(data)
	return in, statusOK
}

// start lets a call run whose last part has come.
func (d *desk) start(h callHeader, data []byte) (*incoming, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	in, status := d.receiveLocked(h, data)
	if in == nil {
		return nil, status
	}
	m := d.methods[h.Method]
	switch {
	case m == nil:
		d.denyLocked(in)
		return nil, statusUnknown
	case d.running >= maxCalls:
		d.denyLocked(in)
		return nil, statusBusy
	}
	d.parts -= len(in.request)
	var ctx context.Context
	ctx, in.stop = context.WithCancel(m.ctx)
	in.state, in.done = stateRunning, make(chan struct{})
	request := in.request
	in.request = nil
	d.running++
	m.running.Add(1)
	go func() {
		defer m.running.Done()
		defer in.stop()
		answer, err := m.fn(ctx, in.from, request)
		d.finish(in, answer, err, ctx.Err() != nil)
	}()
	return in, statusOK
}

func (d *desk) finish(in *incoming, answer []byte, err error, stopped bool) {
	if err == nil && len(answer) > MaxCall {
		err = errors.New("the answer is too large")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running--
	if err != nil {
		text := err.Error()
		in.err, in.cut, answer = &text, stopped, nil
	}
	in.answer = answer
	close(in.done)
	if d.calls[in.key] != in {
		return // forgotten meanwhile
	}
	d.endLocked(in, stateEnded)
}

// wait answers when the call has ended.
func (d *desk) wait(ctx context.Context, in *incoming) (answerHeader, []byte) {
	select {
	case <-in.done:
	case <-ctx.Done():
		return answerHeader{Status: statusCut}, nil
	}
	return d.piece(in, 0)
}

// piece is the answer's bytes from at on, as many as fit one message.
func (d *desk) piece(in *incoming, at int) (answerHeader, []byte) {
	if in.cut {
		return answerHeader{Status: statusCut}, nil
	}
	end := min(len(in.answer), at+d.c.partSize())
	return answerHeader{Status: statusDone, Error: in.err, Size: len(in.answer)}, in.answer[at:end]
}

func (d *desk) fetch(h callHeader) (answerHeader, []byte) {
	d.mu.Lock()
	in := d.calls[callKey{h.Caller, h.ID}]
	if in == nil || in.state != stateEnded || h.At < 0 || h.At > len(in.answer) {
		d.mu.Unlock()
		return answerHeader{Status: statusUnknown}, nil
	}
	in.seen = time.Now()
	d.ended.MoveToBack(in.at)
	d.mu.Unlock()
	return d.piece(in, h.At)
}

// open begins to answer calls under a node id; what it returns ends that and all
// calls that run.
func (d *desk) open(node int32) (func(), error) {
	d.mu.Lock()
	d.closed = false
	d.mu.Unlock()
	unserve, err := d.c.deps.Store.Serve(d.c.callSubject(node), d.serve)
	if err != nil {
		return nil, err
	}
	return func() {
		d.close()
		unserve()
	}, nil
}

func (d *desk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, in := range d.calls {
		d.removeLocked(in)
	}
	if d.sweeper != nil {
		d.sweeper.Stop()
		d.sweeper = nil
	}
}
