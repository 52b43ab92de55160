package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

// perLine and vocabulary describe the input, the seed of which is fixed.
const (
	perLine    = 10
	vocabulary = 500
)

// last is the key of the records that the test itself puts behind the counts.
const last = "the last record"

// TestWordCount counts words with Streams in exactly_once_v2, by a repartition
// topic and a store with its changelog, on one of whose inputs the application is
// killed, and later the broker. A reader of committed counts sees the count of
// each word rise and never stay or fall, as it would if anything were counted
// twice or written again, and in the end exactly as often as it was sent; and the
// store is the same once it has been rebuilt from the changelog alone.
// STREAM_E2E_FULL=true counts 200,000 words, CI 20,000.
func TestWordCount(t *testing.T) {
	words := 20_000
	if os.Getenv("STREAM_E2E_FULL") == "true" {
		words = 200_000
	}
	for _, kind := range broker.Kinds([]string{broker.NATS}) {
		t.Run(kind, func(t *testing.T) { wordCount(t, kind, words) })
	}
}

func wordCount(t *testing.T, kind string, words int) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var o broker.Options
	if kind == broker.Kafka {
		o.Properties = []string{"transaction.abort.timed.out.transaction.cleanup.interval.ms=500"}
	}
	b := broker.StartWith(t, kind, o)
	producer := client(t, b)
	if _, err := kadm.NewClient(producer).CreateTopics(ctx, 4, 1, nil, "lines", "counts"); err != nil {
		t.Fatal(err)
	}

	want, lines := input(words)
	send := func(lines []string) {
		t.Helper()
		var rs []*kgo.Record
		for _, l := range lines {
			rs = append(rs, kgo.KeySliceRecord(fmt.Append(nil, len(rs)), []byte(l)))
			rs[len(rs)-1].Topic = "lines"
		}
		if err := producer.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	counts := read(ctx, t, b)
	state := filepath.Join(t.TempDir(), "state")
	a := &app{t: t, run: tools.Streams(t, b.Addr, state)}
	begin := time.Now()
	step := func(what string) {
		t.Logf("%5.1f s: %s, %d of %d words counted", time.Since(begin).Seconds(), what, counts.sum(), words)
	}

	a.start()
	send(lines[:len(lines)/2])
	counts.reach(words/8, a)
	a.process.Kill()
	step("the application killed")
	a.start()
	send(lines[len(lines)/2:])
	counts.reach(words/2+words/8, a)
	b.Kill(t)
	step("the broker killed")
	b.Restart(t)
	counts.reach(words, a)
	step("done")
	if code := a.process.Terminate(t, time.Minute); code != 128+15 && code != 0 {
		t.Errorf("the application ended with %d", code)
	}

	// Nothing comes after the last change of a count.
	behind := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(4) {
		r := kgo.KeyStringRecord(last, "")
		r.Topic, r.Partition = "counts", p
		if err := behind.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	step("the application stopped")
	got := counts.end()
	if !maps.Equal(got, want) {
		for w := range want {
			if got[w] != want[w] {
				t.Errorf("%s: counted %d times, sent %d times", w, got[w], want[w])
			}
		}
		t.Errorf("%d words counted, %d sent", len(got), len(want))
	}

	// Without its folder, the application has nothing but the changelog.
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	a.run = tools.Streams(t, b.Addr, state, "show")
	a.start()
	if got := a.store(); !maps.Equal(got, want) {
		t.Errorf("the store of %d words was rebuilt as one of %d: %v, want %v", len(want), len(got), got, want)
	}
	step("the store rebuilt")
}

func client(t *testing.T, b *broker.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Addr))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// input is lines of words, some of which are rarer than others.
func input(words int) (want map[string]int, lines []string) {
	rnd := rand.New(rand.NewPCG(1, 2))
	want = map[string]int{}
	for range words / perLine {
		var line []string
		for range perLine {
			w := fmt.Sprintf("word%d", rnd.IntN(1+rnd.IntN(vocabulary)))
			want[w]++
			line = append(line, w)
		}
		lines = append(lines, strings.Join(line, " "))
	}
	return want, lines
}

// app is the application, which may be started again.
type app struct {
	t       *testing.T
	run     tools.Run
	process *testkit.Process
}

func (a *app) start() {
	a.process = testkit.StartProcess(a.t, testkit.Command{Name: "wordcount", Path: a.run.Path, Args: a.run.Args, Env: a.run.Env})
}

// store is what the application shows of its store once it runs.
func (a *app) store() map[string]int {
	a.t.Helper()
	m := map[string]int{}
	testkit.Poll(a.t, 4*time.Minute, "store shown", func() error {
		select {
		case <-a.process.Exited():
			a.t.Fatalf("the application has ended:\n%s", a.process.Log())
		default:
		}
		log := a.process.Log()
		if !strings.Contains(log, "store: end\n") {
			return errors.New("it is not")
		}
		for line := range strings.Lines(log) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "store:" {
				n, err := strconv.Atoi(f[2])
				if err != nil {
					return err
				}
				m[f[1]] = n
			}
		}
		return nil
	})
	return m
}

// counts is what a reader of committed records has seen.
type counts struct {
	t    *testing.T
	done chan struct{} // closed when each partition's last record was read, or reading failed

	mu  sync.Mutex
	got map[string]int // guarded by mu
}

func read(ctx context.Context, t *testing.T, b *broker.Broker) *counts {
	c := &counts{t: t, done: make(chan struct{}), got: map[string]int{}}
	cl := client(t, b, kgo.ConsumeTopics("counts"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(500*time.Millisecond))
	go func() {
		defer close(c.done)
		for left := 4; left > 0; {
			fetches := cl.PollFetches(ctx)
			if ctx.Err() != nil {
				return
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if string(r.Key) == last {
					left--
					return
				}
				c.add(r)
			})
		}
	}()
	t.Cleanup(func() { <-c.done }) // ctx has ended
	return c
}

func (c *counts) add(r *kgo.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := strconv.Atoi(string(r.Value))
	if err != nil || n <= c.got[string(r.Key)] {
		c.t.Errorf("partition %d, offset %d: %s is counted %q times after %d", r.Partition, r.Offset, r.Key, r.Value, c.got[string(r.Key)])
	}
	c.got[string(r.Key)] = n
}

func (c *counts) sum() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.got {
		n += v
	}
	return n
}

// reach waits until so many words are counted.
func (c *counts) reach(n int, a *app) {
	c.t.Helper()
	testkit.Poll(c.t, 4*time.Minute, fmt.Sprintf("%d words counted", n), func() error {
		select {
		case <-a.process.Exited():
			c.t.Fatalf("the application has ended:\n%s", a.process.Log())
		default:
		}
		if have := c.sum(); have < n {
			return fmt.Errorf("%d are", have)
		}
		return nil
	})
}

// end waits for the last records and returns the counts.
func (c *counts) end() map[string]int {
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got
}
