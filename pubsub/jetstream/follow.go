package jetstream

import (
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
)

// follow is one subscription to a log's news. The server publishes the headers
// of each stored message to the news subject (RePublish), before the append's
// own acknowledgement, to whoever listens at that moment.
type follow struct {
	st   *Store
	name string
	sub  *nats.Subscription
	fn   func(pubsub.Message)
	once sync.Once
	wg   sync.WaitGroup // calls with a zero message

	mu   sync.Mutex // held while fn runs; guards: done
	done bool
}

// Follow implements pubsub.Log. fn runs on goroutines of the store; cancel must
// not be called from it.
func (l *log) Follow(fn func(pubsub.Message)) (func(), error) {
	f := &follow{st: l.st, name: l.name, fn: fn}
	c := l.st.control
	sub, err := c.nc.Subscribe(l.st.newsSubject(l.subject), f.news)
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w: %w", l.name, pubsub.ErrUnavailable, err)
	}
	f.sub = sub
	f.wg.Add(1) // before Close can know of it
	l.st.mu.Lock()
	l.st.follows[f] = struct{}{}
	l.st.mu.Unlock()
	// Following has begun when the server knows the subscription. If the
	// connection is down that will be at the reconnect, which calls too.
	if c.nc.IsConnected() && c.nc.FlushTimeout(l.st.cfg.APITimeout) == nil {
		go func() {
			defer f.wg.Done()
			f.call(pubsub.Message{})
		}()
	} else {
		f.wg.Done()
	}
	return f.cancel, nil
}

func (f *follow) news(m *nats.Msg) {
	// The subject outlives a log; another incarnation's news are not ours.
	if lastOf(m.Header, hdrStream) != f.name {
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
		f.st.mu.Lock()
		delete(f.st.follows, f)
		f.st.mu.Unlock()
	})
	f.mu.Lock() // waits for a running fn
	f.done = true
	f.mu.Unlock()
	f.wg.Wait()
}

// renewFollows tells every follower that news were lost. nats.go has sent the
// subscriptions again before it says that the connection is back.
func (st *Store) renewFollows() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for f := range st.follows {
		f.wg.Add(1) // not after cancel's Wait: cancel has removed f first
		go func() {
			defer f.wg.Done()
			f.call(pubsub.Message{})
		}()
	}
}
