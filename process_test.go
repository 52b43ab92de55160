package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// process is a running stream binary.
type process struct {
	cmd       *exec.Cmd
	out, err  *syncBuffer
	bootstrap string
	http      string
	exited    chan error
}

var (
	bootstrapLine = regexp.MustCompile(`(?m)^  bootstrap\.servers=(\S+)$`)
	natsLine      = regexp.MustCompile(`(?m)^  nats: (\S+)$`)
)

// launch starts the binary on free ports and waits for its banner.
func launch(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := &process{out: &syncBuffer{}, err: &syncBuffer{}, exited: make(chan error, 1)}
	args = append([]string{"--bind", "127.0.0.1:0", "--admin-bind", "127.0.0.1:0", "--data-dir", dir}, args...)
	p.cmd = exec.Command(binary, args...)
	p.cmd.Env = []string{"HOME=" + t.TempDir()}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.exited <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited // until then it writes into the folder
		if t.Failed() {
			t.Logf("stream %q:\n%s%s", args, p.out.String(), p.err.String())
		}
	})
	eventually(t, "banner", func() bool {
		select {
		case err := <-p.exited:
			p.exited <- err
			t.Fatalf("stream ended: %v\n%s", err, p.err.String())
		default:
		}
		return strings.HasSuffix(p.out.String(), "\n\n") && bootstrapLine.MatchString(p.out.String())
	})
	p.bootstrap = bootstrapLine.FindStringSubmatch(p.out.String())[1]
	if m := httpLine.FindStringSubmatch(p.out.String()); m != nil {
		p.http = m[1]
	}
	return p
}

// end waits for the process and returns its exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	select {
	case err := <-p.exited:
		p.exited <- err
		exit := (*exec.ExitError)(nil)
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		t.Fatal("the process does not end")
		return 0
	}
}

func dialKafka(t *testing.T, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.AllowAutoTopicCreation()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// joinHook tells of each JoinGroup that a client has sent.
type joinHook struct{ written chan struct{} }

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (h joinHook) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.JoinGroup) && err == nil {
		select {
		case h.written <- struct{}{}:
		default:
		}
	}
}

// One process from start to end and again: what was stored is there, and HTTP
// tells the same as Kafka.
func TestProcessKeepsWhatWasStored(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no SIGTERM there")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := launch(t, dir, "--num-partitions", "2", "--nats-listen", "127.0.0.1:0", "--group-initial-rebalance-delay-ms", "0")
	if !natsLine.MatchString(p.out.String()) {
		t.Errorf("banner names no NATS URL:\n%s", p.out.String())
	}
	producer := dialKafka(t, p.bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 10 {
		r := &kgo.Record{Topic: "orders.eu", Partition: int32(i % 2), Value: []byte{byte(i)}}
		if err := producer.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	producer.Close()
	open := dialKafka(t, p.bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("open"))
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := open.ProduceSync(ctx, &kgo.Record{Topic: "open", Partition: 1}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the age of an open transaction", func() bool {
		_, text := get(t, p.http+"/v1/stream/topics?topic=open")
		return strings.Contains(text, `"end_offset":1,"last_stable_offset":0,"open_transaction_seconds":`) &&
			strings.Contains(text, `"end_offset":0,"last_stable_offset":0,"leader"`)
	})
	if _, text := get(t, p.http+"/v1/stream/status"); !strings.Contains(text, `"late_transactions":[]`) {
		t.Errorf("status: %s", text)
	}
	if err := open.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end", func() bool {
		_, text := get(t, p.http+"/v1/stream/topics?topic=open")
		return strings.Contains(text, `"end_offset":2,"last_stable_offset":2,"leader"`)
	})
	open.Close()
	consumer := dialKafka(t, p.bootstrap, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders.eu"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for n := 0; n < 10; {
		fs := consumer.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		n += fs.NumRecords()
	}
	if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	consumer.Close()

	check := func(p *process) {
		t.Helper()
		var topics []struct {
			Name       string
			Partitions []struct {
				Partition   int32
				Stream      string
				Subject     string
				StartOffset int64 `json:"start_offset"`
				EndOffset   int64 `json:"end_offset"`
				Messages    uint64
				InSync      int `json:"in_sync"`
			}
		}
		code, text := get(t, p.http+"/v1/stream/topics?topic=orders.eu")
		if err := json.Unmarshal([]byte(text), &topics); err != nil || code != 200 || len(topics) != 1 || len(topics[0].Partitions) != 2 {
			t.Fatalf("topics: %d %s", code, text)
		}
		for _, q := range topics[0].Partitions {
			if q.StartOffset != 0 || q.EndOffset != 5 || q.Messages == 0 || q.InSync != 1 ||
				q.Stream != "kafka-orders=2Eeu-"+string('0'+rune(q.Partition)) || q.Subject != "kafka.orders=2Eeu."+string('0'+rune(q.Partition)) {
				t.Errorf("partition %+v", q)
			}
		}
		want := `[{"group":"g","topic":"orders.eu","partition":0,"offset":5},{"group":"g","topic":"orders.eu","partition":1,"offset":5}]`
		for query, want := range map[string]string{"": want, "?group=g&topic=orders.eu": want, "?group=other": "[]", "?topic=other": "[]"} {
			if code, text := get(t, p.http+"/v1/stream/groups"+query); code != 200 || strings.TrimSpace(text) != want {
				t.Errorf("groups%s: %d %s", query, code, text)
			}
		}
	}
	check(p)
	if code, text := get(t, p.http+"/metrics"); code != 200 || !strings.Contains(text, "stream_kafka_requests_total") || !strings.Contains(text, "stream_nats_connected 1") {
		t.Errorf("metrics: %d %s", code, text)
	}

	// Told by the gateway that maintains, which this one soon is.
	eventually(t, "metrics of copies", func() bool {
		_, text := get(t, p.http+"/metrics")
		for _, line := range []string{
			`kafka_topic_partition_replicas{partition="1",topic="orders.eu"} 1`, `kafka_topic_partition_in_sync_replica{partition="1",topic="orders.eu"} 1`,
			`kafka_topic_partition_under_replicated_partition{partition="1",topic="orders.eu"} 0`, "stream_under_replicated_partitions 0",
		} {
			if !strings.Contains(text, line+"\n") {
				return false
			}
		}
		return true
	})

	// The folder is taken as long as the process lives.
	code, _, stderr := stream(t, nil, "--port", "0", "--admin-port", "0", "--data-dir", dir)
	if code != 1 || !strings.Contains(stderr, "in use by another process") {
		t.Errorf("second process: exit code %d, %s", code, stderr)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM\n%s", code, p.err.String())
	}
	// Every line of the log is JSON and none is an error.
	for line := range strings.Lines(p.err.String()) {
		var m struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Level == "ERROR" {
			t.Errorf("log line %s", line)
		}
	}
	p = launch(t, dir)
	check(p)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end(t)
	p = launch(t, dir) // also after kill -9
	check(p)
}

