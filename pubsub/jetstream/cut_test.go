package jetstream_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/test/testkit"
)

// cutter forwards connections to a server and cuts each after as many bytes from
// it as left says, if that is above 0.
type cutter struct {
	to   string
	left atomic.Int64
	cuts atomic.Int64
}

func (c *cutter) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		go func() {
			_, _ = io.Copy(server, client) // ends with either
			_ = server.Close()
		}()
		go func() {
			if n := c.left.Load(); n > 0 {
				if _, err := io.CopyN(client, server, n); err == nil {
					c.cuts.Add(1)
				}
			} else {
				_, _ = io.Copy(client, server)
			}
			_ = client.Close()
			_ = server.Close()
		}()
	}
}

// TestCutMessages: connections break within messages, again and again; what is
// read is whole and in order, and nothing is left out.
func TestCutMessages(t *testing.T) {
	const n, size = 40, 300_000
	srv := startEmbedded(t, embedded.Config{Listen: "127.0.0.1:0"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := &cutter{to: srv.ClientURL()[len("nats://"):]}
	c.left.Store(700_000) // the others carry less
	go c.serve(l)
	direct := connect(t, jetstream.Config{URL: srv.ClientURL()})
	if err := direct.CreateLog(t.Context(), pubsub.LogConfig{Name: "r", Subject: "r.0"}); err != nil {
		t.Fatal(err)
	}
	fillLarge(t, direct.Log("r", "r.0"), 1, n, size)
	st := connect(t, jetstream.Config{
		URL: "nats://" + l.Addr().String(), ReadTimeout: time.Second, APITimeout: time.Second, ReadConns: 1,
		Options: []nats.Option{nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0)},
	})
	st.SetRuns(1, time.Minute, time.Minute)
	log := st.Log("r", "r.0")
	rnd := rand.New(rand.NewPCG(1, 9))
	for next := pubsub.Seq(1); next <= n; {
		var ms []pubsub.Message
		testkit.Poll(t, 20*time.Second, "a read", func() (err error) {
			c.left.Store(10_000 + rnd.Int64N(3*size))
			if ms, err = log.Read(t.Context(), next, pubsub.Limit{MaxBytes: 3 * size}); err != nil && !errors.Is(err, pubsub.ErrUnavailable) {
				t.Fatalf("read from %d: %v", next, err)
			} else if err == nil && len(ms) == 0 {
				t.Fatalf("nothing at %d", next)
			}
			return err
		})
		for _, m := range ms {
			if m.Seq != next || string(m.Data) != string(body(m.Seq, size)) {
				t.Fatalf("message %d of %d bytes, want %d", m.Seq, len(m.Data), next)
			}
			next++
			if m.Release != nil {
				m.Release()
			}
		}
	}
	if c.cuts.Load() < 5 {
		t.Errorf("only %d connections were cut", c.cuts.Load())
	}
}
