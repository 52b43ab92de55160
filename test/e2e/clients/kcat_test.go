package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/tools"
)

// kcat is Debian's kcat on an old librdkafka, driven by its command line.
type kcat struct{ path, addr string }

const kcatNoAdmin = "no admin calls"

var kcatLibrary = library{
	name: "kcat", language: "C", everywhere: true,
	limits: limits{noTimestamps: true, noRecordHeaders: true, noEmpty: true, onePartition: true, commitsAlone: true, lacks: map[string]string{
		"topics": kcatNoAdmin, "unknown": kcatNoAdmin, "configs": kcatNoAdmin, "add-partitions": kcatNoAdmin, "delete-records": kcatNoAdmin,
		"exactly-once": "sends no offsets",
	}},
	open: func(t *testing.T, addr string) client { return kcat{tools.Kcat(t).Path, addr} },
}

func (k kcat) run(args ...string) tools.Run {
	return tools.Run{Path: k.path, Args: append(args, "-b", k.addr, "-X", "client.id=kcat")}
}

var kcatVersion = regexp.MustCompile(`Version (\S+) .*librdkafka (\S+)`)

func (k kcat) version() string {
	res, err := tools.Run{Path: k.path, Args: []string{"-V"}}.Do(context.Background())
	m := kcatVersion.FindStringSubmatch(res.Stdout)
	if err != nil || m == nil {
		return "unknown"
	}
	return m[1] + ", librdkafka " + m[2]
}

// kcatMessage is a line of kcat -J.
type kcatMessage struct {
	Partition int32
	Offset    int64
	TS        int64
	Headers   []*string // key, value, key, value, …
	Key       *string
	Payload   *string
}

func (m kcatMessage) record() record {
	null := func(s *string) []byte {
		if s == nil {
			return nil
		}
		return []byte(*s)
	}
	out := record{Partition: m.Partition, Offset: m.Offset, Key: null(m.Key), Value: null(m.Payload), Time: time.UnixMilli(m.TS)}
	for i := 0; i+1 < len(m.Headers); i += 2 {
		out.Headers = append(out.Headers, header{*m.Headers[i], null(m.Headers[i+1])})
	}
	return out
}

func (k kcat) produce(ctx context.Context, topic string, how sending, rs []record) error {
	byPartition := map[int32]*strings.Builder{}
	for _, r := range rs {
		b := byPartition[r.Partition]
		if b == nil {
			b = &strings.Builder{}
			byPartition[r.Partition] = b
		}
		fmt.Fprintf(b, "%s\t%s\n", r.Key, r.Value)
	}
	for p, b := range byPartition {
		run := k.run("-P", "-t", topic, "-p", fmt.Sprint(p), "-K", `\t`, "-Z", "-z", how.codec, "-X", "acks=all",
			"-X", fmt.Sprintf("enable.idempotence=%v", how.idempotent))
		for _, h := range rs[0].Headers {
			run.Args = append(run.Args, "-H", h.Key+"="+string(h.Value))
		}
		run.Stdin = b.String()
		if res, err := run.Do(ctx); err != nil || res.Code != 0 {
			return kcatError(res, err)
		}
	}
	return nil
}

func (k kcat) read(ctx context.Context, topic string, partition int32, at start, n int) ([]record, error) {
	offset := strconv.FormatInt(at.offset, 10)
	if !at.time.IsZero() {
		offset = fmt.Sprintf("s@%d", at.time.UnixMilli())
	}
	reset := at.reset
	if reset == "" || reset == "none" {
		reset = "error"
	}
	run := k.run("-C", "-t", topic, "-p", fmt.Sprint(partition), "-o", offset, "-c", strconv.Itoa(n), "-J", "-q", "-X", "auto.offset.reset="+reset)
	if at.isolation != "" {
		run.Args = append(run.Args, "-X", "isolation.level=read_"+at.isolation)
	}
	res, err := run.Do(ctx)
	if err != nil || res.Code != 0 {
		return nil, kcatError(res, err)
	}
	var out []record
	for d := json.NewDecoder(strings.NewReader(res.Stdout)); ; {
		var m kcatMessage
		if err := d.Decode(&m); err == io.EOF {
			return out, nil
		} else if err != nil {
			return out, err
		}
		out = append(out, m.record())
	}
}

type kcatMember struct {
	cmd  *exec.Cmd
	out  chan record
	stop context.CancelFunc
	wait sync.WaitGroup
}

// join runs kcat as a group member. It commits by itself what it has printed.
func (k kcat) join(ctx context.Context, t *testing.T, group, topic string, how joining) (member, error) {
	args := []string{"-J", "-q", "-u", "-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=500"}
	if how.instance != "" {
		args = append(args, "-X", "group.instance.id="+how.instance)
	}
	if how.cooperative {
		args = append(args, "-X", "partition.assignment.strategy=cooperative-sticky")
	}
	run := k.run(append(args, "-G", group, topic)...)
	cmd := exec.CommandContext(ctx, run.Path, run.Args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	m := &kcatMember{cmd: cmd, out: make(chan record), stop: stop}
	m.wait.Go(func() {
		for sc := bufio.NewScanner(stdout); sc.Scan(); {
			var msg kcatMessage
			if err := json.Unmarshal(sc.Bytes(), &msg); err != nil {
				t.Errorf("kcat printed %q: %v", sc.Text(), err)
				continue
			}
			select {
			case m.out <- msg.record():
			case <-ctx.Done():
			}
		}
	})
	return m, nil
}

func (m *kcatMember) records() <-chan record       { return m.out }
func (m *kcatMember) commit(context.Context) error { return nil }

func (m *kcatMember) close() error {
	m.stop()
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	m.wait.Wait()
	return m.cmd.Wait()
}

// kcatError is a failed run, with Kafka's code for a text of librdkafka.
func kcatError(res tools.Result, err error) error {
	e := processError{text: fmt.Sprintf("exit code %d, %v: %s", res.Code, err, res.Stderr)}
	for text, code := range map[string]int{
		"Broker: Message size too large": 10,
		"Broker: Offset out of range":    1,
		"fenced by a newer instance":     librdkafkaFenced,
	} {
		if strings.Contains(res.Stderr, text) {
			e.code = code
		}
	}
	return e
}

func (kcat) create(context.Context, string, int, map[string]string) error { return errLacks }
func (kcat) partitions(context.Context, string) (int, error)              { return 0, errLacks }
func (kcat) topics(context.Context) ([]string, error)                     { return nil, errLacks }
func (kcat) alter(context.Context, string, string, string) error          { return errLacks }
func (kcat) config(context.Context, string, string) (string, error)       { return "", errLacks }
func (kcat) grow(context.Context, string, int) error                      { return errLacks }
func (kcat) truncate(context.Context, string, int32, int64) error         { return errLacks }
func (kcat) remove(context.Context, string) error                         { return errLacks }
