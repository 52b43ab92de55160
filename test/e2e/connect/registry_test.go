package connect

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

// schemas is the topic that Confluent's registry keeps schemas in.
const schemas = "_schemas"

// TestSchemaRegistry: the topic of a schema registry is made and found by it
// without complaint. Versions are registered, configs set, subjects deleted, for good
// too, while the topic is compacted twice; a registry that goes on reading misses
// nothing, one that begins with nothing knows the same, also after the broker was
// killed. What was deleted for good is gone from the topic itself.
//
// Neither Confluent's own nor Karapace is a package that setup.sh could install, and
// Apicurio's journal is never compacted: SchemaStore asks what Confluent's asks.
func TestSchemaRegistry(t *testing.T) {
	broker.Each(t, []string{broker.Embedded}, func(t *testing.T, b *broker.Broker) {
		t.Run("C-42 registry", func(t *testing.T) { registry(t, b) })
	})
}

func registry(t *testing.T, b *broker.Broker) {
	begin := time.Now()
	step := func(what string) { t.Logf("%5.1f s: %s", time.Since(begin).Seconds(), what) }
	want := map[string]string{}
	a := startStore(t, b, "created")
	if policy := config(t, b, schemas, "cleanup.policy"); policy != "compact" {
		t.Errorf("cleanup.policy is %q", policy)
	}
	ctx, adm := admin(t, b)
	if _, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "delete.retention.ms", Value: kadm.StringPtr("0")}}, schemas); err != nil {
		t.Fatal(err)
	}
	put := func(s *store, key, value string) {
		t.Helper()
		s.tell("put", key, value)
		want[key] = value
	}
	remove := func(s *store, key string) {
		t.Helper()
		s.tell("delete", key)
		delete(want, key)
	}
	same := func(what string, s *store) {
		t.Helper()
		if got := s.show(); !maps.Equal(got, want) {
			t.Errorf("%s: %d keys, want %d:\n%v\nwant\n%v", what, len(got), len(want), got, want)
		}
		step(what)
	}
	const subjects, versions = 10, 3
	id := 0
	for v := 1; v <= versions; v++ {
		for i := range subjects {
			id++
			put(a, schemaKey(i, v), schemaValue(i, v, id, false))
		}
	}
	for _, level := range []string{"NONE", "BACKWARD", "FULL"} { // the last one counts
		put(a, `{"keytype":"CONFIG","subject":null,"magic":0}`, `{"compatibilityLevel":"`+level+`"}`)
	}
	// A subject is deleted: its versions say so from then on. Another one for good.
	deletedKey := func(i int) string {
		return fmt.Sprintf(`{"keytype":"DELETE_SUBJECT","subject":"subject-%d","magic":0}`, i)
	}
	for i := range 2 {
		put(a, deletedKey(i), fmt.Sprintf(`{"subject":"subject-%d","version":%d}`, i, versions))
		for v := 1; v <= versions; v++ {
			put(a, schemaKey(i, v), schemaValue(i, v, i+1+(v-1)*subjects, true))
		}
	}
	for v := 1; v <= versions; v++ {
		remove(a, schemaKey(1, v))
	}
	remove(a, deletedKey(1))
	same("registered", a)
	compactSchemas(t, b)
	same("the one that goes on, after compaction", a)
	c := startStore(t, b, "found")
	same("one with nothing, after compaction", c)
	put(c, schemaKey(2, versions+1), schemaValue(2, versions+1, id+1, false))
	same("the one that goes on, of what another wrote", a)
	compactSchemas(t, b)
	a.end()
	same("after another compaction", c)
	b.Kill(t)
	b.Restart(t)
	d := startStore(t, b, "found")
	same("one with nothing, after the broker was killed", d)
	same("the one that goes on, after the broker was killed", c)
	c.end()
	d.end()

	if b.Kind == broker.Kafka { // it compacts in its own time
		return
	}
	records := 0
	for key := range readAll(t, b, schemas) {
		records++
		if _, there := want[key]; !there && !strings.Contains(key, "NOOP") {
			t.Errorf("%s was deleted for good, and is still in the topic", key)
		}
	}
	if records < len(want) {
		t.Errorf("%d keys are left, want at least %d", records, len(want))
	}
	step("read")
}

func schemaKey(i, version int) string {
	return fmt.Sprintf(`{"keytype":"SCHEMA","subject":"subject-%d","version":%d,"magic":1}`, i, version)
}

func schemaValue(i, version, id int, deleted bool) string {
	return fmt.Sprintf(`{"subject":"subject-%d","version":%d,"id":%d,"schema":"{\"type\":\"record\",\"name\":\"R%d\",\"fields\":[{\"name\":\"f%d\",\"type\":\"string\"}]}","deleted":%t}`,
		i, version, id, i, version, deleted)
}

// compactSchemas has all of the topic compacted that may be. Apache Kafka is left
// to itself.
func compactSchemas(t *testing.T, b *broker.Broker) {
	t.Helper()
	if b.Kind == broker.Kafka {
		return
	}
	tools.Run{Path: testkit.Binary(t), Args: []string{"topic", "compact", schemas, "--wait", "--admin", b.Admin}}.Must(t)
}

// store is a running SchemaStore.
type store struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startStore waits until it knows all; how says whether it made the topic.
func startStore(t *testing.T, b *broker.Broker, how string) *store {
	t.Helper()
	run := tools.SchemaStore(t, b.Addr, schemas)
	ctx, cancel := context.WithTimeout(t.Context(), tools.Limit)
	t.Cleanup(cancel)
	s := &store{t: t, cmd: exec.CommandContext(ctx, run.Path, run.Args...)}
	s.cmd.Env, s.cmd.Stderr = append(os.Environ(), run.Env...), os.Stderr
	s.cmd.WaitDelay = 10 * time.Second
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
	})
	if got := s.line(); got != how {
		t.Fatalf("the registry: %q, want %q", got, how)
	}
	return s
}

func (s *store) line() string {
	s.t.Helper()
	l, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatalf("the registry has ended: %v", err)
	}
	return strings.TrimSuffix(l, "\n")
}

// ask sends a command.
func (s *store) ask(fields ...string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, strings.Join(fields, "\t")+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// tell sends one that changes something.
func (s *store) tell(fields ...string) {
	s.t.Helper()
	s.ask(fields...)
	if l := s.line(); strings.HasPrefix(l, "failed") {
		s.t.Fatalf("%q: %s", fields, l)
	}
}

// show is all that it knows.
func (s *store) show() map[string]string {
	s.t.Helper()
	s.ask("show")
	all := map[string]string{}
	for l := s.line(); l != "end"; l = s.line() {
		k, v, ok := strings.Cut(l, "\t")
		if !ok {
			s.t.Fatal(l)
		}
		all[k] = v
	}
	return all
}

// end closes it as an operator does.
func (s *store) end() {
	s.t.Helper()
	s.in.Close()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the registry ended: %v", err)
	}
}

// readAll reads a topic to its end: how many records there are of each key.
func readAll(t *testing.T, b *broker.Broker, topic string) map[string]int {
	t.Helper()
	last := end(t, b, topic)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	keys := map[string]int{}
	for next := int64(0); next < last; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatal(err)
		}
		rs := fs.Records()
		for _, r := range rs {
			keys[string(r.Key)]++
		}
		if len(rs) > 0 {
			next = slices.MaxFunc(rs, func(a, b *kgo.Record) int { return int(a.Offset - b.Offset) }).Offset + 1
		}
	}
	return keys
}
