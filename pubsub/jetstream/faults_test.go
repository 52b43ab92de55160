package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/test/testkit"
)

// halfway is a TCP relay that can drop one direction: the server gets what is
// sent and its answers do not arrive, or the other way round.
type halfway struct {
	url    string
	target string
	l      net.Listener
	wg     sync.WaitGroup

	deaf, mute, refuse atomic.Bool // no answers; no requests; no connections

	mu    sync.Mutex // guards: conns
	conns []net.Conn
}

func newHalfway(t *testing.T, target string) *halfway {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &halfway{url: "nats://" + l.Addr().String(), target: u.Host, l: l}
	h.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if h.refuse.Load() {
				c.Close()
				continue
			}
			s, err := net.Dial("tcp", h.target)
			if err != nil {
				c.Close()
				continue
			}
			h.mu.Lock()
			h.conns = append(h.conns, c, s)
			h.mu.Unlock()
			h.wg.Go(func() { h.copy(s, c, &h.mute) })
			h.wg.Go(func() { h.copy(c, s, &h.deaf) })
		}
	})
	t.Cleanup(func() { l.Close(); h.cut(); h.wg.Wait() })
	return h
}

func (h *halfway) copy(to, from net.Conn, drop *atomic.Bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !drop.Load() {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut ends all connections. Bytes dropped would break the protocol of those
// that go on, so it also ends the dropping.
func (h *halfway) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		c.Close()
	}
	h.conns = nil
}

func (h *halfway) heal() {
	h.cut()
	h.deaf.Store(false)
	h.mute.Store(false)
	h.refuse.Store(false)
}

// connected waits until all connections have come back since the store was
// made. A connection says that it is back after it said that it was lost.
func connected(t *testing.T, reg prometheus.Gatherer, conns int) {
	t.Helper()
	testkit.Poll(t, 20*time.Second, "all connections back", func() error {
		families, err := reg.Gather()
		if err != nil {
			return err
		}
		for _, f := range families {
			if f.GetName() == "stream_nats_reconnects_total" {
				if n := int(f.Metric[0].Counter.GetValue()); n < conns {
					return fmt.Errorf("%d of %d are back", n, conns)
				}
				return nil
			}
		}
		return errors.New("no such metric")
	})
}

