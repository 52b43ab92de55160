package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/tools"
)

// kcat is Debian's kcat on an old librdkafka, driven by its command line.
type kcat struct{}

func (kcat) name() string { return "kcat" }

func (kcat) limits() limits {
	return limits{noTimestamps: true, noRecordHeaders: true, noEmpty: true, noAdmin: true, commitsAlone: true}
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

func (kcat) produce(ctx context.Context, t *testing.T, addr, topic, codec string, rs []record) error {
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
		run := tools.Kcat(t, "-P", "-b", addr, "-t", topic, "-p", fmt.Sprint(p), "-K", `\t`, "-Z", "-z", codec, "-X", "acks=all")
		for _, h := range rs[0].Headers {
			run.Args = append(run.Args, "-H", h.Key+"="+string(h.Value))
		}
		run.Stdin = b.String()
		if res, err := run.Do(ctx); err != nil || res.Code != 0 {
			return fmt.Errorf("exit code %d, %v: %s", res.Code, err, res.Stderr)
		}
	}
	return nil
}

func (kcat) read(ctx context.Context, t *testing.T, addr, topic string, partition int32, at start, n int) ([]record, error) {
	offset := strconv.FormatInt(at.offset, 10)
	if !at.time.IsZero() {
		offset = fmt.Sprintf("s@%d", at.time.UnixMilli())
	}
	res, err := tools.Kcat(t, "-C", "-b", addr, "-t", topic, "-p", fmt.Sprint(partition), "-o", offset, "-c", strconv.Itoa(n), "-J", "-q").Do(ctx)
	if err != nil || res.Code != 0 {
		return nil, fmt.Errorf("exit code %d, %v: %s", res.Code, err, res.Stderr)
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
func (kcat) join(ctx context.Context, t *testing.T, addr, group, topic string) (member, error) {
	run := tools.Kcat(t, "-b", addr, "-G", group, topic, "-J", "-q", "-u",
		"-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=500")
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

func (kcat) admin(context.Context, string, string, int) (int, error) {
	return 0, fmt.Errorf("kcat has no admin calls")
}
