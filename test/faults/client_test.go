package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/serde"
)

// client is one connection to the Kafka port, with one request at a time and
// no retries: a test sees every code.
//
// Several addresses, comma separated, are those of several gateways: the next one
// is tried when a connection fails.
type client struct {
	addr string
	c    net.Conn
	id   int32
}

// patience is how long an answer may take: above what any client waits.
const patience = 45 * time.Second

func (c *client) close() {
	if c.c != nil {
		c.c.Close()
		c.c = nil
	}
}

// turn puts the next address first.
func (c *client) turn() {
	if first, rest, several := strings.Cut(c.addr, ","); several {
		c.addr = rest + "," + first
	}
}

// do sends a request whose version is set and reads its answer. After an error
// the next call connects anew.
func (c *client) do(ctx context.Context, req kmsg.Request) (resp kmsg.Response, err error) {
	if c.c == nil {
		first, _, _ := strings.Cut(c.addr, ",")
		if c.c, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", first); err != nil {
			c.c = nil
			c.turn()
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			c.close()
			c.turn()
		}
	}()
	defer context.AfterFunc(ctx, func(cn net.Conn) func() { return func() { cn.Close() } }(c.c))()
	if err := c.c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	c.id++
	if _, err := c.c.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("faults")).AppendRequest(nil, req, c.id)); err != nil {
		return nil, err
	}
	var n [4]byte
	if _, err := io.ReadFull(c.c, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	if _, err := io.ReadFull(c.c, b); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != c.id {
		return nil, fmt.Errorf("answer to request %d instead of %d", got, c.id)
	}
	b = b[4:]
	if req.IsFlexible() {
		if b[0] != 0 {
			return nil, errors.New("tags in a response header")
		}
		b = b[1:]
	}
	resp = req.ResponseKind()
	return resp, resp.ReadFrom(b)
}

// must is do for set-up.
func must[R kmsg.Response](t *testing.T, c *client, req kmsg.Request, version int16) R {
	t.Helper()
	req.SetVersion(version)
	resp, err := c.do(t.Context(), req)
	if err != nil {
		t.Fatalf("request %d: %v", req.Key(), err)
	}
	return resp.(R)
}

func createTopic(t *testing.T, addr, name string, partitions int32) {
	t.Helper()
	createWith(t, addr, name, partitions, nil)
}

// createWith makes a topic with configs.
func createWith(t *testing.T, addr, name string, partitions int32, configs map[string]string) {
	t.Helper()
	c := &client{addr: addr}
	defer c.close()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 20_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, -1
	for k, v := range configs {
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = k, &v
		rt.Configs = append(rt.Configs, rc)
	}
	req.Topics = append(req.Topics, rt)
	if code := must[*kmsg.CreateTopicsResponse](t, c, req, 5).Topics[0].ErrorCode; code != 0 {
		t.Fatalf("create topic %s: code %d", name, code)
	}
}

// producerID asks for an id until there is one.
func producerID(ctx context.Context, c *client) (int64, int16, error) {
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.SetVersion(4)
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := c.do(ctx, req)
		if err == nil {
			if r := resp.(*kmsg.InitProducerIDResponse); r.ErrorCode == 0 {
				return r.ProducerID, r.ProducerEpoch, nil
			}
		}
		if !backoff(ctx) {
			return 0, 0, ctx.Err()
		}
	}
}

// backoff is what clients wait before they try again.
func backoff(ctx context.Context) bool {
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// produce sends one batch. code is −1 with an error of the connection.
func (c *client) produce(ctx context.Context, topic string, partition int32, batch serde.Batch) (code int16, base int64, err error) {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	req.Acks, req.TimeoutMillis = -1, 30_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := c.do(ctx, req)
	if err != nil {
		return -1, -1, err
	}
	sp := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return sp.ErrorCode, sp.BaseOffset, nil
}

// fetched is one answer for one partition.
type fetched struct {
	code      int16
	hw, start int64
	records   []record
}

type record struct {
	offset int64
	value  string
}

func (c *client) fetch(ctx context.Context, topic string, partition int32, from int64, wait time.Duration) (fetched, error) {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(11)
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, int32(wait.Milliseconds()), 1, 4<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, from, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := c.do(ctx, req)
	if err != nil {
		return fetched{}, err
	}
	r := resp.(*kmsg.FetchResponse)
	if r.ErrorCode != 0 {
		return fetched{code: r.ErrorCode}, nil
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return fetched{}, errors.New("fetch: the partition is not in the answer")
	}
	sp := r.Topics[0].Partitions[0]
	f := fetched{code: sp.ErrorCode, hw: sp.HighWatermark, start: sp.LogStartOffset}
	for data := sp.RecordBatches; len(data) > 0; {
		b, rest, err := serde.ParseBatch(data)
		if err != nil {
			break // cut at the limit
		}
		if !b.ChecksumOK() {
			return f, fmt.Errorf("batch at %d: checksum", b.BaseOffset())
		}
		it := serde.NewRecords(b.Records(), b.Count())
		for i := int64(0); it.Next(); i++ {
			if o := b.BaseOffset() + i; o >= from {
				f.records = append(f.records, record{o, string(it.Record.Value)})
			}
		}
		if it.Err() != nil {
			return f, it.Err()
		}
		data = rest
	}
	return f, nil
}

// endOffset is the end of a partition.
func (c *client) endOffset(ctx context.Context, topic string, partition int32) (int16, int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(5)
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, -1, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := c.do(ctx, req)
	if err != nil {
		return -1, -1, err
	}
	sp := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return sp.ErrorCode, sp.Offset, nil
}

// subjectOf tells whether a NATS subject is that of a partition's log.
func subjectOf(topic string, partition int32) func(string) bool {
	suffix := fmt.Sprintf("%s.%d", topic, partition)
	return func(s string) bool { return strings.HasSuffix(s, suffix) }
}
