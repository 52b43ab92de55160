package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/testkit"
)

// nodes is a cluster of embedded servers.
type nodes struct {
	all  []*testkit.Stream
	dirs []string
	// addrs are where Kafka's clients connect, comma separated.
	addrs string
}

var number4 = regexp.MustCompile(`\b\d{4}\b`)

// readmeNodes prepares the nodes of the README by its own command lines: only
// ports and folders are others. more is added to each line.
func readmeNodes(t *testing.T, more ...string) *nodes {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	ports, dir := map[string]string{}, t.TempDir()
	n := &nodes{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "stream --data-dir node") {
			continue
		}
		line = number4.ReplaceAllStringFunc(line, func(port string) string {
			if ports[port] == "" {
				ports[port] = fmt.Sprint(testkit.FreePort(t))
			}
			return ports[port]
		})
		args := strings.Fields(line)[1:]
		args[1] = filepath.Join(dir, args[1])
		flags := map[string]string{}
		for i := 0; i+1 < len(args); i += 2 {
			flags[args[i]] = args[i+1]
		}
		n.dirs = append(n.dirs, args[1])
		n.all = append(n.all, testkit.Prepare(t, testkit.Options{
			Bare: true, Args: append(args, more...), Addr: "localhost:" + flags["--port"], Admin: "http://localhost:" + flags["--admin-port"],
			DataDir: args[1], ReadyLimit: time.Minute,
		}))
	}
	if len(n.all) != 3 {
		t.Fatalf("the README starts %d nodes", len(n.all))
	}
	var addrs []string
	for _, s := range n.all {
		addrs = append(addrs, s.Addr)
	}
	n.addrs = strings.Join(addrs, ",")
	return n
}

// start launches nodes and waits until all are ready.
func (n *nodes) start(t *testing.T, which ...int) {
	t.Helper()
	for _, i := range which {
		n.all[i].Launch(t)
	}
	for _, i := range which {
		n.all[i].WaitReady(t)
	}
}

// leader is the node that leads the stream of a partition, as node i tells.
func (n *nodes) leader(t *testing.T, i int, topic string) int {
	t.Helper()
	leads := -1
	testkit.Poll(t, 30*time.Second, "a leader of "+topic, func() error {
		ps, err := n.partitions(t.Context(), i, topic)
		if err != nil {
			return err
		}
		for j, dir := range n.dirs {
			b, err := os.ReadFile(filepath.Join(dir, "cluster-node.json"))
			if err != nil {
				return err
			}
			var node struct{ Name string }
			if err := json.Unmarshal(b, &node); err != nil {
				return err
			}
			if node.Name == ps[0].StreamLeader {
				leads = j
				return nil
			}
		}
		return fmt.Errorf("%q leads, which is none of the nodes", ps[0].StreamLeader)
	})
	return leads
}

// partition is what HTTP tells of one.
type partition struct {
	Replicas     int
	InSync       int    `json:"in_sync"`
	StreamLeader string `json:"stream_leader"`
}

func (n *nodes) partitions(ctx context.Context, i int, topic string) ([]partition, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.all[i].Admin+"/v1/stream/topics?topic="+topic, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var topics []struct{ Partitions []partition }
	if err := json.NewDecoder(res.Body).Decode(&topics); err != nil || res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("topics of node %d: %s, %w", i, res.Status, err)
	}
	if len(topics) != 1 || len(topics[0].Partitions) == 0 {
		return nil, fmt.Errorf("topics of node %d: %+v", i, topics)
	}
	return topics[0].Partitions, nil
}

// waitCopies waits until node i says that so many copies of each partition are in
// sync.
func (n *nodes) waitCopies(t *testing.T, i int, topic string, inSync int) {
	t.Helper()
	testkit.Poll(t, time.Minute, fmt.Sprintf("%d copies in sync", inSync), func() error {
		ps, err := n.partitions(t.Context(), i, topic)
		for _, p := range ps {
			if p.Replicas != 3 || p.InSync != inSync {
				return fmt.Errorf("%+v", ps)
			}
		}
		return err
	})
}

// reading is a consumer group of one member that commits what it has read.
type reading struct {
	cl   *kgo.Client
	stop context.CancelFunc
	wait sync.WaitGroup

	mu      sync.Mutex
	commits int           // guards: acknowledged
	last    time.Time     // guards: of the last one
	longest time.Duration // guards: between two of them
}

func newReading(t *testing.T, addrs, group, topic string) *reading {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addrs, ",")...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond), kgo.SessionTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	r := &reading{cl: cl}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	r.wait.Go(func() {
		for ctx.Err() == nil {
			fetches := cl.PollRecords(ctx, 500)
			if fetches.NumRecords() == 0 {
				continue
			}
			bound, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := cl.CommitRecords(bound, fetches.Records()...)
			cancel()
			if err == nil {
				r.committed()
			}
		}
	})
	t.Cleanup(func() {
		stop()
		r.wait.Wait()
		cl.Close()
	})
	return r
}

