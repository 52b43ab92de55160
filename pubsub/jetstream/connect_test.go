package jetstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/test/testkit"
)

// wantStart checks the reason, that there is a hint, and that no secret shows.
func wantStart(t *testing.T, c jetstream.Config, reason error) {
	t.Helper()
	s, err := jetstream.Connect(t.Context(), c)
	if err == nil {
		s.Close()
	}
	var se *jetstream.StartError
	if !errors.Is(err, reason) || !errors.As(err, &se) {
		t.Fatalf("Connect: %v, want %v", err, reason)
	}
	if se.Hint == "" || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
		t.Errorf("Connect: %v", err)
	}
}

func TestConnectUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	wantStart(t, jetstream.Config{URL: "nats://me:secret@" + addr}, jetstream.ErrUnreachable)
}

// TestConnectTooOld talks to a server that says it is 2.10.22.
func TestConnectTooOld(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				fmt.Fprintf(c, "INFO {\"server_id\":\"X\",\"version\":\"2.10.22\",\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n")
				for in := bufio.NewScanner(c); in.Scan(); {
					if in.Text() == "PING" {
						fmt.Fprint(c, "PONG\r\n")
					}
				}
			})
		}
	})
	wantStart(t, jetstream.Config{URL: "nats://" + l.Addr().String()}, jetstream.ErrTooOld)
}

func plainServer(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("server is not ready")
	}
	return s
}

func TestConnectNoJetStream(t *testing.T) {
	s := plainServer(t, server.Options{})
	wantStart(t, jetstream.Config{URL: s.ClientURL()}, jetstream.ErrNoJetStream)
}

func TestConnectLogin(t *testing.T) {
	s := plainServer(t, server.Options{Username: "me", Password: "secret", JetStream: true, StoreDir: t.TempDir()})
	wantStart(t, jetstream.Config{URL: s.ClientURL()}, jetstream.ErrLogin)
	login, err := jetstream.LoginOptions(jetstream.Login{User: "me", Password: "wrong secret"})
	if err != nil {
		t.Fatal(err)
	}
	wantStart(t, jetstream.Config{URL: s.ClientURL(), Options: login.Options}, jetstream.ErrLogin)
	if login, err = jetstream.LoginOptions(jetstream.Login{User: "me", Password: "secret"}); err != nil {
		t.Fatal(err)
	}
	st := connect(t, jetstream.Config{URL: s.ClientURL(), Options: login.Options})
	if err := st.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// Space is the disk of an embedded server, else what the account may use.
func TestSpace(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	st := connect(t, jetstream.Config{InProcess: srv, Disk: srv.Disk})
	got, err := st.Space(t.Context(), false)
	if err != nil || got.Dir == "" || got.Total <= got.Free || got.Free <= 0 {
		t.Errorf("disk: %+v, %v", got, err)
	}
	unknown := pubsub.Space{Total: -1, Free: -1}
	if got, err := st.Space(t.Context(), true); err != nil || got != unknown {
		t.Errorf("memory without a limit: %+v, %v", got, err)
	}
	broken := connect(t, jetstream.Config{InProcess: srv, Disk: func() (string, int64, int64, error) { return "x", 0, 0, errors.New("no disk") }})
	if got, err := broken.Space(t.Context(), false); err == nil {
		t.Errorf("failed disk: %+v", got)
	}

	s := plainServer(t, server.Options{JetStream: true, StoreDir: t.TempDir()})
	limits := map[string]server.JetStreamAccountLimits{"": {MaxMemory: 4 << 20, MaxStore: 16 << 20, MaxStreams: -1, MaxConsumers: -1}}
	if err := s.GlobalAccount().UpdateJetStreamLimits(limits); err != nil {
		t.Fatal(err)
	}
	st = connect(t, jetstream.Config{URL: s.ClientURL()})
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "space", Subject: "space", Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Log("space", "space").Append(t.Context(), 0, pubsub.Entry{Data: make([]byte, 100_000)}); err != nil {
		t.Fatal(err)
	}
	if got, err := st.Space(t.Context(), false); err != nil || got.Dir != "" || got.Total != 16<<20 || got.Free > 16<<20-100_000 || got.Free < 15<<20 {
		t.Errorf("files of an account with a limit: %+v, %v", got, err)
	}
	if got, err := st.Space(t.Context(), true); err != nil || got != (pubsub.Space{Total: 4 << 20, Free: 4 << 20}) {
		t.Errorf("memory of an account with a limit: %+v, %v", got, err)
	}
}

func TestConnectEndsWithContext(t *testing.T) {
	// A listener that says nothing: the connect would wait for its own timeout.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil {
			cancel()
			<-t.Context().Done()
			c.Close()
		}
	}()
	if _, err := jetstream.Connect(ctx, jetstream.Config{URL: "nats://" + l.Addr().String()}); !errors.Is(err, context.Canceled) {
		t.Errorf("Connect: %v, want %v", err, context.Canceled)
	}
}

