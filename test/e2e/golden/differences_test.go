package golden

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const differencesFile = "testdata/differences"

// difference is one entry of the list:
//
//	kafka-topics: kafka-topics --list         transcript and command
//	why: the reason
//	-    a line that Apache Kafka has and we have not
//	+    the other way round
type difference struct {
	at    string
	why   string
	lines []string
}

// differences is the list in the order of the file.
type differences struct {
	comments []string
	list     []*difference
}

func readDifferences(t *testing.T) *differences {
	t.Helper()
	data, err := os.ReadFile(differencesFile)
	if err != nil {
		t.Fatal(err)
	}
	d := &differences{}
	for l := range strings.Lines(string(data)) {
		l = strings.TrimRight(l, "\n")
		last := len(d.list) - 1
		switch {
		case strings.HasPrefix(l, "#"):
			d.comments = append(d.comments, l)
		case l == "":
		case strings.HasPrefix(l, "why: ") && last >= 0:
			d.list[last].why = strings.TrimPrefix(l, "why: ")
		case (l[0] == '-' || l[0] == '+') && last >= 0:
			d.list[last].lines = append(d.list[last].lines, l)
		default:
			d.list = append(d.list, &difference{at: l})
		}
	}
	for _, e := range d.list {
		if e.why == "" || e.why == "?" && !*differ {
			t.Errorf("%s: a difference without a reason", e.at)
		}
	}
	return d
}

func (d *differences) find(at string) *difference {
	for _, e := range d.list {
		if e.at == at {
			return e
		}
	}
	return nil
}

// set lists a difference anew; without lines it is taken off.
func (d *differences) set(at string, lines []string) {
	e := d.find(at)
	switch {
	case len(lines) == 0:
		d.list = slices.DeleteFunc(d.list, func(e *difference) bool { return e.at == at })
	case e == nil:
		d.list = append(d.list, &difference{at: at, why: "?", lines: lines})
	default:
		e.lines = lines
	}
}

func (d *differences) write(t *testing.T) {
	t.Helper()
	var b strings.Builder
	for _, l := range d.comments {
		fmt.Fprintln(&b, l)
	}
	slices.SortStableFunc(d.list, func(x, y *difference) int {
		return strings.Compare(x.at[:strings.Index(x.at, ":")], y.at[:strings.Index(y.at, ":")])
	})
	for _, e := range d.list {
		fmt.Fprintf(&b, "\n%s\nwhy: %s\n%s\n", e.at, e.why, strings.Join(e.lines, "\n"))
	}
	if err := os.WriteFile(differencesFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// diff is the lines that only one of the two has, "-" for a and "+" for b, by
// their longest common subsequence.
func diff(a, b []string) []string {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "-"+a[i])
			i++
		default:
			out = append(out, "+"+b[j])
			j++
		}
	}
	return out
}

func TestDiff(t *testing.T) {
	got := strings.Join(diff([]string{"a", "b", "c", "d"}, []string{"a", "c", "x", "d", "y"}), " ")
	if want := "-b +x +y"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
