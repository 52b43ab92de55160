package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Command says what to run.
type Command struct {
	Name string // in messages and log file names
	Path string
	Args []string
	Env  []string // added to Environ
	Dir  string
}

// Process is a running command. Its output is kept in memory and, if the test
// fails, its end is printed. It is killed at the end of the test at the latest.
type Process struct {
	name   string
	cmd    *exec.Cmd
	out    *output
	exited chan struct{} // closed once the process has been reaped
}

// Environ is the environment of this process without its STREAM_* variables,
// which speak to the tests and would be read as configuration by stream.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "STREAM_") })
}

// logTail is how much of a log a failed test prints, in bytes.
const logTail = 16 << 10

// StartProcess starts c.
func StartProcess(t testing.TB, c Command) *Process {
	t.Helper()
	p := &Process{name: c.Name, out: &output{}, exited: make(chan struct{})}
	p.cmd = exec.Command(c.Path, c.Args...)
	p.cmd.Env = append(Environ(), c.Env...)
	p.cmd.Dir = c.Dir
	p.cmd.Stdout = p.out
	p.cmd.Stderr = p.out
	// A child that keeps the pipe open must not keep us from seeing the end.
	p.cmd.WaitDelay = 5 * time.Second
	// Nothing survives a test that is itself killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", c.Name, err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			p.dump(t)
		}
	})
	return p
}

// run starts the process and waits for its end, on one locked thread: the
// kernel sends Pdeathsig when the *thread* that started a child ends.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	defer close(p.exited)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // the exit code is read from ProcessState
	}
}

// Log is everything the process has printed so far, on both streams.
func (p *Process) Log() string { return p.out.String() }

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.exited
}

// Signal sends sig.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Terminate sends SIGTERM and returns the exit code; a process that is not
// gone within limit fails the test and is killed.
func (p *Process) Terminate(t testing.TB, limit time.Duration) int {
	t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("stop %s: %v", p.name, err)
	}
	return p.ExitCode(t, limit)
}

// ExitCode waits for the end of the process and returns its exit code, -1 if a
// signal ended it.
func (p *Process) ExitCode(t testing.TB, limit time.Duration) int {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-timer.C:
		p.Kill()
		t.Errorf("%s did not end within %v", p.name, limit)
		return -1
	}
}

func (p *Process) dump(t testing.TB) {
	log := p.Log()
	if dir := os.Getenv("STREAM_TEST_LOGS"); dir != "" {
		name := strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()) + "." + p.name
		file := filepath.Join(dir, fmt.Sprintf("%s.%d.log", name, p.Pid()))
		if err := os.WriteFile(file, []byte(log), 0o644); err != nil {
			t.Logf("keep the log of %s: %v", p.name, err)
		} else {
			t.Logf("log of %s: %s", p.name, file)
		}
	}
	cut := ""
	if len(log) > logTail {
		cut, log = fmt.Sprintf("… %d bytes …\n", len(log)-logTail), log[len(log)-logTail:]
	}
	t.Logf("log of %s (pid %d):\n%s%s", p.name, p.Pid(), cut, log)
}

// output is a buffer that can be read while a process writes to it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer // guards: buf
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
