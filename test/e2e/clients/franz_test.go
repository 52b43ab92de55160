package clients

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct{}

func (franz) name() string   { return "franz-go" }
func (franz) limits() limits { return limits{} }

func franzRecord(r *kgo.Record) record {
	out := record{Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.Timestamp}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, header{h.Key, h.Value})
	}
	return out
}

func (franz) produce(ctx context.Context, _ *testing.T, addr, topic, codec string, rs []record) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(map[string]kgo.CompressionCodec{
			"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
			"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[codec]))
	if err != nil {
		return err
	}
	defer cl.Close()
	var out []*kgo.Record
	for _, r := range rs {
		k := &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.Time}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		out = append(out, k)
	}
	return cl.ProduceSync(ctx, out...).FirstErr()
}

func (franz) read(ctx context.Context, _ *testing.T, addr, topic string, partition int32, at start, n int) ([]record, error) {
	offset := kgo.NewOffset().At(at.offset)
	if !at.time.IsZero() {
		offset = kgo.NewOffset().AfterMilli(at.time.UnixMilli())
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: offset}}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var out []record
	for len(out) < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return out, err
		}
		for _, r := range fetches.Records() {
			out = append(out, franzRecord(r))
		}
	}
	return out, nil
}

type franzMember struct {
	cl   *kgo.Client
	out  chan record
	stop context.CancelFunc
	wait sync.WaitGroup
}

func (franz) join(ctx context.Context, t *testing.T, addr, group, topic string) (member, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(500*time.Millisecond))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	m := &franzMember{cl: cl, out: make(chan record), stop: stop}
	m.wait.Go(func() {
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			if err := fetches.Err(); err != nil && ctx.Err() == nil {
				t.Errorf("poll: %v", err)
				return
			}
			for _, r := range fetches.Records() {
				select {
				case m.out <- franzRecord(r):
				case <-ctx.Done():
					return
				}
			}
		}
	})
	return m, nil
}

func (m *franzMember) records() <-chan record           { return m.out }
func (m *franzMember) commit(ctx context.Context) error { return m.cl.CommitUncommittedOffsets(ctx) }

func (m *franzMember) close() error {
	m.stop()
	m.wait.Wait()
	m.cl.Close()
	return nil
}

func (franz) admin(ctx context.Context, addr, topic string, partitions int) (int, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, int32(partitions), 1, nil, topic); err != nil {
		return 0, err
	}
	list, err := adm.ListTopics(ctx, topic)
	if err == nil {
		err = list.Error()
	}
	if err != nil {
		return 0, err
	}
	_, err = adm.DeleteTopic(ctx, topic)
	return len(list[topic].Partitions), err
}
