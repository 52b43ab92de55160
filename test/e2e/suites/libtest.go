package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

// runPrograms runs the test programs of the suite, which setup.sh has built from
// the tests of a crate. Tests are named with their program: "client test_plain".
func (s *suite) runPrograms(t *testing.T, env, omit []string) outcome {
	t.Helper()
	crate, version, _ := strings.Cut(s.module, "@")
	lock, err := os.ReadFile(filepath.Join(testkit.Root(), "test/e2e/rust/Cargo.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(lock), fmt.Sprintf("name = %q\nversion = %q\n", crate, version)) {
		t.Fatalf("%s: rust/Cargo.lock has another version", s)
	}
	o := outcome{results: map[string]string{}, output: map[string][]string{}, seconds: map[string]float64{}}
	for _, name := range s.programs {
		path, args := tools.Rust(t, name).Path, append([]string{"--exact"}, s.flags...)
		for _, test := range omit {
			if program, test, _ := strings.Cut(test, " "); program == name {
				args = append(args, "--skip", test)
			}
		}
		dir := t.TempDir()
		list, stderr, err := execute(t, s.limit, dir, env, path, append(args, "--list")...)
		if err != nil {
			t.Fatalf("%s: list the tests of %s: %v\n%s", s, name, err, stderr)
		}
		stdout, stderr, err := execute(t, s.limit, dir, env, path, args...)
		before := len(o.results)
		parseLibtest(o, name, string(list), string(stdout))
		if len(o.results) == before {
			t.Fatalf("%s: %s has run no test: %v\n%s\n%s", s, name, err, stdout, stderr)
		}
		o.output[""] = append(o.output[""], string(stderr))
	}
	return o
}

// parseLibtest adds what a test program of Rust has printed to o, given its list of
// tests: one that never ended has failed.
func parseLibtest(o outcome, program, list, stdout string) {
	for line := range strings.Lines(list) {
		if test, ok := strings.CutSuffix(strings.TrimSpace(line), ": test"); ok {
			o.results[program+" "+test] = "fail"
		}
	}
	section := "" // the test whose output follows
	for line := range strings.Lines(stdout) {
		trimmed := strings.TrimSpace(line)
		switch test, result, ok := strings.Cut(strings.TrimPrefix(trimmed, "test "), " ... "); {
		case ok && strings.HasPrefix(trimmed, "test "):
			if r := map[string]string{"ok": "pass", "FAILED": "fail", "ignored": "skip"}[result]; r != "" {
				o.results[program+" "+test] = r
			}
		case strings.HasPrefix(trimmed, "---- ") && strings.HasSuffix(trimmed, " stdout ----"):
			section = program + " " + strings.TrimSuffix(strings.TrimPrefix(trimmed, "---- "), " stdout ----")
		case trimmed == "failures:":
			section = ""
		default:
			o.output[section] = append(o.output[section], line)
		}
	}
}
