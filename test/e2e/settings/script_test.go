package settings

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
)

var (
	record = flag.Bool("record", false, "write the answers of Apache Kafka into testdata")
	differ = flag.Bool("differ", false, "write our answers into testdata where they differ; the reason is to be written by hand")
)

// step is one request of a script and what is to come back.
type step struct {
	lines   []string // comments and empty lines before it
	request string
	want    []string // Apache Kafka's answer
	reason  string   // why ours differs, "" if it does not
	ours    []string
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	broker.Each(t, []string{broker.Embedded}, func(t *testing.T, b *broker.Broker) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.RequestRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		differences := 0
		for _, f := range files {
			t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
				steps := parse(t, f)
				for i := range steps {
					s := &steps[i]
					if s.reason != "" {
						differences++
					}
					s.run(t, cl, b.Kind == broker.Kafka)
				}
				if *record && b.Kind == broker.Kafka || *differ && b.Kind != broker.Kafka {
					write(t, f, steps)
				}
			})
		}
		t.Logf("%d answers differ from Apache Kafka's on purpose; the scripts say why", differences)
	})
}

// patience bounds how long Apache Kafka may take until a broker shows what the
// controller has answered. We show it at once.
const patience = 10 * time.Second

// settle is how long a recording waits for the same.
const settle = 300 * time.Millisecond

func (s *step) run(t *testing.T, cl *kgo.Client, kafka bool) {
	t.Helper()
	if s.request == "" {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if kafka && *record {
		time.Sleep(settle)
		s.want = ask(ctx, t, cl, s.request)
		return
	}
	want := s.want
	if !kafka && s.reason != "" {
		want = s.ours
	}
	got := ask(ctx, t, cl, s.request)
	for end := time.Now().Add(patience); kafka && !slices.Equal(got, want) && reads(s.request) && time.Now().Before(end); {
		time.Sleep(settle / 10)
		got = ask(ctx, t, cl, s.request)
	}
	if *differ && !kafka && !slices.Equal(got, want) {
		s.ours = got
		if s.reason == "" {
			s.reason = "?"
		}
		if slices.Equal(got, s.want) {
			s.reason, s.ours = "", nil
		}
		return
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\ngot:\n    %s\nwant:\n    %s", s.request, strings.Join(got, "\n    "), strings.Join(want, "\n    "))
	}
	if !kafka && s.reason != "" && slices.Equal(s.ours, s.want) {
		t.Errorf("%s: the answers do not differ", s.request)
	}
}

// reads says that a request changes nothing, so that it may be repeated.
func reads(request string) bool {
	w, _, _ := strings.Cut(request, " ")
	return w == "describe" || w == "list" || w == "partitions"
}

func ask(ctx context.Context, t *testing.T, cl *kgo.Client, request string) []string {
	t.Helper()
	words := strings.Fields(request)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "␣", " ")
	}
	do := commands[words[0]]
	if do == nil {
		t.Fatalf("%q: no such request; there are %v", request, slices.Sorted(maps.Keys(commands)))
	}
	r := &asked{ctx: ctx, cl: cl, version: -1}
	for len(words) > 1 && r.option(words[1]) {
		words = slices.Delete(words, 1, 2)
	}
	answer, err := do(r, words[1:])
	if err != nil {
		answer = append(answer, "failed: "+err.Error())
	}
	return answer
}

// asked is one request with its options: v<version>, validate.
type asked struct {
	ctx      context.Context
	cl       *kgo.Client
	version  int16
	validate bool
}

func (r *asked) option(word string) bool {
	if word == "validate" {
		r.validate = true
		return true
	}
	if v, ok := strings.CutPrefix(word, "v"); ok {
		if n, err := strconv.Atoi(v); err == nil {
			r.version = int16(n)
			return true
		}
	}
	return false
}

func parse(t *testing.T, file string) []step {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	var before []string
	ours := false
	for l := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
		text, indented := strings.CutPrefix(l, "    ")
		switch {
		case l == "" || strings.HasPrefix(l, "#"):
			before = append(before, l)
		case strings.HasPrefix(l, "ours:") && len(steps) > 0:
			steps[len(steps)-1].reason = strings.TrimSpace(strings.TrimPrefix(l, "ours:"))
			if r := steps[len(steps)-1].reason; r == "" || r == "?" && !*differ {
				t.Fatalf("%s: a difference without a reason", file)
			}
			ours = true
		case indented && ours:
			steps[len(steps)-1].ours = append(steps[len(steps)-1].ours, text)
		case indented && len(steps) > 0:
			steps[len(steps)-1].want = append(steps[len(steps)-1].want, text)
		default:
			steps = append(steps, step{lines: before, request: l})
			before, ours = nil, false
		}
	}
	return append(steps, step{lines: before})
}

func write(t *testing.T, file string, steps []step) {
	t.Helper()
	var b strings.Builder
	for _, s := range steps {
		for _, l := range s.lines {
			fmt.Fprintln(&b, l)
		}
		if s.request == "" {
			continue
		}
		fmt.Fprintln(&b, s.request)
		for _, l := range s.want {
			fmt.Fprintln(&b, "    "+l)
		}
		if s.reason != "" {
			fmt.Fprintln(&b, "ours: "+s.reason)
			for _, l := range s.ours {
				fmt.Fprintln(&b, "    "+l)
			}
		}
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
