package txn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What Apache Kafka 4.3.1 answered, to every request in every state, each twice,
// and the state afterwards: recorded by test/e2e/txn. Here are the rows that only
// the coordinator decides, in the newest version of each request and the last one
// before epochs change; the codes of older ones and topics that do not exist are the
// wire's.
func TestC33RecordedTable(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../test/e2e/txn/testdata/table.txt"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`^  (\w+) v(\d+)-v(\d+), ([^:]*): (.*) \| (.*) \| (.*) \| .*$`)
	// Names that do not exist or are empty, and several transactions in one request,
	// are the wire's.
	decides := regexp.MustCompile(`^(InitProducerID (none|current|previous|next|other|older)|AddPartitionsToTxn (verify )?(a|b|a and b|a twice|none), (current|previous|next|other)|AddOffsetsToTxn (current|previous|next|other)|EndTxn (commit|abort), (current|previous|next|other))$`)
	seen := map[string]int{}
	state := ""
	for l := range strings.Lines(string(text)) {
		l = strings.TrimRight(l, "\n")
		if !strings.HasPrefix(l, " ") {
			state = l
			continue
		}
		m := row.FindStringSubmatch(l)
		if m == nil {
			t.Fatalf("not a row: %q", l)
		}
		request, variant := m[1], m[4]
		if !decides.MatchString(request + " " + variant) {
			continue
		}
		for _, version := range map[string][]string{"InitProducerID": {"5"}, "AddPartitionsToTxn": {"5"}, "AddOffsetsToTxn": {"4"}, "EndTxn": {"4", "5"}}[request] {
			if m[2] > version || m[3] < version {
				continue
			}
			seen[request]++
			t.Run(fmt.Sprintf("%s/%s v%s, %s", state, request, version, variant), func(t *testing.T) {
				c := newCell(t, state)
				first := c.ask(request, version, variant)
				second := "-"
				if !strings.HasPrefix(state, "Prepare") { // recorded once the first had settled
					c.complete()
					second = c.ask(request, version, variant)
				}
				if c.s.deciding() {
					c.complete()
				}
				if after := c.describe(); first != m[5] || second != m[6] || after != m[7] {
					t.Errorf("%s | %s | %s\nkafka: %s | %s | %s", first, second, after, m[5], m[6], m[7])
				}
			})
		}
	}
	for request, n := range map[string]int{"InitProducerID": 100, "AddPartitionsToTxn": 150, "AddOffsetsToTxn": 70, "EndTxn": 250} {
		if seen[request] < n {
			t.Errorf("%d rows of %s, want at least %d", seen[request], request, n)
		}
	}
}

// cell is a rig in one of the recorded states, and what its client holds.
type cell struct {
	*rig
	p Producer
}

func newCell(t *testing.T, state string) *cell {
	c := &cell{newRig(t), Producer{ID: 77, Epoch: 2}}
	empty := func(timeout time.Duration) {
		for range 3 {
			c.p = c.mustInit(NoProducer)
		}
		c.s.timeout = timeout
	}
	open := func() {
		c.mustAdd(c.p, p0)
		if _, err := c.addOffsets(c.p, "g"); err != nil {
			t.Fatal(err)
		}
	}
	end := func(commit, bump bool) {
		if next := c.mustEnd(c.p, commit, bump); bump {
			c.p = next
		}
	}
	name, v2 := strings.CutSuffix(state, ", version 2")
	if name == "no id" {
		return c
	}
	empty(time.Minute)
	switch name {
	case "Empty":
	case "Ongoing, nothing written":
		c.mustAdd(c.p, p0)
	case "Ongoing":
		open()
	case "PrepareCommit", "PrepareAbort":
		open()
		end(name == "PrepareCommit", v2)
	case "CompleteCommit", "CompleteAbort":
		open()
		end(name == "CompleteCommit", v2)
		c.complete()
	case "second transaction":
		open()
		end(true, true)
		c.complete()
		open()
	case "fenced when Empty", "fenced when Ongoing":
		if name == "fenced when Ongoing" {
			open()
			if _, err := c.init(NoProducer); !errors.Is(err, kerr.ConcurrentTransactions) {
				t.Fatal(err)
			}
			c.complete()
		}
		c.mustInit(NoProducer)
	case "timed out":
		c.p = c.mustInit(NoProducer) // with the short timeout
		open()
		c.pass(2 * time.Minute)
		c.complete()
	default:
		t.Fatalf("state %q", state)
	}
	return c
}

