package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/test/testkit"
)

// seat is a place for a gateway; whoever sits there may be killed and replaced.
type seat struct {
	s     *run
	n     int
	lives int
	busy  atomic.Bool // something is being done to it

	mu sync.Mutex // guards: up
	up *process   // nil: nobody is there
}

// process is one life of a gateway.
type process struct {
	name   string
	client *memory.Client
	broker *broker.Broker
	clock  *testkit.Clock
	ctx    context.Context // ends when the process does
	end    context.CancelFunc
	calls  sync.WaitGroup // requests of clients

	mu     sync.Mutex    // guards: all below
	frozen chan struct{} // not nil while frozen; closed by thaw
	closed bool          // takes no more requests
}

// begin counts a request in, unless the process takes no more.
func (p *process) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls.Add(1)
	return true
}

// close refuses new requests.
func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

func (x *seat) now() *process {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.up
}

func (x *seat) config() broker.Config {
	s := x.s
	g := group.DefaultConfig()
	g.InitialRebalanceDelay = 500 * time.Millisecond
	if s.expires {
		g.OffsetsRetention, g.RetentionInterval = offsetsRetention, offsetsCheck
	}
	t := topic.Defaults()
	t.Replicas, t.AutoCreate = s.replicas, false
	node := int32(0)
	if s.fixed {
		node = int32(x.n + 1)
	}
	return broker.Config{
		Prefix: "kafka", Replicas: s.replicas, Host: "sim", Port: 9092, CacheBytes: 64 << 10,
		Cluster: cluster.Config{Node: node, Mode: s.mode}, Topic: t, Group: g,
	}
}

// start puts a new gateway on the seat, as a supervisor does: until it stays. The
// first try is killed after a while, unless dies is 0.
func (x *seat) start(why string, dies time.Duration) {
	s := x.s
	for deadline := time.Now().Add(5 * time.Minute); ; {
		x.lives++
		name := fmt.Sprintf("%s%d.%d", why, x.n, x.lives)
		c := s.server.Client(s.weather.All())
		clock, cfg := &testkit.Clock{}, x.config()
		cfg.Clock = clock.Now
		b := broker.New(cfg, c, s.logger(name), prometheus.NewRegistry())
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		if dies > 0 {
			time.AfterFunc(dies, func() {
				c.Disconnect()
				cancel()
			})
		}
		err := b.Start(ctx)
		cancel()
		if err == nil && dies > 0 { // it was faster
			err = errCut
			c.Disconnect()
		}
		dies = 0
		if err == nil {
			p := &process{name: name, client: c, broker: b, clock: clock}
			p.ctx, p.end = context.WithCancel(context.Background())
			x.mu.Lock()
			x.up = p
			x.mu.Unlock()
			go x.watch(p)
			s.trace("%s started", name)
			return
		}
		s.trace("%s does not start: %v", name, err)
		s.tally.note(startFailed)
		bye, cancel := context.WithTimeout(context.Background(), time.Second)
		b.Close(bye)
		cancel()
		c.Close()
		if f := (*broker.FormatError)(nil); errors.As(err, &f) || time.Now().After(deadline) {
			s.t.Errorf("%s does not start: %v", name, err)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// watch sees to it that no part of a gateway gives up.
func (x *seat) watch(p *process) {
	select {
	case <-p.ctx.Done():
	case err := <-p.broker.Failed():
		x.s.t.Errorf("%s cannot go on: %v", p.name, err)
	}
}

// stop ends a gateway: in order, or as kill -9 does.
func (x *seat) stop(p *process, drain bool) {
	if p == nil {
		return
	}
	if drain {
		// As the process does it on SIGTERM: it says so and serves on for a
		// moment; then it takes nothing new, hands over, finishes, leaves.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		p.broker.Leave(ctx)
		time.Sleep(500 * time.Millisecond)
		x.leave(p)
		p.broker.HandOver(ctx)
		idle := make(chan struct{})
		go func() {
			p.calls.Wait()
			close(idle)
		}()
		sim.Pause(idle, 3*time.Second)
		p.end()
		<-idle
		p.broker.Drain(ctx)
		cancel()
	} else {
		x.leave(p)
		p.end()
		p.client.Disconnect()
	}
	p.thaw()
	p.client.Rejoin()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	p.broker.Close(ctx)
	cancel()
	p.client.Close()
	p.calls.Wait()
	x.s.trace("%s ended", p.name)
}

// leave lets no more requests in.
func (x *seat) leave(p *process) {
	x.mu.Lock()
	if x.up == p {
		x.up = nil
	}
	x.mu.Unlock()
	p.close()
}

// heal ends whatever holds a gateway back; an empty seat gets a new one.
func (x *seat) heal() {
	p := x.now()
	if p == nil {
		x.start("h", 0)
		return
	}
	p.thaw()
	p.client.Rejoin()
	p.client.Reconnect()
}

// freeze stops a process as SIGSTOP does: nothing goes out of it, nothing in.
func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
		p.client.Freeze()
	}
}

func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
		p.client.Thaw()
	}
}

// thawed waits while the process is frozen.
func (p *process) thawed() error {
	for {
		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		if frozen == nil {
			return p.ctx.Err()
		}
		select {
		case <-frozen:
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
}

// What a client sees of a connection.
var (
	errRefused = errors.New("connection refused")        // nothing was sent
	errCut     = errors.New("connection cut, no answer") // it may have been done
)

// any is a gateway that a client asks: perhaps nobody is there.
func (s *run) any(r *rand.Rand) *process { return s.seats[r.IntN(len(s.seats))].now() }

// call sends one request to a gateway and waits for the answer as long as a client
// does. fn is what the gateway does with it; it may go on when the client has
// gone. Its answer is lost if the process is killed meanwhile.
func call[T any](r *rand.Rand, p *process, timeout time.Duration, fn func(ctx context.Context, b *broker.Broker) T) (T, error) {
	var none T
	if p == nil || !p.begin() {
		return none, errRefused
	}
	ctx, cancel := context.WithTimeout(p.ctx, timeout+5*time.Second)
	leave := r.IntN(2) == 0 // whether the gateway notices that the client has gone
	answer := make(chan T, 1)
	go func() {
		defer p.calls.Done()
		defer cancel()
		if p.thawed() != nil {
			return
		}
		a := fn(ctx, p.broker)
		if p.thawed() == nil {
			answer <- a
		}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case a := <-answer:
		return a, nil
	case <-timer.C:
	case <-p.ctx.Done():
	}
	if leave {
		cancel()
	}
	return none, errCut
}

// answer is a result with what went wrong, as a client sees it.
type answer[T any] struct {
	v   T
	err error
}

// ask is call for what answers with one error: a failure of the store becomes the
// code that clients get.
func ask[T any](r *rand.Rand, p *process, timeout time.Duration, coordinator bool, fn func(ctx context.Context, b *broker.Broker) (T, error)) (T, error) {
	a, err := call(r, p, timeout, func(ctx context.Context, b *broker.Broker) answer[T] {
		v, err := fn(ctx, b)
		return answer[T]{v, seen(b, err, coordinator)}
	})
	if err != nil {
		return a.v, err
	}
	return a.v, a.err
}

// seen is an error as a client sees it.
func seen(b *broker.Broker, err error, coordinator bool) error {
	return kerr.ErrorForCode(b.Code(err, coordinator))
}

// vague reports that a change may have been made, or may be yet.
func vague(err error) bool {
	return errors.Is(err, errCut) || errors.Is(err, kerr.RequestTimedOut) || errors.Is(err, kerr.CoordinatorNotAvailable)
}

// gone reports that a topic or partition is denied.
func gone(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}
