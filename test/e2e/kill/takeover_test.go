package kill

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

// TestGatewayKilled has three gateways, behind one address or each with its own,
// and groups of franz-go (20 members, every other one static), Java and librdkafka
// on them. Each gateway is killed in turn, so the owner of every group is among
// them, and then each is stopped in order. Nobody is told of a rebalance, no record
// comes twice or is missing, and commits go on in less than the four seconds that a
// takeover may cost.
func TestGatewayKilled(t *testing.T) {
	t.Run("C-38 shared", func(t *testing.T) { gatewayKilled(t, true) })
	t.Run("C-38 per-gateway", func(t *testing.T) { gatewayKilled(t, false) })
}

func gatewayKilled(t *testing.T, shared bool) {
	kinds := broker.Kinds([]string{broker.NATS})
	if !strings.HasPrefix(kinds[0], "nats-") {
		t.Logf("several gateways need an external NATS server: not run on %s", kinds[0])
		return
	}
	const topic, parts, perSecond = "takeover", 20, 200
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	nats := testkit.StartNATS(t, testkit.NATSOptions{Version: strings.TrimPrefix(kinds[0], "nats-")})
	addrs := []string{testkit.FreeAddr(t), testkit.FreeAddr(t), testkit.FreeAddr(t)}
	bootstrap, args := strings.Join(addrs, ","), []string{"--group-initial-rebalance-delay-ms", "1000"}
	opts := []kgo.Opt{kgo.SeedBrokers(addrs...), kgo.Dialer(dialSoft)}
	if shared {
		bootstrap, opts = testkit.NewRelay(t, addrs...).Addr, nil
		args = append(args, "--advertised-address", bootstrap)
	} else {
		args = append(args, "--address-mode", "per-gateway")
	}
	var gateways []*testkit.Stream
	for _, addr := range addrs {
		gateways = append(gateways, testkit.Start(t, testkit.Options{PubsubURL: nats.URL, Addr: addr, Args: args}))
	}
	b := &broker.Broker{Addr: bootstrap}
	producer := client(t, b, append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))...)
	admin := kadm.NewClient(producer)
	if _, err := admin.CreateTopic(ctx, parts, 1, nil, topic); err != nil {
		t.Fatal(err)
	}

	var crowds []*crowd
	for _, c := range []struct {
		name    string
		members int
		start   func(*crowd, int)
	}{
		{"franz-go", 20, func(c *crowd, i int) { c.franz(ctx, b, topic, i, opts) }},
		{"java", 2, func(c *crowd, _ int) {
			recovery := "rebootstrap" // the default
			if shared {
				// With one broker to talk to, a Java client of 4.x that loses its
				// connection forgets what it knows of topics and begins again from its
				// bootstrap address (KIP-899). If it leads a group it then takes its
				// topics for changed and asks for a rebalance.
				recovery = "none"
			}
			c.program(tools.Kafka(t, "kafka-console-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group", c.name,
				"--from-beginning", "--command-property", "metadata.recovery.strategy="+recovery, "--command-property", "auto.commit.interval.ms=200"))
		}},
		{"librdkafka", 2, func(c *crowd, _ int) {
			c.program(tools.Kcat(t, "-b", bootstrap, "-G", c.name, "-u", "-E", "-q", "-X", "auto.offset.reset=earliest", "-X", "auto.commit.interval.ms=200", topic))
		}},
	} {
		crowd := &crowd{t: t, name: c.name, members: c.members, got: map[string]int{}}
		crowds = append(crowds, crowd)
		for i := range c.members {
			c.start(crowd, i)
		}
	}
	for _, c := range crowds {
		testkit.Poll(t, time.Minute, "a stable group of "+c.name, func() error {
			groups, err := admin.DescribeGroups(ctx, c.name)
			if err != nil {
				return err
			}
			g := groups[c.name]
			if g.Err != nil || g.State != "Stable" || len(g.Members) != c.members {
				return fmt.Errorf("%s with %d members: %v", g.State, len(g.Members), g.Err)
			}
			return nil
		})
	}

	sent, stop, done := 0, make(chan struct{}), make(chan struct{})
	var sendErr error
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second / perSecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				sendErr = producer.Flush(ctx)
				return
			}
			producer.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(sent % parts), Value: fmt.Append(nil, "r", sent)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
			sent++
		}
	}()

	begun := func(except int) (n string) {
		for i, g := range gateways {
			if i != except {
				n += fmt.Sprintf("gateway %d: %s\n", i+1, rebalances(t, g))
			}
		}
		return n
	}
	for i, g := range gateways {
		before := begun(i)
		for _, c := range crowds {
			c.reset()
		}
		g.Kill(t)
		time.Sleep(5 * time.Second) // what is watched is that all goes on meanwhile
		line := fmt.Sprintf("gateway %d killed:", i+1)
		for _, c := range crowds {
			read, commit := c.stalls()
			line += fmt.Sprintf(" %s reads %v", c.name, read.Round(time.Millisecond))
			if commit > 0 {
				line += fmt.Sprintf(" commits %v", commit.Round(time.Millisecond))
			}
			if read > 4*time.Second || commit > 4*time.Second {
				t.Errorf("%s stood still: reads for %v, commits for %v", c.name, read, commit)
			}
		}
		t.Log(line)
		if after := begun(i); after != before {
			t.Errorf("rebalances after a kill:\n%sbefore:\n%s", after, before)
		}
		g.Restart(t)
	}
	for i, g := range gateways {
		before := begun(i)
		for _, c := range crowds {
			c.reset()
		}
		g.Stop(t)
		g.Restart(t)
		line := fmt.Sprintf("gateway %d stopped and started:", i+1)
		for _, c := range crowds {
			read, commit := c.stalls()
			line += fmt.Sprintf(" %s reads %v", c.name, read.Round(time.Millisecond))
			if commit > 0 {
				line += fmt.Sprintf(" commits %v", commit.Round(time.Millisecond))
			}
		}
		t.Log(line)
		if after := begun(i); after != before {
			t.Errorf("rebalances after a stop:\n%sbefore:\n%s", after, before)
		}
	}
	close(stop)
	<-done
	if sendErr != nil {
		t.Fatal(sendErr)
	}
	for _, c := range crowds {
		testkit.Poll(t, time.Minute, "all records at "+c.name, func() error {
			if n := c.count(); n < sent {
				return fmt.Errorf("%d of %d", n, sent)
			}
			return nil
		})
		c.check(sent)
		c.end()
	}
}

