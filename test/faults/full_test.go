package faults

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/test/testkit"
)

var storageError = kerr.KafkaStorageError.Code

// TestAccountLimit fills the account in which the streams live up to its limit,
// and makes room again.
func TestAccountLimit(t *testing.T) {
	t.Parallel()
	server := testkit.StartNATS(t, testkit.NATSOptions{
		Config: "accounts { A { users: [{user: a, password: a}], jetstream { max_file: 32M } } }\nno_auth_user: a\n",
	})
	s := testkit.Start(t, testkit.Options{PubsubURL: server.URL})
	w := newWorld(t, s.Addr, "full", load{partitions: 4, pace: 20 * time.Millisecond, size: 500})
	w.waitAcks(t, 20*time.Second, 5)
	js := jetStream(t, server.URL)
	if _, err := js.AddStream(&nats.StreamConfig{Name: "ballast", Subjects: []string{"ballast"}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, size := range []int{1 << 20, 1 << 10, 1} {
		for {
			if _, err := js.Publish("ballast", make([]byte, size)); err != nil {
				break // full for messages of this size
			}
		}
	}
	whileFull(t, w, 5*time.Second, true)
	if err := js.DeleteStream("ballast"); err != nil {
		t.Fatal(err)
	}
	healed := time.Now()
	w.waitAcks(t, 20*time.Second, 5)
	t.Logf("recovered in %v", time.Since(healed).Round(time.Millisecond))
	w.report(t, "from the limit on", began)
	w.finish(t)
	alive(t, s)
}

// TestStreamLimit gives one partition's stream a limit that is reached: it
// refuses with 56, nothing of it is dropped to make room, and the others do not
// notice.
func TestStreamLimit(t *testing.T) {
	t.Parallel()
	server := testkit.StartNATS(t, testkit.NATSOptions{})
	s := testkit.Start(t, testkit.Options{PubsubURL: server.URL})
	w := newWorld(t, s.Addr, "limit", load{partitions: 3, pace: 20 * time.Millisecond, size: 500})
	w.waitAcks(t, 20*time.Second, 5)
	js := jetStream(t, server.URL)
	name, err := js.StreamNameBySubject("kafka.limit.0")
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo(name)
	if err != nil {
		t.Fatal(err)
	}
	config := info.Config
	config.Discard, config.MaxBytes = nats.DiscardNew, int64(info.State.Bytes)+10_000
	if _, err := js.UpdateStream(&config); err != nil {
		t.Fatal(err)
	}
	full := time.Now()
	testkit.Poll(t, 20*time.Second, "the limit is reached", func() error {
		if w.writers[0].seen()[storageError] < 10 {
			return fmt.Errorf("errors %v", w.writers[0].seen())
		}
		return nil
	})
	w.waitAcks(t, 10*time.Second, 50, 1, 2)
	for _, wr := range w.writers {
		want := map[int16]bool{storageError: wr.partition == 0}
		for code := range wr.seen() {
			if !want[code] {
				t.Errorf("partition %d: errors %v", wr.partition, wr.seen())
			}
		}
	}
	config.MaxBytes, config.Discard = info.Config.MaxBytes, info.Config.Discard
	if _, err := js.UpdateStream(&config); err != nil {
		t.Fatal(err)
	}
	w.waitAcks(t, 10*time.Second, 5)
	w.report(t, "from the limit on", full)
	w.finish(t)
	alive(t, s)
}

// whileFull checks for a while that nothing is accepted, everything refused is
// refused with 56 (if only56) and what is stored can be read.
func whileFull(t *testing.T, w *world, d time.Duration, only56 bool) {
	t.Helper()
	began := time.Now()
	testkit.Poll(t, 45*time.Second, "every writer is refused", func() error {
		for _, wr := range w.writers {
			// A store that says nothing to a write leaves its outcome unknown: 7.
			seen := wr.seen()
			if seen[storageError] == 0 && (only56 || seen[kerr.RequestTimedOut.Code] == 0) {
				return fmt.Errorf("partition %d: errors %v", wr.partition, wr.seen())
			}
		}
		return nil
	})
	refused := time.Now()
	c := &client{addr: w.addr}
	defer c.close()
	reads := 0
	for time.Since(began) < d || time.Since(refused) < 3*time.Second {
		for _, wr := range w.writers {
			f, err := c.fetch(t.Context(), w.topic, wr.partition, 0, 0)
			if err != nil || f.code != 0 || len(f.records) == 0 {
				t.Fatalf("partition %d: a read while the store is full: code %d, %d records, %v", wr.partition, f.code, len(f.records), err)
			}
			reads++
		}
		rest(t, 200*time.Millisecond)
	}
	for _, wr := range w.writers {
		if n := len(wr.since(refused)); n > 0 {
			t.Errorf("partition %d: %d batches accepted while the store is full", wr.partition, n)
		}
		for code := range wr.seen() {
			if code != storageError && only56 {
				t.Errorf("partition %d: errors %v", wr.partition, wr.seen())
			}
		}
	}
	t.Logf("full for %v, all refused after %v: %d reads, writers got %v", time.Since(began).Round(time.Millisecond), refused.Sub(began).Round(time.Millisecond), reads, w.codes())
}

// disk is a small file system that can be filled.
type disk struct{ dir, filler string }

func newDisk(t *testing.T, megabytes int) *disk {
	t.Helper()
	d := &disk{dir: filepath.Join(t.TempDir(), "disk")}
	d.filler = filepath.Join(d.dir, "filler")
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Skipf("a file system to fill up needs root: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.dir, err)
		}
	})
	return d
}

