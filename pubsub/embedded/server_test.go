package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/hanzoai/stream/pubsub/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, c embedded.Config) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func jetstream(t *testing.T, s *embedded.Server) nats.JetStreamContext {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestRestartKeepsEverything(t *testing.T) {
	for _, sync := range []bool{true, false} {
		c := embedded.Config{Dir: filepath.Join(t.TempDir(), "made", "by", "start"), SyncAlways: sync, SyncInterval: time.Minute}
		s := start(t, c)
		js := jetstream(t, s)
		if _, err := js.AddStream(&nats.StreamConfig{Name: "s", Subjects: []string{"s"}}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, err := js.Publish("s", []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		s.Stop()
		s.Stop() // again: harmless
		si, err := jetstream(t, start(t, c)).StreamInfo("s")
		if err != nil || si.State.Msgs != 10 || si.State.LastSeq != 10 {
			t.Errorf("after the restart: %+v, %v", si, err)
		}
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embedded.Config{Dir: dir})
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir})
	if !errors.Is(err, embedded.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second server: %v", err)
	}
	s.Stop()
	start(t, embedded.Config{Dir: dir})
}

func TestFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dirs := []string{file, filepath.Join(file, "below")}
	if os.Getuid() != 0 { // root writes everywhere
		ro := filepath.Join(t.TempDir(), "ro")
		if err := os.Mkdir(ro, 0o500); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, ro)
	}
	for _, dir := range dirs {
		if _, err := embedded.Start(t.Context(), embedded.Config{Dir: dir}); !errors.Is(err, embedded.ErrFolder) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	if _, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Listen: l.Addr().String()}); !errors.Is(err, embedded.ErrListen) {
		t.Errorf("taken port: %v", err)
	}
	s := start(t, embedded.Config{Dir: dir, Listen: "127.0.0.1:0"}) // nothing is left locked
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if nc.MaxPayload() != embedded.DefaultMaxPayload {
		t.Errorf("max payload %d", nc.MaxPayload())
	}
	if s := start(t, embedded.Config{Dir: t.TempDir()}); s.ClientURL() != "" {
		t.Errorf("a URL without a listener: %s", s.ClientURL())
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []embedded.Config{
		{}, {Dir: "x", Listen: "nonsense"}, {Dir: "x", Listen: "a:b"}, {Dir: "x", MaxPayload: 1 << 30}, {Dir: "x", SyncInterval: -1},
	} {
		if _, err := embedded.Start(t.Context(), c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("a refused config made its folder")
	}
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if s, err := embedded.Start(ctx, embedded.Config{Dir: dir}); !errors.Is(err, context.Canceled) {
		if err == nil {
			s.Stop() // it was faster
		} else {
			t.Errorf("Start: %v", err)
		}
	}
	start(t, embedded.Config{Dir: dir})
}

func TestMemory(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := embedded.Start(t.Context(), embedded.Config{Memory: true, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream(t, s).AddStream(&nats.StreamConfig{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if !strings.Contains(out.String(), `"component":"nats"`) {
		t.Errorf("no log lines: %s", out.String())
	}
}

// TestStartTime guards the start on an empty folder, with room for a busy machine.
func TestStartTime(t *testing.T) {
	best := time.Hour
	for range 5 {
		begin := time.Now()
		s := start(t, embedded.Config{Dir: t.TempDir()})
		best = min(best, time.Since(begin))
		s.Stop()
	}
	t.Logf("start: %v", best)
	if best > 100*time.Millisecond {
		t.Errorf("the fastest of five starts took %v", best)
	}
}