func (r *reading) committed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.last.IsZero() {
		r.longest = max(r.longest, now.Sub(r.last))
	}
	r.commits, r.last = r.commits+1, now
}

// pause is the longest time between two commits since the last call of pause.
func (r *reading) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.longest
	r.longest = 0
	return d
}

// waitMore waits for n more commits.
func (r *reading) waitMore(t *testing.T, limit time.Duration, n int) {
	t.Helper()
	count := func() int { r.mu.Lock(); defer r.mu.Unlock(); return r.commits }
	before := count()
	testkit.Poll(t, limit, "commits", func() error {
		if more := count() - before; more < n {
			return fmt.Errorf("%d of %d", more, n)
		}
		return nil
	})
}

// TestC40EmbeddedCluster runs the three nodes of the README: the first start waits
// for all, saying so; then, under load, the node that leads a partition's stream
// is killed, and everything goes on; what comes back catches up; all three killed
// at once and started again have lost nothing.
func TestC40EmbeddedCluster(t *testing.T) {
	t.Parallel()
	n := readmeNodes(t)
	// One after another: who waits is alive, not ready, says why, and stops.
	n.all[0].Launch(t)
	testkit.Poll(t, 20*time.Second, "the first node to say what it waits for", func() error {
		err := testkit.Get(t.Context(), n.all[0].Admin+"/readyz")
		if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "waiting for a majority of the cluster: 1 of 3 nodes are here") {
			return fmt.Errorf("/readyz: %v", err)
		}
		return testkit.Get(t.Context(), n.all[0].Admin+"/livez")
	})
	said := func(what string) { // what it prints comes a moment after what it answers
		t.Helper()
		testkit.Poll(t, 20*time.Second, "the first node to say "+what, func() error {
			if !strings.Contains(n.all[0].Log(), what) {
				return errNot
			}
			return nil
		})
	}
	said("waiting for a majority of the cluster")
	n.all[0].Stop(t)
	n.start(t, 0, 1, 2)
	said("durability: r3-always. An acknowledged record survives the loss of any one NATS node, `kill -9`, crashes and loss of power of all of them")

	w := newWorld(t, n.addrs, "cluster", load{partitions: 2, pace: 5 * time.Millisecond, mayCut: true})
	p := newPipeline(t, n.addrs, "pipeline")
	g := newReading(t, n.addrs, "readers", "pipeline")
	w.waitAcks(t, 40*time.Second, 20)
	g.waitMore(t, 40*time.Second, 5)
	g.pause()

	rounds := 1
	if os.Getenv("STREAM_CLUSTER") == "full" {
		rounds = 10
	}
	for range rounds {
		killed := n.leader(t, 0, "cluster")
		began := time.Now()
		n.all[killed].Kill(t)
		alive := (killed + 1) % 3
		w.waitAcks(t, 60*time.Second, 20)
		p.waitMore(t, 60*time.Second, 100)
		g.waitMore(t, 60*time.Second, 5)
		w.report(t, fmt.Sprintf("node %d, which led partition 0, killed", killed), began)
		if pause := w.pause(began); pause > 12*time.Second {
			t.Errorf("a partition paused for %v", pause)
		}
		pause := g.pause()
		t.Logf("longest pause between two commits: %v", pause.Round(time.Millisecond))
		if pause > 30*time.Second {
			t.Errorf("the group paused for %v", pause)
		}
		n.waitCopies(t, alive, "cluster", 2)
		n.start(t, killed)
		n.waitCopies(t, alive, "cluster", 3)
		n.waitCopies(t, killed, "pipeline", 3)
		g.pause()
	}

	stopped := n.leader(t, 1, "cluster")
	began := time.Now()
	n.all[stopped].Stop(t)
	t.Logf("node %d stopped in %v", stopped, time.Since(began).Round(time.Millisecond))
	w.waitAcks(t, 60*time.Second, 20)
	g.waitMore(t, 60*time.Second, 5)
	w.report(t, fmt.Sprintf("node %d, which led partition 0, stopped in good order", stopped), began)
	t.Logf("longest pause between two commits: %v", g.pause().Round(time.Millisecond))
	n.start(t, stopped)
	n.waitCopies(t, stopped, "cluster", 3)

	began = time.Now()
	for _, s := range n.all {
		s.Kill(t)
	}
	n.start(t, 2, 0, 1)
	w.waitAcks(t, 60*time.Second, 20)
	p.waitMore(t, 60*time.Second, 100)
	g.waitMore(t, 60*time.Second, 5)
	w.report(t, "all nodes killed at once and started again", began)
	g.stop()
	g.wait.Wait()
	p.finish(t)
	w.finish(t)
	// All are stopped, at once as a supervisor does: nobody is left to hand over to.
	began = time.Now()
	for _, s := range n.all {
		if err := s.Process().Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range n.all {
		if code := s.Process().ExitCode(t, 40*time.Second); code != 0 {
			t.Errorf("node %d ended with exit code %d", i, code)
		}
	}
	t.Logf("all stopped in %v", time.Since(began).Round(time.Millisecond))
}
