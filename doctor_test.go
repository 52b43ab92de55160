package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
)

// portText is the Kafka port of a process.
func portText(p *process) string {
	_, port, _ := net.SplitHostPort(p.bootstrap)
	return port
}

// examine runs the doctor and returns what it found, by check.
func examine(t *testing.T, wantCode int, args ...string) map[string][]finding {
	t.Helper()
	code, stdout, stderr := stream(t, nil, append([]string{"doctor", "-o", "json"}, args...)...)
	var all []finding
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || code != wantCode {
		t.Fatalf("doctor %q: exit code %d, want %d, %v\n%s%s", args, code, wantCode, err, stdout, stderr)
	}
	by := map[string][]finding{}
	for _, f := range all {
		if f.Level == levelOK != (f.Remedy == "") || f.Found == "" {
			t.Errorf("a problem needs a remedy, nothing else does: %+v", f)
		}
		by[f.Check] = append(by[f.Check], f)
	}
	return by
}

func expect(t *testing.T, by map[string][]finding, check, level, text string) {
	t.Helper()
	if !slices.ContainsFunc(by[check], func(f finding) bool { return f.Level == level && strings.Contains(f.Found, text) }) {
		t.Errorf("%s is not %s with %q: %+v", check, level, text, by[check])
	}
}

func TestDoctorEmptyFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	by := examine(t, 0, "--data-dir", dir, "--host", "127.0.0.1", "--port", "1", "--bind", "127.0.0.1")
	expect(t, by, "data folder", levelOK, "will be made")
	expect(t, by, "max_payload", levelOK, "8388608")
	expect(t, by, "advertised address", levelOK, "127.0.0.1:1; nothing answers there now")
	if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the doctor has made something: %v", err)
	}
	code, stdout, stderr := stream(t, nil, "doctor", "--data-dir", dir)
	if code != 0 || stderr != "" || !strings.Contains(stdout, "remedy: ") || !strings.Contains(stdout, "ok    data folder") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
}

// Beside the server that has the folder, on the folder alone, and through NATS.
func TestDoctorWithServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, dir, "--nats-listen", "127.0.0.1:0")
	url := natsLine.FindStringSubmatch(p.out.String())[1]
	port := portText(p)

	by := examine(t, 0, "--data-dir", dir, "--admin", p.http, "--port", port)
	expect(t, by, "lock", levelOK, "is asked instead")
	expect(t, by, "server", levelOK, "ready; embedded NATS")
	expect(t, by, "advertised address", levelWarn, "a Kafka server answers there")
	by = examine(t, 3, "--data-dir", dir, "--admin-port", "1")
	expect(t, by, "lock", levelFail, "cannot be asked")

	by = examine(t, 0, "--pubsub-url", url, "--port", port, "--bind", "127.0.0.1")
	expect(t, by, "jetstream", levelOK, "max_file_store must be below the size of its disk")
	expect(t, by, "nats version", levelOK, "2.")
	expect(t, by, "jetstream", levelOK, "API level")
	expect(t, by, "clock", levelOK, "ahead of the store's")
	expect(t, by, "stored state", levelOK, "cluster ")
	expect(t, by, "partitions", levelOK, "none is stopped")
	expect(t, by, "advertised address", levelOK, "a Kafka server answers there")

	by = examine(t, 1, "--pubsub-url", url, "--replicas", "3", "--message-max-bytes", "9MiB", "--port", port)
	expect(t, by, "replicas", levelFail, "3 asked for, 1 possible")
	expect(t, by, "max_payload", levelWarn, "serve lowers message.max.bytes")
	by = examine(t, 1, "--pubsub-url", url, "--host", "no-such-host.invalid")
	expect(t, by, "advertised address", levelFail, "cannot be resolved")
	by = examine(t, 0, "--pubsub-url", url, "--host", "0.0.0.0")
	expect(t, by, "advertised address", levelOK, "the address that it has reached")

	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end(t)
	by = examine(t, 0, "--data-dir", dir, "--port", port)
	expect(t, by, "lock", levelOK, "free")
	expect(t, by, "nats", levelOK, "embedded answers")
	expect(t, by, "stored state", levelOK, "cluster ")
}