func TestConnectConfig(t *testing.T) {
	for _, c := range []jetstream.Config{{}, {URL: "nats://x", Prefix: "a.b"}, {URL: "nats://x", Prefix: "a*"}} {
		if _, err := jetstream.Connect(t.Context(), c); err == nil || errors.Is(err, jetstream.ErrUnreachable) {
			t.Errorf("Connect with %+v: %v", c, err)
		}
	}
}

func TestInfoAndMetrics(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{MaxPayload: 3 << 20, Listen: "127.0.0.1:0"})
	reg := prometheus.NewPedanticRegistry()
	st := connect(t, jetstream.Config{InProcess: srv, Registerer: reg})
	want := pubsub.Info{Version: srv.Version(), URL: "embedded", MaxPayload: 3 << 20, MaxReplicas: 1}
	if st.Info() != want {
		t.Errorf("Info: %+v, want %+v", st.Info(), want)
	}
	if len(st.Warnings()) != 0 {
		t.Errorf("warnings about the embedded server: %v", st.Warnings())
	}
	url := strings.Replace(srv.ClientURL(), "nats://", "nats://me:secret@", 1)
	if got := connect(t, jetstream.Config{URL: url}).Info().URL; got != srv.ClientURL() {
		t.Errorf("shown URL %q, want %q", got, srv.ClientURL())
	}
	if err := st.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range families {
		got[f.GetName()] = true
		if f.GetName() == "stream_nats_connected" && f.Metric[0].Gauge.GetValue() != 1 {
			t.Error("stream_nats_connected is not 1")
		}
		if f.GetName() == "stream_nats_rtt_seconds" && f.Metric[0].Histogram.GetSampleCount() != 1 {
			t.Error("the ping is not in stream_nats_rtt_seconds")
		}
		if f.GetName() == "stream_nats_received_bytes_total" {
			for _, m := range f.Metric {
				if use := m.Label[0].GetValue(); (m.Counter.GetValue() > 0) != (use == "control") {
					t.Errorf("%v bytes received on %s; only a ping was sent, on control", m.Counter.GetValue(), use)
				}
			}
		}
	}
	for _, name := range []string{"rtt_seconds", "publish_seconds", "connected", "api_inflight", "reconnects_total", "api_refused_total", "received_bytes_total", "sent_bytes_total"} {
		if !got["stream_nats_"+name] {
			t.Errorf("no metric stream_nats_%s", name)
		}
	}
	// What is closed gives its metrics back.
	st.Close()
	connect(t, jetstream.Config{InProcess: srv, Registerer: reg})
}

// TestKVClient: an operator's KV tools see our tables, and we theirs.
func TestKVClient(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	st := connect(t, jetstream.Config{InProcess: srv})
	tb, err := st.Table(t.Context(), pubsub.TableConfig{Name: "kafka-consumer-offsets"})
	if err != nil {
		t.Fatal(err)
	}
	rev, err := tb.Set(t.Context(), pubsub.Write{Key: "g.foo.0", Data: []byte("ours"), Header: pubsub.Header{"Term": {"3"}}})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue("kafka-consumer-offsets")
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get("g.foo.0")
	if err != nil || string(e.Value()) != "ours" || e.Revision() != uint64(rev) {
		t.Errorf("kv get: %+v, %v", e, err)
	}
	theirs, err := kv.Update("g.foo.0", []byte("theirs"), uint64(rev))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := tb.Get(t.Context(), "g.foo.0"); err != nil || string(v.Data) != "theirs" || uint64(v.Rev) != theirs {
		t.Errorf("Get after kv put: %+v, %v", v, err)
	}
	if err := kv.Purge("g.foo.0"); err != nil {
		t.Fatal(err)
	}
	if v, err := tb.Get(t.Context(), "g.foo.0"); !errors.Is(err, pubsub.ErrNotFound) || !v.Deleted || v.Rev <= pubsub.Rev(theirs) {
		t.Errorf("Get after kv purge: %+v, %v", v, err)
	}
}

