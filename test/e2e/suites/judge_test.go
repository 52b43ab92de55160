package suites

import (
	"maps"
	"strings"
	"testing"
)

const events = `{"Action":"run","Package":"m","Test":"TestA"}
{"Action":"run","Package":"m","Test":"TestA/x"}
{"Action":"output","Package":"m","Test":"TestA/x","Output":"wrong\n"}
{"Action":"fail","Package":"m","Test":"TestA/x"}
{"Action":"fail","Package":"m","Test":"TestA"}
{"Action":"run","Package":"m/sub/pkg","Test":"TestB"}
{"Action":"run","Package":"m/sub/pkg","Test":"TestB/addr:1234"}
{"Action":"pass","Package":"m/sub/pkg","Test":"TestB/addr:1234","Elapsed":1.5}
{"Action":"fail","Package":"m/sub/pkg","Test":"TestB"}
{"Action":"run","Package":"m","Test":"TestC"}
{"Action":"run","Package":"m","Test":"TestC/3245207a-3dcb-4269-8138-ae7cfc0614f7"}
{"Action":"skip","Package":"m","Test":"TestC/3245207a-3dcb-4269-8138-ae7cfc0614f7"}
{"Action":"pass","Package":"m","Test":"TestC"}
{"Action":"run","Package":"m","Test":"TestD"}
{"Action":"output","Package":"m","Output":"panic: no\n"}
not json
`

func TestParse(t *testing.T) {
	o := parse(t, strings.NewReader(events), "m", strings.NewReplacer("1234", "{port}"))
	want := map[string]string{
		"TestA/x":                   "fail",
		"sub/pkg TestB/addr:{port}": "pass",
		"sub/pkg TestB":             "fail", // though no subtest did
		"TestC":                     "skip",
		"TestD":                     "fail", // never ended
	}
	if !maps.Equal(o.results, want) {
		t.Errorf("%v, want %v", o.results, want)
	}
	if o.text("TestA/x") != "wrong\n" || strings.Join(o.output[""], "") != "panic: no\nnot json\n" || o.seconds["sub/pkg TestB/addr:{port}"] != 1.5 {
		t.Errorf("output %q, seconds %v", o.output, o.seconds)
	}
}

const libtest = `
running 4 tests
test a ... ok
test b ... FAILED
test c ... ignored

failures:

---- b stdout ----
wrong

failures:
    b

test result: FAILED.
`

func TestParseLibtest(t *testing.T) {
	o := outcome{results: map[string]string{"other x": "pass"}, output: map[string][]string{}}
	parseLibtest(o, "p", "a: test\nb: test\nc: test\nd: test\n\n4 tests, 0 benchmarks\n", libtest)
	want := map[string]string{"other x": "pass", "p a": "pass", "p b": "fail", "p c": "skip", "p d": "fail"} // d never ended
	if !maps.Equal(o.results, want) {
		t.Errorf("%v, want %v", o.results, want)
	}
	if got := strings.TrimSpace(o.text("p b")); got != "wrong" {
		t.Errorf("output of b: %q", got)
	}
}

func TestMerge(t *testing.T) {
	run := func(a, b string) outcome { return outcome{results: map[string]string{"A": a, "B": b}} }
	got := merge([]outcome{run("pass", "pass"), run("pass", "fail"), {results: map[string]string{"A": "pass", "C": "pass"}}})
	if want := map[string]string{"A": "pass", "B": flaky, "C": flaky}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestJudge(t *testing.T) {
	kafka := map[string]string{"A": "pass", "B/x": "pass", "B/y": "pass", "C": "fail", "D": flaky, "E": "pass"}
	with := func(change ...string) map[string]string {
		m := map[string]string{"A": "pass", "B/x": "pass", "B/y": "pass"}
		for i := 0; i < len(change); i += 2 {
			m[change[i]] = change[i+1]
			if change[i+1] == "" {
				delete(m, change[i])
			}
		}
		return m
	}
	except := func(names ...string) (list []exception) {
		for _, n := range names {
			list = append(list, exception{name: n})
		}
		return list
	}
	for name, c := range map[string]struct {
		here       map[string]string
		exceptions []exception
		wrong      string // how the only complaint begins
	}{
		"all pass":                 {here: with()},
		"fail on both":             {here: with("C", "fail", "D", "fail")},
		"left out":                 {here: with("E", "fail")},
		"fails":                    {here: with("A", "fail"), wrong: "A: fail"},
		"skips":                    {here: with("A", "skip"), wrong: "A: skip"},
		"does not run":             {here: with("A", ""), wrong: "A: not run"},
		"unknown":                  {here: with("F", "fail"), wrong: "F: fail"},
		"exception":                {here: with("A", "fail"), exceptions: except("A")},
		"exception of subtests":    {here: with("B/x", "fail"), exceptions: except("B")},
		"parent fails before them": {here: with("B/x", "", "B/y", "", "B", "fail"), exceptions: except("B/x", "B/y")},
		"exception left out":       {here: with(), exceptions: except("E")},
		"exception passes":         {here: with(), exceptions: except("B"), wrong: "exception B: passes"},
		"exception without a test": {here: with(), exceptions: except("Z"), wrong: "exception Z: no such test"},
		"exception not needed":     {here: with("C", "fail"), exceptions: except("C"), wrong: "exception C: no such test"},
		"exception that is flaky":  {here: with("D", ""), exceptions: except("D")},
		"exception that hangs":     {here: with("A", ""), exceptions: []exception{{name: "A", hangs: true}}},
	} {
		wrong := judge(c.here, kafka, c.exceptions, func(name string) bool { return name == "E" })
		if c.wrong == "" && len(wrong) > 0 || c.wrong != "" && (len(wrong) != 1 || !strings.HasPrefix(wrong[0], c.wrong)) {
			t.Errorf("%s: %q, want %q", name, wrong, c.wrong)
		}
	}
}

func TestSkipPattern(t *testing.T) {
	if got, want := skipPattern([]string{"sub/pkg TestA/x+y", "TestB"}), `^TestA$/^x\+y$|^TestB$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
