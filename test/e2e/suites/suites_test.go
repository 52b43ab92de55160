package suites

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/broker"
)

// TestSuites runs every suite on every kind of broker and compares the results
// with those recorded on Apache Kafka.
//
//	STREAM_SUITES_RECORD=3  records them instead, from that many runs
//	STREAM_SUITES=whole     also runs what is too slow for every day, and what
//	                        does not pass on Apache Kafka
func TestSuites(t *testing.T) {
	record, _ := strconv.Atoi(os.Getenv("STREAM_SUITES_RECORD"))
	whole := record > 0 || os.Getenv("STREAM_SUITES") == "whole"
	for _, s := range table {
		t.Run(s.name, func(t *testing.T) {
			if record > 0 {
				s.recordRuns(t, record)
				return
			}
			t.Parallel() // they mostly wait
			for _, kind := range broker.Kinds([]string{broker.Embedded}) {
				t.Run(kind, func(t *testing.T) { s.compare(t, kind, whole) })
			}
		})
	}
}

func (s *suite) recordRuns(t *testing.T, n int) {
	var runs []outcome
	for i := range n {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			o := s.run(t, broker.Kafka, slices.Collect(maps.Keys(s.skip)))
			for name, result := range o.results {
				if result == "fail" {
					t.Logf("%s: fail\n%s", name, o.text(name))
				}
			}
			s.slowest(t, o)
			runs = append(runs, o)
		})
	}
	if len(runs) == n {
		s.record(t, runs)
		summarize("%-20s Apache Kafka, %d runs: %s", s.name, n, counts(merge(runs)))
	}
}

func (s *suite) compare(t *testing.T, kind string, whole bool) {
	begin := time.Now()
	kafka := s.recorded(t)
	var exceptions []exception
	if kind != broker.Kafka {
		exceptions = s.exceptions(t)
	}
	omit := map[string]string{}
	maps.Copy(omit, s.skip)
	if !whole {
		maps.Copy(omit, s.slow)
		for name, result := range kafka {
			if result == "fail" || result == flaky {
				omit[name] = "does not pass on Apache Kafka"
			}
		}
	}
	leftOut := func(name string) bool {
		for o := range omit {
			if (exception{name: o}).covers(name) {
				return true
			}
		}
		return false
	}
	run := slices.Collect(maps.Keys(omit))
	for _, e := range exceptions {
		if e.hangs {
			run = append(run, e.name)
		}
	}
	o := s.run(t, kind, run)
	for _, w := range judge(o.results, kafka, exceptions, leftOut) {
		name, _, _ := strings.Cut(w, ": ")
		t.Errorf("%s\n%s", w, o.text(name))
	}
	for _, e := range exceptions {
		t.Logf("exception: %s: %s", e.name, e.reason)
	}
	s.slowest(t, o)
	summarize("%-20s Apache Kafka: %s | %s: %s, %d left out, %d exceptions, %.0f s", s.name, counts(kafka), kind, counts(o.results),
		absent(kafka, leftOut), len(exceptions), time.Since(begin).Seconds())
}

// text is what a test has printed, its parents and subtests included.
func (o outcome) text(name string) string {
	var b strings.Builder
	for p := name; p != ""; p = parent(p) {
		b.WriteString(strings.Join(o.output[p], ""))
	}
	return b.String()
}

// slowest names the five tests that took longest, where the suite tells.
func (s *suite) slowest(t *testing.T, o outcome) {
	names := slices.SortedFunc(maps.Keys(o.seconds), func(a, b string) int { return cmp.Compare(o.seconds[b], o.seconds[a]) })
	for _, n := range names[:min(5, len(names))] {
		t.Logf("%5.1f s %s", o.seconds[n], n)
	}
}

// counts are the numbers of results of each kind.
func counts(results map[string]string) string {
	n := map[string]int{}
	for _, r := range results {
		n[r]++
	}
	text := fmt.Sprintf("%d passed, %d failed, %d skipped", n["pass"], n["fail"], n["skip"])
	if n[flaky] > 0 {
		text += fmt.Sprintf(", %d flaky", n[flaky])
	}
	return text
}

// absent counts the tests that pass on Apache Kafka and were not asked for.
func absent(kafka map[string]string, leftOut func(name string) bool) (n int) {
	for name, result := range kafka {
		if result == "pass" && leftOut(name) {
			n++
		}
	}
	return n
}

// summary is what TestMain prints in the end: a line per suite and broker.
var (
	mu      sync.Mutex
	summary []string // guarded by mu
)

func summarize(format string, args ...any) {
	mu.Lock()
	defer mu.Unlock()
	summary = append(summary, fmt.Sprintf(format, args...))
}

func TestMain(m *testing.M) {
	code := m.Run()
	slices.Sort(summary)
	for _, line := range summary {
		fmt.Println(line)
	}
	os.Exit(code)
}
