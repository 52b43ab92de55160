package clients

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// saramaClient speaks the default protocol level of sarama, 2.8.
type saramaClient struct{ addr string }

var saramaLibrary = library{
	name: "sarama", language: "Go", everywhere: true,
	limits: limits{
		resets: []string{"none"}, // it checks the offset before it reads
		lacks:  map[string]string{"cooperative": "its balance strategies are eager"},
	},
	open: func(_ *testing.T, addr string) client { return saramaClient{addr} },
}

func (saramaClient) version() string { return module("github.com/IBM/sarama") }

func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "sarama"
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	return c
}

func saramaRecord(m *sarama.ConsumerMessage) record {
	out := record{Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value, Time: m.Timestamp}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, header{string(h.Key), h.Value})
	}
	return out
}

// saramaBytes keeps null: a nil slice in a non-nil encoder would be empty.
func saramaBytes(b []byte) sarama.Encoder {
	if b == nil {
		return nil
	}
	return sarama.ByteEncoder(b)
}

func (s saramaClient) produce(_ context.Context, topic string, how sending, rs []record) error {
	c := saramaConfig()
	if c.Producer.Idempotent = how.idempotent; how.idempotent {
		c.Net.MaxOpenRequests = 1
	}
	if err := c.Producer.Compression.UnmarshalText([]byte(how.codec)); err != nil {
		return err
	}
	p, err := sarama.NewSyncProducer([]string{s.addr}, c)
	if err != nil {
		return err
	}
	return errors.Join(p.SendMessages(toSarama(topic, rs)), p.Close())
}

func toSarama(topic string, rs []record) (out []*sarama.ProducerMessage) {
	for _, r := range rs {
		m := &sarama.ProducerMessage{Topic: topic, Partition: r.Partition, Key: saramaBytes(r.Key), Value: saramaBytes(r.Value), Timestamp: r.Time}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		out = append(out, m)
	}
	return out
}

func (s saramaClient) read(ctx context.Context, topic string, partition int32, at start, n int) (out []record, err error) {
	config := saramaConfig()
	if at.isolation == committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	cl, err := sarama.NewClient([]string{s.addr}, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	offset := at.offset
	if !at.time.IsZero() {
		if offset, err = cl.GetOffset(topic, partition, at.time.UnixMilli()); err != nil {
			return nil, err
		}
	}
	c, err := sarama.NewConsumerFromClient(cl)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	p, err := c.ConsumePartition(topic, partition, offset)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for len(out) < n {
		select {
		case m := <-p.Messages():
			out = append(out, saramaRecord(m))
		case err := <-p.Errors():
			return out, err
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
	return out, nil
}

type saramaMember struct {
	group sarama.ConsumerGroup
	out   chan record
	stop  context.CancelFunc
	wait  sync.WaitGroup

	mu      sync.Mutex
	session sarama.ConsumerGroupSession // guards: the current session
}

func (s saramaClient) join(ctx context.Context, t *testing.T, group, topic string, how joining) (member, error) {
	c := saramaConfig()
	c.Consumer.Group.InstanceId = how.instance
	g, err := sarama.NewConsumerGroup([]string{s.addr}, group, c)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	m := &saramaMember{group: g, out: make(chan record), stop: stop}
	m.wait.Go(func() {
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, m); err != nil && ctx.Err() == nil {
				t.Errorf("consume: %v", err)
				return
			}
		}
	})
	m.wait.Go(func() {
		for err := range g.Errors() {
			if ctx.Err() == nil {
				t.Errorf("group: %v", err)
			}
		}
	})
	return m, nil
}

func (m *saramaMember) Setup(s sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = s
	return nil
}

func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *saramaMember) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case msg, ok := <-c.Messages():
			if !ok {
				return nil
			}
			s.MarkMessage(msg, "")
			select {
			case m.out <- saramaRecord(msg):
			case <-s.Context().Done():
				return nil
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func (m *saramaMember) records() <-chan record { return m.out }

func (m *saramaMember) commit(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session != nil {
		m.session.Commit()
	}
	return nil
}

func (m *saramaMember) close() error {
	m.stop()
	err := m.group.Close()
	m.wait.Wait()
	return err
}

// adm runs f with a client for admin calls.
func (s saramaClient) adm(f func(sarama.ClusterAdmin) error) (err error) {
	a, err := sarama.NewClusterAdmin([]string{s.addr}, saramaConfig())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return f(a)
}

func (s saramaClient) create(_ context.Context, topic string, partitions int, configs map[string]string) error {
	return s.adm(func(a sarama.ClusterAdmin) error {
		values := map[string]*string{}
		for k, v := range configs {
			values[k] = &v
		}
		return a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1, ConfigEntries: values}, false)
	})
}

func (s saramaClient) partitions(_ context.Context, topic string) (n int, err error) {
	return n, s.adm(func(a sarama.ClusterAdmin) error {
		list, err := a.DescribeTopics([]string{topic})
		if err != nil {
			return err
		}
		n = len(list[0].Partitions)
		if list[0].Err != sarama.ErrNoError {
			return list[0].Err
		}
		return nil
	})
}

func (s saramaClient) topics(context.Context) (names []string, err error) {
	return names, s.adm(func(a sarama.ClusterAdmin) error {
		list, err := a.ListTopics()
		names = slices.Collect(maps.Keys(list))
		return err
	})
}

func (s saramaClient) alter(_ context.Context, topic, config, value string) error {
	return s.adm(func(a sarama.ClusterAdmin) error {
		return a.IncrementalAlterConfig(sarama.TopicResource, topic,
			map[string]sarama.IncrementalAlterConfigsEntry{config: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}, false)
	})
}

func (s saramaClient) config(_ context.Context, topic, config string) (value string, err error) {
	return value, s.adm(func(a sarama.ClusterAdmin) error {
		got, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{config}})
		for _, c := range got {
			if c.Name == config {
				value = c.Value
			}
		}
		return err
	})
}

func (s saramaClient) grow(_ context.Context, topic string, count int) error {
	return s.adm(func(a sarama.ClusterAdmin) error { return a.CreatePartitions(topic, int32(count), nil, false) })
}

func (s saramaClient) truncate(_ context.Context, topic string, partition int32, before int64) error {
	return s.adm(func(a sarama.ClusterAdmin) error {
		return a.DeleteRecords(topic, map[int32]int64{partition: before})
	})
}

func (s saramaClient) remove(_ context.Context, topic string) error {
	return s.adm(func(a sarama.ClusterAdmin) error { return a.DeleteTopic(topic) })
}
