package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What docs/repair.md shows: a message is removed by hand, the partition stops,
// repair lists it, shows it and brings it back, beside the running server and on
// the free folder.
func TestRepairCommand(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dir := t.TempDir()
	p := launch(t, dir, "--nats-listen", "127.0.0.1:0")
	url := natsLine.FindStringSubmatch(p.out.String())[1]
	c := dialKafka(t, p.bootstrap, kgo.DefaultProduceTopic("orders"), kgo.RecordRetries(0))
	for range 6 {
		if err := c.ProduceSync(ctx, &kgo.Record{Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	run := func(wantCode int, args ...string) (stdout, stderr string) {
		t.Helper()
		// Not by stream: a repair may wait 25 s.
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Env = []string{"HOME=" + t.TempDir()}
		var o, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &o, &e
		if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		code, stdout, stderr := cmd.ProcessState.ExitCode(), o.String(), e.String()
		if code != wantCode {
			t.Fatalf("stream %q: exit code %d\n%s%s", args, code, stdout, stderr)
		}
		return stdout, stderr
	}
	contains := func(s string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(s, part) {
				t.Errorf("no %q in\n%s", part, s)
			}
		}
	}
	out, _ := run(0, "repair", "--pubsub-url", url)
	contains(out, "no partition is stopped or lost\n")
	_, errs := run(1, "repair", "orders-0", "--accept-loss", "--pubsub-url", url)
	contains(errs, "nothing is wrong with this partition: nothing was changed")
	_, errs = run(3, "repair", "--data-dir", dir)
	contains(errs, "in use by another process", "hint: stop that server first, or start it with --nats-listen")
	_, errs = run(1, "repair", "orders-1", "--pubsub-url", url)
	contains(errs, "there is no partition orders-1")

	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	// Another gateway on the same store, which has read the partition.
	second := launch(t, t.TempDir(), "--pubsub-url", url)
	c2 := dialKafka(t, second.bootstrap, kgo.DefaultProduceTopic("orders"), kgo.RecordRetries(0))
	if code, out, errs := stream(t, nil, "consume", "orders", "-b", second.bootstrap, "-n", "1", "-f", "%o"); code != 0 || out != "0" {
		t.Fatalf("consume through another gateway: exit code %d, %q\n%s", code, out, errs)
	}
	if err := js.DeleteMsg("kafka-orders-0", 3); err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "kafka-foreign", Subjects: []string{"kafka.foreign.0"}}); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue("kafka-partitions")
	if err != nil {
		t.Fatal(err)
	}
	const stray = "AAAAAAAAAAAAAAAAAAAAAQ.0"
	for _, key := range []string{stray, stray + ".s.17.x.0", "odd"} {
		if _, err := kv.Create(key, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	// Whoever reads there finds out.
	reader := dialKafka(t, p.bootstrap, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().At(2)}}), kgo.KeepRetryableFetchErrors())
	eventually(t, "56", func() bool {
		poll, end := context.WithTimeout(ctx, time.Second)
		defer end()
		for _, e := range reader.PollFetches(poll).Errors() {
			if errors.Is(e.Err, kerr.KafkaStorageError) {
				return true
			}
		}
		return false
	})
	reader.Close()
	eventually(t, "stopped everywhere", func() bool {
		out, _ = run(0, "repair", "--pubsub-url", url)
		return strings.Contains(out, "stopped")
	})
	contains(out, "orders-0", "gap at sequence 3", "kafka-orders-0", "stream kafka-foreign: no topic explains it",
		"key "+stray+" of kafka-partitions: no topic explains it", "key odd of kafka-partitions")
	if strings.Count(out, stray) != 1 {
		t.Errorf("one partition is listed more than once:\n%s", out)
	}
	eventually(t, "the other gateway obeys", func() bool {
		return errors.Is(c2.ProduceSync(ctx, &kgo.Record{Value: []byte("v")}).FirstErr(), kerr.KafkaStorageError)
	})
	if err := c.ProduceSync(ctx, &kgo.Record{Value: []byte("v")}).FirstErr(); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("produce to a stopped partition: %v", err)
	}
	out, _ = run(0, "repair", "orders-0", "--pubsub-url", url)
	contains(out, "stopped: gap at sequence 3", "\n  3: nothing\n", "what can be done", "Leaves out sequence 3", "Offsets 2 to 2 are lost")
	code, out, _ := stream(t, nil, "doctor", "--pubsub-url", url, "--port", portText(p), "-o", "json")
	var found []finding
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != 1 {
		t.Fatalf("doctor: %d, %v\n%s", code, err, out)
	}
	if !slices.ContainsFunc(found, func(f finding) bool {
		return f.Check == "partitions" && f.Level == levelFail && strings.Contains(f.Remedy, "stream repair")
	}) {
		t.Errorf("doctor sees no stopped partition:\n%s", out)
	}

	out, errs = run(0, "repair", "orders-0", "--accept-loss", "--pubsub-url", url)
	contains(out, "done: the log goes on at offset 11000000000 after sequence 6", "nothing is wrong with it")
	if !strings.Contains(errs, "waiting ") {
		t.Errorf("it did not wait for appends on their way: %s", errs)
	}
	// Consuming to the end ends, though the last offsets have no records.
	if code, out, errs := stream(t, nil, "consume", "orders", "-b", p.bootstrap, "-e", "-f", "%o "); code != 0 || out != "0 1 3 4 5 " {
		t.Errorf("consume to the end: exit code %d, %q\n%s", code, out, errs)
	}
	// The server goes on without a restart, and after one.
	check := func(p *process, want ...int64) {
		t.Helper()
		c := dialKafka(t, p.bootstrap, kgo.DefaultProduceTopic("orders"))
		r, err := c.ProduceSync(ctx, &kgo.Record{Value: []byte("new")}).First()
		if err != nil || r.Offset != want[len(want)-1] {
			t.Errorf("produced at %d: %v", r.Offset, err)
		}
		reader := dialKafka(t, p.bootstrap, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().At(0)}}))
		var got []int64
		for len(got) < len(want) {
			fs := reader.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				t.Fatalf("%v after %v", err, got)
			}
			fs.EachRecord(func(r *kgo.Record) { got = append(got, r.Offset) })
		}
		if !slices.Equal(got, want) {
			t.Errorf("offsets %v, want %v", got, want)
		}
	}
	check(p, 0, 1, 3, 4, 5, 11_000_000_000)
	check(second, 0, 1, 3, 4, 5, 11_000_000_000, 11_000_000_001)
	check(p, 0, 1, 3, 4, 5, 11_000_000_000, 11_000_000_001, 11_000_000_002)
	for _, key := range []string{stray, stray + ".s.17.x.0", "odd"} {
		if _, err := kv.Get(key); err != nil {
			t.Errorf("key %s was deleted: %v", key, err)
		}
	}
	if _, err := js.StreamInfo("kafka-foreign"); err != nil {
		t.Error(err)
	}
	nc.Close()
	c.Close()
	c2.Close()
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := second.end(t); code != 0 {
		t.Fatalf("exit code %d\n%s", code, second.err.String())
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.err.String())
	}
	out, _ = run(0, "repair", "orders-0", "--data-dir", dir)
	contains(out, "2 earlier breaks", "nothing is wrong with it")
	check(launch(t, dir), 0, 1, 3, 4, 5, 11_000_000_000, 11_000_000_001, 11_000_000_002, 11_000_000_003)
}

func TestRepairUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"repair", "a-0", "b-0"}, 2, "unexpected argument \"b-0\""},
		{[]string{"repair", "--accept-loss"}, 2, "--accept-loss needs the one partition"},
		{[]string{"repair", "orders"}, 2, "\"orders\" is not topic-partition"},
		{[]string{"repair", "-o", "yaml"}, 2, "table or json"},
		{[]string{"repair", "a-0", "--storage", "memory"}, 2, "there is nothing to repair"},
		{[]string{"repair", "--data-dir", t.TempDir() + "/none"}, 3, "there is no data folder"},
		{[]string{"repair", "--pubsub-url", "nats://127.0.0.1:1"}, 3, "nats is unreachable"},
		{[]string{"repair", "--data-dir", t.TempDir()}, 1, "there is no bucket kafka-meta"},
	} {
		code, stdout, stderr := stream(t, nil, c.args...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(messages(stderr), "\n") > 2 {
			t.Errorf("%q: exit code %d\n%s%s", c.args, code, stdout, stderr)
		}
	}
	for s, want := range map[string]string{"a-0": "a-0", "a-b-12": "a-b-12", "a.b-c-1": "a.b-c-1"} {
		if tp, err := parsePartition(s); err != nil || tp.String() != want {
			t.Errorf("%q is %v, %v", s, tp, err)
		}
	}
	for _, s := range []string{"", "-0", "a-", "a--1", "a-x", "a b-0", "a-99999999999"} {
		if tp, err := parsePartition(s); err == nil && s != "a--1" {
			t.Errorf("%q is %v", s, tp)
		}
	}
}
