package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// askAtOnce is how many calls one question names.
const askAtOnce = 1000

// caller keeps the calls that this gateway is making, by callee, and asks after
// those that take long. While there are none nothing is sent and nothing wakes.
type caller struct {
	c     *Cluster
	token string // this process

	mu     sync.Mutex // guards: last, lives
	last   uint64
	callee map[Identity]*callee
}

// callee is one life that is being called.
type callee struct {
	calls map[uint64]*outgoing
	timer *time.Timer
}

// outgoing is one call under way.
type outgoing struct {
	id   uint64
	news chan byte // capacity 1: the latest state of the call

	// Guarded by caller.mu.
	sent  time.Time // zero before the request left
	asked time.Time // when it was last asked after
	heard time.Time // last sign of the callee
}

func newCaller(c *Cluster) *caller {
	return &caller{c: c, token: rand.Text(), callee: map[Identity]*callee{}}
}

func (k *caller) begin(to Identity) *outgoing {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	o := &outgoing{id: k.last, news: make(chan byte, 1)}
	e := k.callee[to]
	if e == nil {
		e = &callee{calls: map[uint64]*outgoing{}}
		e.timer = time.AfterFunc(callTick, func() { k.tick(to, e) })
		k.callee[to] = e
	}
	e.calls[o.id] = o
	return o
}

// sent notes that the call runs from now on if it ever does.
func (k *caller) sent(_ Identity, o *outgoing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o.sent = time.Now()
	o.heard = o.sent
}

func (k *caller) end(to Identity, o *outgoing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.callee[to]
	delete(e.calls, o.id)
	if len(e.calls) == 0 {
		e.timer.Stop()
		delete(k.callee, to)
	}
}

// tick asks after all calls that have been under way for a while.
func (k *caller) tick(to Identity, e *callee) {
	now := time.Now()
	k.mu.Lock()
	var due []*outgoing
	for _, o := range e.calls {
		if !o.sent.IsZero() && now.Sub(o.sent) >= callFirst && now.Sub(o.asked) >= callAsk {
			o.asked = now
			due = append(due, o)
		}
	}
	k.mu.Unlock()
	for len(due) > 0 {
		n := min(len(due), askAtOnce)
		k.ask(to, due[:n])
		due = due[n:]
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.callee[to] == e {
		e.timer.Reset(callTick)
	}
}

func (k *caller) ask(to Identity, calls []*outgoing) {
	h := callHeader{V: callVersion, Kind: kindAsk, To: to.Incarnation, From: k.c.Self(), Caller: k.token}
	for _, o := range calls {
		h.IDs = append(h.IDs, o.id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callAsk)
	defer cancel()
	b, err := k.c.deps.Store.Request(ctx, k.c.callSubject(to.Node), encodeCall(h, nil))
	var a answerHeader
	if err == nil {
		a, _, err = decodeAnswer(b)
	}
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, o := range calls {
		var state byte
		switch {
		case err == nil && a.Status == statusOther, errors.Is(err, pubsub.ErrNotFound):
			state = stateAbsent
		case err == nil && len(a.States) == len(calls):
			state = a.States[i]
			o.heard = now
		case now.Sub(o.heard) >= callSilence:
			state = stateSilent
		default:
			continue
		}
		o.tell(state)
	}
}

// tell leaves the latest state for the call, in place of one not looked at. The
// caller's lock is held.
func (o *outgoing) tell(state byte) {
	select {
	case <-o.news:
	default:
	}
	o.news <- state
}
