package cli

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
)

func client(t *testing.T, b *broker.Broker, o ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Addr)}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// produceAt produces one record per timestamp (milliseconds) to partition 0, each
// in a batch of its own.
func produceAt(t *testing.T, cl *kgo.Client, topic string, stamps ...int64) {
	t.Helper()
	for _, ms := range stamps {
		r := &kgo.Record{Topic: topic, Value: []byte("v"), Timestamp: time.UnixMilli(ms)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatalf("produce: %v", err)
		}
	}
}

// verifyPayloads reads a topic of one partition and checks that it holds what
// kafka-producer-perf-test sends, in order, and nothing else.
func verifyPayloads(ctx context.Context, t *testing.T, b *broker.Broker, topic string, records int64, size int) {
	t.Helper()
	cl := client(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	var random splittable // ProducerPerformance seeds with 0
	want := make([]byte, size)
	var next int64
	for next < records {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d records: %v", next, err)
		}
		for _, r := range fetches.Records() {
			for i := range want {
				want[i] = byte(random.below(26)) + 'A'
			}
			if r.Offset != next {
				t.Fatalf("offset %d where %d was due", r.Offset, next)
			}
			if !bytes.Equal(r.Value, want) {
				t.Fatalf("offset %d: value %q, want %q", next, r.Value, want)
			}
			next++
		}
	}
	if next != records {
		t.Errorf("%d records, want %d", next, records)
	}
}

// splittable is java.util.SplittableRandom with seed 0.
type splittable struct{ seed uint64 }

func (s *splittable) int32() int32 {
	s.seed += 0x9e3779b97f4a7c15
	z := s.seed
	z = (z ^ (z >> 33)) * 0x62a9d9ed799705f5
	return int32(((z ^ (z >> 28)) * 0xcb24d0a5c88c35b3) >> 32)
}

// below is nextInt(bound) of a bound that is no power of two.
func (s *splittable) below(bound int32) int32 {
	for {
		u := int32(uint32(s.int32()) >> 1)
		r := u % bound
		if u+bound-1-r >= 0 { // overflow: the last, incomplete, range
			return r
		}
	}
}
