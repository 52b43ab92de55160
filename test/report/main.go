// Command report runs go test and says what happened in the end: the closing
// line of every package, the whole output of every failed test, the name and
// reason of every skipped one, and totals.
//
//	go run ./test/report [-dir DIR] [-skips fail|list] [-progress DEPTH] NAME [go test flags and packages]
//
// The totals of each run are kept in .cache/report; `report -total` prints them
// all, with what failed tests said last, and fails if any run failed. It closes with the ids of expected.txt that
// the tests have shown, by their names; with CI=true a missing one fails too.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// folder keeps the totals, from the folder where report is started.
const folder = ".cache/report"

// event is a line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// totals are the results of one run, tests without their parents counted once.
type totals struct {
	Name                    string
	Passed, Failed, Skipped int
	Seconds                 int
	Broken                  bool // the run failed in another way than by a test
	Shown                   shown
	Failures                []string // of each failed test: its name and what it said last
}

func main() {
	dir := flag.String("dir", ".", "module folder")
	skips := flag.String("skips", "list", "what a skipped test is: fail or list")
	progress := flag.Int("progress", 0, "print the end of tests down to this depth")
	total := flag.Bool("total", false, "print the totals of all runs")
	flag.Parse()
	if *total {
		os.Exit(printTotals(os.Stdout))
	}
	if flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*dir, flag.Arg(0), flag.Args()[1:], *skips == "fail", *progress); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(dir, name string, args []string, failSkips bool, progress int) error {
	begin := time.Now()
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := &reader{w: os.Stdout, progress: progress, output: map[string][]string{}, parents: map[string]bool{}, result: map[string]string{}}
	readErr := r.read(out)
	runErr := cmd.Wait()

	t := totals{Name: name, Seconds: int(time.Since(begin).Seconds()), Shown: r.shown(), Failures: r.failures}
	for key, action := range r.result {
		switch {
		case action == "fail":
			t.Failed += leaf(r.parents[key])
		case action == "skip":
			t.Skipped += leaf(r.parents[key])
		case action == "pass":
			t.Passed += leaf(r.parents[key])
		default: // never ended
			t.Failed++
			t.Failures = append(t.Failures, failure(key+" did not end", r.output[key]))
			fmt.Printf("%s: did not end\n%s", key, strings.Join(r.output[key], ""))
		}
	}
	for _, s := range r.skipped {
		fmt.Println("skipped:", s)
	}
	fmt.Printf("%s: %d passed, %d failed, %d skipped in %d s\n", name, t.Passed, t.Failed, t.Skipped, t.Seconds)
	err = nil
	switch {
	case readErr != nil:
		err = readErr
	case runErr != nil:
		err = fmt.Errorf("%s: go test: %w", name, runErr)
	case t.Passed == 0:
		err = fmt.Errorf("%s: no test passed", name)
	case failSkips && t.Skipped > 0:
		err = fmt.Errorf("%s: %d tests were skipped", name, t.Skipped)
	}
	t.Broken = err != nil
	if keepErr := t.keep(); err == nil {
		err = keepErr
	}
	return err
}

// leaf counts a test that is no parent of others.
func leaf(parent bool) int {
	if parent {
		return 0
	}
	return 1
}

// shown is what the tests of a run show: a passed parent alone shows nothing, as
// its subtests may all have been skipped.
func (r *reader) shown() shown {
	s := shown{}
	for key, action := range r.result {
		if action == "skip" || action == "pass" && r.parents[key] {
			continue
		}
		for _, id := range ids(key) {
			s.add(id, action == "pass")
		}
	}
	return s
}

// reader follows the events of a run.
type reader struct {
	w        io.Writer
	progress int
	output   map[string][]string // by package and test, until it has passed
	parents  map[string]bool     // tests with subtests
	result   map[string]string   // last action by package and test
	skipped  []string
	failures []string
}

func (r *reader) read(in io.Reader) error {
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			fmt.Fprintln(r.w, sc.Text()) // not of go test -json
			continue
		}
		r.event(e)
	}
	return sc.Err()
}

func (r *reader) event(e event) {
	key := e.Package + "." + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.w, e.Output)
	case "output":
		if e.Test == "" {
			fmt.Fprint(r.w, e.Output) // the closing line, panics, TestMain
		} else {
			r.output[key] = append(r.output[key], e.Output)
		}
	case "run":
		r.result[key] = "run"
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
			r.parents[e.Package+"."+e.Test[:i]] = true
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			return
		}
		r.result[key] = e.Action
		if e.Action == "fail" {
			fmt.Fprintf(r.w, "%s\n%s", e.Package, strings.Join(r.output[key], ""))
			r.failures = append(r.failures, failure(key, r.output[key]))
		} else if strings.Count(e.Test, "/") < r.progress {
			fmt.Fprintf(r.w, "    %s %s (%.1f s)\n", e.Action, e.Test, e.Elapsed)
		}
		if e.Action == "skip" {
			r.skipped = append(r.skipped, key+": "+reason(r.output[key]))
		}
		delete(r.output, key)
	}
}

var (
	line = regexp.MustCompile(`^\s+\w+\.go:\d+: `)
	said = regexp.MustCompile(`^\s+\w+_test\.go:\d+: `)
)

// failure names a failed test and repeats the last lines it printed itself: among
// logs of processes they are hard to find.
func failure(name string, lines []string) string {
	const most = 12
	var own []string
	mine := false // of a text of several lines as well
	for _, l := range lines {
		if line.MatchString(l) {
			mine = said.MatchString(l)
		}
		if mine {
			own = append(own, "  "+strings.TrimSpace(l))
		}
	}
	return strings.Join(append([]string{name}, own[max(0, len(own)-most):]...), "\n")
}

// reason is the line that a skipped test has printed.
func reason(lines []string) string {
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if !strings.HasPrefix(l, "===") && !strings.HasPrefix(l, "---") {
			return l
		}
	}
	return ""
}

func (t totals) keep() error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	// The time in front keeps the order of the runs.
	return os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d-%s.json", time.Now().UnixMilli(), t.Name)), b, 0o644)
}

func printTotals(w io.Writer) (code int) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		fmt.Fprintln(w, "no test was run")
		return 1
	}
	sum := totals{Shown: shown{}}
	for _, f := range files {
		var t totals
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &t)
		}
		if err != nil {
			fmt.Fprintln(w, err)
			return 1
		}
		state := "ok"
		if t.Broken {
			state, code = "FAILED", 1
		}
		fmt.Fprintf(w, "%-12s %-6s %5d passed %4d failed %4d skipped %5d s\n", t.Name, state, t.Passed, t.Failed, t.Skipped, t.Seconds)
		for id, passed := range t.Shown {
			sum.Shown.add(id, passed)
		}
		sum.Failures = append(sum.Failures, t.Failures...)
		sum.Passed, sum.Failed, sum.Skipped = sum.Passed+t.Passed, sum.Failed+t.Failed, sum.Skipped+t.Skipped
	}
	if b, err := os.ReadFile(".cache/missing"); err == nil {
		for l := range strings.Lines(string(b)) {
			if l = strings.TrimSpace(l); l != "" {
				fmt.Fprintln(w, "MISSING", l)
			}
		}
	}
	if !printShown(w, parseExpected(expectedText), sum.Shown) && os.Getenv("CI") == "true" {
		code = 1
	}
	for _, f := range sum.Failures {
		fmt.Fprintln(w, "failed:", f)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", sum.Passed, sum.Failed, sum.Skipped)
	return code
}
