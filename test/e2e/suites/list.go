package suites

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hanzoai/stream/test/testkit"
)

// flaky is the result of a test that passed in some runs on Apache Kafka.
const flaky = "flaky"

func (s *suite) file(suffix string) string {
	return filepath.Join(testkit.Root(), "test/e2e/suites/testdata", s.name+suffix)
}

// recorded are the results on Apache Kafka by name.
func (s *suite) recorded(t testing.TB) map[string]string {
	t.Helper()
	results := map[string]string{}
	for _, line := range lines(t, s.file(".results")) {
		result, name, ok := strings.Cut(line, " ")
		if !ok || !slices.Contains([]string{"pass", "fail", "skip", flaky}, result) {
			t.Fatalf("%s: %q is not a result and a test", s.file(".results"), line)
		}
		results[name] = result
	}
	return results
}

// record writes the results of several runs on Apache Kafka.
func (s *suite) record(t testing.TB, runs []outcome) {
	t.Helper()
	results := merge(runs)
	var b strings.Builder
	fmt.Fprintf(&b, "# %s on Apache Kafka 4.3.1, %d runs: written by make record-suites.\n", s.module, len(runs))
	for _, name := range slices.Sorted(maps.Keys(results)) {
		fmt.Fprintln(&b, results[name], name)
	}
	if err := os.WriteFile(s.file(".results"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// merge is what all runs say, or flaky.
func merge(runs []outcome) map[string]string {
	results := map[string]string{}
	for _, o := range runs {
		for name := range o.results {
			results[name] = o.results[name]
		}
	}
	for name, result := range results {
		for _, o := range runs {
			// A subtest that is not there: its parent failed before.
			if o.results[name] != result {
				results[name] = flaky
			}
		}
	}
	return results
}

// exception names a test, or all subtests of one, that passes on Apache Kafka
// and not here.
type exception struct {
	name, reason string
	hangs        bool // not run: it would hold up the suite until its limit
}

func (e exception) covers(name string) bool {
	return name == e.name || strings.HasPrefix(name, e.name+"/")
}

// exceptions reads lines of the form "fails NAME: reason" or "hangs NAME: reason".
func (s *suite) exceptions(t testing.TB) []exception {
	t.Helper()
	var list []exception
	for _, line := range lines(t, s.file(".exceptions")) {
		kind, rest, _ := strings.Cut(line, " ")
		name, reason, ok := strings.Cut(rest, ": ")
		if !ok || kind != "fails" && kind != "hangs" {
			t.Fatalf("%s: %q is not \"fails NAME: reason\" or \"hangs NAME: reason\"", s.file(".exceptions"), line)
		}
		list = append(list, exception{name: name, reason: reason, hangs: kind == "hangs"})
	}
	return list
}

// lines are the lines of a file without comments and empty ones.
func lines(t testing.TB, path string) (list []string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if line := strings.TrimSpace(sc.Text()); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// judge says what is wrong with the results here, given those on Apache Kafka,
// for the tests that were not left out.
func judge(here, kafka map[string]string, exceptions []exception, leftOut func(name string) bool) (wrong []string) {
	used := make([]bool, len(exceptions))
	bad := make([]bool, len(exceptions))
	for _, name := range slices.Sorted(maps.Keys(kafka)) {
		result, ran := here[name]
		if !ran {
			result = "not run"
		}
		i := slices.IndexFunc(exceptions, func(e exception) bool { return e.covers(name) })
		switch {
		case kafka[name] == flaky && i >= 0:
			used[i], bad[i] = true, true // nobody can tell that it is not needed
		case kafka[name] != "pass" || leftOut(name):
		case i >= 0:
			used[i] = true
			bad[i] = bad[i] || result != "pass" || exceptions[i].hangs
		case result != "pass":
			wrong = append(wrong, fmt.Sprintf("%s: %s, but it passes on Apache Kafka", name, result))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(here)) {
		if kafka[name] == "" && here[name] == "fail" && !slices.ContainsFunc(exceptions, func(e exception) bool {
			return e.covers(name) || strings.HasPrefix(e.name, name+"/")
		}) {
			wrong = append(wrong, name+": fail, and Apache Kafka's results do not have it")
		}
	}
	for i, e := range exceptions {
		switch {
		case !used[i] && !leftOut(e.name):
			wrong = append(wrong, fmt.Sprintf("exception %s: no such test passes on Apache Kafka: remove it", e.name))
		case used[i] && !bad[i]:
			wrong = append(wrong, fmt.Sprintf("exception %s: passes (%s): remove it", e.name, e.reason))
		}
	}
	return wrong
}
