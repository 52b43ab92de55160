package faults

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy stands between a client and a NATS server and reads the client's
// protocol, so that single publishes can be held back while everything else on
// the same connection passes: one stream is slow as on a slow disk, not the
// network. Publishes to one subject keep their order, and take the delay one
// after the other.
type proxy struct {
	Addr string

	target string
	listen net.Listener
	end    chan struct{}
	wait   sync.WaitGroup

	mu     sync.Mutex
	rule   func(subject string) (delay time.Duration, lose bool) // guards: what happens to a publish; nil: nothing
	change chan struct{}                                         // guards: closed when rule changes
	queues map[string]chan held                                  // guards: publishes on their way, by subject
	sent   map[string]int                                        // guards: publishes seen, by subject
	conns  map[net.Conn]bool                                     // guards: both ends of every connection
}

// held is a publish with the connection that it goes to.
type held struct {
	frame []byte
	to    *upstream
}

type upstream struct {
	mu sync.Mutex // guards: writes
	c  net.Conn
}

func (u *upstream) write(p []byte) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, err := u.c.Write(p)
	return err
}

func newProxy(t *testing.T, natsURL string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Addr: l.Addr().String(), target: strings.TrimPrefix(natsURL, "nats://"), listen: l, end: make(chan struct{}),
		change: make(chan struct{}), queues: map[string]chan held{}, sent: map[string]int{}, conns: map[net.Conn]bool{}}
	p.wait.Go(p.accept)
	t.Cleanup(func() {
		close(p.end)
		l.Close()
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wait.Wait()
	})
	return p
}

// Rule sets what happens to publishes from now on, also to those held; nil ends it.
func (p *proxy) Rule(rule func(subject string) (delay time.Duration, lose bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
	close(p.change)
	p.change = make(chan struct{})
}

// Sent is the number of publishes so far to subjects that match.
func (p *proxy) Sent(match func(subject string) bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for s, k := range p.sent {
		if match(s) {
			n += k
		}
	}
	return n
}

func (p *proxy) accept() {
	for {
		c, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.wait.Go(func() { p.serve(c) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
		delete(p.conns, server)
	}()
	p.wait.Go(func() {
		_, _ = io.Copy(client, server) // ends with either side
		client.Close()
		server.Close()
	})
	up := &upstream{c: server}
	r := bufio.NewReaderSize(client, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		subject, size := publish(line)
		if subject == "" {
			if up.write(line) != nil {
				return
			}
			continue
		}
		frame := append(line, make([]byte, size+2)...)
		if _, err := io.ReadFull(r, frame[len(line):]); err != nil {
			return
		}
		p.mu.Lock()
		p.sent[subject]++
		var delay time.Duration
		lose := false
		if p.rule != nil {
			delay, lose = p.rule(subject)
		}
		q := p.queues[subject]
		if q == nil && delay > 0 {
			q = make(chan held, 1<<16)
			p.queues[subject] = q
			p.wait.Go(func() { p.release(subject, q) })
		}
		p.mu.Unlock()
		switch {
		case lose:
		case q != nil:
			q <- held{frame, up}
		case up.write(frame) != nil:
			return
		}
	}
}

// release lets held publishes go, each after the delay that holds then.
func (p *proxy) release(subject string, q chan held) {
	for {
		select {
		case h := <-q:
			p.pause(subject)
			_ = h.to.write(h.frame) // the connection may be gone
		case <-p.end:
			return
		}
	}
}

func (p *proxy) pause(subject string) {
	began := time.Now()
	for {
		p.mu.Lock()
		var delay time.Duration
		if p.rule != nil {
			delay, _ = p.rule(subject)
		}
		change := p.change
		p.mu.Unlock()
		left := delay - time.Since(began)
		if left <= 0 {
			return
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-change:
		case <-p.end:
			t.Stop()
			return
		}
		t.Stop()
	}
}

// publish reads subject and payload size of a PUB or HPUB line; "" for others.
func publish(line []byte) (subject string, size int) {
	f := bytes.Fields(line)
	if len(f) < 3 || !bytes.EqualFold(f[0], []byte("PUB")) && !bytes.EqualFold(f[0], []byte("HPUB")) {
		return "", 0
	}
	size, err := strconv.Atoi(string(f[len(f)-1]))
	if err != nil {
		return "", 0
	}
	return string(f[1]), size
}

// TestPublishLines checks what the proxy reads.
func TestPublishLines(t *testing.T) {
	for line, want := range map[string]struct {
		subject string
		size    int
	}{
		"PUB a.b 5\r\n":                    {"a.b", 5},
		"PUB a.b _INBOX.x 17\r\n":          {"a.b", 17},
		"HPUB a.b _INBOX.x 12 345\r\n":     {"a.b", 345},
		"SUB a.b 5\r\n":                    {},
		"PING\r\n":                         {},
		"CONNECT {\"name\":\"PUB 5\"}\r\n": {},
	} {
		if s, n := publish([]byte(line)); s != want.subject || n != want.size {
			t.Errorf("%q: %q, %d", line, s, n)
		}
	}
}