func TestDoctorBadStores(t *testing.T) {
	t.Parallel()
	by := examine(t, 3, "--pubsub-url", "nats://127.0.0.1:1")
	expect(t, by, "nats", levelFail, "unreachable")

	srv, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server did not start")
	}
	by = examine(t, 1, "--pubsub-url", srv.ClientURL())
	expect(t, by, "jetstream", levelFail, "not enabled")

	// Streams, but no identity.
	emb, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer emb.Stop()
	by = examine(t, 0, "--pubsub-url", emb.ClientURL(), "--port", "1")
	expect(t, by, "clock", levelOK, "not compared")
	expect(t, by, "stored state", levelOK, "nothing under prefix kafka yet")
	st, err := jetstream.Connect(t.Context(), jetstream.Config{URL: emb.ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if p, err := st.Probe(t.Context()); err != nil || p.Streams != 0 {
		t.Errorf("the doctor left something: %+v, %v", p, err)
	}
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "kafka-orders-0", Subject: "kafka.orders.0"}); err != nil {
		t.Fatal(err)
	}
	by = examine(t, 1, "--pubsub-url", emb.ClientURL(), "--port", "1")
	expect(t, by, "stored state", levelFail, "no cluster id in bucket kafka-meta")
}

// What has the port and speaks something else.
func TestDoctorForeignPort(t *testing.T) {
	t.Parallel()
	for _, hello := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", ""} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.CopyN(io.Discard, c, 27)
			_, _ = io.WriteString(c, hello)
			_ = c.Close()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := speaksKafka(ctx, l.Addr().String()); !errors.Is(err, errNotKafka) {
			t.Errorf("%q: %v", hello, err)
		}
		cancel()
		_ = l.Close()
		<-done
	}
}

// Levels that no test's machine has.
func TestDoctorLevels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  []string
		run   func(*doctor)
		level string
	}{
		{nil, func(d *doctor) { d.clock(&jetstream.Probe{AheadKnown: true, Ahead: -2 * time.Minute}) }, levelFail},
		{nil, func(d *doctor) { d.clock(&jetstream.Probe{AheadKnown: true, Ahead: 10 * time.Second}) }, levelWarn},
		{nil, func(d *doctor) { d.clock(&jetstream.Probe{AheadKnown: true, Ahead: time.Second}) }, levelOK},
		{nil, func(d *doctor) { d.jetstream(&jetstream.Probe{MaxStorage: 100, Storage: 95, MaxStreams: -1}) }, levelWarn},
		{nil, func(d *doctor) { d.jetstream(&jetstream.Probe{MaxStorage: 0, MaxStreams: -1}) }, levelFail},
		{nil, func(d *doctor) { d.jetstream(&jetstream.Probe{MaxStorage: -1, MaxStreams: 10, Streams: 10}) }, levelFail},
		{[]string{"--storage", "memory"}, func(d *doctor) { d.jetstream(&jetstream.Probe{MaxStorage: 0, MaxMemory: -1, MaxStreams: -1}) }, levelOK},
		{[]string{"--max-connections", "1000000000"}, func(d *doctor) { d.openFiles(0) }, levelWarn},
		{[]string{"--bind", "127.0.0.1", "--host", "192.0.2.1", "--port", "0"}, func(d *doctor) { d.address(t.Context()) }, levelWarn},
		{[]string{"--host", "127.0.0.1", "--port", "0"}, func(d *doctor) { d.address(t.Context()) }, levelWarn},
	} {
		d := &doctor{l: loadWith(t, c.args, nil)}
		c.run(d)
		if len(d.findings) != 1 || d.findings[0].Level != c.level {
			t.Errorf("%q: %+v, want %s", c.args, d.findings, c.level)
		}
	}
}
