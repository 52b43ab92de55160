package suites

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/broker"
)

// suite is a foreign test suite, of a Go module or of a Rust crate. In env, replace and files, {addr}, {port}, {sasl}
// and {saslport} stand for the addresses of the broker.
type suite struct {
	name     string
	module   string // path@version, or crate@version
	sum      string // of the module, as in go.sum; a crate's is in rust/Cargo.lock
	packages []string
	programs []string          // instead of packages: see install_rust in setup.sh
	flags    []string          // of go test, or of the programs
	env      []string          // NAME=value
	replace  []string          // old, new, … in Go files
	files    map[string]string // content by path in the module
	broker   broker.Options
	// setup starts what the suite needs beside the broker, which it may change,
	// and returns more names in braces with their values, or nil.
	setup func(t testing.TB, o *broker.Options) []string
	skip  map[string]string // tests that no broker here can serve, with the reason
	slow  map[string]string // tests that only the nightly run has, with the reason
	limit time.Duration     // for a package or program
}

// prepare makes a copy of the suite that tests the broker, and returns its folder.
func (s *suite) prepare(t *testing.T, addresses *strings.Replacer) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), s.name)
	if err := os.CopyFS(dir, os.DirFS(s.download(t))); err != nil {
		t.Fatalf("copy %s: %v", s.module, err)
	}
	replace := slices.Clone(s.replace)
	for i := range replace {
		replace[i] = addresses.Replace(replace[i])
	}
	used := false
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || len(replace) == 0 {
			return err
		}
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := strings.NewReplacer(replace...).Replace(string(old))
		if text == string(old) {
			return nil
		}
		used = true
		return os.WriteFile(path, []byte(text), 0o644)
	})
	if err != nil || used != (len(replace) > 0) {
		t.Fatalf("point the tests at the broker (found what to replace: %v): %v", used, err)
	}
	for path, text := range s.files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(addresses.Replace(text)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// download returns the module's folder in the module cache.
func (s *suite) download(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", s.module)
	cmd.Dir = t.TempDir() // the versions of our own modules do not matter here
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var m struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &m); jsonErr != nil || err != nil {
		t.Fatalf("download %s: %v, %v: %s%s", s.module, err, jsonErr, m.Error, stderr.String())
	}
	if m.Sum != s.sum {
		t.Fatalf("%s has the sum %s, not %s", s.module, m.Sum, s.sum)
	}
	return m.Dir
}

func (s *suite) String() string { return fmt.Sprintf("%s (%s)", s.name, s.module) }
