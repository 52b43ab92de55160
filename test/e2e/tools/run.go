package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// Limit bounds one run of a program.
const Limit = 3 * time.Minute

// Run is one run of a program. Zero fields mean: no input, [Limit].
type Run struct {
	Path  string
	Args  []string
	Env   []string
	Stdin string
	Limit time.Duration
}

// Result is what a program left.
type Result struct {
	Stdout, Stderr string
	Code           int // -1: ended by a signal or the limit
}

// Do runs r to its end. The error is about starting and the limit, never about
// the exit code.
func (r Run) Do(ctx context.Context) (Result, error) {
	if r.Limit == 0 {
		r.Limit = Limit
	}
	ctx, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Path, r.Args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), r.Env...)
	cmd.Stdin = strings.NewReader(r.Stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	res := Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: -1}
	if cmd.ProcessState != nil {
		res.Code = cmd.ProcessState.ExitCode()
	}
	var exit *exec.ExitError
	if ctx.Err() != nil {
		err = fmt.Errorf("not done within %v", r.Limit)
	} else if errors.As(err, &exit) {
		err = nil
	}
	return res, err
}

// Must runs r and fails the test unless it exits with 0.
func (r Run) Must(t testing.TB) Result {
	t.Helper()
	res, err := r.Do(t.Context())
	if err != nil || res.Code != 0 {
		t.Fatalf("%s %s: exit code %d, %v\nstdout:\n%s\nstderr:\n%s",
			filepath.Base(r.Path), strings.Join(r.Args, " "), res.Code, err, tail(res.Stdout), tail(res.Stderr))
	}
	return res
}

func tail(s string) string {
	if len(s) > 8<<10 {
		s = "…" + s[len(s)-8<<10:]
	}
	return s
}

// Missing ends a test that cannot run here: skipped, or failed if CI=true.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// installed is a path in the cache folder that setup.sh makes.
func installed(t testing.TB, path string) string {
	t.Helper()
	path = filepath.Join(testkit.Cache(), path)
	if _, err := os.Stat(path); err != nil {
		Missing(t, "%v: run make setup", err)
	}
	return path
}

// Kcat is a run of kcat.
func Kcat(t testing.TB, args ...string) Run {
	t.Helper()
	path, err := exec.LookPath("kcat")
	if err != nil {
		Missing(t, "%v: run make setup as root, or install the package kcat", err)
	}
	return Run{Path: path, Args: args}
}

// Python is a run of a script of test/e2e/python.
func Python(t testing.TB, script string, args ...string) Run {
	t.Helper()
	script = filepath.Join(testkit.Root(), "test/e2e/python", script)
	return Run{Path: installed(t, "python/bin/python"), Args: append([]string{"-u", script}, args...)}
}

// Node is a run of a script of test/e2e/node, by the Node that setup.sh installs.
func Node(t testing.TB, script string, args ...string) Run {
	t.Helper()
	script = filepath.Join(testkit.Root(), "test/e2e/node", script)
	modules := installed(t, "node/node_modules")
	return Run{Path: filepath.Join(modules, ".bin/node"), Args: append([]string{script}, args...), Env: []string{"NODE_PATH=" + modules}}
}

// Java is a run of test/e2e/java/Client.java on a line of the Java client.
func Java(t testing.TB, line string, args ...string) Run {
	t.Helper()
	return javaProgram(t, line, "Client", args)
}

// SchemaStore is a run of test/e2e/java/SchemaStore.java.
func SchemaStore(t testing.TB, args ...string) Run {
	t.Helper()
	return javaProgram(t, "4.3", "SchemaStore", args)
}

// Streams is a run of test/e2e/java/streams/WordCount.java.
func Streams(t testing.TB, args ...string) Run {
	t.Helper()
	return javaProgram(t, "streams", "WordCount", args)
}

func javaProgram(t testing.TB, name, class string, args []string) Run {
	t.Helper()
	java, err := exec.LookPath("java")
	if err != nil {
		Missing(t, "%v", err)
	}
	dir := installed(t, "java-"+name)
	return Run{Path: java, Args: append([]string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", dir + "/classes:" + dir + "/libs/*", class,
	}, args...)}
}

// Rust is a run of a program of test/e2e/rust.
func Rust(t testing.TB, name string, args ...string) Run {
	t.Helper()
	return Run{Path: installed(t, filepath.Join("rust", name)), Args: args}
}
