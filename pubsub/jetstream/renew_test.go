package jetstream_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/test/testkit"
)

// slowLinks are connections that keep back what is written, from the first
// subscription on, while they are told to.
type slowLinks struct {
	mu      sync.Mutex // guards: all below
	holding bool
	held    []func()
	open    []net.Conn
}

type slowLink struct {
	net.Conn
	s    *slowLinks
	held bool // guarded by s.mu
}

// Dial implements nats.CustomDialer.
func (s *slowLinks) Dial(network, address string) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, c)
	return &slowLink{Conn: c, s: s}, nil
}

func (l *slowLink) Write(b []byte) (int, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.s.holding && (l.held || bytes.Contains(b, []byte("SUB kafka-news."))) {
		l.held = true
		b := bytes.Clone(b)
		l.s.held = append(l.s.held, func() { _, _ = l.Conn.Write(b) }) // a lost connection shows elsewhere
		return len(b), nil
	}
	return l.Conn.Write(b)
}

// hold breaks all connections; what subscribes again is on its way until release.
func (s *slowLinks) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = true
	for _, c := range s.open {
		_ = c.Close()
	}
}

func (s *slowLinks) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = false
	for _, write := range s.held {
		write()
	}
}

// TestNewsAfterReconnect: a follower is told that news come again when the server
// knows that, not when the connection is back: an append in between, over another
// connection, has no news, and would be behind what it was told.
func TestNewsAfterReconnect(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{Listen: "127.0.0.1:0"})
	links := &slowLinks{}
	st := connect(t, jetstream.Config{URL: srv.ClientURL(), Options: []nats.Option{
		nats.SetCustomDialer(links), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0),
	}})
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "kafka-foo-0", Subject: "kafka.foo.0"}); err != nil {
		t.Fatal(err)
	}
	l := st.Log("kafka-foo-0", "kafka.foo.0")
	news := make(chan pubsub.Message, 10)
	cancel, err := l.Follow(func(m pubsub.Message) { news <- m })
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	receive(t, news)

	links.hold()
	testkit.Poll(t, 20*time.Second, "the subscription is on its way", func() error {
		links.mu.Lock()
		defer links.mu.Unlock()
		if len(links.held) == 0 {
			return errors.New("no subscription yet")
		}
		return nil
	})
	testkit.Poll(t, 20*time.Second, "an append", func() error {
		_, err := l.Append(t.Context(), 0, pubsub.Entry{Data: []byte("1")})
		if errors.Is(err, pubsub.ErrConflict) {
			return nil // the one before is stored
		}
		return err
	})
	select {
	case m := <-news:
		t.Fatal(fmt.Errorf("news of sequence %d while the server knows of no follower", m.Seq))
	default:
	}
	links.release()
	if m := receive(t, news); m.Seq != 0 {
		t.Errorf("news of sequence %d, want to be told that some were lost", m.Seq)
	}
	if _, err := l.Append(t.Context(), 1, pubsub.Entry{Data: []byte("2")}); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, news); m.Seq != 2 {
		t.Errorf("news of sequence %d, want 2", m.Seq)
	}
}
