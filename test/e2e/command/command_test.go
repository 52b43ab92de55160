package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

// kinds are the brokers of a run if none are named.
var kinds = []string{broker.Embedded, broker.Kafka}

// limit bounds a command.
const limit = time.Minute

// person types commands at a broker.
type person struct {
	binary, addr string
}

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// run runs a command to its end.
func (p person) run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary, args...)
	cmd.Env = append(testkit.Environ(), "STREAM_BOOTSTRAP_SERVERS="+p.addr)
	cmd.Dir = t.TempDir()
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("stream %q: %v, %v\n%s%s", args, err, ctx.Err(), stdout.String(), stderr.String())
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// want runs a command that must be done and print exactly stdout.
func (p person) want(t *testing.T, stdin, stdout string, args ...string) {
	t.Helper()
	if r := p.run(t, stdin, args...); r.code != 0 || r.stdout != stdout || r.stderr != "" {
		t.Errorf("stream %q: exit code %d\n%swant\n%sstderr\n%s", args, r.code, r.stdout, stdout, r.stderr)
	}
}

// fail runs a command that must end with code and a line of stderr that matches
// wrong; it returns stdout.
func (p person) fail(t *testing.T, code int, wrong, stdin string, args ...string) string {
	t.Helper()
	r := p.run(t, stdin, args...)
	if r.code != code || !regexp.MustCompile(`(?m)^stream: .*`+wrong).MatchString(r.stderr) {
		t.Errorf("stream %q: exit code %d, want %d\n%sstderr\n%swant\n%s", args, r.code, code, r.stdout, r.stderr, wrong)
	}
	return r.stdout
}

// ask runs a command with -o json into v.
func (p person) ask(t *testing.T, v any, args ...string) {
	t.Helper()
	r := p.run(t, "", append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(r.stdout), v); r.code != 0 || err != nil {
		t.Fatalf("stream %q: exit code %d, %v\n%s%s", args, r.code, err, r.stdout, r.stderr)
	}
}

// visible waits until every part of the cluster has a topic: Apache Kafka
// answers CreateTopics before.
func (p person) visible(t *testing.T, topic string, partitions int) {
	t.Helper()
	testkit.Poll(t, 20*time.Second, "topic "+topic, func() error {
		var ts []struct{ Partitions []struct{ Latest *int64 } }
		r := p.run(t, "", "topic", "describe", topic, "-o", "json")
		if err := json.Unmarshal([]byte(r.stdout), &ts); err != nil || len(ts) != 1 || len(ts[0].Partitions) != partitions || r.code != 0 {
			return errors.New(r.stdout + r.stderr)
		}
		return nil
	})
}

func (p person) create(t *testing.T, topic string, partitions string, more ...string) {
	t.Helper()
	if r := p.run(t, "", append([]string{"topic", "create", topic, "-p", partitions}, more...)...); r.code != 0 {
		t.Fatalf("create %s: %s", topic, r.stderr)
	}
	p.visible(t, topic, int(partitions[0]-'0'))
}

func TestCommands(t *testing.T) {
	t.Parallel()
	binary := testkit.Binary(t)
	broker.Each(t, kinds, func(t *testing.T, b *broker.Broker) {
		p := person{binary, b.Addr}
		t.Run("topics", func(t *testing.T) { p.topics(t) })
		t.Run("truncate", func(t *testing.T) { p.truncate(t) })
		t.Run("lines", func(t *testing.T) { p.lines(t) })
		t.Run("json", func(t *testing.T) { p.json(t) })
		t.Run("refused records", func(t *testing.T) { p.refused(t) })
		t.Run("positions", func(t *testing.T) { p.positions(t) })
		t.Run("compact", func(t *testing.T) { p.compact(t, b.Admin) })
		t.Run("groups", func(t *testing.T) { p.groups(t) })
		t.Run("interrupt", func(t *testing.T) { p.interrupt(t) })
		t.Run("closed pipe", func(t *testing.T) { p.closedPipe(t) })
		t.Run("status", func(t *testing.T) { p.status(t, b.Addr) })
		t.Run("completion", func(t *testing.T) { p.completion(t) })
	})
}

