package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// running is a command that goes on.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr syncBuffer
	exited         chan error
}

// syncBuffer can be read while a process writes to it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts a command; stdout goes to out if that is not nil.
func (p person) start(t *testing.T, stdin io.Reader, out *os.File, args ...string) *running {
	t.Helper()
	return p.startWith(t, func(cmd *exec.Cmd) {
		cmd.Stdin = stdin
		if out != nil {
			cmd.Stdout = out
		}
	}, args...)
}

// startWith starts a command after files has set other files than buffers.
func (p person) startWith(t *testing.T, files func(*exec.Cmd), args ...string) *running {
	t.Helper()
	r := &running{exited: make(chan error, 1)}
	r.cmd = exec.Command(p.binary, args...)
	r.cmd.Env = append(testkit.Environ(), "STREAM_BOOTSTRAP_SERVERS="+p.addr)
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	files(r.cmd)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	go func() { r.exited <- r.cmd.Wait() }()
	return r
}

// end waits for the end and returns the exit code.
func (r *running) end(t *testing.T) int {
	t.Helper()
	select {
	case err := <-r.exited:
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("the command does not end\n%s%s", r.stdout.String(), r.stderr.String())
		return -1
	}
}