// TestDomain works through a leaf node that has no JetStream of its own and uses
// that of a domain: every kind of call passes.
func TestDomain(t *testing.T) {
	leafAddr := testkit.FreeAddr(t)
	_, port, _ := strings.Cut(leafAddr, ":")
	leafPort, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	hub := plainServer(t, server.Options{
		ServerName: "hub", JetStream: true, JetStreamDomain: "hub", StoreDir: t.TempDir(), MaxPayload: 8 << 20,
		LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: leafPort},
	})
	at := &url.URL{Scheme: "nats-leaf", Host: leafAddr}
	leaf := plainServer(t, server.Options{
		ServerName: "leaf", MaxPayload: 8 << 20, LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{{URLs: []*url.URL{at}}}},
	})
	wantStart(t, jetstream.Config{URL: hub.ClientURL(), Domain: "other"}, jetstream.ErrNoJetStream)
	ctx := t.Context()
	c := jetstream.Config{URL: leaf.ClientURL(), Domain: "hub", ReadTimeout: time.Second}
	// The hub counts a leaf before the leaf has heard who listens at the hub.
	testkit.Poll(t, 10*time.Second, "the leaf passes requests on", func() error {
		st, err := jetstream.Connect(ctx, c)
		if err == nil {
			st.Close()
		}
		return err
	})
	st := connect(t, c)
	if err := st.CreateLog(ctx, pubsub.LogConfig{Name: "d", Subject: "d.0"}); err != nil {
		t.Fatal(err)
	}
	l := st.Log("d", "d.0")
	for i := range 3 {
		if seq, err := l.Append(ctx, pubsub.Seq(i), pubsub.Entry{Data: []byte{byte(i)}}); err != nil || seq != pubsub.Seq(i+1) {
			t.Fatalf("append: %d, %v", seq, err)
		}
	}
	if _, err := l.Append(ctx, 1, pubsub.Entry{Data: []byte("late")}); !errors.Is(err, pubsub.ErrConflict) {
		t.Errorf("append in the past: %v", err)
	}
	if ms, err := l.Read(ctx, 2, pubsub.Limit{}); err != nil || len(ms) != 2 || ms[1].Data[0] != 2 {
		t.Errorf("read: %+v, %v", ms, err)
	}
	if m, err := l.Get(ctx, 1); err != nil || m.Data[0] != 0 {
		t.Errorf("get: %+v, %v", m, err)
	}
	// Behind a leaf node nobody says that nobody listens.
	if _, err := st.Log("absent", "absent.0").Read(ctx, 1, pubsub.Limit{}); !errors.Is(err, pubsub.ErrNotFound) {
		t.Errorf("read a log that is not there: %v", err)
	}
	tb, err := st.Table(ctx, pubsub.TableConfig{Name: "kafka-d"})
	if err != nil {
		t.Fatal(err)
	}
	rev, err := tb.Set(ctx, pubsub.Write{Key: "a.b", Data: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := tb.Get(ctx, "a.b"); err != nil || string(v.Data) != "1" || v.Rev != rev {
		t.Errorf("get a.b: %+v, %v", v, err)
	}
	if _, err := tb.Set(ctx, pubsub.Write{Key: "a.b", Data: []byte("2")}); !errors.Is(err, pubsub.ErrConflict) {
		t.Errorf("set from nothing: %v", err)
	}
	var keys []string
	if err := tb.Scan(ctx, pubsub.WatchOptions{}, 0, func(v pubsub.Value) error { keys = append(keys, v.Key); return nil }); err != nil || len(keys) != 1 {
		t.Errorf("scan: %q, %v", keys, err)
	}
}
