package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/test/testkit"
)

// TestCallNATS: calls over a real server, beside each other and beyond its
// largest message.
func TestCallNATS(t *testing.T) {
	srv, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	a, b := dialed(t, srv), dialed(t, srv)
	bs := b.deps.Store
	b.Handle("echo", func(_ context.Context, _ Identity, request []byte) ([]byte, error) { return request, nil })
	begun := make(chan struct{}, 1)
	b.Handle("wait", func(ctx context.Context, _ Identity, _ []byte) ([]byte, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	testkit.Poll(t, 30*time.Second, "two gateways", func() error {
		if n := len(a.Peers()); n != 2 {
			return fmt.Errorf("%d peers", n)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	to := b.Self()
	var wg sync.WaitGroup
	for _, n := range []int{0, 100, bs.Info().MaxPayload, 10 << 20, 10 << 20} {
		wg.Go(func() {
			q := make([]byte, n)
			_, _ = rand.Read(q)
			got, err := a.Call(ctx, to, "echo", q)
			if err != nil || !bytes.Equal(got, q) {
				t.Errorf("%d bytes: an answer of %d, %v", n, len(got), err)
			}
		})
	}
	wg.Wait()
	result := make(chan error, 1)
	go func() {
		_, err := a.Call(ctx, to, "wait", nil)
		result <- err
	}()
	<-begun
	bs.Close() // as a kill: nobody says goodbye
	if err := <-result; !errors.Is(err, pubsub.ErrOutcomeUnknown) {
		t.Errorf("callee gone in the middle: %v", err)
	}
	// The server notices the end of a connection a moment later: what it passes on
	// until then is lost, and nobody can tell that from what ran.
	testkit.Poll(t, 30*time.Second, "a call that is not delivered", func() error {
		_, err := a.Call(ctx, to, "echo", nil)
		switch {
		case errors.Is(err, ErrNotDelivered):
			return nil
		case !errors.Is(err, pubsub.ErrOutcomeUnknown):
			t.Fatalf("callee gone: %v", err)
		}
		return err
	})
}

// dialed is a running member over a connection of its own.
func dialed(t testing.TB, srv *embedded.Server) *Cluster {
	t.Helper()
	st, err := jetstream.Connect(t.Context(), jetstream.Config{InProcess: srv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	tb, err := st.Table(t.Context(), pubsub.TableConfig{Name: "kafka-gateways", Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Prefix: "kafka"}, Deps{Table: tb, Store: st, Logger: slog.New(slog.DiscardHandler)})
	if err := c.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// BenchmarkCall is a small call there and back over a server in this process.
func BenchmarkCall(b *testing.B) {
	srv, err := embedded.Start(b.Context(), embedded.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Stop()
	a, c := dialed(b, srv), dialed(b, srv)
	c.Handle("echo", func(_ context.Context, _ Identity, request []byte) ([]byte, error) { return request, nil })
	q := make([]byte, 200)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Call(b.Context(), c.Self(), "echo", q); err != nil {
			b.Fatal(err)
		}
	}
}
