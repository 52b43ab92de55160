package clients

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// segment is segmentio/kafka-go: the oldest versions of all.
type segment struct{}

func (segment) name() string   { return "kafka-go" }
func (segment) limits() limits { return limits{emptyReadsNull: true} }

func segmentRecord(m kafka.Message) record {
	out := record{Partition: int32(m.Partition), Offset: m.Offset, Key: m.Key, Value: m.Value, Time: m.Time}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, header{h.Key, h.Value})
	}
	return out
}

func (segment) produce(ctx context.Context, _ *testing.T, addr, topic, codec string, rs []record) error {
	var c kafka.Compression
	if codec != "none" {
		if err := c.UnmarshalText([]byte(codec)); err != nil {
			return err
		}
	}
	tr := &kafka.Transport{}
	defer tr.CloseIdleConnections()
	w := &kafka.Writer{
		Addr: kafka.TCP(addr), Topic: topic, Compression: c, RequiredAcks: kafka.RequireAll, Transport: tr,
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

func (segment) read(ctx context.Context, _ *testing.T, addr, topic string, partition int32, at start, n int) (out []record, err error) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{addr}, Topic: topic, Partition: int(partition), MaxBytes: 4 << 20, MaxWait: 100 * time.Millisecond})
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

func (segment) join(ctx context.Context, t *testing.T, addr, group, topic string) (member, error) {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{addr}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset,
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

func (segment) admin(ctx context.Context, addr, topic string, partitions int) (int, error) {
	tr := &kafka.Transport{}
	defer tr.CloseIdleConnections()
	cl := &kafka.Client{Addr: kafka.TCP(addr), Timeout: 20 * time.Second, Transport: tr}
	made, err := cl.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}}})
	if err == nil {
		err = made.Errors[topic]
	}
	if err != nil {
		return 0, fmt.Errorf("create: %w", err)
	}
	var meta *kafka.MetadataResponse
	for deadline := time.Now().Add(10 * time.Second); ; {
		if meta, err = cl.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}}); err != nil {
			return 0, fmt.Errorf("metadata: %w", err)
		}
		if len(meta.Topics) == 1 && meta.Topics[0].Error == nil || time.Now().After(deadline) {
			break
		}
	}
	gone, err := cl.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err == nil {
		err = gone.Errors[topic]
	}
	return len(meta.Topics[0].Partitions), err
}