// fill leaves no byte.
func (d *disk) fill(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(d.filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, io.ErrShortWrite) {
			t.Fatal(err)
		}
	}
}

func (d *disk) free(t *testing.T) {
	t.Helper()
	if err := os.Remove(d.filler); err != nil {
		t.Fatal(err)
	}
}

// fullFor is how long the disk is full.
const fullFor = 30 * time.Second

// TestFullDiskEmbedded fills the disk under the embedded store, to the last
// byte and under load. 56 while it lasts, reads work, and when there is room
// again everything goes on, in the same process.
func TestFullDiskEmbedded(t *testing.T) {
	t.Parallel()
	d := newDisk(t, 256)
	s := testkit.Start(t, testkit.Options{DataDir: filepath.Join(d.dir, "data")})
	w := newWorld(t, s.Addr, "disk", load{partitions: 4, pace: 20 * time.Millisecond, size: 500})
	w.waitAcks(t, 20*time.Second, 10)
	began := time.Now()
	d.fill(t)
	whileFull(t, w, fullFor, false)
	d.free(t)
	healed := time.Now()
	w.waitAcks(t, 45*time.Second, 5)
	s.WaitReady(t)
	t.Logf("recovered in %v", time.Since(healed).Round(time.Millisecond))
	w.report(t, "from the full disk on", began)
	w.finish(t)
	alive(t, s)
}

// TestFullDisk fills the disk of an external NATS server. A server that has
// met a full disk takes no more writes until it is restarted; the gateway is
// not.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisk(t, 256)
	server := testkit.StartNATS(t, testkit.NATSOptions{Dir: filepath.Join(d.dir, "nats")})
	s := testkit.Start(t, testkit.Options{PubsubURL: server.URL})
	w := newWorld(t, s.Addr, "disk", load{partitions: 4, pace: 20 * time.Millisecond, size: 500})
	w.waitAcks(t, 20*time.Second, 10)
	began := time.Now()
	d.fill(t)
	whileFull(t, w, fullFor, false)
	d.free(t)
	server.Stop()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	healed := time.Now()
	w.waitAcks(t, 45*time.Second, 5)
	s.WaitReady(t)
	t.Logf("recovered in %v", time.Since(healed).Round(time.Millisecond))
	w.report(t, "from the full disk on", began)
	w.finish(t)
	alive(t, s)
}

func jetStream(t *testing.T, url string) nats.JetStreamContext {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := nc.JetStream(nats.MaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return js
}
