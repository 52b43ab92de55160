package clients

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	kafka "github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// confluent is confluent-kafka-go: librdkafka.
type confluent struct{}

func (confluent) name() string   { return "confluent-kafka-go" }
func (confluent) limits() limits { return limits{} }

func confluentRecord(m *kafka.Message) record {
	out := record{Partition: m.TopicPartition.Partition, Offset: int64(m.TopicPartition.Offset), Key: m.Key, Value: m.Value, Time: m.Timestamp}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, header{h.Key, h.Value})
	}
	return out
}

func (confluent) produce(ctx context.Context, _ *testing.T, addr, topic, codec string, rs []record) error {
	p, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": addr, "compression.codec": codec, "linger.ms": 5, "enable.idempotence": true, "acks": "all"})
	if err != nil {
		return err
	}
	defer p.Close()
	delivered := make(chan kafka.Event, len(rs))
	for _, r := range rs {
		m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: r.Partition}, Key: r.Key, Value: r.Value, Timestamp: r.Time}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		if err := p.Produce(m, delivered); err != nil {
			return err
		}
	}
	for range rs {
		select {
		case e := <-delivered:
			if err := e.(*kafka.Message).TopicPartition.Error; err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (confluent) read(ctx context.Context, _ *testing.T, addr, topic string, partition int32, at start, n int) (out []record, err error) {
	c, err := kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": addr, "group.id": "unused", "enable.auto.commit": false, "auto.offset.reset": "error"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	tp := kafka.TopicPartition{Topic: &topic, Partition: partition, Offset: kafka.Offset(at.offset)}
	if !at.time.IsZero() {
		tp.Offset = kafka.Offset(at.time.UnixMilli())
		found, err := c.OffsetsForTimes([]kafka.TopicPartition{tp}, 10_000)
		if err == nil {
			err = found[0].Error
		}
		if err != nil {
			return nil, fmt.Errorf("offset of a time: %w", err)
		}
		tp = found[0]
	}
	if err := c.Assign([]kafka.TopicPartition{tp}); err != nil {
		return nil, err
	}
	for len(out) < n {
		m, err := confluentPoll(ctx, c)
		if err != nil {
			return out, err
		}
		out = append(out, confluentRecord(m))
	}
	return out, nil
}

// confluentPoll waits for the next message, ignoring errors that the library
// recovers from.
func confluentPoll(ctx context.Context, c *kafka.Consumer) (*kafka.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch e := c.Poll(100).(type) {
		case *kafka.Message:
			return e, e.TopicPartition.Error
		case kafka.Error:
			if e.IsFatal() {
				return nil, e
			}
		}
	}
}

type confluentMember struct {
	c    *kafka.Consumer
	out  chan record
	stop context.CancelFunc
	wait sync.WaitGroup
}

func (confluent) join(ctx context.Context, t *testing.T, addr, group, topic string) (member, error) {
	c, err := kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": addr, "group.id": group, "enable.auto.commit": false,
		"enable.auto.offset.store": false, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 500})
	if err != nil {
		return nil, err
	}
	if err := c.Subscribe(topic, nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	m := &confluentMember{c: c, out: make(chan record), stop: stop}
	m.wait.Go(func() {
		for {
			msg, err := confluentPoll(ctx, c)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("poll: %v", err)
				}
				return
			}
			// Fails for a partition that was just taken away: not ours to commit.
			_, _ = c.StoreMessage(msg)
			select {
			case m.out <- confluentRecord(msg):
			case <-ctx.Done():
				return
			}
		}
	})
	return m, nil
}

func (m *confluentMember) records() <-chan record { return m.out }

func (m *confluentMember) commit(context.Context) error {
	_, err := m.c.Commit()
	var kerr kafka.Error
	if errors.As(err, &kerr) && kerr.Code() == kafka.ErrNoOffset {
		return nil // nothing new
	}
	return err
}

func (m *confluentMember) close() error {
	m.stop()
	m.wait.Wait()
	return m.c.Close()
}

func (confluent) admin(ctx context.Context, addr, topic string, partitions int) (int, error) {
	a, err := kafka.NewAdminClient(&kafka.ConfigMap{"bootstrap.servers": addr})
	if err != nil {
		return 0, err
	}
	defer a.Close()
	made, err := a.CreateTopics(ctx, []kafka.TopicSpecification{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}}, kafka.SetAdminOperationTimeout(20*time.Second))
	if err == nil && made[0].Error.Code() != kafka.ErrNoError {
		err = made[0].Error
	}
	if err != nil {
		return 0, fmt.Errorf("create: %w", err)
	}
	meta, err := a.GetMetadata(&topic, false, 10_000)
	if err != nil {
		return 0, fmt.Errorf("metadata: %w", err)
	}
	gone, err := a.DeleteTopics(ctx, []string{topic}, kafka.SetAdminOperationTimeout(20*time.Second))
	if err == nil && gone[0].Error.Code() != kafka.ErrNoError {
		err = gone[0].Error
	}
	return len(meta.Topics[topic].Partitions), err
}