func (p person) topics(t *testing.T) {
	p.want(t, "", "topic orders: created with 3 partitions, 1 replica\n", "topic", "create", "orders", "--partitions", "3", "--config", "retention.ms=86400000")
	p.visible(t, "orders", 3)
	p.fail(t, 1, `topic orders: TOPIC_ALREADY_EXISTS: `, "", "topic", "create", "orders")
	p.want(t, "", "topic orders: exists\n", "topic", "create", "orders", "--if-not-exists")
	p.fail(t, 1, `topic bad: INVALID_CONFIG: `, "", "topic", "create", "bad", "-c", "no.such.config=1")
	p.fail(t, 1, `INVALID_TOPIC_EXCEPTION: `, "", "topic", "create", "not/a/name")

	var list []struct {
		Name                 string
		Partitions, Replicas int
		Internal             bool
	}
	p.ask(t, &list, "topic", "list")
	if len(list) != 1 || list[0].Name != "orders" || list[0].Partitions != 3 || list[0].Replicas != 1 || list[0].Internal {
		t.Errorf("topic list: %+v", list)
	}
	p.want(t, "", "NAME    PARTITIONS  REPLICAS\norders  3           1\n", "topic", "list")
	p.want(t, "", "PARTITION  EARLIEST  LATEST\n0          0         0\n1          0         0\n2          0         0\n", "topic", "offsets", "orders")

	p.want(t, "", "topic orders: 2 configs changed, grown to 4 partitions\n", "topic", "alter", "orders", "--set", "max.message.bytes=2000", "--unset", "retention.ms", "--partitions", "4")
	p.visible(t, "orders", 4)
	var described []struct {
		Name    string
		Configs []struct{ Name, Value, Source string }
	}
	testkit.Poll(t, 20*time.Second, "configs", func() error {
		p.ask(t, &described, "topic", "describe", "orders")
		if c := described[0].Configs; len(c) != 1 || c[0].Name != "max.message.bytes" || c[0].Value != "2000" || c[0].Source != "DYNAMIC_TOPIC_CONFIG" {
			return errors.New("other configs")
		}
		return nil
	})
	p.ask(t, &described, "topic", "describe", "orders", "--all-configs")
	if len(described[0].Configs) < 20 {
		t.Errorf("all configs: %+v", described)
	}
	// Both halves are told, and what was done stays.
	p.fail(t, 1, `topic orders: partitions: INVALID_PARTITIONS: .*\(but 1 config changed\)`, "", "topic", "alter", "orders", "--set", "retention.ms=7200000", "--partitions", "2")
	if out := p.fail(t, 1, `topic nope: UNKNOWN_TOPIC_OR_PARTITION: `, "", "topic", "describe", "orders", "nope"); !strings.Contains(out, "retention.ms") {
		t.Errorf("describe of two, one missing:\n%s", out)
	}
	if r := p.run(t, "", "topic", "describe", "orders", "-o", "yaml"); r.code != 0 || !strings.HasPrefix(r.stdout, "- name: orders\n  topic_id: ") || !strings.Contains(r.stdout, "\n    - name: max.message.bytes\n      value: \"2000\"\n") {
		t.Errorf("yaml: %d\n%s%s", r.code, r.stdout, r.stderr)
	}

	// Nothing is deleted that nobody has agreed to.
	p.fail(t, 2, `no terminal to ask`, "y\n", "topic", "delete", "orders")
	p.create(t, "second", "1")
	if out := p.fail(t, 1, `topic nope: UNKNOWN_TOPIC_OR_PARTITION: `, "", "topic", "delete", "orders", "nope", "second", "--yes"); out != "topic orders: deleted\ntopic second: deleted\n" {
		t.Errorf("delete of three:\n%s", out)
	}
	testkit.Poll(t, 20*time.Second, "no topics", func() error {
		if p.ask(t, &list, "topic", "list"); len(list) != 0 {
			return errors.New("there are some")
		}
		return nil
	})
}

func (p person) truncate(t *testing.T) {
	p.create(t, "cut", "2")
	p.want(t, "1\n2\n3\n4\n", "stored 4 records in cut\n", "produce", "cut", "--partition", "1")
	p.fail(t, 2, `either --before or --all`, "", "topic", "truncate", "cut")
	p.fail(t, 1, `partition cut-1 ends before offset 4`, "", "topic", "truncate", "cut", "--before", "5", "--partition", "1", "--yes")
	p.fail(t, 1, `topic cut has no partition 7`, "", "topic", "truncate", "cut", "--all", "--partition", "7", "--yes")
	p.want(t, "", "partition cut-1: begins at offset 3\n", "topic", "truncate", "cut", "--before", "3", "--partition", "1", "--yes")
	p.want(t, "", "4\n", "consume", "cut", "-e")
	p.want(t, "", "partition cut-0: begins at offset 0\npartition cut-1: begins at offset 4\n", "topic", "truncate", "cut", "--all", "--yes")
	p.want(t, "", "", "consume", "cut", "-e")
}

