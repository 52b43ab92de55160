package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/admin"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// fakeGateway serves a connection by closing it, and writes down how it ends.
type fakeGateway struct {
	addr    advertised
	failed  chan error
	reasons []string

	mu        sync.Mutex // guards: all below
	listeners []net.Listener
	calls     []string
	ready     func() bool // asked at Shutdown
}

func (g *fakeGateway) call(s string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, s)
}

func (g *fakeGateway) Serve(_ context.Context, l net.Listener) error {
	g.mu.Lock()
	g.listeners = append(g.listeners, l)
	g.mu.Unlock()
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		_ = c.Close()
	}
}

// Leaving comes when /readyz says no, and before nothing more is taken.
func (g *fakeGateway) Leaving(context.Context) {
	if g.ready != nil && g.ready() {
		g.call("leaving while ready")
	}
	g.call("leaving")
}

func (g *fakeGateway) Shutdown(ctx context.Context) {
	if g.ready != nil && g.ready() {
		g.call("shutdown while ready")
	}
	if _, ok := ctx.Deadline(); !ok {
		g.call("shutdown without deadline")
	}
	g.call("shutdown")
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.listeners {
		_ = l.Close()
	}
}
func (g *fakeGateway) Close(context.Context)   { g.call("close") }
func (g *fakeGateway) Failed() <-chan error    { return g.failed }
func (g *fakeGateway) Ready() (bool, []string) { return len(g.reasons) == 0, g.reasons }
func (g *fakeGateway) Facts() facts {
	return facts{ClusterID: "cid", NodeID: 1, Gateways: []admin.Gateway{{NodeID: 1, Host: g.addr.Host, Port: int(g.addr.Port)}}}
}
func (g *fakeGateway) Cleaner(context.Context) admin.Compaction {
	return admin.Compaction{Cleaner: admin.Cleaner{State: "idle", Gateway: 1}, Topics: 1}
}
func (g *fakeGateway) Topics(context.Context, string) ([]admin.Topic, error) {
	return []admin.Topic{{Name: "t"}}, nil
}
func (g *fakeGateway) Offsets(context.Context, string, string) ([]admin.Offset, error) {
	return nil, pubsub.ErrUnavailable
}

func (g *fakeGateway) Compaction(context.Context, string) (admin.TopicCompaction, error) {
	return admin.TopicCompaction{}, pubsub.ErrUnavailable
}
func (g *fakeGateway) Compact(context.Context, string) (admin.TopicCompaction, error) {
	return admin.TopicCompaction{}, pubsub.ErrUnavailable
}

// syncBuffer is a bytes.Buffer for a writer and a reader.
type syncBuffer struct {
	mu sync.Mutex // guards: b
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// running is a server in this process, on free ports of the loopback address.
type running struct {
	*server
	gw     *fakeGateway
	store  *memory.Client
	out    *syncBuffer
	log    *syncBuffer
	stop   context.CancelFunc
	result chan error
}

func start(t *testing.T, change func(*running), args ...string) *running {
	t.Helper()
	l := loadWith(t, append([]string{"--bind", "127.0.0.1:0", "--admin-bind", "127.0.0.1:0"}, args...), nil)
	if len(l.problems) > 0 {
		t.Fatal(l.problems)
	}
	r := &running{out: &syncBuffer{}, log: &syncBuffer{}, result: make(chan error, 1), gw: &fakeGateway{failed: make(chan error, 1)}}
	r.store = memory.NewServer(memory.Config{}).Client(memory.Faults{})
	t.Cleanup(r.store.Close)
	r.server = &server{
		config: l, build: build{Version: "1.2.3", Commit: "abc", GoVersion: "go"}, stdout: r.out,
		logger:   logging.New(r.log, logging.Options{}),
		registry: admin.NewRegistry("1.2.3", "abc", "go"),
		open: func(context.Context, *loaded, *slog.Logger, prometheus.Registerer) (opened, error) {
			return opened{store: r.store, warnings: []string{"from the store"}, close: func() { r.gw.call("store closed") }}, nil
		},
		gateway: func(_ context.Context, _ *loaded, _ pubsub.Store, a advertised, _ *slog.Logger, _ prometheus.Registerer) (gateway, error) {
			r.gw.addr = a
			return r.gw, nil
		},
	}
	if change != nil {
		change(r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() { r.result <- r.run(ctx) }()
	t.Cleanup(cancel)
	return r
}

func (r *running) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.result:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the server does not end")
		return nil
	}
}

// eventually polls cond until it holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

var httpLine = regexp.MustCompile(`http: (http://127\.0\.0\.1:\d+)/v1/stream/\n`)

func TestServe(t *testing.T) {
	t.Parallel()
	r := start(t, nil, "--advertised-address", "kafka.example:1234")
	eventually(t, "banner", func() bool {
		return strings.HasSuffix(r.out.String(), "\n\n") && strings.Count(r.out.String(), "\n") > 4
	})
	for _, want := range []string{"stream 1.2.3: ", "\n  bootstrap.servers=kafka.example:1234\n", "durability: r1-always. ", "warning: from the store\n"} {
		if !strings.Contains(r.out.String(), want) {
			t.Errorf("banner lacks %q:\n%s", want, r.out.String())
		}
	}
	if strings.Contains(r.out.String(), "open to the network") {
		t.Errorf("loopback is no network:\n%s", r.out.String())
	}
	if !strings.Contains(r.log.String(), `"bootstrap.servers":"kafka.example:1234"`) || !strings.Contains(r.log.String(), `"durability":"r1-always"`) {
		t.Errorf("log: %s", r.log.String())
	}
	url := httpLine.FindStringSubmatch(r.out.String())
	if url == nil {
		t.Fatalf("no URL in\n%s", r.out.String())
	}
	code, text := get(t, url[1]+"/v1/stream/status")
	var st map[string]any
	if err := json.Unmarshal([]byte(text), &st); err != nil || code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	for key, want := range map[string]any{
		"service": "hanzo-stream", "pubsub_connected": "connected", "version": "1.2.3", "cluster_id": "cid", "ready": true, "node_id": 1.0,
		"kafka_port": float64(portOf(r.kafka[0])), "admin_port": float64(portOf(r.http[0])),
	} {
		if st[key] != want {
			t.Errorf("status %s: %v, want %v", key, st[key], want)
		}
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/healthz": 200, "/v1/stream/topics": 200, "/v1/stream/groups": 503, "/metrics": 200} {
		if code, text := get(t, url[1]+path); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}

	r.store.Disconnect()
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503, "/healthz": 503} {
		if code, text := get(t, url[1]+path); code != want {
			t.Errorf("disconnected: %s: %d %s", path, code, text)
		}
	}
	r.store.Reconnect()
	r.gw.ready = func() bool { ok, _ := r.readiness(); return ok }
	r.stop()
	if err := r.end(t); err != nil {
		t.Errorf("run: %v", err)
	}
	if got := strings.Join(r.gw.calls, ", "); got != "leaving, shutdown, close, store closed" {
		t.Errorf("ended by %s", got)
	}
	if code, _ := get(t, url[1]+"/livez"); code != 0 {
		t.Errorf("http is still there: %d", code)
	}
	if !strings.Contains(r.log.String(), `"within_grace":true`) {
		t.Errorf("log: %s", r.log.String())
	}
}

