package jetstream

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub/embedded"
)

// stranger is a server and a client on it, which may answer for a cluster's API.
func stranger(t *testing.T) (*embedded.Server, *nats.Conn) {
	t.Helper()
	srv, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Stop() })
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return srv, nc
}

// TestCursorAskedAgain: in a cluster, who is silent about a new consumer is asked
// again, and then for another one: its request met no leader, or its server died.
func TestCursorAskedAgain(t *testing.T) {
	srv, nc := stranger(t)
	// What stands for the cluster's API answers the second time it is asked for the
	// second consumer.
	const prefix = "TEST.API."
	var mu sync.Mutex
	asked := map[string]int{}
	gone := make(chan string, 1)
	if _, err := nc.Subscribe(prefix+"CONSUMER.CREATE.s.*", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if asked[m.Subject]++; len(asked) == 2 && asked[m.Subject] == 2 {
			_ = m.Respond([]byte(`{"num_pending":7}`))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Subscribe(prefix+"CONSUMER.DELETE.s.*", func(m *nats.Msg) { gone <- m.Subject }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	st, err := Connect(t.Context(), Config{URL: srv.ClientURL(), APITimeout: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	st.clustered, st.apiPrefix = true, prefix
	cur, err := st.openCursor(t.Context(), st.control, cursorConfig{stream: "s"})
	if err != nil {
		t.Fatal(err)
	}
	if cur.pending != 7 {
		t.Errorf("%d pending", cur.pending)
	}
	mu.Lock()
	if len(asked) != 2 || asked[prefix+"CONSUMER.CREATE.s."+cur.name] != 2 {
		t.Errorf("asked for %v, got %s", asked, cur.name)
	}
	mu.Unlock()
	if first := <-gone; first == prefix+"CONSUMER.DELETE.s."+cur.name {
		t.Error("the consumer that was given is removed")
	}
	cur.forget()
}
