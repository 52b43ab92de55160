//go:build hostile

package hostile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience bounds every wait for an answer.
const patience = 20 * time.Second

// client speaks Kafka over one connection, one request at a time.
type client struct {
	net.Conn
	id   string // client id
	corr int32
}

func dial(addr string) (*client, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &client{Conn: c, id: "hostile"}, nil
}

// dial opens a connection that ends with the test.
func (r *rig) dial(t testing.TB) *client {
	t.Helper()
	c, err := dial(r.Addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// header is a request's header with a client id of any bytes.
func header(key, version int16, corr int32, id string, flexible bool) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	b = binary.BigEndian.AppendUint16(b, uint16(len(id)))
	b = append(b, id...)
	if flexible {
		b = append(b, 0)
	}
	return b
}

// encode is a request without its length.
func encode(req kmsg.Request, corr int32, id string) []byte {
	return req.AppendTo(header(req.Key(), req.GetVersion(), corr, id, req.IsFlexible()))
}

func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// at sets a request's version.
func at[R kmsg.Request](version int16, req R) R {
	req.SetVersion(version)
	return req
}

func (c *client) send(req kmsg.Request) error {
	c.corr++
	_ = c.SetWriteDeadline(time.Now().Add(patience))
	_, err := c.Write(framed(encode(req, c.corr, c.id)))
	return err
}

// recv reads the answer to req.
func (c *client) recv(req kmsg.Request) (kmsg.Response, error) {
	b, err := c.frame(patience)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if len(b) < 4 {
		return nil, fmt.Errorf("answer of %d bytes", len(b))
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != c.corr {
		return nil, fmt.Errorf("answer to request %d, not %d", got, c.corr)
	}
	b = b[4:]
	if resp.IsFlexible() && resp.Key() != 18 {
		b = b[1:]
	}
	return resp, resp.ReadFrom(b)
}

// frame reads one frame.
func (c *client) frame(limit time.Duration) ([]byte, error) {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	var n [4]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	_, err := io.ReadFull(c, b)
	return b, err
}

// closed wants the server to end the connection without another byte.
func (c *client) closed(t testing.TB, what string) {
	t.Helper()
	if err := c.end(patience); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// end waits for the end of the connection; a byte before it, or none in time, is
// an error.
func (c *client) end(limit time.Duration) error {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	n, err := c.Read(make([]byte, 64))
	switch {
	case n > 0:
		return errors.New("answered")
	case errors.Is(err, io.EOF):
		return nil
	}
	if ne := (net.Error)(nil); errors.As(err, &ne) && ne.Timeout() {
		return fmt.Errorf("still open after %v", limit)
	}
	return nil // reset, because it had more to read
}

// ask sends a request and wants its answer.
func ask[R kmsg.Response](t testing.TB, c *client, req kmsg.Request) R {
	t.Helper()
	if err := c.send(req); err != nil {
		t.Fatalf("%s v%d: send: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	resp, err := c.recv(req)
	if err != nil {
		t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp.(R)
}

// create makes a topic.
func (c *client) create(t testing.TB, name string, partitions int32, configs ...string) {
	t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(configs); i += 2 {
		topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: configs[i], Value: &configs[i+1]})
	}
	req := at(7, kmsg.NewPtrCreateTopicsRequest())
	req.TimeoutMillis, req.Topics = 60_000, append(req.Topics, topic)
	resp := ask[*kmsg.CreateTopicsResponse](t, c, req)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		t.Fatalf("create %s: error %d", name, code)
	}
}

// part is one partition of a produce and its records.
type part struct {
	topic   string
	n       int32
	records []byte
}

// produce makes a request, one topic entry for each part.
func produce(version int16, acks int16, parts ...part) *kmsg.ProduceRequest {
	req := at(version, kmsg.NewPtrProduceRequest())
	req.Acks, req.TimeoutMillis = acks, 10_000
	for _, p := range parts {
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = p.topic
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p.n, p.records
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// codes are the error codes of a produce's answer, in its order.
func codes(resp *kmsg.ProduceResponse) []int16 {
	var cs []int16
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			cs = append(cs, rp.ErrorCode)
		}
	}
	return cs
}

// produced sends parts and wants these codes.
func (c *client) produced(t testing.TB, what string, version int16, want []int16, parts ...part) {
	t.Helper()
	got := codes(ask[*kmsg.ProduceResponse](t, c, produce(version, -1, parts...)))
	if !slices.Equal(got, want) {
		t.Errorf("%s v%d: codes %v, want %v", what, version, got, want)
	}
}

// fetch makes a request for one partition.
func fetch(version int16, topic string, partition int32, offset int64, maxBytes int32, wait time.Duration) *kmsg.FetchRequest {
	req := at(version, kmsg.NewPtrFetchRequest())
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, int32(wait.Milliseconds()), 1, maxBytes, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = partition, offset, maxBytes, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}
