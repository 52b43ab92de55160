package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/e2e/tools"
)

// process is a client library of another language: a program that is started
// with the address of a broker and the name it gives itself as client.id, and
// speaks JSON lines. It first says which version it has:
//
//	← {"version":"3.0.12"}
//
// and then answers calls one after another, where op is a method of client:
//
//	→ {"id":1,"op":"partitions","topic":"t"}
//	← {"id":1,"result":5}        or  {"id":1,"error":"…","code":3}
//
// with Kafka's code of an error, if it is the broker's. Members of groups run
// beside the calls and print what they are given:
//
//	→ {"id":2,"op":"join","member":"m1","group":"g","topic":"t","instance":"","cooperative":false}
//	← {"id":2,"result":null}
//	← {"member":"m1","record":{…}}
//	← {"member":"m1","error":"…"}
//	→ {"id":3,"op":"commit","member":"m1"}, and "leave"
//
// Producers with a transactional id are opened, used and closed by name, and a
// pipe is one call:
//
//	→ {"id":4,"op":"transactor_open","producer":"p1","transactional":"x"}
//	→ {"id":5,"op":"transactor_send","producer":"p1","topic":"t","records":[…]}
//	→ {"id":6,"op":"transactor_end","producer":"p1","commit":true}, and "transactor_close"
//	→ {"id":7,"op":"pipe","transactional":"x","group":"g","from":"t","to":"u","n":30,"commit":true}
//
// Keys, values and header values are base64 or null. The program ends with its
// input.
type process struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stderr  *lockedBuffer
	release string
	done    chan struct{} // closed when the output has ended

	writing sync.Mutex // held for a line

	mu          sync.Mutex
	nextID      int
	transactors int
	calls       map[int]chan answer
	members     map[string]*processMember
}

type answer struct {
	ID      int             `json:"id"`
	Version string          `json:"version"`
	Member  string          `json:"member"`
	Record  *wireRecord     `json:"record"`
	Result  json.RawMessage `json:"result"`
	Error   *string         `json:"error"`
	Code    int             `json:"code"`
}

// processError is an error that a program has answered.
type processError struct {
	text string
	code int // Kafka's, 0 if it is not the broker's
}

func (e processError) Error() string { return e.text }

// wireRecord is a record as programs write it.
type wireRecord struct {
	Partition int32      `json:"partition"`
	Offset    int64      `json:"offset"`
	Key       []byte     `json:"key"`
	Value     []byte     `json:"value"`
	Headers   [][2]*wire `json:"headers"`
	Time      int64      `json:"time"`
}

// wire is a string in base64; the key of a header too.
type wire []byte

func toWire(r record) wireRecord {
	out := wireRecord{Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: [][2]*wire{}, Time: r.Time.UnixMilli()}
	for _, h := range r.Headers {
		k, v := wire(h.Key), (*wire)(nil)
		if h.Value != nil {
			w := wire(h.Value)
			v = &w
		}
		out.Headers = append(out.Headers, [2]*wire{&k, v})
	}
	return out
}

func (w wireRecord) record() record {
	out := record{Partition: w.Partition, Offset: w.Offset, Key: w.Key, Value: w.Value, Time: time.UnixMilli(w.Time)}
	for _, h := range w.Headers {
		var v []byte
		if h[1] != nil {
			v = *h[1]
		}
		out.Headers = append(out.Headers, header{string(*h[0]), v})
	}
	return out
}

// startProcess starts a program; run lacks the two arguments.
func startProcess(t *testing.T, run tools.Run, name, addr string) *process {
	t.Helper()
	p := &process{stderr: &lockedBuffer{}, done: make(chan struct{}), calls: map[int]chan answer{}, members: map[string]*processMember{}}
	p.cmd = exec.Command(run.Path, append(run.Args, addr, name)...)
	p.cmd.Env = append(os.Environ(), run.Env...)
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = 10 * time.Second
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", filepath.Base(run.Path), err)
	}
	ready := make(chan string, 1)
	go p.listen(stdout, ready)
	t.Cleanup(func() {
		p.stdin.Close()
		select {
		case <-p.done:
		case <-time.After(20 * time.Second):
			t.Errorf("%s does not end with its input", name)
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, p.stderr)
		}
	})
	select {
	case p.release = <-ready:
	case <-p.done:
		t.Fatalf("%s ended at once: %s", name, p.stderr)
	case <-time.After(time.Minute):
		t.Fatalf("%s does not start: %s", name, p.stderr)
	}
	return p
}