// ask asks until the answer is not CONCURRENT_TRANSACTIONS, unless that is what the
// state is about, and writes the answer as it was recorded.
func (c *cell) ask(request, version, variant string) string {
	c.t.Helper()
	prepared := c.s.deciding()
	answer := c.once(request, version, variant)
	if strings.Contains(answer, "51") && !prepared {
		c.complete()
		return "51, " + c.once(request, version, variant)
	}
	return answer
}

func (c *cell) once(request, version, variant string) string {
	c.t.Helper()
	what, who := "", variant
	if i := strings.LastIndex(variant, ", "); i >= 0 {
		what, who = variant[:i], variant[i+2:]
	}
	p := c.p
	switch who {
	case "none":
		p = NoProducer
	case "current":
	case "previous":
		p.Epoch--
	case "next":
		p.Epoch++
	case "older":
		p.Epoch -= 2
	case "other":
		p = Producer{ID: 4711}
	default:
		c.t.Fatalf("sender %q", who)
	}
	code := func(err error) int16 {
		if err == nil {
			return 0
		}
		return err.(*kerr.Error).Code
	}
	switch request {
	case "InitProducerID":
		got, err := c.init(p)
		return fmt.Sprintf("%d %s", code(err), c.producer(got))
	case "AddPartitionsToTxn":
		verify, _ := strings.CutPrefix(what, "verify ")
		names := map[string][]string{"a": {"a"}, "b": {"b"}, "a and b": {"a", "b"}, "a twice": {"a", "a"}, "none": nil}[verify]
		var parts []Partition
		for _, n := range names {
			parts = append(parts, map[string]Partition{"a": p0, "b": p2}[n])
		}
		var missing []Partition
		var err error
		if verify != what {
			var a AddPartitionsResponse
			a, err = c.verify(p, parts...)
			missing = a.Missing
		} else {
			_, err = c.add(p, parts...)
		}
		var out []string
		for i, n := range names {
			k := code(err)
			if err == nil && slices.Contains(missing, parts[i]) {
				k = kerr.TransactionAbortable.Code
			}
			out = append(out, fmt.Sprintf("%s %d", n, k))
		}
		return strings.Join(append(out, "top 0"), ", ")
	case "AddOffsetsToTxn":
		_, err := c.addOffsets(p, "g")
		return fmt.Sprint(code(err))
	}
	next, err := c.end(p, what == "commit", version == "5")
	if version != "5" {
		return fmt.Sprint(code(err))
	}
	if err != nil {
		next = NoProducer
	}
	return fmt.Sprintf("%d %s", code(err), c.producer(next))
}

func (c *cell) producer(p Producer) string {
	switch p.ID {
	case noID:
		return fmt.Sprintf("none %d", p.Epoch)
	case c.p.ID:
		return fmt.Sprintf("same e%+d", p.Epoch-c.p.Epoch)
	}
	return fmt.Sprintf("new %d", p.Epoch)
}

func (c *cell) describe() string {
	d := c.s.describe()
	if d.Err != nil {
		return fmt.Sprintf("code %d", d.Err.(*kerr.Error).Code)
	}
	started := "not started"
	if d.Start > 0 {
		started = "started"
	}
	var in []string
	for _, p := range d.Partitions {
		in = append(in, map[Partition]string{p0: "a-0", p2: "b-0"}[p])
	}
	for range d.Groups {
		in = append(in, "group")
	}
	return fmt.Sprintf("%s %s %s [%s]", d.State, c.producer(d.Producer), started, strings.Join(in, " "))
}
