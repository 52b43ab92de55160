package kill

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

// threeCopies is a line of kafka-topics with three replicas of which two are in sync.
var threeCopies = regexp.MustCompile(`Leader: \d\s+Replicas: \d,\d,\d\s+Isr: \d,\d\s`)

// TestEmbeddedNodeKilled has three servers that keep copies of each other's
// streams, and groups of Java and librdkafka on them. The first is killed: clients
// find the others, which go on once the streams that it led have leaders again;
// every record arrives. Kafka's own tool sees what lacks a copy, and that nothing
// does once the node is back.
func TestEmbeddedNodeKilled(t *testing.T) {
	t.Parallel()
	const topic, parts, perSecond = "nodes", 6, 100
	var addrs, routes []string
	for range 3 {
		addrs, routes = append(addrs, testkit.FreeAddr(t)), append(routes, testkit.FreeAddr(t))
	}
	bootstrap := strings.Join(addrs, ",")
	var nodes []*testkit.Stream
	for i := range addrs {
		nodes = append(nodes, testkit.Prepare(t, testkit.Options{Addr: addrs[i], ReadyLimit: time.Minute, Args: []string{
			"--group-initial-rebalance-delay-ms", "500", "--cluster-listen", routes[i], "--cluster-peers", strings.Join(routes, ",")}}))
		nodes[i].Launch(t)
	}
	for _, n := range nodes {
		n.WaitReady(t)
	}
	b := &broker.Broker{Addr: bootstrap}
	producer := client(t, b, kgo.SeedBrokers(addrs...), kgo.Dialer(dialSoft), kgo.ProducerLinger(0))
	if _, err := kadm.NewClient(producer).CreateTopic(t.Context(), parts, -1, nil, topic); err != nil {
		t.Fatal(err)
	}
	lacking := func() string {
		t.Helper()
		return tools.Kafka(t, "kafka-topics", "--bootstrap-server", strings.Join(addrs[1:], ","), // the two that stay
			"--describe", "--under-replicated-partitions", "--topic", topic).Must(t).Stdout
	}

	crowds := []*crowd{{t: t, name: "java", members: 2, got: map[string]int{}}, {t: t, name: "librdkafka", members: 2, got: map[string]int{}}}
	for range 2 {
		crowds[0].program(tools.Kafka(t, "kafka-console-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group", "java", "--from-beginning"))
		crowds[1].program(tools.Kcat(t, "-b", bootstrap, "-G", "librdkafka", "-u", "-E", "-q", "-X", "auto.offset.reset=earliest", topic))
	}
	sent := 0
	send := func(n int) {
		t.Helper()
		tick := time.NewTicker(time.Second / perSecond)
		defer tick.Stop()
		for range n {
			<-tick.C
			producer.Produce(t.Context(), &kgo.Record{Topic: topic, Value: fmt.Append(nil, "r", sent)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
			sent++
		}
	}
	arrive := func() {
		t.Helper()
		if err := producer.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range crowds {
			testkit.Poll(t, time.Minute, "all records at "+c.name, func() error {
				if n := c.count(); n < sent {
					return fmt.Errorf("%d of %d", n, sent)
				}
				return nil
			})
		}
	}
	send(100)
	arrive()
	for _, c := range crowds {
		c.reset()
	}
	nodes[0].Kill(t)
	send(300)
	arrive()
	line := "node 1 killed:"
	for _, c := range crowds {
		read, _ := c.stalls()
		line += fmt.Sprintf(" %s reads %v", c.name, read.Round(time.Millisecond))
	}
	t.Log(line)
	testkit.Poll(t, time.Minute, "kafka-topics to tell of missing copies", func() error {
		if out := lacking(); strings.Count(out, "Partition: ") != parts || len(threeCopies.FindAllString(out, -1)) != parts {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	nodes[0].Restart(t)
	testkit.Poll(t, time.Minute, "kafka-topics to tell of none", func() error {
		if out := lacking(); strings.TrimSpace(out) != "" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	send(50)
	arrive()
	for _, c := range crowds {
		c.end()
	}
}
