package golden

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// step is a command of a transcript with what it is to print, or a directive.
type step struct {
	before  []string // comments and empty lines
	command string   // with its "$ " or "@"
	stdin   []string
	want    []string // the lines below it, as they stand in the file
}

func parse(t *testing.T, file string) []step {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	var before []string
	for l := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
		switch {
		case l == "" || strings.HasPrefix(l, "#"):
			before = append(before, l)
		case strings.HasPrefix(l, "$ "), strings.HasPrefix(l, "@"):
			steps = append(steps, step{before: before, command: l})
			before = nil
		case len(steps) == 0 || len(before) > 0:
			t.Fatalf("%s: %q belongs to no command", file, l)
		case strings.HasPrefix(l, "<"):
			s := &steps[len(steps)-1]
			s.stdin = append(s.stdin, strings.TrimPrefix(strings.TrimPrefix(l, "<"), " "))
		case strings.HasPrefix(l, "    "), strings.HasPrefix(l, "  ! "), strings.HasPrefix(l, "  = "):
			s := &steps[len(steps)-1]
			s.want = append(s.want, l)
		default:
			t.Fatalf("%s: what is %q?", file, l)
		}
	}
	return append(steps, step{before: before})
}

func write(t *testing.T, file string, steps []step) {
	t.Helper()
	var b strings.Builder
	line := func(l string) { fmt.Fprintln(&b, strings.TrimRight(l, " ")) }
	for _, s := range steps {
		for _, l := range s.before {
			line(l)
		}
		if s.command == "" {
			continue
		}
		line(s.command)
		for _, l := range s.stdin {
			line("< " + l)
		}
		for _, l := range s.want {
			fmt.Fprintln(&b, l)
		}
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// words splits a command as a shell would: spaces, single quotes.
func words(command string) []string {
	var out []string
	var word strings.Builder
	quoted, in := false, false
	for _, r := range command {
		switch {
		case r == '\'':
			quoted, in = !quoted, true
		case r == ' ' && !quoted:
			if in {
				out = append(out, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if in {
		out = append(out, word.String())
	}
	return out
}
