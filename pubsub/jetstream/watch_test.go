package jetstream_test

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
)

// miscount is a connection on which consumers say that one more message is
// pending than there is, as servers do for what is stored while they make the
// consumer.
type miscount struct{ net.Conn }

var nonePending = regexp.MustCompile(`(\$JS\.ACK\.\S+\.)0 `)

func (c miscount) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p, nonePending.ReplaceAll(p[:n], []byte("${1}1 ")))
	return n, err
}

type miscountDialer struct{}

func (miscountDialer) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return miscount{c}, nil
}

// TestScanMiscounted: a scan ends, and a watch says that it is up to date, though
// the server expects a message that does not come.
func TestScanMiscounted(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{Listen: "127.0.0.1:0"})
	st := connect(t, jetstream.Config{URL: srv.ClientURL(), Options: []nats.Option{nats.SetCustomDialer(miscountDialer{})}})
	tb, err := st.Table(t.Context(), pubsub.TableConfig{Name: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := tb.Set(t.Context(), pubsub.Write{Key: fmt.Sprint("k", i), Data: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	for after, want := range []int{3, 2, 1, 0} {
		n, synced := 0, 0
		o := pubsub.WatchOptions{After: pubsub.Rev(after), Synced: func() { synced++ }}
		err := tb.Scan(ctx, o, 0, func(pubsub.Value) error { n++; return nil })
		if err != nil || n != want || synced != 1 {
			t.Errorf("scan after %d: %d values, synced %d times, %v", after, n, synced, err)
		}
	}
	synced := make(chan struct{})
	done := make(chan error, 1)
	watch, end := context.WithCancel(ctx)
	go func() {
		done <- tb.Watch(watch, pubsub.WatchOptions{Synced: func() { close(synced) }}, func(pubsub.Value) error { return nil })
	}()
	select {
	case <-synced:
	case <-ctx.Done():
		t.Error("the watch does not know that it is up to date")
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
