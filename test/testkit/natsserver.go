package testkit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// natsModule is where nats-server comes from.
const natsModule = "github.com/nats-io/nats-server/v2"

// NATSOptions say which nats-server to start and how.
type NATSOptions struct {
	// Version is a release ("2.10.29"), the newest of a line ("2.11.x"), or ""
	// for the version that the product embeds.
	Version string
	// Dir is JetStream's folder; "" takes a temporary one. Servers of a cluster
	// use subfolders of it.
	Dir string
	// NoJetStream starts a server without JetStream.
	NoJetStream bool
	// MaxPayload in bytes; 0 takes 8 MiB.
	MaxPayload int
	// Config is appended to the server's configuration file.
	Config string
	// NoAdvertise keeps servers of a cluster from telling clients of each other:
	// whoever connects through relays stays behind them.
	NoAdvertise bool
}

// NATSServer is a nats-server process on a free port of the loopback address.
// It ends with the test.
type NATSServer struct {
	URL     string // nats://127.0.0.1:port, the same after a restart
	Version string // as resolved
	Dir     string

	name   string
	binary string
	opts   NATSOptions
	routes string // cluster block of the configuration
	conf   string // folder of configuration and ports file
	port   string

	mu  sync.Mutex // guards: cmd, end, out
	cmd *exec.Cmd
	end chan struct{} // closed when cmd has ended
	out bytes.Buffer
}

// NATSVersions are the versions that STREAM_TEST_NATS_VERSIONS asks to test
// against, comma separated; none if it is not set.
func NATSVersions() []string {
	var vs []string
	for v := range strings.SplitSeq(os.Getenv("STREAM_TEST_NATS_VERSIONS"), ",") {
		if v = strings.TrimSpace(v); v != "" {
			vs = append(vs, v)
		}
	}
	return vs
}

// StartNATS starts a server and waits until it accepts connections (and, with
// JetStream, answers requests: recovery comes first).
func StartNATS(tb testing.TB, o NATSOptions) *NATSServer {
	tb.Helper()
	var err error
	for range 3 { // the port may be taken before the server has it
		s := newNATS(tb, o, "nats")
		if err = s.Start(); err == nil {
			return s
		}
		s.Kill()
	}
	tb.Fatalf("start nats-server: %v", err)
	return nil
}

// StartNATSCluster starts n servers that form one cluster; it has a leader only
// when the first JetStream call is answered, which callers should wait for.
func StartNATSCluster(tb testing.TB, n int, o NATSOptions) []*NATSServer {
	tb.Helper()
	root := o.Dir
	if root == "" {
		root = tb.TempDir()
	}
	// Routes must be known before the start, so a port found free may be taken
	// by somebody else in between; then all begin anew.
	var err error
	for range 3 {
		var servers []*NATSServer
		if servers, err = tryCluster(tb, n, o, root); err == nil {
			return servers
		}
		for _, s := range servers {
			s.Kill()
		}
	}
	tb.Fatalf("start nats cluster: %v", err)
	return nil
}

func tryCluster(tb testing.TB, n int, o NATSOptions, root string) ([]*NATSServer, error) {
	ports, routes := make([]int, n), make([]string, n)
	for i := range ports {
		ports[i] = FreePort(tb)
		routes[i] = fmt.Sprintf("nats-route://127.0.0.1:%d", ports[i])
	}
	var servers []*NATSServer
	for i, p := range ports {
		o.Dir = filepath.Join(root, fmt.Sprintf("n%d", i))
		s := newNATS(tb, o, fmt.Sprintf("n%d", i))
		s.routes = fmt.Sprintf("cluster { name: test, host: 127.0.0.1, port: %d, no_advertise: %t, routes: [%s] }\n", p, o.NoAdvertise, strings.Join(routes, ", "))
		servers = append(servers, s)
	}
	return servers, startAll(servers)
}

// startAll starts one after the other, which takes some 50 ms each. Servers that
// dial each other at the same moment close the one of two routes that each thinks
// is the second, and 2.10 and 2.11 may then never hear of each other's JetStream:
// "no suitable peers for placement (10005)" for a while or for ever.
func startAll(servers []*NATSServer) error {
	for _, s := range servers {
		if err := s.Start(); err != nil {
			return err
		}
	}
	return nil
}

func newNATS(tb testing.TB, o NATSOptions, name string) *NATSServer {
	tb.Helper()
	binary, version, err := NATSBinary(tb.Context(), o.Version)
	if err != nil {
		tb.Fatal(err)
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = 8 << 20
	}
	s := &NATSServer{Version: version, Dir: o.Dir, name: name, binary: binary, opts: o, conf: tb.TempDir(), port: strconv.Itoa(FreePort(tb))}
	if s.Dir == "" {
		s.Dir = tb.TempDir()
	}
	tb.Cleanup(func() {
		s.Kill()
		if tb.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			out := s.out.String()
			if len(out) > 8<<10 {
				out = "…" + out[len(out)-8<<10:]
			}
			tb.Logf("nats-server %s %s said:\n%s", version, name, out)
		}
	})
	return s
}