// dialSoft is dial for clients that know several brokers and should ask another
// one: franz-go does so after a timeout, not after a refusal.
func dialSoft(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
	}
	return c, err
}

// rebalances is what a gateway has counted.
func rebalances(t *testing.T, g *testkit.Stream) string {
	t.Helper()
	res, err := http.Get(g.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(regexp.MustCompile(`(?m)^stream_group_rebalances_total.*$`).FindAllString(string(body), -1), " ")
}

// crowd is the members of one group.
type crowd struct {
	t       *testing.T
	name    string
	members int
	ends    []func()

	mu     sync.Mutex
	got    map[string]int // guards: how often each line came
	last   time.Time      // guards: when the last record came
	read   time.Duration  // guards: the longest time without a record
	commit time.Duration  // guards: the longest that a commit took
	moves  []string       // guards: what members were told of rebalances after their first
}

func (c *crowd) add(value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.last.IsZero() {
		c.read = max(c.read, now.Sub(c.last))
	}
	c.last = now
	c.got[value]++
}

func (c *crowd) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.read, c.commit, c.moves = time.Now(), 0, 0, nil
}

func (c *crowd) stalls() (read, commit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.read, time.Since(c.last)), c.commit
}

func (c *crowd) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

// check wants every record once.
func (c *crowd) check(sent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range sent {
		v := fmt.Sprint("r", i)
		if n := c.got[v]; n != 1 {
			c.t.Errorf("%s: record %d came %d times", c.name, i, n)
		}
		delete(c.got, v)
	}
	if len(c.got) > 0 || len(c.moves) > 0 {
		c.t.Errorf("%s: read %v besides, told of %v", c.name, c.got, c.moves)
	}
}

func (c *crowd) end() {
	for _, end := range c.ends {
		end()
	}
}

// franz starts one member that commits what it has read ten times a second.
func (c *crowd) franz(ctx context.Context, b *broker.Broker, topic string, i int, opts []kgo.Opt) {
	moved := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(context.Context, *kgo.Client, map[string][]int32) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.moves = append(c.moves, fmt.Sprintf("member %d: %s", i, what))
		}
	}
	opts = append(slices.Clone(opts), kgo.ConsumerGroup(c.name), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(30*time.Second), kgo.HeartbeatInterval(500*time.Millisecond), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.OnPartitionsAssigned(moved("assigned")), kgo.OnPartitionsRevoked(moved("revoked")), kgo.OnPartitionsLost(moved("lost")))
	if i%2 == 0 {
		opts = append(opts, kgo.InstanceID(fmt.Sprint("static-", i)))
	}
	// A client whose context is over says goodbye to nobody. Otherwise the first to
	// leave starts a rebalance that waits for the static members, which never leave,
	// until their session ends, and so does whoever is told of it before it leaves.
	ctx, cancel := context.WithCancel(ctx)
	cl := client(c.t, b, append(opts, kgo.WithContext(ctx))...)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			if ctx.Err() != nil {
				return
			}
			fetches.EachError(func(_ string, p int32, err error) { c.t.Errorf("%s %d: partition %d: %v", c.name, i, p, err) })
			fetches.EachRecord(func(r *kgo.Record) { c.add(string(r.Value)) })
			began := time.Now()
			if err := cl.CommitRecords(ctx, fetches.Records()...); err != nil && ctx.Err() == nil {
				c.t.Errorf("%s %d: commit: %v", c.name, i, err)
			}
			c.mu.Lock()
			c.commit = max(c.commit, time.Since(began))
			c.mu.Unlock()
		}
	})
	c.ends = append(c.ends, func() { cancel(); wg.Wait(); cl.Close() })
}

// program starts a member that prints one value a line.
func (c *crowd) program(r tools.Run) {
	c.t.Helper()
	cmd := exec.Command(r.Path, r.Args...)
	cmd.Env = append(cmd.Environ(), r.Env...)
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		if c.t.Failed() {
			c.t.Logf("%s printed:\n%s", c.name, stderr)
		}
	})
	c.t.Cleanup(end)
	var wg sync.WaitGroup
	wg.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			c.add(lines.Text())
		}
	})
	c.ends = append(c.ends, func() { end(); wg.Wait() })
}