// listen hands out what the program prints.
func (p *process) listen(stdout io.Reader, ready chan<- string) {
	defer close(p.done)
	for in := bufio.NewReaderSize(stdout, 1<<20); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var a answer
		if err := json.Unmarshal(line, &a); err != nil {
			fmt.Fprintf(p.stderr, "printed %q: %v\n", line, err)
			continue
		}
		p.mu.Lock()
		call, m := p.calls[a.ID], p.members[a.Member]
		delete(p.calls, a.ID)
		p.mu.Unlock()
		switch {
		case a.Version != "":
			ready <- a.Version
		case m != nil:
			m.push(a)
		case call != nil:
			call <- a
		}
	}
}

// call makes a call with params and decodes its result into out, if not nil.
func (p *process) call(ctx context.Context, op string, params map[string]any, out any) error {
	answered := make(chan answer, 1)
	p.mu.Lock()
	p.nextID++
	id := p.nextID
	p.calls[id] = answered
	p.mu.Unlock()
	line := map[string]any{"id": id, "op": op}
	for k, v := range params {
		line[k] = v
	}
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	p.writing.Lock()
	_, err = p.stdin.Write(append(b, '\n'))
	p.writing.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", op, err, p.stderr)
	}
	select {
	case a := <-answered:
		if a.Error != nil {
			return fmt.Errorf("%s: %w", op, processError{*a.Error, a.Code})
		}
		if out == nil {
			return nil
		}
		return json.Unmarshal(a.Result, out)
	case <-p.done:
		return fmt.Errorf("%s: the program has ended: %s", op, p.stderr)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w: %s", op, ctx.Err(), p.stderr)
	}
}

func (p *process) version() string { return p.release }

func (p *process) produce(ctx context.Context, topic string, how sending, rs []record) error {
	return p.call(ctx, "produce", map[string]any{"topic": topic, "codec": how.codec, "idempotent": how.idempotent, "records": allToWire(rs)}, nil)
}

func allToWire(rs []record) (out []wireRecord) {
	for _, r := range rs {
		out = append(out, toWire(r))
	}
	return out
}

// processTransactor is a producer with a transactional id inside a program.
type processTransactor struct {
	p    *process
	name string
}

func (p *process) transactor(ctx context.Context, id string) (transactor, error) {
	p.mu.Lock()
	p.transactors++
	x := processTransactor{p, fmt.Sprintf("p%d", p.transactors)}
	p.mu.Unlock()
	return x, x.call(ctx, "open", map[string]any{"transactional": id})
}

func (x processTransactor) call(ctx context.Context, op string, params map[string]any) error {
	params["producer"] = x.name
	return x.p.call(ctx, "transactor_"+op, params, nil)
}

func (x processTransactor) send(ctx context.Context, topic string, rs []record) error {
	return x.call(ctx, "send", map[string]any{"topic": topic, "records": allToWire(rs)})
}

func (x processTransactor) end(ctx context.Context, commit bool) error {
	return x.call(ctx, "end", map[string]any{"commit": commit})
}

func (x processTransactor) close(ctx context.Context) error {
	return x.call(ctx, "close", map[string]any{})
}

func (p *process) pipe(ctx context.Context, l pipe) error {
	return p.call(ctx, "pipe", map[string]any{"transactional": l.id, "group": l.group, "from": l.from, "to": l.to, "n": l.n, "commit": l.commit}, nil)
}

