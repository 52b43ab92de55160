package clients

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// segment is segmentio/kafka-go: the oldest versions of all.
type segment struct{ addr string }

const segmentTransactions = "its writer has no transactional id"

var segmentLibrary = library{
	name: "kafka-go", language: "Go", everywhere: true,
	limits: limits{
		emptyReadsNull: true,
		resets:         []string{"none"}, // it waits at an offset past the end, or returns the error
		lacks: map[string]string{
			"static":         "no group.instance.id",
			"cooperative":    "its group balancers are eager",
			"idempotent":     "its writer has no producer id",
			"delete-records": "no DeleteRecords",
			"transactions":   segmentTransactions,
			"exactly-once":   segmentTransactions,
			"isolation":      "hands markers of transactions out as records",
		},
	},
	open: func(t *testing.T, addr string) client { return segment{addr} },
}

func (segment) version() string { return module("github.com/segmentio/kafka-go") }

// transport gives requests of writers and admin calls their client.id.
func (segment) transport() *kafka.Transport { return &kafka.Transport{ClientID: "kafka-go"} }

// dialer gives it to readers.
func (segment) dialer() *kafka.Dialer {
	return &kafka.Dialer{ClientID: "kafka-go", Timeout: 10 * time.Second}
}

func segmentRecord(m kafka.Message) record {
	out := record{Partition: int32(m.Partition), Offset: m.Offset, Key: m.Key, Value: m.Value, Time: m.Time}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, header{h.Key, h.Value})
	}
	return out
}

func (s segment) produce(ctx context.Context, topic string, how sending, rs []record) error {
	var c kafka.Compression
	if how.codec != "none" {
		if err := c.UnmarshalText([]byte(how.codec)); err != nil {
			return err
		}
	}
	tr := s.transport()
	defer tr.CloseIdleConnections()
	w := &kafka.Writer{
		Addr: kafka.TCP(s.addr), Topic: topic, Compression: c, RequiredAcks: kafka.RequireAll, Transport: tr,
		BatchTimeout: 10 * time.Millisecond,
		Balancer:     kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return m.WriterData.(int) }),
	}
	var out []kafka.Message
	for _, r := range rs {
		m := kafka.Message{Key: r.Key, Value: r.Value, Time: r.Time, WriterData: int(r.Partition)}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		out = append(out, m)
	}
	return errors.Join(w.WriteMessages(ctx, out...), w.Close())
}

func (s segment) read(ctx context.Context, topic string, partition int32, at start, n int) (out []record, err error) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{s.addr}, Dialer: s.dialer(), Topic: topic, Partition: int(partition), MaxBytes: 4 << 20, MaxWait: 100 * time.Millisecond, OffsetOutOfRangeError: true})
	defer func() { err = errors.Join(err, r.Close()) }()
	if at.time.IsZero() {
		err = r.SetOffset(at.offset)
	} else {
		err = r.SetOffsetAt(ctx, at.time)
	}
	if err != nil {
		return nil, err
	}
	for len(out) < n {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return out, err
		}
		out = append(out, segmentRecord(m))
	}
	return out, nil
}

type segmentMember struct {
	r    *kafka.Reader
	out  chan record
	stop context.CancelFunc
	wait sync.WaitGroup

	mu   sync.Mutex
	done map[int]kafka.Message // guards: the last message, by partition
}

func (s segment) join(ctx context.Context, t *testing.T, group, topic string, _ joining) (member, error) {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{s.addr}, Dialer: s.dialer(), GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset,
		MaxBytes: 4 << 20, MaxWait: 100 * time.Millisecond, HeartbeatInterval: 500 * time.Millisecond, JoinGroupBackoff: 500 * time.Millisecond})
	ctx, stop := context.WithCancel(ctx)
	m := &segmentMember{r: r, out: make(chan record), stop: stop, done: make(map[int]kafka.Message)}
	m.wait.Go(func() {
		for {
			msg, err := r.FetchMessage(ctx)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("fetch: %v", err)
				}
				return
			}
			m.mu.Lock()
			m.done[msg.Partition] = msg
			m.mu.Unlock()
			select {
			case m.out <- segmentRecord(msg):
			case <-ctx.Done():
				return
			}
		}
	})
	return m, nil
}

func (m *segmentMember) records() <-chan record { return m.out }

func (m *segmentMember) commit(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []kafka.Message
	for _, msg := range m.done {
		all = append(all, msg)
	}
	clear(m.done)
	return m.r.CommitMessages(ctx, all...)
}

func (m *segmentMember) close() error {
	m.stop()
	m.wait.Wait()
	return m.r.Close()
}

// adm runs f with a client for admin calls.
func (s segment) adm(f func(*kafka.Client) error) error {
	tr := s.transport()
	defer tr.CloseIdleConnections()
	return f(&kafka.Client{Addr: kafka.TCP(s.addr), Timeout: 20 * time.Second, Transport: tr})
}

func (s segment) create(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	return s.adm(func(cl *kafka.Client) error {
		t := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
		for k, v := range configs {
			t.ConfigEntries = append(t.ConfigEntries, kafka.ConfigEntry{ConfigName: k, ConfigValue: v})
		}
		made, err := cl.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{t}})
		if err == nil {
			err = made.Errors[topic]
		}
		return err
	})
}

func (s segment) partitions(ctx context.Context, topic string) (n int, err error) {
	return n, s.adm(func(cl *kafka.Client) error {
		meta, err := cl.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err == nil {
			n, err = len(meta.Topics[0].Partitions), meta.Topics[0].Error
		}
		return err
	})
}

func (s segment) topics(ctx context.Context) (names []string, err error) {
	return names, s.adm(func(cl *kafka.Client) error {
		meta, err := cl.Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return err
		}
		for _, t := range meta.Topics {
			names = append(names, t.Name)
		}
		return nil
	})
}

func (s segment) alter(ctx context.Context, topic, config, value string) error {
	return s.adm(func(cl *kafka.Client) error {
		done, err := cl.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: config, Value: value, ConfigOperation: kafka.ConfigOperationSet}},
		}}})
		if err == nil {
			err = done.Resources[0].Error
		}
		return err
	})
}

func (s segment) config(ctx context.Context, topic, config string) (value string, err error) {
	return value, s.adm(func(cl *kafka.Client) error {
		got, err := cl.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{config}}}})
		if err == nil {
			err = got.Resources[0].Error
		}
		if err != nil {
			return err
		}
		for _, c := range got.Resources[0].ConfigEntries {
			value = c.ConfigValue
		}
		return nil
	})
}

func (s segment) grow(ctx context.Context, topic string, count int) error {
	return s.adm(func(cl *kafka.Client) error {
		done, err := cl.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: int32(count)}}})
		if err == nil {
			err = done.Errors[topic]
		}
		return err
	})
}

func (segment) truncate(context.Context, string, int32, int64) error { return errLacks }

func (s segment) remove(ctx context.Context, topic string) error {
	return s.adm(func(cl *kafka.Client) error {
		gone, err := cl.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		if err == nil {
			err = gone.Errors[topic]
		}
		return err
	})
}
