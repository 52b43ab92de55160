package main

import (
	"bytes"
	"io"
	"maps"
	"regexp"
	"slices"
	"testing"
)

// TestExpected: the list is one that ids can match, in order, each with a name.
func TestExpected(t *testing.T) {
	all := parseExpected(expectedText)
	form := regexp.MustCompile(`^(C|F|row)-\d\d$`)
	last := ""
	for _, e := range all {
		if !form.MatchString(e.id) || e.about == "" {
			t.Errorf("%q %q", e.id, e.about)
		}
		if e.id <= last {
			t.Errorf("%s behind %s", e.id, last)
		}
		last = e.id
	}
	if len(all) < 62 {
		t.Errorf("%d ids", len(all))
	}
}

func TestIDs(t *testing.T) {
	for name, want := range map[string][]string{
		"p.TestC07Visible":                 {"C-07"},
		"a.com/b/partition.TestC15C28Same": {"C-15", "C-28"},
		"p.TestC07Visible/C-07_lost":       {"C-07"},
		"p.TestX/C-07":                     {"C-07"},
		"p.TestX/C07_news/row-03":          {"C-07"},
		"p.TestRow03Slow/cut_at_C-12":      {"row-03"},
		"p.FuzzC03":                        {"C-03"},
		"p.TestFault01Kill":                {"F-01"},
		"p.TestC40Fault07Restart/killed":   {"C-40", "F-07"},
		"p.TestX/F-13":                     {"F-13"},
		"p.TestDefault07":                  nil,
		"p.TestC3":                         nil,
		"p.TestC123":                       nil,
		"p.TestTheC07":                     nil,
		"p.TestArrow07":                    nil,
		"p.TestABC-07":                     nil,
	} {
		if got := ids(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestShown: who fails is not shown, nor is who was skipped, also below a parent
// that go test calls passed.
func TestShown(t *testing.T) {
	r := &reader{
		result: map[string]string{
			"p.TestC01A": "pass", "p.TestC02A": "fail", "q.TestC02B": "pass", "p.TestC03A": "skip", "p.TestC04A": "run",
			"p.TestC05A": "pass", "p.TestC05A/x": "skip",
			"p.TestC06A": "pass", "p.TestC06A/x": "skip", "p.TestC06A/y": "pass",
			"p.TestC07A": "fail", "p.TestC07A/x": "pass", "p.TestC07A/y": "fail",
			"p.TestRow01A": "pass", "p.TestOther": "fail",
		},
		parents: map[string]bool{"p.TestC05A": true, "p.TestC06A": true, "p.TestC07A": true},
	}
	want := shown{"C-01": true, "C-02": false, "C-04": false, "C-06": true, "C-07": false, "row-01": true}
	for range 20 { // in whatever order the map is walked
		if got := r.shown(); !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

func TestPrintShown(t *testing.T) {
	all := parseExpected("# text\nC-01 one\n\nC-02 two words\nC-03 three\nrow-07 seven\n")
	for _, c := range []struct {
		s        shown
		complete bool
		want     string
	}{
		{shown{"C-01": true, "C-02": true, "C-03": true, "row-07": true}, true, "cases: 3 of 3\nfaults: 0 of 0\nrows: 1 of 1\n"},
		{shown{"C-01": true, "C-02": false, "row-07": true, "C-99": true}, false,
			"cases: 1 of 3\n    FAILED  C-02 two words\n    MISSING C-03 three\nfaults: 0 of 0\nrows: 1 of 1\nshown, but not in test/report/expected.txt: C-99\n"},
		{shown{"C-01": true, "C-02": true, "C-03": true}, false, "cases: 3 of 3\nfaults: 0 of 0\nrows: 0 of 1\n    MISSING row-07 seven\n"},
	} {
		var out bytes.Buffer
		if got := printShown(&out, all, c.s); got != c.complete || out.String() != c.want {
			t.Errorf("%v: %v\n%s", c.s, got, out.String())
		}
	}
}

// TestTotalsUnderCI: what no suite has shown fails the totals, there only.
func TestTotalsUnderCI(t *testing.T) {
	t.Chdir(t.TempDir())
	most := shown{}
	for _, e := range parseExpected(expectedText) {
		most[e.id] = true
	}
	delete(most, "C-10")
	code := func(ci string) int {
		t.Setenv("CI", ci)
		return printTotals(io.Discard)
	}
	keep := func(r totals) {
		if err := r.keep(); err != nil {
			t.Fatal(err)
		}
	}
	keep(totals{Name: "race", Passed: 1, Shown: most})
	if with, without := code("true"), code(""); with != 1 || without != 0 {
		t.Errorf("one is missing: %d in CI, %d elsewhere", with, without)
	}
	keep(totals{Name: "kill", Passed: 1, Shown: shown{"C-10": true}})
	if with := code("true"); with != 0 {
		t.Errorf("all are there: %d in CI", with)
	}
	keep(totals{Name: "late", Passed: 1, Shown: shown{"C-11": false}})
	if with := code("true"); with != 1 {
		t.Errorf("one has failed in another suite: %d in CI", with)
	}
}