func (p person) status(t *testing.T, addr string) {
	var st struct {
		Cluster         string `json:"cluster_id"`
		Controller      int32
		Brokers         []struct{ Address string }
		Topics          int
		Partitions      int
		UnderReplicated []string `json:"under_replicated"`
		Late            []any    `json:"late_transactions"`
	}
	p.create(t, "held", "1")
	open, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("open"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := open.ProduceSync(t.Context(), &kgo.Record{Topic: "held"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p.ask(t, &st, "status")
	_, port, _ := strings.Cut(addr, ":")
	if st.Cluster == "" || st.Controller < 0 || len(st.Brokers) != 1 || !strings.HasSuffix(st.Brokers[0].Address, ":"+port) || st.Topics == 0 || st.Partitions < st.Topics || len(st.UnderReplicated) != 0 || st.Late == nil || len(st.Late) != 0 {
		t.Errorf("status %+v", st)
	}
	if r := p.run(t, "", "status"); r.code != 0 || !regexp.MustCompile(`under-replicated: +none\n(.*\n)*late transactions: +none\n`).MatchString(r.stdout) {
		t.Errorf("status: %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

func (p person) completion(t *testing.T) {
	p.create(t, "tab-one", "1")
	p.create(t, "tab-two", "1")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"topic", "describe", "tab-"}, "tab-one\ntab-two\n:4\n"},
		{[]string{"topic", "describe", "tab-one", "tab-"}, "tab-two\n:4\n"},
		{[]string{"consume", "tab-o"}, "tab-one\n:4\n"},
		{[]string{"produce", "tab-one", "tab"}, ":4\n"},
		{[]string{"group", "reset", "g", "--topic", "tab-t"}, "tab-two\n:4\n"},
		{[]string{"topic", "list", "-o", ""}, "table\njson\nyaml\n:4\n"},
		{[]string{"topic", "describe", "-b", testkit.FreeAddr(t), "tab-"}, ":4\n"}, // nobody there: nothing, soon
	} {
		if r := p.run(t, "", append([]string{"__complete"}, c.args...)...); r.code != 0 || r.stdout != c.want {
			t.Errorf("Tab after %q: %d\n%swant\n%s", c.args, r.code, r.stdout, c.want)
		}
	}
}

// TestUnreachable: there is no server, it is something else, or it sends
// clients astray.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	p := person{testkit.Binary(t), testkit.FreeAddr(t)}
	for _, args := range [][]string{{"topic", "list"}, {"group", "describe", "g"}, {"produce", "t"}, {"consume", "t"}, {"status"}} {
		r := p.run(t, "x\n", append(args, "--timeout", "2s")...)
		if r.code != 3 || r.stdout != "" || !strings.Contains(r.stderr, p.addr) || !strings.Contains(r.stderr, "hint: is the server running there?") {
			t.Errorf("%q: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	elsewhere := testkit.FreeAddr(t)
	b := broker.StartWith(t, broker.Embedded, broker.Options{Advertised: elsewhere})
	r := person{p.binary, b.Addr}.run(t, "", "topic", "list", "--timeout", "5s")
	if r.code != 0 { // any broker can answer that
		t.Errorf("topic list: %d %s", r.code, r.stderr)
	}
	r = person{p.binary, b.Addr}.run(t, "", "topic", "create", "t", "--timeout", "2s")
	if r.code != 3 || !strings.Contains(r.stderr, "tells its clients to connect to "+elsewhere) {
		t.Errorf("a wrong advertised address: exit code %d\n%s", r.code, r.stderr)
	}
}

// TestServerGone: a server that ends in the middle leaves no doubt about what
// it has stored, and a consumer waits for it.
func TestServerGone(t *testing.T) {
	t.Parallel()
	b := broker.Start(t, broker.Embedded)
	p := person{testkit.Binary(t), b.Addr}
	p.create(t, "t", "1")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	producer := p.start(t, r, nil, "produce", "t", "--timeout", "2s")
	r.Close()
	consumer := p.start(t, nil, nil, "consume", "t", "-n", "3")
	sees := func(what string, in *syncBuffer) {
		t.Helper()
		testkit.Poll(t, 30*time.Second, "output "+what, func() error {
			if s := in.String(); !strings.Contains(s, what) {
				return errors.New(s)
			}
			return nil
		})
	}
	write := func(s string) {
		if _, err := w.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	sees("one\n", &consumer.stdout)
	b.Kill(t)
	write("two\n")
	if code := producer.end(t); code != 3 || !strings.Contains(producer.stderr.String(), "stored 1 of 2 records, 1 without an answer") {
		t.Errorf("exit code %d\n%s%s", code, producer.stdout.String(), producer.stderr.String())
	}
	sees("no connection, trying again", &consumer.stderr)
	b.Restart(t)
	p.want(t, "three\nfour\n", "stored 2 records in t\n", "produce", "t")
	if code := consumer.end(t); code != 0 || consumer.stdout.String() != "one\nthree\nfour\n" || !strings.Contains(consumer.stderr.String(), "connected again") {
		t.Errorf("exit code %d\n%s%s", code, consumer.stdout.String(), consumer.stderr.String())
	}
}

// TestGrowth: a consumer reads partitions that were added while it ran.
func TestGrowth(t *testing.T) {
	t.Parallel()
	b := broker.Start(t, broker.Embedded)
	p := person{testkit.Binary(t), b.Addr}
	p.create(t, "t", "1")
	p.want(t, "a\n", "stored 1 record in t\n", "produce", "t")
	c := p.start(t, nil, nil, "consume", "t", "-n", "2", "-f", `%p:%v\n`)
	testkit.Poll(t, 20*time.Second, "output", func() error {
		if s := c.stdout.String(); s != "0:a\n" {
			return errors.New(s)
		}
		return nil
	})
	p.want(t, "", "topic t: grown to 2 partitions\n", "topic", "alter", "t", "-p", "2")
	p.want(t, "x\n", "stored 1 record in t\n", "produce", "t", "-p", "1")
	if code := c.end(t); code != 0 || c.stdout.String() != "0:a\n1:x\n" {
		t.Errorf("exit code %d\n%s%s", code, c.stdout.String(), c.stderr.String())
	}
}
