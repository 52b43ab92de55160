package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// follow is one subscription to a log's news (news.go), which the server
// publishes before the append's own acknowledgement, to whoever listens at that
// moment.
type follow struct {
	st   *Store
	l    *log
	sub  *nats.Subscription
	fn   func(pubsub.Message)
	ctx  context.Context // ends with cancel and Close
	end  context.CancelFunc
	once sync.Once
	wg   sync.WaitGroup // calls with a zero message

	mu   sync.Mutex // held while fn runs; guards: done
	done bool
}

// Follow implements pubsub.Log. fn runs on goroutines of the store; cancel must
// not be called from it.
func (l *log) Follow(fn func(pubsub.Message)) (func(), error) {
	f := &follow{st: l.st, l: l, fn: fn}
	c := l.st.control
	sub, err := c.nc.Subscribe(l.st.newsRoot+l.subject, f.news)
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w: %w", l.name, pubsub.ErrUnavailable, err)
	}
	f.sub = sub
	f.ctx, f.end = context.WithCancel(l.st.life)
	f.wg.Add(1) // before Close can know of it
	l.st.mu.Lock()
	l.st.follows[f] = struct{}{}
	l.st.mu.Unlock()
	// Following has begun when the server knows the subscription. If the
	// connection is down that will be at the reconnect, which calls too.
	if c.nc.IsConnected() && c.nc.FlushTimeout(l.st.cfg.APITimeout) == nil {
		go f.begin()
	} else {
		f.wg.Done()
	}
	return f.cancel, nil
}

// begin tells the follower that news were lost until now and will come from now
// on, once the stream is known to send any.
func (f *follow) begin() {
	defer f.wg.Done()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := f.l.sendNews(f.ctx)
		if err == nil {
			break
		}
		if f.ctx.Err() == nil && !errors.Is(err, errNoAnswer) {
			f.st.logError("a stream cannot be made to send news of "+f.l.name, err)
		}
		select {
		case <-time.After(wait):
		case <-f.ctx.Done():
			return
		}
	}
	f.call(pubsub.Message{})
}

func (f *follow) news(m *nats.Msg) {
	// The subject outlives a log; another incarnation's news are not ours.
	if lastOf(m.Header, hdrStream) != f.l.name {
		return
	}
	if msg, ok := direct(m); ok {
		msg.Data = nil
		f.call(msg)
	}
}

func (f *follow) call(m pubsub.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.done {
		f.fn(m)
	}
}

func (f *follow) cancel() {
	f.once.Do(func() {
		_ = f.sub.Unsubscribe() // fails only on a closed connection
		f.end()
		f.st.mu.Lock()
		delete(f.st.follows, f)
		f.st.mu.Unlock()
	})
	f.mu.Lock() // waits for a running fn
	f.done = true
	f.mu.Unlock()
	f.wg.Wait()
}

// renewFollows tells every follower that news were lost and come again. nats.go has
// sent the subscriptions before it says that the connection is back, but what is
// sent on another connection may overtake them: an append whose news nobody gets
// would be behind what the follower is told.
func (st *Store) renewFollows() {
	ctx, known := context.WithCancelCause(st.life)
	st.mu.Lock()
	for f := range st.follows {
		f.wg.Add(1) // not after cancel's Wait: cancel has removed f first
		go f.renew(ctx)
	}
	st.mu.Unlock()
	go func() {
		for st.control.nc.FlushTimeout(st.cfg.APITimeout) != nil {
			if st.life.Err() != nil || !st.control.nc.IsConnected() {
				known(nats.ErrDisconnected) // the next reconnect calls again
				return
			}
		}
		known(errKnown)
	}()
}

// errKnown ends a wait: the server knows the subscriptions.
var errKnown = errors.New("the server knows the subscriptions")

// renew is begin once the server knows the subscription again.
func (f *follow) renew(known context.Context) {
	select {
	case <-known.Done():
		if errors.Is(context.Cause(known), errKnown) {
			f.begin()
			return
		}
	case <-f.ctx.Done():
	}
	f.wg.Done()
}
