package testkit

import (
	"net"
	"sync"
	"testing"
)

// Relay forwards TCP connections to an address and can cut or stall them, as a bad
// network does, or send them elsewhere, as a balancer does.
type Relay struct {
	Addr string // where clients connect

	listen net.Listener
	wait   sync.WaitGroup

	mu      sync.Mutex
	target  string            // guards: where new connections go
	flow    *sync.Cond        // on mu; signalled when stalled or closed changes
	conns   map[net.Conn]bool // guards: both ends of every open connection
	stalled bool              // guards: bytes wait
	refuse  bool              // guards: new connections are closed at once
	closed  bool              // guards: the relay has ended
}

// NewRelay starts a relay to target, ended with the test.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start a relay to %s: %v", target, err)
	}
	r := &Relay{Addr: l.Addr().String(), target: target, listen: l, conns: make(map[net.Conn]bool)}
	r.flow = sync.NewCond(&r.mu)
	r.wait.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *Relay) accept() {
	for {
		c, err := r.listen.Accept()
		if err != nil {
			return
		}
		r.wait.Go(func() { r.serve(c) })
	}
}

func (r *Relay) serve(client net.Conn) {
	defer client.Close()
	r.mu.Lock()
	refuse, target := r.refuse || r.closed, r.target
	r.mu.Unlock()
	if refuse {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	r.mu.Lock()
	if r.refuse || r.closed || r.target != target {
		r.mu.Unlock()
		return
	}
	r.conns[client], r.conns[server] = true, true
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { r.copy(server, client) })
	r.copy(client, server)
	both.Wait()
	r.mu.Lock()
	delete(r.conns, client)
	delete(r.conns, server)
	r.mu.Unlock()
}

// copy moves bytes until either side ends, then ends both.
func (r *Relay) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		for r.stalled && !r.closed {
			r.flow.Wait()
		}
		r.mu.Unlock()
		if _, werr := to.Write(buf[:n]); werr != nil {
			return
		}
		if err != nil {
			return // io.EOF or a cut
		}
	}
}

// Cut closes every connection. New ones are accepted.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.Close()
	}
}

// Aim sends new connections to another address and closes those that there are.
func (r *Relay) Aim(target string) {
	r.mu.Lock()
	r.target = target
	r.mu.Unlock()
	r.Cut()
}

// Refuse closes every connection, and new ones at once, until Accept.
func (r *Relay) Refuse() {
	r.mu.Lock()
	r.refuse = true
	r.mu.Unlock()
	r.Cut()
}

// Accept ends Refuse.
func (r *Relay) Accept() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = false
}

// Stall holds back all bytes, with the connections open, until Flow.
func (r *Relay) Stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled = true
}

// Flow ends Stall.
func (r *Relay) Flow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled = false
	r.flow.Broadcast()
}

func (r *Relay) close() {
	r.mu.Lock()
	r.closed = true
	r.flow.Broadcast()
	r.mu.Unlock()
	r.listen.Close()
	r.Cut()
	r.wait.Wait()
}
