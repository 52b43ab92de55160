package main

import (
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

//go:embed expected.txt
var expectedText string

// kinds are the families of ids: their prefix in expected.txt and what the
// closing lines call them.
var kinds = []struct{ prefix, name string }{{"C-", "cases"}, {"F-", "faults"}, {"row-", "rows"}}

// expectation is an id that some test must show, and what it is about.
type expectation struct{ id, about string }

// parseExpected reads expected.txt.
func parseExpected(text string) (all []expectation) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		id, about, _ := strings.Cut(line, " ")
		all = append(all, expectation{id, about})
	}
	return all
}

// named finds the part of a test's name that carries ids, behind its package or
// in any element of its path: p.TestC15C28Bytes, p.TestRow03Slow,
// p.TestX/C-07_news_lost, p.TestFault01Kill.
var (
	named  = regexp.MustCompile(`(?:^|[./])(?:Test|Fuzz)?((?:(?:C|F|Fault|Row)-?\d\d)+)(?:\D|$)`)
	single = regexp.MustCompile(`(C|F|Fault|Row)-?(\d\d)`)
)

// ids are what a test shows, in the form of expected.txt.
func ids(test string) (all []string) {
	for _, m := range named.FindAllStringSubmatch(test, -1) {
		for _, s := range single.FindAllStringSubmatch(m[1], -1) {
			id := map[string]string{"C": "C-", "F": "F-", "Fault": "F-", "Row": "row-"}[s[1]] + s[2]
			if !slices.Contains(all, id) {
				all = append(all, id)
			}
		}
	}
	return all
}

// shown collects ids over tests: true while no test of an id has failed.
type shown map[string]bool

func (s shown) add(id string, passed bool) {
	before, seen := s[id]
	s[id] = passed && (before || !seen)
}

// printShown prints what of the expected was shown, and reports whether all was.
func printShown(w io.Writer, all []expectation, s shown) bool {
	complete := true
	known := map[string]bool{}
	for _, k := range kinds {
		green, want := 0, 0
		var missing []string
		for _, e := range all {
			if !strings.HasPrefix(e.id, k.prefix) {
				continue
			}
			want++
			known[e.id] = true
			passed, seen := s[e.id]
			switch {
			case passed:
				green++
			case seen:
				missing = append(missing, fmt.Sprintf("    FAILED  %s %s", e.id, e.about))
			default:
				missing = append(missing, fmt.Sprintf("    MISSING %s %s", e.id, e.about))
			}
		}
		fmt.Fprintf(w, "%s: %d of %d\n", k.name, green, want)
		for _, m := range missing {
			fmt.Fprintln(w, m)
			complete = false
		}
	}
	var more []string
	for id := range s {
		if !known[id] {
			more = append(more, id)
		}
	}
	if slices.Sort(more); len(more) > 0 {
		fmt.Fprintln(w, "shown, but not in test/report/expected.txt:", strings.Join(more, " "))
	}
	return complete
}