// faultyLog is a log seen through a relay, and seen directly.
func faultyLog(t *testing.T, ack time.Duration) (h *halfway, st *jetstream.Store, l, direct pubsub.Log, back func()) {
	t.Helper()
	reg := prometheus.NewRegistry()
	srv := startEmbedded(t, embedded.Config{Listen: "127.0.0.1:0"})
	h = newHalfway(t, srv.ClientURL())
	st = connect(t, jetstream.Config{URL: h.url, AckTimeout: ack, Registerer: reg})
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "kafka-foo-0", Subject: "kafka.foo.0"}); err != nil {
		t.Fatal(err)
	}
	l = st.Log("kafka-foo-0", "kafka.foo.0")
	if _, err := l.Append(t.Context(), 0, pubsub.Entry{Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	other := connect(t, jetstream.Config{InProcess: srv})
	back = func() {
		t.Helper()
		h.heal()
		connected(t, reg, st.Conns())
	}
	return h, st, l, other.Log("kafka-foo-0", "kafka.foo.0"), back
}

func last(t *testing.T, l pubsub.Log, want pubsub.Seq) {
	t.Helper()
	testkit.Poll(t, 10*time.Second, "last sequence", func() error {
		b, err := l.Bounds(t.Context())
		if err == nil && b.Last != want {
			err = errors.New("log does not end where it should")
		}
		return err
	})
}

// TestLostAck: the append is stored, its acknowledgement is not heard.
func TestLostAck(t *testing.T) {
	h, _, l, direct, back := faultyLog(t, 2*time.Second)
	h.deaf.Store(true)
	e := pubsub.Entry{Data: []byte("2"), Header: pubsub.Header{"Append-Id": {"a2"}}}
	if _, err := l.Append(t.Context(), 1, e); !errors.Is(err, pubsub.ErrOutcomeUnknown) {
		t.Fatalf("Append: %v, want %v", err, pubsub.ErrOutcomeUnknown)
	}
	last(t, direct, 2)
	back()
	// What is in the way is our own, and can be seen to be.
	if _, err := l.Append(t.Context(), 1, e); !errors.Is(err, pubsub.ErrConflict) {
		t.Fatalf("the same append again: %v, want %v", err, pubsub.ErrConflict)
	}
	if m, err := l.Get(t.Context(), 2); err != nil || m.Header.Get("Append-Id") != "a2" {
		t.Errorf("Get: %+v, %v", m, err)
	}
	last(t, direct, 2)
}

// TestLostAppend: the append itself is lost; nothing repeats it by itself.
func TestLostAppend(t *testing.T) {
	h, _, l, direct, back := faultyLog(t, 2*time.Second)
	h.mute.Store(true)
	e := pubsub.Entry{Data: []byte("2")}
	if _, err := l.Append(t.Context(), 1, e); !errors.Is(err, pubsub.ErrOutcomeUnknown) {
		t.Fatalf("Append: %v, want %v", err, pubsub.ErrOutcomeUnknown)
	}
	back()
	last(t, direct, 1)
	if seq, err := l.Append(t.Context(), 1, e); err != nil || seq != 2 {
		t.Errorf("the same append again: %d, %v", seq, err)
	}
}

// TestLostConnection: an append that waits learns of the loss at once.
func TestLostConnection(t *testing.T) {
	h, st, l, _, back := faultyLog(t, time.Minute)
	h.deaf.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := l.Append(context.Background(), 1, pubsub.Entry{Data: []byte("2")})
		done <- err
	}()
	// Cut when it is out; if it were cut before, it would be ErrUnavailable.
	stored(t, h, 2)
	h.refuse.Store(true)
	h.cut()
	select {
	case err := <-done:
		if !errors.Is(err, pubsub.ErrOutcomeUnknown) {
			t.Errorf("Append: %v, want %v", err, pubsub.ErrOutcomeUnknown)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Append still waits")
	}
	testkit.Poll(t, 10*time.Second, "disconnected", func() error {
		if st.Connected() {
			return errors.New("connected")
		}
		return nil
	})
	// While there is no connection nothing is sent, and nothing is kept to be
	// sent later.
	for range 3 {
		_, err := l.Append(t.Context(), 2, pubsub.Entry{Data: []byte("3")})
		if !errors.Is(err, pubsub.ErrUnavailable) || errors.Is(err, pubsub.ErrOutcomeUnknown) {
			t.Fatalf("Append without a connection: %v, want %v", err, pubsub.ErrUnavailable)
		}
		if _, err := l.Read(t.Context(), 1, pubsub.Limit{}); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Fatalf("Read without a connection: %v, want %v", err, pubsub.ErrUnavailable)
		}
		if _, err := l.Bounds(t.Context()); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Fatalf("Bounds without a connection: %v, want %v", err, pubsub.ErrUnavailable)
		}
	}
	back()
	last(t, l, 2)
}

// stored waits until the log has been extended, seen past the relay.
func stored(t *testing.T, h *halfway, want pubsub.Seq) {
	t.Helper()
	st := connect(t, jetstream.Config{URL: "nats://" + h.target})
	last(t, st.Log("kafka-foo-0", "kafka.foo.0"), want)
}

// TestAppendContext: a context that ends when the append is out.
func TestAppendContext(t *testing.T) {
	h, _, l, _, _ := faultyLog(t, time.Minute)
	h.deaf.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := l.Append(ctx, 1, pubsub.Entry{Data: []byte("2")}); !errors.Is(err, pubsub.ErrOutcomeUnknown) {
		t.Errorf("Append: %v, want %v", err, pubsub.ErrOutcomeUnknown)
	}
}

