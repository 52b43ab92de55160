package testkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Options of a stream process. The zero value is an embedded NATS server in a
// folder of its own.
type Options struct {
	// PubsubURL is an external NATS server; empty means embedded.
	PubsubURL string
	// DataDir of the embedded server; empty means a folder that ends with the test.
	DataDir string
	// Args are more flags, Env more variables (NAME=value).
	Args, Env []string
	// Addr is where Kafka's clients connect, Admin the URL of HTTP; empty means a
	// free port.
	Addr, Admin string
	// Binary is the path of another build than Binary's.
	Binary string
	// Bare starts with Args alone: Addr and Admin must follow from them.
	Bare bool
	// ReadyLimit bounds the time until /readyz answers 200; 0 means 20 s.
	ReadyLimit time.Duration
}

// Stream is a stream process. Its addresses stay the same over restarts.
type Stream struct {
	Addr  string // Kafka, host:port
	Admin string // http://host:port

	options Options
	process *Process
}

// Start builds stream, starts it on free ports and returns when it is ready.
func Start(t testing.TB, o Options) *Stream {
	t.Helper()
	s := Prepare(t, o)
	s.Restart(t)
	return s
}

// Prepare is Start without the start: Launch or Restart follows.
func Prepare(t testing.TB, o Options) *Stream {
	t.Helper()
	if o.DataDir == "" && o.PubsubURL == "" {
		o.DataDir = t.TempDir()
	}
	if o.ReadyLimit == 0 {
		o.ReadyLimit = 20 * time.Second
	}
	if o.Addr == "" {
		o.Addr = FreeAddr(t)
	}
	if o.Admin == "" {
		o.Admin = "http://" + FreeAddr(t)
	}
	return &Stream{options: o, Addr: o.Addr, Admin: o.Admin}
}

// Args are the flags of the process.
func (s *Stream) Args() []string {
	if s.options.Bare {
		return s.options.Args
	}
	_, port, _ := strings.Cut(s.Addr, ":")
	_, admin, _ := strings.Cut(strings.TrimPrefix(s.Admin, "http://"), ":")
	args := []string{"--bind", "127.0.0.1", "--admin-bind", "127.0.0.1", "--host", "127.0.0.1", "--port", port, "--admin-port", admin}
	if s.options.PubsubURL != "" {
		args = append(args, "--pubsub-url", s.options.PubsubURL)
	} else {
		args = append(args, "--data-dir", s.options.DataDir)
	}
	return slices.Concat(args, s.options.Args)
}

// Launch starts the process again on the same ports without waiting for it.
func (s *Stream) Launch(t testing.TB) {
	t.Helper()
	bin := s.options.Binary
	if bin == "" {
		bin = Binary(t)
	}
	s.process = StartProcess(t, Command{Name: "stream", Path: bin, Args: s.Args(), Env: s.options.Env})
}

// Use has later starts run another build.
func (s *Stream) Use(binary string) { s.options.Binary = binary }

// Restart starts the process again on the same ports and waits for /readyz.
func (s *Stream) Restart(t testing.TB) {
	t.Helper()
	s.Launch(t)
	s.WaitReady(t)
}

// WaitReady waits until /readyz answers 200.
func (s *Stream) WaitReady(t testing.TB) {
	t.Helper()
	err := poll(s.options.ReadyLimit, pace, s.process.Exited(), func() error { return Get(t.Context(), s.Admin+"/readyz") })
	select {
	case <-s.process.Exited():
		t.Fatalf("stream ended with exit code %d before it was ready:\n%s", s.process.ExitCode(t, time.Second), s.Log())
	default:
	}
	if err != nil {
		t.Fatalf("stream is not ready within %v: %v", s.options.ReadyLimit, err)
	}
}

// Process is the running, or last, process.
func (s *Stream) Process() *Process { return s.process }

// Log is what the running, or last, process has printed.
func (s *Stream) Log() string { return s.process.Log() }

// Kill ends the process with SIGKILL.
func (s *Stream) Kill(testing.TB) { s.process.Kill() }

// Stop ends the process with SIGTERM and expects exit code 0.
func (s *Stream) Stop(t testing.TB) {
	t.Helper()
	if code := s.process.Terminate(t, 40*time.Second); code != 0 {
		t.Errorf("stream ended with exit code %d after SIGTERM", code)
	}
}

// Port is the number in an address host:port.
func Port(t testing.TB, addr string) int {
	t.Helper()
	port, err := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:])
	if err != nil {
		t.Fatalf("port of %q: %v", addr, err)
	}
	return port
}

// Get requests url and returns an error unless the status is 200.
func Get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// No keep-alive: an idle connection would outlive the test as a goroutine.
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	err = errors.Join(err, res.Body.Close())
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, res.Status, strings.TrimSpace(string(body)))
	}
	return err
}

// Document asks for a JSON document over HTTP.
func Document(ctx context.Context, method, url string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
