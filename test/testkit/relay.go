package testkit

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Relay forwards TCP connections to an address and can cut or stall them, as a bad
// network does, or send them elsewhere, as a balancer does: with several addresses
// each new connection goes to the next one that accepts it.
type Relay struct {
	Addr string // where clients connect

	listen net.Listener
	wait   sync.WaitGroup

	mu      sync.Mutex
	targets []string            // guards: where new connections go
	turn    int                 // guards: which of them is next
	flow    *sync.Cond          // on mu; signalled when stalled, held or closed changes
	conns   map[net.Conn]string // guards: both ends of every open connection, and its target
	stalled bool                // guards: bytes wait
	held    bool                // guards: bytes from the target wait
	refuse  bool                // guards: new connections are closed at once
	closed  bool                // guards: the relay has ended
}

// NewRelay starts a relay to one of targets, ended with the test.
func NewRelay(t testing.TB, targets ...string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start a relay to %s: %v", targets, err)
	}
	r := &Relay{Addr: l.Addr().String(), targets: targets, listen: l, conns: make(map[net.Conn]string)}
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
	server, target := r.dial()
	if server == nil {
		return
	}
	defer server.Close()
	r.mu.Lock()
	if r.refuse || r.closed || !slices.Contains(r.targets, target) {
		r.mu.Unlock()
		return
	}
	r.conns[client], r.conns[server] = target, target
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { r.copy(server, client, false) })
	r.copy(client, server, true)
	both.Wait()
	r.mu.Lock()
	delete(r.conns, client)
	delete(r.conns, server)
	r.mu.Unlock()
}

// dial connects to the next target that accepts; nil if none does.
func (r *Relay) dial() (net.Conn, string) {
	r.mu.Lock()
	targets, turn := slices.Clone(r.targets), r.turn
	r.turn++
	if r.refuse || r.closed {
		targets = nil
	}
	r.mu.Unlock()
	for i := range targets {
		target := targets[(turn+i)%len(targets)]
		if c, err := net.DialTimeout("tcp", target, 5*time.Second); err == nil {
			return c, target
		}
	}
	return nil, ""
}

// copy moves bytes until either side ends, then ends both.
func (r *Relay) copy(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		for (r.stalled || r.held && answers) && !r.closed {
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

// CutTo closes the connections to one target.
func (r *Relay) CutTo(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c, to := range r.conns {
		if to == target {
			c.Close()
		}
	}
}

// Aim sends new connections to another address and closes those that there are.
func (r *Relay) Aim(target string) {
	r.Spread(target)
	r.Cut()
}

// Spread sends new connections to these addresses in turn. Those that there are
// stay where they are.
func (r *Relay) Spread(targets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.targets = targets
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

// StallAnswers holds back what comes from the target, until Flow: what is sent to
// it arrives and its acknowledgements do not. Cut then loses them for ever.
func (r *Relay) StallAnswers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
}

// Flow ends Stall and StallAnswers.
func (r *Relay) Flow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled, r.held = false, false
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
