package golden

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hanzoai/stream/test/e2e/tools"
)

// masks are what no two runs have in common. Zero is never masked where it says
// something: an empty partition has size 0 on both.
var masks = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "<uuid>"},
	{regexp.MustCompile(`(TopicId: |Cluster ID: )[A-Za-z0-9_-]{22}\b`), "$1<id>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,:]\d+)?Z?`), "<time>"},
	{regexp.MustCompile(`\b1[6-9]\d{11}\b`), "<ms>"},
	{regexp.MustCompile(`\b(adminclient|producer|console-consumer|perf-consumer)-\d+\b`), "$1-<n>"},
	{regexp.MustCompile(`\b127\.0\.0\.1 \d+`), "127.0.0.1 <port>"},
	// A call that cannot be answered is repeated until its time is over; where
	// that finds it is chance.
	{regexp.MustCompile(`(Call\(callName=|Timed out waiting for a node assignment\. Call: )([^,)]*\)).*`), "<timed out: $2>"},
	{regexp.MustCompile(`Epoch: \d+`), "Epoch: <n>"},
	{regexp.MustCompile(`"log_dirs":\["/[^"]*"`), `"log_dirs":["<path>"`},
	{regexp.MustCompile(`"size":[1-9]\d*`), `"size":<size>`},
	{regexp.MustCompile(`"logDir":"[^"]*"`), `"logDir":"<path>"`},
}

// rates are what tools of load measure.
var rates = regexp.MustCompile(`\d+\.\d+|\b\d+ ms\b|= \d+|, \d+, \d+,`)

// producerID begins a line, or comes after the ids of a coordinator and a
// transaction; ours count from another number. The last is how long one took.
var (
	producerID = regexp.MustCompile(`^((?:[a-z]+ ?\t1|1 ?\t[a-z]+) ?\t)?\d+ ?\t`)
	duration   = regexp.MustCompile(`(<ms> ?\t)\d+( ?\t[a-z]+-\d)`)
)

var spaces = regexp.MustCompile(` +`)

// mask makes lines of a transcript of what a tool left.
func mask(args []string, res tools.Result, addr string) []string {
	var out []string
	tool := args[0]
	each := func(text, prefix string) {
		first := len(out)
		for l := range strings.Lines(text) {
			l = strings.TrimRight(l, "\r\n")
			// The table of options below a message is the tool's own.
			if strings.HasPrefix(l, "Option ") {
				break
			}
			// A trace names lines of Apache Kafka's source, and comes below the
			// message that counts.
			if strings.HasPrefix(l, "\tat ") || strings.HasPrefix(l, "\t... ") {
				continue
			}
			l = strings.ReplaceAll(l, addr, "localhost:9092")
			for _, m := range masks {
				l = m.re.ReplaceAllString(l, m.with)
			}
			if strings.HasSuffix(tool, "-perf-test") || tool == "kafka-e2e-latency" {
				l = rates.ReplaceAllString(l, "<n>")
			}
			// Columns are as wide as the ids in them.
			l = strings.TrimRight(spaces.ReplaceAllString(l, " "), " ")
			if tool == "kafka-transactions" {
				l = duration.ReplaceAllString(producerID.ReplaceAllString(l, "$1<pid>\t"), "$1<ms>$2")
			}
			if l != "" {
				out = append(out, prefix+l)
			}
		}
		if unordered(args) && len(out) > first {
			slices.SortFunc(out[first:], func(a, b string) int { return strings.Compare(strings.TrimSpace(a), strings.TrimSpace(b)) })
		}
	}
	each(res.Stdout, "    ")
	each(res.Stderr, "  ! ")
	return out
}

// unordered says that topics or groups come in the order of a hash table.
func unordered(args []string) bool {
	return args[0] == "kafka-delete-records" ||
		args[0] == "kafka-transactions" && slices.Contains(args, "list") ||
		args[0] == "kafka-configs" && slices.Contains(args, "--describe") && !slices.Contains(args, "--entity-name") || strings.HasSuffix(args[0], "-groups") && slices.Contains(args, "--list") ||
		args[0] == "kafka-topics" && slices.Contains(args, "--describe")
}

func TestMask(t *testing.T) {
	res := tools.Result{Stdout: "Topic: a\tTopicId: PhyIPpkTQxqvQ2bFO4vbUg\tLeader: 1\n\n{\"size\":0},{\"size\":17}\n",
		Stderr: "[2026-11-30 08:00:01,123] x at 127.0.0.1:1234\n\tat org.apache\n"}
	got := strings.Join(mask([]string{"kafka-topics"}, res, "127.0.0.1:1234"), "\n")
	want := "    Topic: a\tTopicId: <id>\tLeader: 1\n    {\"size\":0},{\"size\":<size>}\n  ! [<time>] x at localhost:9092"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	res = tools.Result{Stderr: "Missing\nOption      Description\n------   ----\n--x\n"}
	if got := mask([]string{"kafka-topics"}, res, "x:1"); len(got) != 1 || got[0] != "  ! Missing" {
		t.Errorf("usage: %q", got)
	}
	// Offsets, lags and counts stay: they are what a tool is asked for.
	res = tools.Result{Stdout: "g topic 0 7 10 3 -\n"}
	if got := mask([]string{"kafka-consumer-groups"}, res, "x:1"); got[0] != "    g topic 0 7 10 3 -" {
		t.Errorf("got %q", got)
	}
}
