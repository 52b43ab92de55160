package usage

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// limit bounds a start that must fail.
const limit = 30 * time.Second

// result is how a start ended.
type result struct {
	code           int
	stdout, stderr string
}

// start runs stream with args until it ends. The addresses are free ports
// unless args say otherwise.
func start(t *testing.T, as *syscall.Credential, binary string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	if as != nil {
		cmd.Dir = "/"
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGKILL}
	cmd.Env = testkit.Environ()
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("run stream %s: %v", strings.Join(args, " "), err)
	}
	if ctx.Err() != nil {
		t.Fatalf("stream %s has not ended within %v:\n%s%s", strings.Join(args, " "), limit, stdout.String(), stderr.String())
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// refused wants an exit code, a line that says what is wrong and what to do
// about it.
func (r result) refused(t *testing.T, code int, wrong, remedy string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	var said []string
	for l := range strings.Lines(r.stderr) {
		if !strings.HasPrefix(l, "{") { // a log line
			said = append(said, strings.TrimSpace(l))
		}
	}
	if len(said) > 3 || !matches(said, "stream: ", wrong) || !matches(said, "", remedy) || !matches(said, "hint: ", "") {
		t.Errorf("want at most three lines: an error that matches %q, a remedy that matches %q, a hint", wrong, remedy)
	}
	if strings.Contains(r.stdout, "bootstrap.servers") {
		t.Errorf("it printed the banner of a server that serves")
	}
	if t.Failed() {
		t.Logf("exit code %d, stdout:\n%s\nstderr:\n%s", r.code, r.stdout, r.stderr)
	}
}

// matches reports whether a line begins with prefix and matches pattern.
func matches(lines []string, prefix, pattern string) bool {
	re := regexp.MustCompile(pattern)
	return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) && re.MatchString(l) })
}

// ports are flags for two free ports of the loopback address.
func ports(t *testing.T) []string {
	t.Helper()
	_, kafka, _ := net.SplitHostPort(testkit.FreeAddr(t))
	_, admin, _ := net.SplitHostPort(testkit.FreeAddr(t))
	return []string{"--bind", "127.0.0.1", "--admin-bind", "127.0.0.1", "--port", kafka, "--admin-port", admin}
}

func with(args []string, more ...string) []string {
	return append(append([]string(nil), args...), more...)
}

// untouched wants that a folder was not made.
func untouched(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data folder was made (%v)", err)
	}
}

func TestUnknownFlag(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	start(t, nil, testkit.Binary(t), with(ports(t), "--data-dir", dir, "--pubsub-ulr", "nats://127.0.0.1:1")...).
		refused(t, 2, `unknown flag --pubsub-ulr`, `--pubsub-url`)
	untouched(t, dir)
}

func TestUnknownConfigKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "stream.yaml")
	if err := os.WriteFile(file, []byte("data-dirr: x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, nil, testkit.Binary(t), with(ports(t), "--data-dir", dir, "--config", file)...).
		refused(t, 2, `data-dirr`, `data-dir\b`)
	untouched(t, dir)
	start(t, nil, testkit.Binary(t), with(ports(t), "--data-dir", dir, "-X", "data-dirr=x")...).
		refused(t, 2, `data-dirr`, `data-dir\b`)
	untouched(t, dir)
}

func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, taken, _ := net.SplitHostPort(l.Addr().String())
	for _, flag := range []string{"port", "admin-port"} {
		t.Run(flag, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			start(t, nil, testkit.Binary(t), with(ports(t), "--data-dir", dir, "--"+flag, taken)...).
				refused(t, 1, `\b`+taken+`\b.*(in use|taken)`, `--`+flag+`\b`)
			untouched(t, dir)
		})
	}
}

func TestFolderLocked(t *testing.T) {
	dir := t.TempDir()
	s := testkit.Start(t, testkit.Options{DataDir: dir})
	start(t, nil, testkit.Binary(t), with(ports(t), "--data-dir", dir)...).
		refused(t, 1, `in use.*`+regexp.QuoteMeta(dir), `--data-dir`)
	// the first one is unharmed, and its folder free once it has ended
	if err := testkit.Get(t.Context(), s.Admin+"/readyz"); err != nil {
		t.Errorf("the process that has the folder: %v", err)
	}
	s.Stop(t)
	testkit.Start(t, testkit.Options{DataDir: dir}).Stop(t)
}

func TestFolderUnwritable(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	if err := os.Mkdir(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	binary := testkit.Binary(t)
	var as *syscall.Credential
	if os.Getuid() == 0 { // root may write anywhere: be nobody
		as = &syscall.Credential{Uid: 65534, Gid: 65534}
		binary = copyFor(t, binary)
		if err := os.Chmod(filepath.Dir(parent), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	start(t, as, binary, with(ports(t), "--data-dir", dir)...).
		refused(t, 1, regexp.QuoteMeta(dir)+`.*(permission|writ)`, `--data-dir`)
}

func TestFolderIsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, nil, testkit.Binary(t), with(ports(t), "--data-dir", file)...).
		refused(t, 1, regexp.QuoteMeta(file), `--data-dir`)
}

// copyFor puts the binary where another user can run it.
func copyFor(t *testing.T, binary string) string {
	t.Helper()
	b, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "stream")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNATSUnreachable(t *testing.T) {
	addr := testkit.FreeAddr(t)
	start(t, nil, testkit.Binary(t), with(ports(t), "--pubsub-url", "nats://"+addr)...).
		refused(t, 3, regexp.QuoteMeta(addr), `--pubsub-url`)
}

func TestNATSTooOld(t *testing.T) {
	s := testkit.StartNATS(t, testkit.NATSOptions{Version: "2.10.22"})
	start(t, nil, testkit.Binary(t), with(ports(t), "--pubsub-url", s.URL)...).
		refused(t, 3, `2\.10\.22`, `2\.10\.23`)
}

func TestNATSWithoutJetStream(t *testing.T) {
	s := testkit.StartNATS(t, testkit.NATSOptions{NoJetStream: true})
	start(t, nil, testkit.Binary(t), with(ports(t), "--pubsub-url", s.URL)...).
		refused(t, 3, `(?i)jetstream is not enabled`, `(?i)jetstream`)
}
