package clients

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	kafka "github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// confluent is confluent-kafka-go: librdkafka.
type confluent struct{ addr string }

var confluentLibrary = library{
	name: "confluent-kafka-go", language: "Go", everywhere: true,
	open: func(_ *testing.T, addr string) client { return confluent{addr} },
}

func (confluent) version() string {
	_, librdkafka := kafka.LibraryVersion()
	return module("github.com/confluentinc/confluent-kafka-go/v2") + ", librdkafka " + librdkafka
}

// settings are c's with those of every client.
func (c confluent) settings(s kafka.ConfigMap) *kafka.ConfigMap {
	s["bootstrap.servers"], s["client.id"] = c.addr, "confluent-kafka-go"
	return &s
}

func confluentRecord(m *kafka.Message) record {
	out := record{Partition: m.TopicPartition.Partition, Offset: int64(m.TopicPartition.Offset), Key: m.Key, Value: m.Value, Time: m.Timestamp}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, header{h.Key, h.Value})
	}
	return out
}

func (c confluent) produce(ctx context.Context, topic string, how sending, rs []record) error {
	p, err := kafka.NewProducer(c.settings(kafka.ConfigMap{"compression.codec": how.codec, "linger.ms": 5, "enable.idempotence": how.idempotent, "acks": "all"}))
	if err != nil {
		return err
	}
	defer p.Close()
	return confluentProduce(ctx, p, topic, rs)
}

// confluentProduce waits until all of rs are acknowledged.
func confluentProduce(ctx context.Context, p *kafka.Producer, topic string, rs []record) error {
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

func (cl confluent) read(ctx context.Context, topic string, partition int32, at start, n int) (out []record, err error) {
	reset := at.reset
	if reset == "" || reset == "none" {
		reset = "error"
	}
	settings := kafka.ConfigMap{"group.id": "unused", "enable.auto.commit": false, "auto.offset.reset": reset}
	if at.isolation != "" {
		settings["isolation.level"] = "read_" + at.isolation
	}
	c, err := kafka.NewConsumer(cl.settings(settings))
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
			if e.IsFatal() || e.Code() == kafka.ErrAutoOffsetReset {
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

func (cl confluent) join(ctx context.Context, t *testing.T, group, topic string, how joining) (member, error) {
	settings := kafka.ConfigMap{"group.id": group, "enable.auto.commit": false,
		"enable.auto.offset.store": false, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 500}
	if how.instance != "" {
		settings["group.instance.id"] = how.instance
	}
	if how.cooperative {
		settings["partition.assignment.strategy"] = "cooperative-sticky"
	}
	c, err := kafka.NewConsumer(cl.settings(settings))
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

// adm runs f with a client for admin calls.
func (c confluent) adm(f func(*kafka.AdminClient) error) error {
	a, err := kafka.NewAdminClient(c.settings(kafka.ConfigMap{}))
	if err != nil {
		return err
	}
	defer a.Close()
	return f(a)
}

// refused is the error of a result, nil for code 0.
func refused(e kafka.Error) error {
	if e.Code() == kafka.ErrNoError {
		return nil
	}
	return e
}

func (c confluent) create(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	return c.adm(func(a *kafka.AdminClient) error {
		made, err := a.CreateTopics(ctx, []kafka.TopicSpecification{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1, Config: configs}}, kafka.SetAdminOperationTimeout(20*time.Second))
		if err == nil {
			err = refused(made[0].Error)
		}
		return err
	})
}

func (c confluent) partitions(ctx context.Context, topic string) (n int, err error) {
	return n, c.adm(func(a *kafka.AdminClient) error {
		got, err := a.DescribeTopics(ctx, kafka.NewTopicCollectionOfTopicNames([]string{topic}))
		if err == nil {
			n, err = len(got.TopicDescriptions[0].Partitions), refused(got.TopicDescriptions[0].Error)
		}
		return err
	})
}

func (c confluent) topics(context.Context) (names []string, err error) {
	return names, c.adm(func(a *kafka.AdminClient) error {
		meta, err := a.GetMetadata(nil, true, 10_000)
		if err != nil {
			return err
		}
		names = slices.Collect(maps.Keys(meta.Topics))
		return nil
	})
}

func (c confluent) alter(ctx context.Context, topic, config, value string) error {
	return c.adm(func(a *kafka.AdminClient) error {
		done, err := a.IncrementalAlterConfigs(ctx, []kafka.ConfigResource{{Type: kafka.ResourceTopic, Name: topic,
			Config: []kafka.ConfigEntry{{Name: config, Value: value, IncrementalOperation: kafka.AlterConfigOpTypeSet}}}})
		if err == nil {
			err = refused(done[0].Error)
		}
		return err
	})
}

func (c confluent) config(ctx context.Context, topic, config string) (value string, err error) {
	return value, c.adm(func(a *kafka.AdminClient) error {
		got, err := a.DescribeConfigs(ctx, []kafka.ConfigResource{{Type: kafka.ResourceTopic, Name: topic}})
		if err == nil {
			err = refused(got[0].Error)
		}
		if err != nil {
			return err
		}
		value = got[0].Config[config].Value
		return nil
	})
}

func (c confluent) grow(ctx context.Context, topic string, count int) error {
	return c.adm(func(a *kafka.AdminClient) error {
		done, err := a.CreatePartitions(ctx, []kafka.PartitionsSpecification{{Topic: topic, IncreaseTo: count}}, kafka.SetAdminOperationTimeout(20*time.Second))
		if err == nil {
			err = refused(done[0].Error)
		}
		return err
	})
}

func (c confluent) truncate(ctx context.Context, topic string, partition int32, before int64) error {
	return c.adm(func(a *kafka.AdminClient) error {
		done, err := a.DeleteRecords(ctx, []kafka.TopicPartition{{Topic: &topic, Partition: partition, Offset: kafka.Offset(before)}})
		if err == nil {
			err = done.DeleteRecordsResults[0].TopicPartition.Error
		}
		return err
	})
}

func (c confluent) remove(ctx context.Context, topic string) error {
	return c.adm(func(a *kafka.AdminClient) error {
		gone, err := a.DeleteTopics(ctx, []string{topic}, kafka.SetAdminOperationTimeout(20*time.Second))
		if err == nil {
			err = refused(gone[0].Error)
		}
		return err
	})
}
