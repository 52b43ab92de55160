package command

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

// terminal is a pseudo terminal: what a command writes to it can be read from
// seen, what a person types is written to keys.
type terminal struct {
	keys, tty *os.File
	seen      syncBuffer
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("no pseudo terminal: %v", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{keys: os.NewFile(uintptr(fd), "ptmx")} // not blocking: Close ends a Read
	if x.tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(n)), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := x.keys.Read(b)
			_, _ = x.seen.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = x.tty.Close(); _ = x.keys.Close(); <-done })
	return x
}

// sees waits for output.
func (x *terminal) sees(t *testing.T, what string) {
	t.Helper()
	testkit.Poll(t, 20*time.Second, "on the terminal: "+what, func() error {
		if s := x.seen.String(); !strings.Contains(s, what) {
			return errors.New(strconv.Quote(s))
		}
		return nil
	})
}

func (x *terminal) types(t *testing.T, s string) {
	t.Helper()
	if _, err := x.keys.WriteString(s); err != nil {
		t.Fatal(err)
	}
}

// startOn starts a command on a terminal, stdout aside.
func (p person) startOn(t *testing.T, x *terminal, args ...string) *running {
	t.Helper()
	return p.startWith(t, func(cmd *exec.Cmd) { cmd.Stdin, cmd.Stderr = x.tty, x.tty }, args...)
}

// TestTerminal: questions are asked and progress is shown where a person is.
func TestTerminal(t *testing.T) {
	t.Parallel()
	b := broker.Start(t, broker.Embedded)
	p := person{testkit.Binary(t), b.Addr}
	p.create(t, "t", "1")

	for _, answer := range []string{"n\n", "\n", "yep\n"} {
		x := newTerminal(t)
		r := p.startOn(t, x, "topic", "delete", "t")
		x.sees(t, "Delete 1 topic with all records: t? [y/N] ")
		x.types(t, answer)
		if code := r.end(t); code != 1 || r.stdout.String() != "" {
			t.Errorf("answer %q: exit code %d\n%s", answer, code, r.stdout.String())
		}
		x.sees(t, "stream: nothing was done")
	}
	x := newTerminal(t)
	r := p.startOn(t, x, "topic", "delete", "t")
	x.sees(t, "[y/N] ")
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := r.end(t); code != 1 {
		t.Errorf("Ctrl-C instead of an answer: exit code %d", code)
	}

	// A person types records and sees nothing else.
	x = newTerminal(t)
	r = p.startOn(t, x, "produce", "t")
	x.sees(t, "a record is a line; Ctrl-D ends")
	x.types(t, "typed\n\x04")
	if code := r.end(t); code != 0 || r.stdout.String() != "stored 1 record in t\n" {
		t.Errorf("exit code %d\n%s", code, r.stdout.String())
	}
	p.want(t, "", "typed\n", "consume", "t", "-e")

	// Work that takes time says how far it is.
	x = newTerminal(t)
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r = p.startWith(t, func(cmd *exec.Cmd) { cmd.Stdin, cmd.Stderr = in, x.tty }, "produce", "t")
	in.Close()
	testkit.Poll(t, 20*time.Second, "progress", func() error {
		if _, err := w.WriteString("x\n"); err != nil {
			t.Fatal(err)
		}
		if s := x.seen.String(); !strings.Contains(s, " records stored") {
			return errors.New(strconv.Quote(s))
		}
		return nil
	})
	w.Close()
	if code := r.end(t); code != 0 {
		t.Errorf("exit code %d, on the terminal %q", code, x.seen.String())
	}
	x.sees(t, " \r") // and then takes it away

	x = newTerminal(t)
	r = p.startOn(t, x, "topic", "delete", "t")
	x.sees(t, "[y/N] ")
	x.types(t, "y\n")
	if code := r.end(t); code != 0 || r.stdout.String() != "topic t: deleted\n" {
		t.Errorf("exit code %d\n%s", code, r.stdout.String())
	}
}
