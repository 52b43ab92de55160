package golden

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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

var differ = flag.Bool("differ", false, "write our differences into the list; the reasons are to be written by hand")

// settle is how long Apache Kafka gets until a broker shows what its controller
// has answered. We show it at once.
const settle = 300 * time.Millisecond

// limit of one command.
const limit = 15 * time.Second

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/kafka-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, kind := range broker.Kinds([]string{broker.Embedded}) {
		t.Run(kind, func(t *testing.T) { transcripts(t, broker.StartWith(t, kind, asKafka), files) })
	}
}

// asKafka is what a broker needs to be set up as the Apache Kafka of the suites.
var asKafka = broker.Options{Properties: []string{"num.partitions=4"}}

func transcripts(t *testing.T, b *broker.Broker, files []string) {
	record := os.Getenv("STREAM_RECORD") == "1" && b.Kind == broker.Kafka
	s := &session{Broker: b, tools: tools.StartKafkaTools(t), dir: t.TempDir(), members: map[string]*kgo.Client{}, open: map[string]*kgo.Client{}}
	s.warm(t)
	known := readDifferences(t)
	commands := 0
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		t.Run(name, func(t *testing.T) {
			steps := parse(t, f)
			seen := map[string]int{}
			for i := range steps {
				st := &steps[i]
				command, ok := strings.CutPrefix(st.command, "$ ")
				if !ok {
					s.directive(t, st.command)
					continue
				}
				commands++
				got := s.run(t, command, st.stdin)
				if record {
					st.want = got
					continue
				}
				seen[command]++
				at := name + ": " + command
				if n := seen[command]; n > 1 {
					at += fmt.Sprintf(" (%d)", n)
				}
				lines := diff(st.want, got)
				if *differ && b.Kind != broker.Kafka {
					known.set(at, lines)
					continue
				}
				var listed []string
				if e := known.find(at); e != nil && b.Kind != broker.Kafka {
					listed = e.lines
				}
				switch {
				case slices.Equal(lines, listed):
				case len(lines) == 0:
					t.Errorf("%s\nis as on Apache Kafka now: remove it from %s", at, differencesFile)
				default:
					t.Errorf("%s\nApache Kafka (-) and this broker (+):\n%s", at, strings.Join(lines, "\n"))
				}
			}
			if record {
				write(t, f, steps)
			}
			s.clean(t)
		})
	}
	if *differ && b.Kind != broker.Kafka {
		known.write(t)
	}
	t.Logf("%d commands of %d tools, %d differences are listed", commands, len(files), len(known.list))
}

// TestDifferences checks that what the list names is there: a command that was
// changed or removed leaves no entry behind.
func TestDifferences(t *testing.T) {
	known := readDifferences(t)
	for _, e := range known.list {
		file, command, _ := strings.Cut(e.at, ": ")
		if i := strings.LastIndex(command, " ("); i > 0 && strings.HasSuffix(command, ")") {
			command = command[:i]
		}
		steps := parse(t, "testdata/"+file+".txt")
		if !slices.ContainsFunc(steps, func(s step) bool { return s.command == "$ "+command }) {
			t.Errorf("%s: no such command", e.at)
		}
	}
}

// session is what the commands of all transcripts have in common.
type session struct {
	*broker.Broker
	tools   *tools.KafkaTools
	dir     string
	members map[string]*kgo.Client // by group
	open    map[string]*kgo.Client // by transactional id
}

