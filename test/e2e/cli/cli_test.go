package cli

import (
	"bufio"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

func TestTools(t *testing.T) {
	t.Parallel() // a tool that starts keeps little more than one core busy
	broker.Each(t, []string{broker.Embedded}, func(t *testing.T, b *broker.Broker) {
		// Those that concern the whole broker, or measure it, alone on it.
		t.Run("configs", func(t *testing.T) { configs(t, b) })
		t.Run("perf", func(t *testing.T) { perf(t, b) })
		for _, of := range []struct {
			name string
			test func(*testing.T, *broker.Broker)
		}{{"topics", topics}, {"console", console}, {"groups", groups}, {"get-offsets", getOffsets}} {
			t.Run(of.name, func(t *testing.T) {
				t.Parallel()
				of.test(t, b)
			})
		}
	})
}

// tool is a run of one of Kafka's tools against b.
func tool(t *testing.T, b *broker.Broker, name string, args ...string) tools.Run {
	t.Helper()
	return tools.Kafka(t, name, slices.Concat([]string{"--bootstrap-server", b.Addr}, args)...)
}

func create(t *testing.T, b *broker.Broker, topic string, partitions int) {
	t.Helper()
	out := tool(t, b, "kafka-topics", "--create", "--topic", topic, "--partitions", strconv.Itoa(partitions)).Must(t).Stdout
	if want := "Created topic " + topic + "."; !strings.Contains(out, want) {
		t.Errorf("create: %q does not contain %q", out, want)
	}
}

// produce sends lines with the console producer.
func produce(t *testing.T, b *broker.Broker, topic string, lines []string, args ...string) {
	t.Helper()
	run := tool(t, b, "kafka-console-producer", slices.Concat([]string{"--topic", topic}, args)...)
	run.Stdin = strings.Join(lines, "\n") + "\n"
	run.Must(t)
}

// consume reads n lines with the console consumer.
func consume(t *testing.T, b *broker.Broker, topic string, n int, args ...string) []string {
	t.Helper()
	run := tool(t, b, "kafka-console-consumer", slices.Concat([]string{"--topic", topic, "--max-messages", strconv.Itoa(n), "--timeout-ms", "60000"}, args)...)
	return strings.Split(strings.TrimSuffix(run.Must(t).Stdout, "\n"), "\n")
}

// lines of s without the empty ones.
func lines(s string) []string {
	return slices.DeleteFunc(strings.Split(s, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func topics(t *testing.T, b *broker.Broker) {
	create(t, b, "cli.topics", 3)
	// a second create is refused, with Kafka's words
	res, err := tool(t, b, "kafka-topics", "--create", "--topic", "cli.topics").Do(t.Context())
	if err != nil || res.Code == 0 || !strings.Contains(res.Stdout+res.Stderr, "already exists") {
		t.Errorf("create again: exit code %d, %v, %s%s", res.Code, err, res.Stdout, res.Stderr)
	}

	if got := lines(tool(t, b, "kafka-topics", "--list").Must(t).Stdout); !slices.Contains(got, "cli.topics") {
		t.Errorf("list: no cli.topics in %q", got)
	}

	out := tool(t, b, "kafka-topics", "--describe", "--topic", "cli.topics").Must(t).Stdout
	if ok, _ := regexp.MatchString(`Topic: cli\.topics\s+TopicId: \S{22}\s+PartitionCount: 3\s+ReplicationFactor: 1\b`, out); !ok {
		t.Errorf("describe: %s", out)
	}
	for p := range 3 {
		if ok, _ := regexp.MatchString(fmt.Sprintf(`Topic: cli\.topics\s+Partition: %d\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+\b`, p), out); !ok {
			t.Errorf("describe: no line of partition %d: %s", p, out)
		}
	}

	tool(t, b, "kafka-topics", "--delete", "--topic", "cli.topics").Must(t)
	testkit.Poll(t, 30*time.Second, "topic gone from the list", func() error {
		if got := lines(tool(t, b, "kafka-topics", "--list").Must(t).Stdout); slices.Contains(got, "cli.topics") {
			return fmt.Errorf("still in %q", got)
		}
		return nil
	})
	res, err = tool(t, b, "kafka-topics", "--describe", "--topic", "cli.topics").Do(t.Context())
	if err != nil || res.Code == 0 || !strings.Contains(res.Stdout+res.Stderr, "does not exist") {
		t.Errorf("describe after delete: exit code %d, %v, %s%s", res.Code, err, res.Stdout, res.Stderr)
	}
	// the name is free again, and empty
	create(t, b, "cli.topics", 1)
	if got := lines(tool(t, b, "kafka-get-offsets", "--topic", "cli.topics").Must(t).Stdout); !slices.Equal(got, []string{"cli.topics:0:0"}) {
		t.Errorf("offsets of the topic made again: %q", got)
	}
}

func console(t *testing.T, b *broker.Broker) {
	create(t, b, "cli-console", 1)
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("line %d", i))
	}
	produce(t, b, "cli-console", want)
	equal(t, "from the beginning", consume(t, b, "cli-console", 50, "--from-beginning"), want)

	// A group goes on where it stopped.
	equal(t, "group, first half", consume(t, b, "cli-console", 20, "--from-beginning", "--group", "cli-g"), want[:20])
	equal(t, "group, second half", consume(t, b, "cli-console", 30, "--from-beginning", "--group", "cli-g"), want[20:])

	// Keys, headers and null values, compressed.
	create(t, b, "cli-headers", 1)
	produce(t, b, "cli-headers", []string{"a:1,b:2\tk1\tv1", "a:3\tk2\tNUL"}, "--compression-codec", "zstd",
		"--reader-property", "parse.key=true", "--reader-property", "parse.headers=true", "--reader-property", "null.marker=NUL")
	got := consume(t, b, "cli-headers", 2, "--from-beginning",
		"--formatter-property", "print.key=true", "--formatter-property", "print.headers=true", "--formatter-property", "print.offset=true", "--formatter-property", "null.literal=none")
	equal(t, "keys and headers", got, []string{"Offset:0\ta:1,b:2\tk1\tv1", "Offset:1\ta:3\tk2\tnone"})
}

func groups(t *testing.T, b *broker.Broker) {
	create(t, b, "cli-groups", 2)
	produce(t, b, "cli-groups", []string{"k\t1", "k\t2", "k\t3"}, "--reader-property", "parse.key=true")
	consume(t, b, "cli-groups", 3, "--from-beginning", "--group", "cli-group")

	if got := lines(tool(t, b, "kafka-consumer-groups", "--list").Must(t).Stdout); !slices.Contains(got, "cli-group") {
		t.Errorf("list: no cli-group in %q", got)
	}
	// columns GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
	out := tool(t, b, "kafka-consumer-groups", "--describe", "--group", "cli-group").Must(t).Stdout
	sum := map[string]int{}
	rows := 0
	for _, l := range lines(out) {
		f := strings.Fields(l)
		if len(f) < 6 || f[0] != "cli-group" {
			continue
		}
		rows++
		for i, column := range []string{"current", "end", "lag"} {
			n, err := strconv.Atoi(f[3+i])
			if err != nil && f[3+i] != "-" {
				t.Errorf("describe: column %s is %q", column, f[3+i])
			}
			sum[column] += n
		}
	}
	if rows != 2 || sum["current"] != 3 || sum["end"] != 3 || sum["lag"] != 0 {
		t.Errorf("describe: %d rows, sums %v in\n%s", rows, sum, out)
	}
	out = tool(t, b, "kafka-consumer-groups", "--describe", "--group", "cli-group", "--state").Must(t).Stdout
	if !strings.Contains(out, "Empty") {
		t.Errorf("describe --state: no Empty in\n%s", out)
	}

	tool(t, b, "kafka-consumer-groups", "--delete", "--group", "cli-group").Must(t)
	if got := lines(tool(t, b, "kafka-consumer-groups", "--list").Must(t).Stdout); slices.Contains(got, "cli-group") {
		t.Errorf("list after delete: %q", got)
	}
	// A deleted group starts anew.
	if got := consume(t, b, "cli-groups", 3, "--from-beginning", "--group", "cli-group"); len(got) != 3 {
		t.Errorf("after delete: %q", got)
	}
}

func getOffsets(t *testing.T, b *broker.Broker) {
	create(t, b, "cli-offsets", 1)
	cl := client(t, b)
	// Timestamps that are not in order: the newest is record 2.
	base := time.Now().Add(-time.Hour).UnixMilli()
	produceAt(t, cl, "cli-offsets", base, base+1000, base+5000, base+2000, base+3000)
	for _, c := range []struct{ time, want string }{
		{"earliest", "0"},
		{"latest", "5"},
		{"-2", "0"},
		{"-1", "5"},
		{"max-timestamp", "2"},
		{"-3", "2"},
		{fmt.Sprint(base), "0"},
		{fmt.Sprint(base + 1), "1"},
		{fmt.Sprint(base + 1001), "2"},
		{fmt.Sprint(base + 5000), "2"},
	} {
		out := tool(t, b, "kafka-get-offsets", "--topic", "cli-offsets", "--time", c.time).Must(t).Stdout
		if got, want := strings.TrimSpace(out), "cli-offsets:0:"+c.want; got != want {
			t.Errorf("--time %s: got %q, want %q", c.time, got, want)
		}
	}
	// beyond the newest there is no offset: the tool prints none
	if out := tool(t, b, "kafka-get-offsets", "--topic", "cli-offsets", "--time", fmt.Sprint(base+5001)).Must(t).Stdout; strings.Contains(out, "cli-offsets:0:0") {
		t.Errorf("beyond the newest: %q", out)
	}
}

// perf moves a million records through the perf tools. The producer's payloads
// are a known sequence, so that content and order are checked record by record.
func perf(t *testing.T, b *broker.Broker) {
	const records, size = 1_000_000, 100
	create(t, b, "cli-perf", 1)
	out := tool(t, b, "kafka-producer-perf-test", "--topic", "cli-perf", "--num-records", strconv.Itoa(records),
		"--record-size", strconv.Itoa(size), "--throughput", "-1").Must(t).Stdout
	t.Log(last(out))
	if !strings.Contains(out, fmt.Sprintf("%d records sent", records)) {
		t.Errorf("producer: %s", out)
	}
	if got := strings.TrimSpace(tool(t, b, "kafka-get-offsets", "--topic", "cli-perf").Must(t).Stdout); got != fmt.Sprintf("cli-perf:0:%d", records) {
		t.Errorf("end offset: %q", got)
	}

	out = tool(t, b, "kafka-consumer-perf-test", "--topic", "cli-perf", "--num-records", strconv.Itoa(records), "--timeout", "60000").Must(t).Stdout
	t.Log(last(out))
	// start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, …
	if f := strings.Split(last(out), ", "); len(f) < 5 || f[4] != strconv.Itoa(records) {
		t.Errorf("consumer: %s", out)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	verifyPayloads(ctx, t, b, "cli-perf", records, size)
}

func last(s string) string {
	var l string
	for sc := bufio.NewScanner(strings.NewReader(s)); sc.Scan(); {
		if strings.TrimSpace(sc.Text()) != "" {
			l = sc.Text()
		}
	}
	return l
}