// Start starts the server again after Stop or Kill, on the same port and folder.
func (s *NATSServer) Start() error {
	var b strings.Builder
	fmt.Fprintf(&b, "server_name: %s\nhost: 127.0.0.1\nport: %s\nports_file_dir: %q\nmax_payload: %d\n", s.name, s.port, s.conf, s.opts.MaxPayload)
	if !s.opts.NoJetStream {
		fmt.Fprintf(&b, "jetstream { store_dir: %q }\n", s.Dir)
	}
	b.WriteString(s.routes)
	b.WriteString(s.opts.Config)
	conf := filepath.Join(s.conf, "nats.conf")
	if err := os.WriteFile(conf, []byte(b.String()), 0o600); err != nil {
		return err
	}
	old, _ := filepath.Glob(filepath.Join(s.conf, "*.ports"))
	for _, f := range old {
		_ = os.Remove(f)
	}
	s.mu.Lock()
	cmd := exec.Command(s.binary, "-c", conf)
	cmd.Stdout, cmd.Stderr = &lockedWriter{s}, &lockedWriter{s}
	if err := cmd.Start(); err != nil {
		s.mu.Unlock()
		return err
	}
	end := make(chan struct{})
	s.cmd, s.end = cmd, end
	s.mu.Unlock()
	go func() {
		_ = cmd.Wait() // how it ended is not of interest
		close(end)
	}()

	for deadline := time.Now().Add(30 * time.Second); ; {
		if err := s.ready(cmd.Process.Pid); err == nil {
			return nil
		} else if time.Now().After(deadline) {
			return fmt.Errorf("not ready after 30s: %w", err)
		}
		select {
		case <-end:
			s.mu.Lock()
			defer s.mu.Unlock()
			return fmt.Errorf("it ended: %s", strings.TrimSpace(s.out.String()))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ready reads the ports file and connects.
func (s *NATSServer) ready(pid int) error {
	// It is named after the binary and the process.
	b, err := os.ReadFile(filepath.Join(s.conf, fmt.Sprintf("%s_%d.ports", filepath.Base(s.binary), pid)))
	if err != nil {
		return err
	}
	var ports struct {
		NATS []string `json:"nats"`
	}
	if err := json.Unmarshal(b, &ports); err != nil || len(ports.NATS) == 0 {
		return fmt.Errorf("ports file %q: %w", b, err)
	}
	u, err := url.Parse(ports.NATS[0])
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	// The first line comes when the server serves clients.
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := c.Read(make([]byte, 4)); err != nil {
		return err
	}
	s.URL, s.port = "nats://"+u.Host, u.Port()
	return nil
}

// Log is what the server has printed, of late if that is much.
func (s *NATSServer) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// Pid is the process id.
func (s *NATSServer) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Pid
}

// Kill ends the server at once (SIGKILL) and waits for its end.
func (s *NATSServer) Kill() { s.finish(os.Kill) }

// Stop ends the server in good order and waits for its end.
func (s *NATSServer) Stop() { s.finish(os.Interrupt) }

// Pause freezes the server; Resume lets it go on.
func (s *NATSServer) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *NATSServer) Resume() { s.signal(syscall.SIGCONT) }

func (s *NATSServer) signal(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(sig) // it may have ended
	}
}

func (s *NATSServer) finish(sig os.Signal) {
	s.mu.Lock()
	end := s.end
	s.mu.Unlock()
	if end == nil {
		return
	}
	s.signal(sig)
	select {
	case <-end:
	case <-time.After(20 * time.Second):
		s.signal(os.Kill)
		<-end
	}
}

type lockedWriter struct{ s *NATSServer }

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.out.Len() > 1<<20 {
		w.s.out.Reset()
	}
	return w.s.out.Write(b)
}

var natsBuild sync.Mutex // one build at a time in this process

// NATSBinary finds a nats-server of a version (see NATSOptions) in the test
// cache, the folder STREAM_TEST_CACHE or .cache/bin of the repository, and
// builds it there if it is missing.
func NATSBinary(ctx context.Context, version string) (path, resolved string, err error) {
	natsBuild.Lock()
	defer natsBuild.Unlock()
	if resolved, err = natsVersion(ctx, version); err != nil {
		return "", "", err
	}
	cache := os.Getenv("STREAM_TEST_CACHE")
	if cache == "" {
		cache = filepath.Join(Cache(), "bin")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", "", err
	}
	exe := ""
	if runtime.GOOS == "windows" {
		exe = ".exe"
	}
	path = filepath.Join(cache, "nats-server-"+resolved+exe)
	if _, err := os.Stat(path); err == nil {
		return path, resolved, nil
	}
	// Built aside and renamed: other processes may be at it too.
	tmp, err := os.MkdirTemp(cache, "build-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(tmp)
	if _, err := goTool(ctx, tmp, []string{"GOBIN=" + tmp}, "install", natsModule+"@v"+resolved); err != nil {
		return "", "", err
	}
	if err := os.Rename(filepath.Join(tmp, "nats-server"+exe), path); err != nil {
		return "", "", err
	}
	return path, resolved, nil
}

func natsVersion(ctx context.Context, version string) (string, error) {
	var out string
	var err error
	switch line, isLine := strings.CutSuffix(version, ".x"); {
	case version == "":
		out, err = goTool(ctx, Root(), nil, "list", "-m", "-f", "{{.Version}}", natsModule)
	case isLine:
		out, err = goTool(ctx, Root(), nil, "list", "-m", "-f", "{{.Version}}", natsModule+"@v"+line)
	default:
		out = version
	}
	return strings.TrimPrefix(strings.TrimSpace(out), "v"), err
}

func goTool(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return string(out), nil
}
