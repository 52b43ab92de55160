package keys

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
)

// wireBytes counts what a client writes and reads of fetches.
type wireBytes struct{ fetches, out, in atomic.Int64 }

func (w *wireBytes) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == 1 {
		w.fetches.Add(1)
		w.out.Add(int64(e2e.BytesWritten))
		w.in.Add(int64(e2e.BytesRead))
	}
}

// BenchmarkIdlePartitions: a consumer of 1,000 partitions of which one gets a
// record at a time, with fetch sessions (KIP-227) and without: bytes per record,
// processor time of the broker per record, and the time until the record is
// there. STREAM_E2E_BROKERS=kafka measures Apache Kafka.
func BenchmarkIdlePartitions(b *testing.B) {
	kind := broker.Embedded
	if env := os.Getenv("STREAM_E2E_BROKERS"); env != "" {
		kind = env
	}
	br := broker.Start(b, kind)
	for _, partitions := range []int32{10, 100, 1000} {
		topic := fmt.Sprintf("idle-%d", partitions)
		make1, err := kgo.NewClient(kgo.SeedBrokers(br.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
		if err != nil {
			b.Fatal(err)
		}
		defer make1.Close()
		if _, err := kadm.NewClient(make1).CreateTopic(b.Context(), partitions, 1, nil, topic); err != nil {
			b.Fatal(err)
		}
		for _, sessions := range []bool{true, false} {
			b.Run(fmt.Sprintf("partitions=%d/sessions=%v", partitions, sessions), func(b *testing.B) {
				idlePartitions(b, br.Addr, topic, make1, sessions)
			})
		}
	}
}

func idlePartitions(b *testing.B, addr, topic string, producer *kgo.Client, sessions bool) {
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	var count wireBytes
	opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.WithHooks(&count), kgo.FetchMaxWait(5 * time.Second)}
	if !sessions {
		opts = append(opts, kgo.DisableFetchSessions())
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	send := func(wait time.Duration) int {
		if err := producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, 100)}).FirstErr(); err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		f := cl.PollFetches(ctx)
		return f.NumRecords()
	}
	for send(500*time.Millisecond) == 0 { // until it reads from the end
	}
	f0, out, in, cpu := count.fetches.Load(), count.out.Load(), count.in.Load(), brokerTime(b)
	b.ResetTimer()
	for range b.N {
		if send(time.Minute) == 0 {
			b.Fatal("no record")
		}
	}
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric(float64(count.fetches.Load()-f0)/n, "fetches/op")
	b.ReportMetric(float64(count.out.Load()-out)/n, "request-bytes/op")
	b.ReportMetric(float64(count.in.Load()-in)/n, "answer-bytes/op")
	b.ReportMetric(float64(brokerTime(b)-cpu)/n/1e3, "broker-µs/op")
}

// brokerTime is the processor time of the processes that this one has started.
func brokerTime(b *testing.B) time.Duration {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		b.Fatalf("children of this process: %v", err)
	}
	var ticks int64
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for pid := range strings.FieldsSeq(string(text)) {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			if err != nil {
				continue
			}
			f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
			for _, at := range []int{11, 12} {
				n, err := strconv.ParseInt(f[at], 10, 64)
				if err != nil {
					b.Fatal(err)
				}
				ticks += n
			}
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