func (p *process) read(ctx context.Context, topic string, partition int32, at start, n int) ([]record, error) {
	params := map[string]any{"topic": topic, "partition": partition, "offset": at.offset, "time": nil, "reset": at.reset, "isolation": at.isolation, "n": n}
	if !at.time.IsZero() {
		params["time"] = at.time.UnixMilli()
	}
	if at.reset == "" {
		params["reset"] = "none"
	}
	var got []wireRecord
	err := p.call(ctx, "read", params, &got)
	var out []record
	for _, w := range got {
		out = append(out, w.record())
	}
	return out, err
}

func (p *process) create(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	if configs == nil {
		configs = map[string]string{}
	}
	return p.call(ctx, "create", map[string]any{"topic": topic, "partitions": partitions, "configs": configs}, nil)
}

func (p *process) partitions(ctx context.Context, topic string) (n int, err error) {
	err = p.call(ctx, "partitions", map[string]any{"topic": topic}, &n)
	return n, err
}

func (p *process) topics(ctx context.Context) (names []string, err error) {
	err = p.call(ctx, "topics", nil, &names)
	return names, err
}

func (p *process) alter(ctx context.Context, topic, config, value string) error {
	return p.call(ctx, "alter", map[string]any{"topic": topic, "config": config, "value": value}, nil)
}

func (p *process) config(ctx context.Context, topic, config string) (value string, err error) {
	err = p.call(ctx, "config", map[string]any{"topic": topic, "config": config}, &value)
	return value, err
}

func (p *process) grow(ctx context.Context, topic string, count int) error {
	return p.call(ctx, "grow", map[string]any{"topic": topic, "count": count}, nil)
}

func (p *process) truncate(ctx context.Context, topic string, partition int32, before int64) error {
	return p.call(ctx, "truncate", map[string]any{"topic": topic, "partition": partition, "before": before}, nil)
}

func (p *process) remove(ctx context.Context, topic string) error {
	return p.call(ctx, "remove", map[string]any{"topic": topic}, nil)
}

// processMember is a member inside a program. What it prints waits here.
type processMember struct {
	p    *process
	name string
	t    *testing.T
	out  chan record
	stop context.CancelFunc
	wait sync.WaitGroup

	mu    sync.Mutex
	queue []record
	more  chan struct{} // has a token if queue is not empty
}

func (p *process) join(ctx context.Context, t *testing.T, group, topic string, how joining) (member, error) {
	p.mu.Lock()
	m := &processMember{p: p, name: fmt.Sprintf("m%d", len(p.members)), t: t, out: make(chan record), more: make(chan struct{}, 1)}
	p.members[m.name] = m
	p.mu.Unlock()
	params := map[string]any{"member": m.name, "group": group, "topic": topic, "instance": how.instance, "cooperative": how.cooperative}
	if err := p.call(ctx, "join", params, nil); err != nil {
		return nil, err
	}
	ctx, m.stop = context.WithCancel(ctx)
	m.wait.Go(func() {
		for {
			select {
			case <-m.more:
			case <-ctx.Done():
				return
			}
			m.mu.Lock()
			queue := m.queue
			m.queue = nil
			m.mu.Unlock()
			for _, r := range queue {
				select {
				case m.out <- r:
				case <-ctx.Done():
					return
				}
			}
		}
	})
	return m, nil
}

// push takes what the program prints about a member.
func (m *processMember) push(a answer) {
	if a.Error != nil {
		m.t.Errorf("member: %s", *a.Error)
		return
	}
	m.mu.Lock()
	m.queue = append(m.queue, a.Record.record())
	m.mu.Unlock()
	select {
	case m.more <- struct{}{}:
	default:
	}
}

func (m *processMember) records() <-chan record { return m.out }

func (m *processMember) commit(ctx context.Context) error {
	return m.p.call(ctx, "commit", map[string]any{"member": m.name}, nil)
}

func (m *processMember) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := m.p.call(ctx, "leave", map[string]any{"member": m.name}, nil)
	m.stop()
	m.wait.Wait()
	return err
}

// lockedBuffer keeps the last of what a program writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.b.String()
	if len(s) > 6000 {
		s = "…" + s[len(s)-6000:]
	}
	return strings.TrimSpace(s)
}
