package testkit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// Root is the folder of the checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Cache is the folder of the checkout for what tests install and build. It may
// be deleted at any time when no test runs.
func Cache() string { return filepath.Join(Root(), ".cache") }

var build = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("STREAM_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	return compile("stream")
})

var buildKillable = sync.OnceValues(func() (string, error) { return compile("stream-killpoints", "-tags", "killpoints") })

var buildNext = sync.OnceValues(func() (string, error) { return compile("stream-next", "-tags", "nextformat") })

// NextBinary is Binary as the release after it: it knows one more stored format.
func NextBinary(t testing.TB) string {
	t.Helper()
	bin, err := buildNext()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// compile builds stream into the cache under a name.
func compile(name string, flags ...string) (string, error) {
	dir := filepath.Join(Cache(), "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Built beside the target and renamed, since another test process may be
	// running the old one.
	bin := filepath.Join(dir, name)
	tmp := fmt.Sprintf("%s.%d", bin, os.Getpid())
	defer os.Remove(tmp)
	// Go leaves a file alone that is what it would build, without linking again.
	// It never writes into one: what is there is replaced.
	if err := os.Link(bin, tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	cmd := exec.Command("go", slices.Concat([]string{"build", "-o", tmp}, flags, []string{"."})...)
	cmd.Dir = Root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return bin, os.Rename(tmp, bin)
}

// KillableBinary is Binary with utils/killpoint compiled in.
func KillableBinary(t testing.TB) string {
	t.Helper()
	bin, err := buildKillable()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// Binary builds the stream binary, once per test process, and returns its
// path. STREAM_BIN names a binary to use instead.
func Binary(t testing.TB) string {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}
