package clients

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// saramaClient speaks the default protocol level of sarama, 2.8.
type saramaClient struct{}

func (saramaClient) name() string   { return "sarama" }
func (saramaClient) limits() limits { return limits{} }

func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "e2e"
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

func (saramaClient) produce(_ context.Context, _ *testing.T, addr, topic, codec string, rs []record) error {
	c := saramaConfig()
	if err := c.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
		return err
	}
	p, err := sarama.NewSyncProducer([]string{addr}, c)
	if err != nil {
		return err
	}
	var out []*sarama.ProducerMessage
	for _, r := range rs {
		m := &sarama.ProducerMessage{Topic: topic, Partition: r.Partition, Key: saramaBytes(r.Key), Value: saramaBytes(r.Value), Timestamp: r.Time}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		out = append(out, m)
	}
	return errors.Join(p.SendMessages(out), p.Close())
}

func (saramaClient) read(ctx context.Context, _ *testing.T, addr, topic string, partition int32, at start, n int) (out []record, err error) {
	cl, err := sarama.NewClient([]string{addr}, saramaConfig())
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

func (saramaClient) join(ctx context.Context, t *testing.T, addr, group, topic string) (member, error) {
	g, err := sarama.NewConsumerGroup([]string{addr}, group, saramaConfig())
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

func (saramaClient) admin(_ context.Context, addr, topic string, partitions int) (n int, err error) {
	a, err := sarama.NewClusterAdmin([]string{addr}, saramaConfig())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	if err := a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}, false); err != nil {
		return 0, err
	}
	var list []*sarama.TopicMetadata
	for deadline := time.Now().Add(10 * time.Second); ; {
		list, err = a.DescribeTopics([]string{topic})
		if err != nil {
			return 0, err
		}
		if list[0].Err == sarama.ErrNoError || time.Now().After(deadline) {
			break
		}
	}
	return len(list[0].Partitions), a.DeleteTopic(topic)
}