// TestServerRestart: connection events, news, watches and waiting scans over a
// restart of the server.
func TestServerRestart(t *testing.T) {
	dir := t.TempDir()
	addr := testkit.FreeAddr(t) // which nobody gets while the server is down
	srv, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Listen: addr})
	if err != nil {
		t.Fatal(err)
	}
	st := connect(t, jetstream.Config{URL: srv.ClientURL()})
	events := make(chan bool, 10)
	st.OnConnection(func(up bool) { events <- up })
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
	tb, err := st.Table(t.Context(), pubsub.TableConfig{Name: "t"})
	if err != nil {
		t.Fatal(err)
	}
	rev, err := tb.Set(t.Context(), pubsub.Write{Key: "a", Data: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	values, synced := make(chan pubsub.Value, 10), make(chan struct{}, 10)
	ctx, end := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() {
		watched <- tb.Watch(ctx, pubsub.WatchOptions{
			Synced: func() { synced <- struct{}{} },
			Reset:  func() { t.Error("the watch started over") },
		}, func(v pubsub.Value) error { values <- v; return nil })
	}()
	want := func(m pubsub.Message, seq pubsub.Seq) {
		t.Helper()
		if m.Seq != seq {
			t.Fatalf("news of sequence %d, want %d", m.Seq, seq)
		}
	}
	want(receive(t, news), 0)
	if v := receive(t, values); v.Rev != rev {
		t.Fatalf("watch: %+v", v)
	}
	receive(t, synced)
	if _, err := l.Append(t.Context(), 0, pubsub.Entry{Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	want(receive(t, news), 1)

	srv.Stop()
	if up := receive(t, events); up {
		t.Fatal("up before down")
	}
	// Each connection learns of it by itself.
	testkit.Poll(t, 10*time.Second, "an append refused for want of a server", func() error {
		if _, err := l.Append(t.Context(), 1, pubsub.Entry{}); !errors.Is(err, pubsub.ErrUnavailable) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if srv, err = embedded.Start(t.Context(), embedded.Config{Dir: dir, Listen: addr}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	if up := receive(t, events); !up {
		t.Fatal("down twice")
	}
	want(receive(t, news), 0)
	if _, err := l.Append(t.Context(), 1, pubsub.Entry{Data: []byte("2")}); err != nil {
		t.Fatal(err)
	}
	want(receive(t, news), 2)
	rev2, err := pubsub.Put(t.Context(), tb, pubsub.Write{Key: "b", Data: []byte("2")})
	if err != nil {
		t.Fatal(err)
	}
	if v := receive(t, values); v.Key != "b" || v.Rev != rev2 {
		t.Errorf("watch after the restart: %+v", v)
	}
	if len(synced) != 0 {
		t.Error("Synced was called twice")
	}
	end()
	if err := receive(t, watched); err != nil {
		t.Errorf("Watch: %v", err)
	}
}

// TestBucketRemade: a watch notices another bucket of the same name.
func TestBucketRemade(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	st := connect(t, jetstream.Config{InProcess: srv})
	table := func() pubsub.Table {
		tb, err := st.Table(t.Context(), pubsub.TableConfig{Name: "t"})
		if err != nil {
			t.Fatal(err)
		}
		return tb
	}
	tb := table()
	for _, k := range []string{"a", "b", "c"} {
		if _, err := tb.Set(t.Context(), pubsub.Write{Key: k, Data: []byte("old")}); err != nil {
			t.Fatal(err)
		}
	}
	type event struct {
		key   string
		reset bool
	}
	events := make(chan event, 20)
	ctx, end := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() {
		watched <- tb.Watch(ctx, pubsub.WatchOptions{Reset: func() { events <- event{reset: true} }}, func(v pubsub.Value) error {
			events <- event{key: v.Key}
			return nil
		})
	}()
	for _, k := range []string{"a", "b", "c"} {
		if e := receive(t, events); e.key != k {
			t.Fatalf("got %+v, want %s", e, k)
		}
	}
	if err := st.DeleteLog(t.Context(), "KV_t"); err != nil {
		t.Fatal(err)
	}
	if _, err := table().Set(t.Context(), pubsub.Write{Key: "d", Data: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	if e := receive(t, events); !e.reset {
		t.Fatalf("got %+v, want a reset", e)
	}
	if e := receive(t, events); e.key != "d" {
		t.Fatalf("got %+v, want d", e)
	}
	end()
	if err := receive(t, watched); err != nil {
		t.Errorf("Watch: %v", err)
	}
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came in 20s")
		panic("unreachable")
	}
}