// transact writes a record to a topic in a transaction that stays open.
func (s *session) transact(t *testing.T, id, topic string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.ClientID("golden"), kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	s.open[id] = cl
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("transacted")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// commit commits what transact began, and waits until its markers are written: the
// answer comes before.
func (s *session) commit(t *testing.T, id string) {
	t.Helper()
	if err := s.open[id].EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	testkit.Poll(t, limit, "the end of "+id, func() error {
		all, err := kadm.NewClient(s.open[id]).DescribeTransactions(t.Context(), id)
		if x := all[id]; err == nil && (x.Err != nil || x.State != "CompleteCommit") {
			err = fmt.Errorf("%s, %v", x.State, x.Err)
		}
		return err
	})
}

func (s *session) run(t *testing.T, command string, stdin []string) []string {
	t.Helper()
	if s.Kind == broker.Kafka {
		time.Sleep(settle)
	}
	args := words(command)
	for i := range args {
		args[i] = strings.ReplaceAll(strings.ReplaceAll(args[i], "localhost:9092", s.Addr), "DIR", s.dir)
	}
	var input string
	if len(stdin) > 0 {
		input = strings.Join(stdin, "\n") + "\n"
	}
	start := time.Now()
	res, err := s.tools.Do(args[0], args[1:], input, limit)
	if took := time.Since(start); took > 2*time.Second {
		t.Logf("%.1fs: %s", took.Seconds(), command)
	}
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	out := mask(args, res, s.Addr)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], s.dir, "DIR")
	}
	if res.Code != 0 {
		out = append(out, fmt.Sprintf("  = %d", res.Code))
	}
	return out
}

func (s *session) directive(t *testing.T, line string) {
	t.Helper()
	if line == "" {
		return
	}
	word, rest, _ := strings.Cut(line, " ")
	first, rest, _ := strings.Cut(rest, " ")
	switch word {
	case "@file":
		if err := os.WriteFile(filepath.Join(s.dir, first), []byte(strings.ReplaceAll(rest, `\n`, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	case "@join":
		s.join(t, first, rest)
	case "@leave":
		s.leave(t, first)
	case "@transact":
		s.transact(t, first, rest)
	case "@commit":
		s.commit(t, first)
	default:
		t.Fatalf("what is %q?", line)
	}
}

// join makes a member of a group that has its partitions when this returns.
func (s *session) join(t *testing.T, group, topic string) {
	t.Helper()
	assigned := make(chan struct{}, 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.ClientID("golden"), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			select {
			case assigned <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	s.members[group] = cl
	select {
	case <-assigned:
	case <-time.After(limit):
		t.Fatalf("no partitions of %s for a member of %s", topic, group)
	}
}

// warm makes the topic of commits: it is there, and listed, from the first group
// on, so that no transcript depends on which ran before it.
func (s *session) warm(t *testing.T) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "first"); err != nil {
		t.Fatal(err)
	}
	s.join(t, "first", "first")
	var commit kadm.Offsets
	commit.AddOffset("first", 0, 0, -1)
	s.leave(t, "first")
	// On a fresh broker the first answers can be that the coordinator loads.
	testkit.Poll(t, 30*time.Second, "the first commit", func() error { return kadm.NewClient(cl).CommitAllOffsets(t.Context(), "first", commit) })
	s.clean(t)
}

func (s *session) leave(t *testing.T, group string) {
	t.Helper()
	cl := s.members[group]
	if cl == nil {
		t.Fatalf("nobody joined %s", group)
	}
	delete(s.members, group)
	cl.Close()
}

// clean takes all topics and groups away.
func (s *session) clean(t *testing.T) {
	t.Helper()
	for group := range s.members {
		s.leave(t, group)
	}
	for id, cl := range s.open {
		delete(s.open, id)
		cl.Close()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	testkit.Poll(t, limit, "a broker without topics and groups", func() error {
		groups, err := adm.ListGroups(t.Context())
		if err != nil {
			return err
		}
		topics, err := adm.ListTopics(t.Context())
		if err != nil {
			return err
		}
		if len(groups) == 0 && len(topics) == 0 {
			return nil
		}
		if len(groups) > 0 {
			// A static member does not leave by itself.
			described, err := adm.DescribeGroups(t.Context(), groups.Groups()...)
			if err != nil {
				return err
			}
			for _, g := range described {
				for _, m := range g.Members {
					if m.InstanceID != nil {
						if _, err := adm.LeaveGroup(t.Context(), kadm.LeaveGroup(g.Group).InstanceIDs(*m.InstanceID)); err != nil {
							return err
						}
					}
				}
			}
			if _, err := adm.DeleteGroups(t.Context(), groups.Groups()...); err != nil {
				return err
			}
		}
		if len(topics) > 0 {
			if _, err := adm.DeleteTopics(t.Context(), topics.Names()...); err != nil {
				return err
			}
		}
		return fmt.Errorf("%d groups, %d topics", len(groups), len(topics))
	})
}