// A long poll does not hold up the end, and a drain that hangs can be cut.
func TestProcessSignals(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no SIGTERM there")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := launch(t, t.TempDir(), "--shutdown-grace", "20s")
	c := dialKafka(t, p.bootstrap, kgo.ConsumeTopics("quiet"), kgo.FetchMaxWait(time.Minute))
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: "quiet", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if fs := c.PollFetches(ctx); fs.NumRecords() != 1 {
		t.Fatalf("%d records, %v", fs.NumRecords(), fs.Err())
	}
	// The next fetch waits for a minute; the end must not.
	began := time.Now()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 0 || time.Since(began) > 10*time.Second {
		t.Errorf("exit code %d after %v\n%s", code, time.Since(began), p.err.String())
	}

	// A member that waits in JoinGroup gets its answer at the end.
	p = launch(t, t.TempDir(), "--group-initial-rebalance-delay-ms", "60000")
	joined := joinHook{make(chan struct{}, 16)}
	c = dialKafka(t, p.bootstrap, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("quiet"), kgo.WithHooks(joined))
	for range 2 { // the first is answered with a member id
		select {
		case <-joined.written:
		case <-ctx.Done():
			t.Fatal("the member does not join")
		}
	}
	began = time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 0 || time.Since(began) > 10*time.Second || !strings.Contains(p.err.String(), `"within_grace":true`) {
		t.Errorf("JoinGroup waits: exit code %d after %v\n%s", code, time.Since(began), p.err.String())
	}
	c.Close()

	p = launch(t, t.TempDir(), "--shutdown-grace", "1m", "--shutdown-delay", "1m")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// In the delay: not ready, still serving.
	eventually(t, "not ready", func() bool { code, _ := get(t, p.http+"/readyz"); return code == 503 })
	if code, text := get(t, p.http+"/livez"); code != 200 {
		t.Errorf("livez %d %s", code, text)
	}
	c = dialKafka(t, p.bootstrap)
	if err := c.Ping(ctx); err != nil {
		t.Errorf("in the delay: %v", err)
	}
	began = time.Now()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // gone: the loop ends
		select {
		case err := <-p.exited:
			p.exited <- err
			end = time.Now()
		case <-time.After(10 * time.Millisecond):
		}
	}
	if code := p.end(t); code != 1 || !strings.Contains(p.err.String(), "stopped by a second signal") {
		t.Errorf("exit code %d after %v\n%s", code, time.Since(began), p.err.String())
	}
}

// The banner goes to stdout and the log to stderr, in text if asked for.
func TestProcessOutput(t *testing.T) {
	t.Parallel()
	p := launch(t, t.TempDir(), "--log-format", "text", "--storage", "memory", "--host", "0.0.0.0", "--bind", ":0")
	if !strings.Contains(p.out.String(), "warning: Kafka on ") {
		t.Errorf("no warning of an open port:\n%s", p.out.String())
	}
	if !strings.Contains(p.out.String(), "durability: memory. ") || strings.Contains(p.out.String(), "servers=0.0.0.0") {
		t.Errorf("banner:\n%s", p.out.String())
	}
	eventually(t, "text log", func() bool { return strings.Contains(p.err.String(), "level=INFO msg=serving") })
	if bytes.Contains([]byte(p.err.String()), []byte("{\"")) {
		t.Errorf("log is not text:\n%s", p.err.String())
	}
	// What is advertised can be connected to.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := dialKafka(t, p.bootstrap)
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
		t.Errorf("produce: %v", err)
	}
}
