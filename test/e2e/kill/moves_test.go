package kill

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/tools"
	"github.com/hanzoai/stream/test/testkit"
)

// TestSessionsMove has two gateways behind one address, of which now one answers
// and now the other: it is killed, or the connections just go elsewhere and come
// back to sessions of which only it knows. Of 40 partitions few have something new
// at a time, so that nearly all that consumers hear comes from what their session
// leaves out. Consumers get every record once, in order, without an error, soon.
func TestSessionsMove(t *testing.T) {
	t.Parallel()
	kinds := broker.Kinds([]string{broker.NATS})
	if !strings.HasPrefix(kinds[0], "nats-") {
		t.Logf("two gateways need an external NATS server: not run on %s", kinds[0])
		return
	}
	const topic, partitions, rounds, perRound = "moves", 40, 8, 50
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	nats := testkit.StartNATS(t, testkit.NATSOptions{Version: strings.TrimPrefix(kinds[0], "nats-")})
	addrs := []string{testkit.FreeAddr(t), testkit.FreeAddr(t)}
	relay := testkit.NewRelay(t, addrs[0])
	var gateways []*testkit.Stream
	for _, addr := range addrs {
		gateways = append(gateways, testkit.Start(t, testkit.Options{PubsubURL: nats.URL, Addr: addr, Args: []string{"--advertised-address", relay.Addr}}))
	}
	b := &broker.Broker{Addr: relay.Addr}
	producer := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if _, err := kadm.NewClient(producer).CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}

	java := make(chan tools.Result, 1)
	run := tools.Kafka(t, "kafka-console-consumer", "--bootstrap-server", relay.Addr, "--topic", topic, "--from-beginning",
		"--max-messages", fmt.Sprint(rounds*perRound), "--timeout-ms", "60000", "--formatter-property", "print.partition=true")
	go func() {
		res, err := run.Do(ctx)
		if err != nil {
			res.Stderr += err.Error()
		}
		java <- res
	}()
	reader := client(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Second))
	next := make([]int, partitions) // of each partition, read
	sent := make([]int, partitions)
	var slowest time.Duration
	for round := range rounds {
		var records []*kgo.Record
		for i := range perRound {
			p := (7*round + i%3) % partitions
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(p), Value: fmt.Appendf(nil, "%d/%d", p, sent[p])})
			sent[p]++
		}
		if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		began := time.Now()
		for n := 0; n < perRound; {
			fetches := reader.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatalf("round %d, after %d of %d: %v", round, n, perRound, err)
			}
			for _, r := range fetches.Records() {
				if want := fmt.Sprintf("%d/%d", r.Partition, next[r.Partition]); string(r.Value) != want {
					t.Fatalf("round %d: %s, want %s", round, r.Value, want)
				}
				next[r.Partition]++
				n++
			}
		}
		slowest = max(slowest, time.Since(began))
		at := round % 2
		if round%4 < 2 {
			gateways[at].Kill(t)
			relay.Aim(addrs[1-at])
			gateways[at].Restart(t)
		} else {
			relay.Aim(addrs[1-at])
		}
	}
	if slowest > 10*time.Second {
		t.Errorf("the slowest round took %v", slowest)
	}
	res := <-java
	got := make([]int, partitions)
	for l := range strings.Lines(res.Stdout) {
		_, l, _ = strings.Cut(strings.TrimSpace(l), "\t")
		var p, n int
		if _, err := fmt.Sscanf(l, "%d/%d", &p, &n); err != nil || n != got[p] {
			t.Errorf("Java: %q, want record %d", l, got[p])
			break
		}
		got[p]++
	}
	if fmt.Sprint(got) != fmt.Sprint(sent) {
		t.Errorf("Java has %v of %v\n%s", got, sent, res.Stderr)
	}
	t.Logf("the slowest of %d rounds took %v to be read", rounds, slowest)
}
