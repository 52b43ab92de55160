package txn

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hanzoai/stream/test/e2e/broker"
)

// line is what one request gave in one state.
type line struct {
	state, request string
	version        int16
	variant        string
	answer         string
	// between: the versions before and after it have the same answer.
	between bool
}

func (l line) name() string {
	return fmt.Sprintf("%s: %s v%d, %s", l.state, l.request, l.version, l.variant)
}

// write makes one line of versions that follow each other with the same answer.
func write(t *testing.T, path string, lines []line) {
	t.Helper()
	var b strings.Builder
	state := ""
	for i := 0; i < len(lines); {
		l, j := lines[i], i+1
		for j < len(lines) && lines[j].state == l.state && lines[j].request == l.request && lines[j].variant == l.variant && lines[j].answer == l.answer {
			j++
		}
		if l.state != state {
			state = l.state
			fmt.Fprintf(&b, "%s\n", state)
		}
		fmt.Fprintf(&b, "  %s v%d-v%d, %s: %s\n", l.request, l.version, lines[j-1].version, l.variant, l.answer)
		i = j
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

var form = regexp.MustCompile(`^  (\w+) v(\d+)-v(\d+), ([^:]*): (.*)$`)

func read(t *testing.T, path string) (lines []line) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	state := ""
	for s := range strings.Lines(string(text)) {
		s = strings.TrimRight(s, "\n")
		if !strings.HasPrefix(s, " ") {
			state = s
			continue
		}
		m := form.FindStringSubmatch(s)
		if m == nil {
			t.Fatalf("%s: %q", path, s)
		}
		from, _ := strconv.Atoi(m[2])
		to, _ := strconv.Atoi(m[3])
		for v := from; v <= to; v++ {
			lines = append(lines, line{state, m[1], int16(v), m[4], m[5], v > from && v < to})
		}
	}
	return lines
}

// compare fails for each answer that differs, unless differences has it. What it
// has must be different, so that the list shrinks.
func compare(t *testing.T, kind string, got, want []line) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d answers, recorded are %d: make record", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.name() != w.name() {
			t.Fatalf("answer %d is %q, recorded is %q: make record", i, g.name(), w.name())
		}
		if kind == broker.Kafka {
			if g.answer != w.answer {
				t.Errorf("%s:\n got %s\nwant %s", g.name(), g.answer, w.answer)
			}
			continue
		}
		d := find(g)
		switch {
		case d != nil && g.answer == w.answer:
			t.Errorf("%s: no difference any more, listed as: %s", g.name(), d.why)
		case d != nil && !strings.HasPrefix(g.answer, d.answers):
			t.Errorf("%s:\n got %s\nwant %s (unlike Kafka: %s)", g.name(), g.answer, d.answers, d.why)
		case d == nil && g.answer != w.answer:
			t.Errorf("%s:\n got %s\nwant %s", g.name(), g.answer, w.answer)
		}
	}
}

// difference is an answer of ours that is not Kafka's.
type difference struct {
	name         *regexp.Regexp // of the line
	answers, why string         // to the request and when it is repeated
}

var differences = []difference{{
	regexp.MustCompile(`: WriteTxnMarkers v\d, abort internal, current$`), "17 | 17 | ",
	"__consumer_offsets is a view; what groups have in transactions is ended by their coordinator alone",
}}

func find(l line) *difference {
	for i := range differences {
		if differences[i].name.MatchString(l.name()) {
			return &differences[i]
		}
	}
	return nil
}