// Probes answer while the store is still being opened, and a signal ends that.
func TestServeWhileStarting(t *testing.T) {
	t.Parallel()
	opening := make(chan struct{})
	r := start(t, func(r *running) {
		r.open = func(ctx context.Context, _ *loaded, _ *slog.Logger, _ prometheus.Registerer) (opened, error) {
			close(opening)
			<-ctx.Done()
			return opened{}, ctx.Err()
		}
	})
	<-opening
	url := "http://" + r.http[0].Addr().String()
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503, "/healthz": 503, "/v1/stream/topics": 503, "/v1/stream/groups": 503, "/v1/stream/status": 200} {
		if code, text := get(t, url+path); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	r.stop()
	if err := r.end(t); err != nil {
		t.Errorf("run: %v", err)
	}
	if r.out.String() != "" {
		t.Errorf("banner before it is true: %s", r.out.String())
	}
}

func TestServeFailures(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		change func(*running)
		calls  string
	}{
		"store": {func(r *running) {
			r.open = func(context.Context, *loaded, *slog.Logger, prometheus.Registerer) (opened, error) {
				return opened{}, boom
			}
		}, ""},
		"gateway": {func(r *running) {
			r.gateway = func(context.Context, *loaded, pubsub.Store, advertised, *slog.Logger, prometheus.Registerer) (gateway, error) {
				return nil, boom
			}
		}, "store closed"},
		"running": {func(r *running) { r.gw.failed <- boom }, "leaving, shutdown, close, store closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, c.change)
			if err := r.end(t); !errors.Is(err, boom) {
				t.Errorf("run: %v", err)
			}
			if got := strings.Join(r.gw.calls, ", "); got != c.calls {
				t.Errorf("ended by %s", got)
			}
			if c, err := net.Dial("tcp", r.kafka[0].Addr().String()); err == nil {
				_ = c.Close()
				t.Error("the Kafka port is still open")
			}
		})
	}
}

// What NATS cannot store is not promised.
func TestServeFitsMessageSize(t *testing.T) {
	t.Parallel()
	s := &server{config: loadWith(t, nil, nil), logger: logging.Discard()}
	s.fitMessageSize(pubsub.Info{MaxPayload: 8 << 20})
	if s.config.MaxMessage != 1048588 || len(s.warnings) != 0 {
		t.Errorf("8 MiB: %d %q", int64(s.config.MaxMessage), s.warnings)
	}
	s.fitMessageSize(pubsub.Info{MaxPayload: 1 << 20})
	if s.config.MaxMessage != 1<<20-4<<10 || len(s.warnings) != 1 || !strings.Contains(s.warnings[0], "message.max.bytes is 1044480 instead of 1048588") {
		t.Errorf("1 MiB: %d %q", int64(s.config.MaxMessage), s.warnings)
	}
}
