package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

const events = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"    a_test.go:1: wrong\n"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"        in all\n"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"    process.go:1: log\n"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"        a log of a process\n"}
{"Action":"fail","Package":"p","Test":"TestA/x"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestC","Output":"=== RUN   TestC\n"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:1: no tool\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"run","Package":"p","Test":"TestD"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
not json
`

func TestRead(t *testing.T) {
	var out bytes.Buffer
	r := &reader{w: &out, output: map[string][]string{}, parents: map[string]bool{}, result: map[string]string{}}
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"p.TestA": "fail", "p.TestA/x": "fail", "p.TestB": "pass", "p.TestC": "skip", "p.TestD": "run"} {
		if got := r.result[key]; got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if !r.parents["p.TestA"] || r.parents["p.TestB"] {
		t.Errorf("parents: %v", r.parents)
	}
	if want := []string{"p.TestA/x\n  a_test.go:1: wrong\n  in all", "p.TestA"}; !slices.Equal(r.failures, want) {
		t.Errorf("failures: %q, want %q", r.failures, want)
	}
	if len(r.skipped) != 1 || r.skipped[0] != "p.TestC: c_test.go:1: no tool" {
		t.Errorf("skipped: %q", r.skipped)
	}
	for text, want := range map[string]bool{"a_test.go:1: wrong": true, "FAIL\tp\t0.1s": true, "not json": true, "quiet": false} {
		if got := strings.Contains(out.String(), text); got != want {
			t.Errorf("printed %q: %v, want %v", text, got, want)
		}
	}
}

func TestTotals(t *testing.T) {
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	if code := printTotals(&out); code != 1 {
		t.Errorf("nothing was run: code %d, want 1", code)
	}
	t.Setenv("CI", "")
	for _, r := range []totals{{Name: "unit", Passed: 3, Skipped: 1, Shown: shown{"C-01": true}}, {Name: "cli", Passed: 2}} {
		if err := r.keep(); err != nil {
			t.Fatal(err)
		}
	}
	out.Reset()
	if code := printTotals(&out); code != 0 || !strings.HasSuffix(out.String(), "\n5 passed, 0 failed, 1 skipped\n") {
		t.Errorf("code %d, printed\n%s", code, out.String())
	}
	if err := (totals{Name: "kill", Failed: 1, Broken: true, Failures: []string{"p.TestA\n  a_test.go:1: wrong"}}).keep(); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if code := printTotals(&out); code != 1 || !strings.HasSuffix(out.String(), "\nfailed: p.TestA\n  a_test.go:1: wrong\n5 passed, 1 failed, 1 skipped\n") {
		t.Errorf("code %d, printed\n%s", code, out.String())
	}
}
