package clients

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franz is franz-go: the newest versions of all.
type franz struct {
	addr string
	name string // client.id
}

var franzLibrary = library{
	name: "franz-go", language: "Go", everywhere: true,
	open: func(_ *testing.T, addr string) client { return franz{addr, "franz-go"} },
}

func (franz) version() string { return module("github.com/twmb/franz-go") }

func franzRecord(r *kgo.Record) record {
	out := record{Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.Timestamp}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, header{h.Key, h.Value})
	}
	return out
}

func (c franz) new(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(opts, kgo.SeedBrokers(c.addr), kgo.ClientID(c.name))...)
}

func (c franz) produce(ctx context.Context, topic string, how sending, rs []record) error {
	// Idempotent is its default.
	cl, err := c.new(kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(map[string]kgo.CompressionCodec{
			"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
			"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[how.codec]))
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.ProduceSync(ctx, toFranz(topic, rs)...).FirstErr()
}

func toFranz(topic string, rs []record) (out []*kgo.Record) {
	for _, r := range rs {
		k := &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.Time}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		out = append(out, k)
	}
	return out
}

func (c franz) read(ctx context.Context, topic string, partition int32, at start, n int) ([]record, error) {
	offset := kgo.NewOffset().At(at.offset)
	if !at.time.IsZero() {
		offset = kgo.NewOffset().AfterMilli(at.time.UnixMilli())
	}
	level := kgo.ReadUncommitted()
	if at.isolation == committed {
		level = kgo.ReadCommitted()
	}
	reset := kgo.NoResetOffset()
	switch at.reset {
	case "earliest":
		reset = kgo.NewOffset().AtStart()
	case "latest":
		reset = kgo.NewOffset().AtEnd()
	}
	cl, err := c.new(kgo.FetchIsolationLevel(level), kgo.ConsumeResetOffset(reset), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: offset}}))
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

func (c franz) join(ctx context.Context, t *testing.T, group, topic string, how joining) (member, error) {
	opts := []kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.HeartbeatInterval(500 * time.Millisecond), kgo.Balancers(kgo.RangeBalancer())}
	if how.instance != "" {
		opts = append(opts, kgo.InstanceID(how.instance))
	}
	if how.cooperative {
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	cl, err := c.new(opts...)
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

// adm runs f with a client for admin calls.
func (c franz) adm(f func(*kadm.Client) error) error {
	cl, err := c.new()
	if err != nil {
		return err
	}
	defer cl.Close()
	return f(kadm.NewClient(cl))
}

func (c franz) create(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	return c.adm(func(a *kadm.Client) error {
		values := map[string]*string{}
		for k, v := range configs {
			values[k] = &v
		}
		_, err := a.CreateTopic(ctx, int32(partitions), 1, values, topic)
		return err
	})
}

func (c franz) partitions(ctx context.Context, topic string) (n int, err error) {
	return n, c.adm(func(a *kadm.Client) error {
		list, err := a.ListTopics(ctx, topic)
		if err == nil {
			err = list.Error()
		}
		n = len(list[topic].Partitions)
		return err
	})
}

func (c franz) topics(ctx context.Context) (names []string, err error) {
	return names, c.adm(func(a *kadm.Client) error {
		list, err := a.ListTopics(ctx)
		names = list.Names()
		return err
	})
}

func (c franz) alter(ctx context.Context, topic, config, value string) error {
	return c.adm(func(a *kadm.Client) error {
		done, err := a.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: config, Value: &value}}, topic)
		if err == nil {
			err = done[0].Err
		}
		return err
	})
}

func (c franz) config(ctx context.Context, topic, config string) (value string, err error) {
	return value, c.adm(func(a *kadm.Client) error {
		got, err := a.DescribeTopicConfigs(ctx, topic)
		if err == nil {
			err = got[0].Err
		}
		if err != nil {
			return err
		}
		for _, c := range got[0].Configs {
			if c.Key == config {
				value = c.MaybeValue()
			}
		}
		return nil
	})
}

func (c franz) grow(ctx context.Context, topic string, count int) error {
	return c.adm(func(a *kadm.Client) error {
		done, err := a.UpdatePartitions(ctx, count, topic)
		if err == nil {
			err = done.Error()
		}
		return err
	})
}

func (c franz) truncate(ctx context.Context, topic string, partition int32, before int64) error {
	return c.adm(func(a *kadm.Client) error {
		done, err := a.DeleteRecords(ctx, kadm.Offsets{topic: {partition: {Topic: topic, Partition: partition, At: before}}})
		if err == nil {
			err = done.Error()
		}
		return err
	})
}

func (c franz) remove(ctx context.Context, topic string) error {
	return c.adm(func(a *kadm.Client) error {
		_, err := a.DeleteTopic(ctx, topic)
		return err
	})
}
