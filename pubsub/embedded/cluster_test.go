package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/test/testkit"
)

// peers are three free addresses.
func peers(t *testing.T) []string {
	return []string{testkit.FreeAddr(t), testkit.FreeAddr(t), testkit.FreeAddr(t)}
}

func clusterOf(addrs []string, n int, secret string) *embedded.Cluster {
	return &embedded.Cluster{Name: "test", Listen: addrs[n], Peers: addrs, Size: len(addrs), Secret: secret}
}

// lines collects log lines of several goroutines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer // guards: b
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestCluster: servers come one after another and say what they wait for; with a
// majority they take part; what is stored outlives one of them; the port that
// the server opens by itself lets nobody in; the secret is in no log line, and who
// has another one stays outside.
func TestCluster(t *testing.T) {
	t.Parallel()
	const secret = "planted-secret-of-routes"
	addrs := peers(t)
	var logs lines
	logger := slog.New(slog.NewJSONHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	var servers []*embedded.Server
	for i := range addrs {
		c := clusterOf(addrs, i, secret)
		if i == 1 {
			c.Peers = []string{addrs[0], addrs[2]} // its own may be left out
		}
		s := start(t, embedded.Config{Dir: dirs[i], Cluster: c, ServerName: fmt.Sprintf("s%d", i), Logger: logger})
		servers = append(servers, s)
		if s.Alone() || s.Name() != fmt.Sprintf("s%d", i) || s.ClientURL() != "" {
			t.Errorf("server %d: alone %v, name %s, URL %q", i, s.Alone(), s.Name(), s.ClientURL())
		}
		if i == 0 {
			if w := s.Waiting(); !strings.Contains(w, "majority") || !strings.Contains(w, "1 of 3 nodes are here (s0)") {
				t.Errorf("the first server waits for %q", w)
			}
			// A wait that ends with its context has said what it waited for.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			said := ""
			if err := s.AwaitMajority(ctx, func(what string) { said = what }); !errors.Is(err, context.DeadlineExceeded) || said == "" {
				t.Errorf("a wait without end: %v, said %q", err, said)
			}
			cancel()
		}
	}
	stranger := start(t, embedded.Config{Dir: t.TempDir(), Cluster: &embedded.Cluster{
		Name: "test", Listen: testkit.FreeAddr(t), Peers: addrs, Size: 3, Secret: "another"}, ServerName: "stranger"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, s := range servers {
		if err := s.AwaitMajority(ctx, func(what string) { t.Logf("s%d: %s", i, what) }); err != nil {
			t.Fatal(err)
		}
	}
	js := jetstream(t, servers[0])
	testkit.Poll(t, time.Minute, "a stream of three replicas", func() error {
		_, err := js.AddStream(&nats.StreamConfig{Name: "s", Subjects: []string{"s"}, Replicas: 3})
		return err
	})
	if _, err := js.Publish("s", []byte("x")); err != nil {
		t.Fatal(err)
	}
	servers[2].Stop()
	js = jetstream(t, servers[1])
	testkit.Poll(t, time.Minute, "work without one of three", func() error {
		_, err := js.Publish("s", []byte("y"))
		return err
	})
	if w := stranger.Waiting(); !strings.Contains(w, "1 of 3 nodes are here (stranger)") {
		t.Errorf("who has another secret: %q", w)
	}
	// The name stays with the folder, whatever is asked for later.
	again := start(t, embedded.Config{Dir: dirs[2], Cluster: clusterOf(addrs, 2, secret), ServerName: "other", Logger: logger})
	if again.Name() != "s2" {
		t.Errorf("after the restart it is %s", again.Name())
	}
	if err := again.AwaitMajority(ctx, func(string) {}); err != nil {
		t.Fatal(err)
	}
	nobodyElse(t)
	if text := logs.String(); strings.Contains(text, secret) || !strings.Contains(text, "nats") {
		t.Error("the secret is in the log, or there is none")
	}
}

// nobodyElse tries every loopback port that this process listens on as a NATS client.
func nobodyElse(t *testing.T) {
	t.Helper()
	all, err := os.ReadFile("/proc/self/net/tcp")
	fds, ferr := filepath.Glob("/proc/self/fd/*")
	if err != nil || ferr != nil {
		t.Logf("listening ports are not known here: %v, %v", err, ferr)
		return
	}
	own := map[string]bool{}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil {
			own[to] = true
		}
	}
	refused := 0
	for line := range strings.Lines(string(all)) {
		var ip, port uint32
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != "0A" || !own["socket:["+f[9]+"]"] {
			continue
		}
		if _, err := fmt.Sscanf(f[1], "%08X:%04X", &ip, &port); err != nil || ip != 0x0100007F {
			continue
		}
		nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port), nats.Timeout(2*time.Second), nats.NoReconnect())
		if err == nil {
			t.Errorf("port %d lets a client in", port)
			nc.Close()
		}
		if errors.Is(err, nats.ErrAuthorization) {
			refused++
		}
	}
	if refused < 3 {
		t.Errorf("%d ports refused a client: the test looks at the wrong ones", refused)
	}
}

// TestOtherUse: a folder is of a server that stands alone or of one in a cluster.
func TestOtherUse(t *testing.T) {
	t.Parallel()
	addrs := peers(t)
	alone := t.TempDir()
	s := start(t, embedded.Config{Dir: alone})
	if _, err := jetstream(t, s).AddStream(&nats.StreamConfig{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if _, err := embedded.Start(t.Context(), embedded.Config{Dir: alone, Cluster: clusterOf(addrs, 0, "")}); !errors.Is(err, embedded.ErrOtherUse) {
		t.Errorf("data of a single server in a cluster: %v", err)
	}
	start(t, embedded.Config{Dir: alone}).Stop() // it is still what it was

	dir := t.TempDir()
	start(t, embedded.Config{Dir: dir, Cluster: clusterOf(addrs, 0, "")}).Stop()
	if _, err := embedded.Start(t.Context(), embedded.Config{Dir: dir}); !errors.Is(err, embedded.ErrOtherUse) {
		t.Errorf("a node's folder without its cluster: %v", err)
	}
	other := clusterOf(addrs, 0, "")
	other.Name = "other"
	if _, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Cluster: other}); !errors.Is(err, embedded.ErrOtherUse) {
		t.Errorf("a node's folder in another cluster: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster-node.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Cluster: clusterOf(addrs, 0, "")}); !errors.Is(err, embedded.ErrFolder) {
		t.Errorf("an unreadable node file: %v", err)
	}
	l, err := net.Listen("tcp", addrs[1])
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Cluster: clusterOf(addrs, 1, "")}); !errors.Is(err, embedded.ErrListen) {
		t.Errorf("a taken cluster port: %v", err)
	}
}
