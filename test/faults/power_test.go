package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hanzoai/stream/test/testkit"
)

// powered is a file system that can lose what was not flushed: ext4 in a file,
// shut down by the ioctl with which file systems are tested for power failures.
type powered struct {
	t          *testing.T
	image, dir string
}

func newPowered(t *testing.T) *powered {
	t.Helper()
	root := t.TempDir()
	p := &powered{t: t, image: filepath.Join(root, "image"), dir: filepath.Join(root, "disk")}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(p.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(512<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", p.image).CombinedOutput(); err != nil {
		t.Skipf("a disk that loses its power needs mkfs.ext4: %v: %s", err, out)
	}
	if err := p.mount(); err != nil {
		t.Skipf("a disk that loses its power needs root and loop devices: %v", err)
	}
	t.Cleanup(p.unmount)
	return p
}

func (p *powered) mount() error {
	out, err := exec.Command("mount", "-o", "loop", p.image, p.dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

func (p *powered) unmount() {
	testkit.Poll(p.t, 20*time.Second, "unmount the disk", func() error {
		if out, err := exec.Command("umount", p.dir).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// cut loses what was not flushed, and with it the file system, until the power is
// back. Whoever uses it gets errors.
func (p *powered) cut() {
	p.t.Helper()
	f, err := os.Open(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	// EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32), with EXT4_GOING_FLAGS_NOLOGFLUSH.
	const shutdown, noLogFlush = 0x8004587d, 2
	how := uint32(noLogFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&how))); errno != 0 {
		p.t.Fatalf("cut the power: %v", errno)
	}
}

// flush is what the system does by itself after a while.
func (p *powered) flush() {
	p.t.Helper()
	f, err := os.Open(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		p.t.Fatal(err)
	}
}

// back is the machine after the power cut.
func (p *powered) back() {
	p.t.Helper()
	p.unmount()
	if err := p.mount(); err != nil {
		p.t.Fatal(err)
	}
}

// TestFault08PowerCut cuts the power under load, at each level of durability on
// one replica: with sync always nothing acknowledged is lost, with an interval
// nothing that is older than that, and what comes back is the log up to some
// record, every offset as it was; kill -9, where the system lives on, loses
// nothing at either.
func TestFault08PowerCut(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"always", "1s"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			d := newPowered(t)
			s := testkit.Start(t, testkit.Options{DataDir: filepath.Join(d.dir, "data"), Args: []string{"--sync", sync}})
			createTopic(t, s.Addr, "power", 1)
			c := &client{addr: s.Addr}
			defer c.close()
			acked := 0
			more := func(n int) {
				t.Helper()
				for range n {
					code, base, err := c.produce(t.Context(), "power", 0, plainBatch(fmt.Sprint(acked)))
					if code != 0 || err != nil || base != int64(acked) {
						t.Fatalf("record %d: code %d, offset %d, %v", acked, code, base, err)
					}
					acked++
				}
			}
			more(50)
			s.Kill(t)
			s.Restart(t)
			c.close()
			if got := wholeLog(t, c, "power"); got != acked {
				t.Fatalf("%d of %d records after kill -9", got, acked)
			}
			if sync != "always" {
				// NATS flushes messages at the interval and leaves the files that
				// describe a stream to the system, which does it in half a minute.
				d.flush()
				more(50)
				rest(t, 3*time.Second)
			}
			old := acked
			more(200)
			d.cut()
			s.Kill(t)
			c.close()
			d.back()
			s.Restart(t)
			got := wholeLog(t, c, "power")
			t.Logf("sync %s: %d of %d acknowledged records after the power cut", sync, got, acked)
			if sync == "always" {
				old = acked
			}
			if got < old || got > acked {
				t.Errorf("%d of %d acknowledged records, of which %d were to be there", got, acked, old)
			}
			// It goes on behind what there is.
			acked = got
			more(10)
			if got := wholeLog(t, c, "power"); got != acked {
				t.Errorf("%d of %d records in the end", got, acked)
			}
		})
	}
}

// wholeLog reads partition 0 from its start to its end, checks that each record
// is at its offset, and returns how many there are. A topic that is gone has none.
func wholeLog(t *testing.T, c *client, topic string) int {
	t.Helper()
	var end int64
	testkit.Poll(t, 30*time.Second, "the end of the log", func() error {
		code, o, err := c.endOffset(t.Context(), topic, 0)
		if err == nil && code != 0 {
			err = fmt.Errorf("code %d", code)
		}
		end = o
		return err
	})
	at := int64(0)
	for at < end {
		f, err := c.fetch(t.Context(), topic, 0, at, 0)
		if err != nil || f.code != 0 || len(f.records) == 0 {
			t.Fatalf("read at %d of %d: code %d, %d records, %v", at, end, f.code, len(f.records), err)
		}
		for _, r := range f.records {
			if r.offset != at || r.value != fmt.Sprint(at) {
				t.Fatalf("offset %d holds %q at %d", at, r.value, r.offset)
			}
			at++
		}
	}
	return int(at)
}
