package scripts

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

// records is how many the scripts produce, to three partitions; the last has a
// null value.
const records = 1001

func TestScripts(t *testing.T) {
	broker.Each(t, []string{broker.Embedded}, func(t *testing.T, b *broker.Broker) {
		for _, s := range []struct {
			name, file string
			run        func(t testing.TB, script string, args ...string) tools.Run
		}{
			{"kafka-python", "kafka_python.py", tools.Python},
			{"aiokafka", "aio_kafka.py", tools.Python},
			{"confluent-kafka", "confluent_kafka_client.py", tools.Python},
			{"kafkajs", "kafkajs.js", tools.Node},
		} {
			t.Run(s.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				base := time.Now().Add(-time.Hour).UnixMilli()
				topic, group := "scripts."+s.name, "group."+s.name
				s.run(t, s.file, "run", b.Addr, topic, group, fmt.Sprint(base)).Must(t)
				verify(ctx, t, b, topic, group, base)
				s.run(t, s.file, "delete", b.Addr, topic, group, fmt.Sprint(base)).Must(t)
				gone(ctx, t, b, topic)
			})
		}
	})
}

// verify reads the records and the committed offsets with another client.
func verify(ctx context.Context, t *testing.T, b *broker.Broker, topic, group string, base int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	next := map[int32]int64{}
	for n := 0; n < records; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read: %v", err)
		}
		for _, r := range fetches.Records() {
			i := 3*int(next[r.Partition]) + int(r.Partition)
			key, value, headers := fmt.Sprintf("key-%d", i), strings.Repeat(fmt.Sprintf("value-%d ", i), 5), fmt.Sprintf("number=%d again=1 again=2 ", i)
			if r.Partition == 0 && i > records-2 { // the last one
				key, value, headers, i = "null", "", "", records-1
			}
			var got strings.Builder
			for _, h := range r.Headers {
				fmt.Fprintf(&got, "%s=%s ", h.Key, h.Value)
			}
			if r.Offset != next[r.Partition] || string(r.Key) != key || string(r.Value) != value || (r.Value == nil) != (value == "") ||
				got.String() != headers || r.Timestamp.UnixMilli() != base+int64(i) {
				t.Fatalf("partition %d: got offset %d, key %q, value %q, headers %q, time %d; want offset %d, key %q, value %q, headers %q, time %d",
					r.Partition, r.Offset, r.Key, r.Value, got.String(), r.Timestamp.UnixMilli(), next[r.Partition], key, value, headers, base+int64(i))
			}
			next[r.Partition]++
			n++
		}
	}
	committed, err := kadm.NewClient(cl).FetchOffsets(ctx, group)
	if err != nil {
		t.Fatalf("committed offsets: %v", err)
	}
	for p, end := range next {
		if o, ok := committed.Lookup(topic, p); !ok || o.At != end {
			t.Errorf("partition %d: committed %d (%v), want %d", p, o.At, ok, end)
		}
	}
}

// gone waits until a deleted topic is no longer listed.
func gone(ctx context.Context, t *testing.T, b *broker.Broker, topic string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	testkit.Poll(t, 20*time.Second, "topic gone", func() error {
		list, err := kadm.NewClient(cl).ListTopics(ctx)
		if err == nil && list.Has(topic) {
			err = fmt.Errorf("%s is still listed", topic)
		}
		return err
	})
}
