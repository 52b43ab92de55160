package connect

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

// worker is a process of Kafka Connect that may be started again, and what it
// copies: lines of a file to a topic, and that topic to another file.
type worker struct {
	t       *testing.T
	dir     string
	rest    string // address
	run     tools.Run
	process *testkit.Process
	topic   string
}

// newWorker writes the files of a worker. Standalone: its connectors are files as
// well, and it keeps what it has read in a file. Later settings win.
func newWorker(t *testing.T, b *broker.Broker, standalone bool, more ...string) *worker {
	w := &worker{t: t, dir: t.TempDir(), rest: testkit.FreeAddr(t), topic: "lines-standalone"}
	settings := []string{
		"bootstrap.servers=" + b.Addr, "listeners=http://" + w.rest, "plugin.discovery=service_load",
		"key.converter=org.apache.kafka.connect.storage.StringConverter", "value.converter=org.apache.kafka.connect.storage.StringConverter",
		"offset.flush.interval.ms=500",
	}
	name, args := "connect-standalone", []string{filepath.Join(w.dir, "worker")}
	if standalone {
		settings = append(settings, "offset.storage.file.filename="+filepath.Join(w.dir, "offsets"))
		for c, config := range w.connectors() {
			lines := []string{"name=" + c}
			for k, v := range config {
				lines = append(lines, k+"="+v)
			}
			w.write(c, lines)
			args = append(args, filepath.Join(w.dir, c))
		}
	} else {
		w.topic, name = "lines-distributed", "connect-distributed"
		settings = append(settings, "group.id=workers", "config.storage.topic=connect-configs", "offset.storage.topic=connect-offsets", "status.storage.topic=connect-status",
			"config.storage.replication.factor=1", "offset.storage.replication.factor=1", "status.storage.replication.factor=1", "offset.storage.partitions=5",
			"scheduled.rebalance.max.delay.ms=0") // a worker that comes back gets its tasks at once
		for _, storage := range []string{"config", "offset", "status"} { // compacted while all goes on
			settings = append(settings, storage+".storage.min.cleanable.dirty.ratio=0.01", storage+".storage.max.compaction.lag.ms=500", storage+".storage.segment.ms=500")
		}
	}
	w.write("worker", append(settings, more...))
	w.run = tools.Kafka(t, name, args...)
	return w
}

func (w *worker) write(file string, lines []string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, file), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// connectors are a source and a sink, by name.
func (w *worker) connectors() map[string]map[string]string {
	return map[string]map[string]string{
		"source": {"connector.class": "FileStreamSource", "tasks.max": "1", "file": w.in(), "topic": w.topic},
		"sink":   {"connector.class": "FileStreamSink", "tasks.max": "1", "file": w.out(), "topics": w.topic},
	}
}

func (w *worker) in() string  { return filepath.Join(w.dir, "in") }
func (w *worker) out() string { return filepath.Join(w.dir, "out") }

func (w *worker) start() {
	w.t.Helper()
	w.process = testkit.StartProcess(w.t, testkit.Command{Name: filepath.Base(w.dir), Path: w.run.Path, Args: w.run.Args, Env: w.run.Env})
}

// stop ends the worker as an operator does: it hands in what it has done.
func (w *worker) stop() {
	w.t.Helper()
	if code := w.process.Terminate(w.t, time.Minute); code != 128+15 && code != 0 {
		w.t.Fatalf("the worker ended with %d", code)
	}
}

// create makes the connectors over HTTP once the worker serves.
func (w *worker) create() {
	w.t.Helper()
	for name, config := range w.connectors() {
		body, err := json.Marshal(config)
		if err != nil {
			w.t.Fatal(err)
		}
		w.poll("connector "+name, func() error {
			ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+w.rest+"/connectors/"+name+"/config", bytes.NewReader(body))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if text, err := io.ReadAll(res.Body); res.StatusCode/100 != 2 {
				return fmt.Errorf("%s: %s, %v", res.Status, text, err)
			}
			return nil
		})
	}
}

// feed appends lines to the file that the source reads.
func (w *worker) feed(from, to int) {
	w.t.Helper()
	f, err := os.OpenFile(w.in(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := f.Write(lines(from, to)); err != nil {
		w.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// lines are those numbers from to below to.
func lines(from, to int) (p []byte) {
	for i := from; i < to; i++ {
		p = fmt.Appendf(p, "line %d of the file that is copied\n", i)
	}
	return p
}

// copied waits until the sink's file holds the first n lines, all of them in
// order and each once.
func (w *worker) copied(n int) {
	w.t.Helper()
	want := lines(0, n)
	w.poll(fmt.Sprintf("%d lines copied", n), func() error {
		got, err := os.ReadFile(w.out())
		if err != nil {
			return err
		}
		if len(got) > len(want) || !bytes.HasPrefix(want, got) {
			w.t.Fatalf("the copy of %d bytes differs: %s", len(got), difference(got, want))
		}
		if len(got) < len(want) {
			return fmt.Errorf("%d of %d bytes", len(got), len(want))
		}
		return nil
	})
}

func difference(got, want []byte) string {
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d is %q, want %q", i, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

func (w *worker) poll(what string, f func() error) {
	w.t.Helper()
	testkit.Poll(w.t, 3*time.Minute, what, func() error {
		select {
		case <-w.process.Exited():
			w.t.Fatalf("the worker has ended:\n%s", w.process.Log())
		default:
		}
		return f()
	})
}
