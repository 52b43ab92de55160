package scale

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/testkit"
	"github.com/hanzoai/stream/types"
)

// client is one connection to the Kafka port, one request at a time.
type client struct {
	net.Conn
	id int32
}

// patience bounds every wait for an answer.
const patience = time.Minute

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{Conn: c}
}

// ask sends a request and reads its answer.
func ask[R kmsg.Response](t *testing.T, c *client, version int16, req kmsg.Request) R {
	t.Helper()
	req.SetVersion(version)
	resp, err := c.do(req)
	if err != nil {
		t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return resp.(R)
}

func (c *client) do(req kmsg.Request) (kmsg.Response, error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	c.id++
	if _, err := c.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("scale")).AppendRequest(nil, req, c.id)); err != nil {
		return nil, err
	}
	var n [4]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != c.id {
		return nil, fmt.Errorf("answer to request %d instead of %d", got, c.id)
	}
	b = b[4:]
	if req.IsFlexible() {
		b = b[1:]
	}
	resp := req.ResponseKind()
	return resp, resp.ReadFrom(b)
}

// create makes a topic and lists its partitions.
func (c *client) create(t *testing.T, name string, partitions int) []target {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(patience.Milliseconds())
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, int32(partitions), 1
	req.Topics = append(req.Topics, rt)
	made := ask[*kmsg.CreateTopicsResponse](t, c, 7, req).Topics[0]
	if made.ErrorCode != 0 {
		t.Fatalf("create %s: code %d", name, made.ErrorCode)
	}
	to := make([]target, partitions)
	for n := range to {
		to[n] = target{topic: name, id: types.TopicID(made.TopicID), n: int32(n)}
	}
	return to
}

// producer asks for a producer id.
func (c *client) producer(t *testing.T) int64 {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	resp := ask[*kmsg.InitProducerIDResponse](t, c, 4, req)
	if resp.ErrorCode != 0 {
		t.Fatalf("producer id: code %d", resp.ErrorCode)
	}
	return resp.ProducerID
}

// produce sends the next batch of each series to a partition of one topic, and
// wants it stored behind what the series has sent.
func (c *client) produce(t *testing.T, to []target, ss []*series) {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = to[0].topic
	want := map[int32]int64{}
	for i, g := range to {
		rp := kmsg.NewProduceRequestTopicPartition()
		want[g.n] = int64(ss[i].records)
		rp.Partition, rp.Records = g.n, ss[i].next()
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	got := ask[*kmsg.ProduceResponse](t, c, 9, req).Topics[0].Partitions
	if len(got) != len(to) {
		t.Fatalf("produce to %d partitions of %s: %d answers", len(to), to[0].topic, len(got))
	}
	for _, p := range got {
		if p.ErrorCode != 0 || p.BaseOffset != want[p.Partition] {
			t.Fatalf("produce to %s-%d: code %d, offset %d instead of %d", to[0].topic, p.Partition, p.ErrorCode, p.BaseOffset, want[p.Partition])
		}
	}
}

// fetch reads from an offset of each partition of one topic and wants the
// records that the generator has put there.
func (c *client) fetch(t *testing.T, to []target, ss []*series, at []int64, each int32) {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 0, 1, 64<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = to[0].topic
	for i, g := range to {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = g.n, at[i], each, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp := ask[*kmsg.FetchResponse](t, c, 11, req)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != len(to) {
		t.Fatalf("fetch of %d partitions of %s: code %d, %d topics", len(to), to[0].topic, resp.ErrorCode, len(resp.Topics))
	}
	for i, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 || p.HighWatermark != int64(ss[i].records) {
			t.Fatalf("fetch %s-%d at %d: code %d, high watermark %d instead of %d", to[0].topic, p.Partition, at[i], p.ErrorCode, p.HighWatermark, ss[i].records)
		}
		b, _, err := serde.ParseBatch(p.RecordBatches)
		if err != nil {
			t.Fatalf("fetch %s-%d at %d: %d bytes: %v", to[0].topic, p.Partition, at[i], len(p.RecordBatches), err)
		}
		if !b.ChecksumOK() || b.BaseOffset() != at[i]-at[i]%perMessage || b.BaseTimestamp() != ss[i].first.UnixMilli()+b.BaseOffset() {
			t.Fatalf("fetch %s-%d at %d: a batch at %d of %d, checksum %v", to[0].topic, p.Partition, at[i], b.BaseOffset(), b.BaseTimestamp(), b.ChecksumOK())
		}
	}
}

// listed asks for the first offset with a timestamp not before at, -1 for the
// end.
func (c *client) listed(t *testing.T, to target, at int64) (offset int64, code int16) {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = to.topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = to.n, at, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	p := ask[*kmsg.ListOffsetsResponse](t, c, 5, req).Topics[0].Partitions[0]
	return p.Offset, p.ErrorCode
}

// offsetAt is listed without an error.
func (c *client) offsetAt(t *testing.T, to target, at int64) int64 {
	t.Helper()
	offset, code := c.listed(t, to, at)
	if code != 0 {
		t.Fatalf("offset of %s-%d at %d: code %d", to.topic, to.n, at, code)
	}
	return offset
}

// join makes the client the one member of a group, up to its assignment.
func (c *client) join(t *testing.T, group, topic string) {
	t.Helper()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = group, 30_000, 30_000, "consumer"
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{topic}
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: meta.AppendTo(nil)}}
	resp := ask[*kmsg.JoinGroupResponse](t, c, 7, join)
	if resp.ErrorCode == 79 { // MEMBER_ID_REQUIRED
		join.MemberID = resp.MemberID
		resp = ask[*kmsg.JoinGroupResponse](t, c, 7, join)
	}
	if resp.ErrorCode != 0 {
		t.Fatalf("join: code %d", resp.ErrorCode)
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = group, resp.Generation, resp.MemberID
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: resp.MemberID, MemberAssignment: []byte{0, 0, 0, 0, 0, 0}}}
	if code := ask[*kmsg.SyncGroupResponse](t, c, 4, sync).ErrorCode; code != 0 {
		t.Fatalf("sync: code %d", code)
	}
}

// gateway is a stream process under watch.
type gateway struct {
	*testkit.Stream
	started time.Time
}

// launch starts a gateway that has never run, or stopped, on these options and
// returns when it is ready, with the time that took.
func launch(t *testing.T, o testkit.Options) (*gateway, time.Duration) {
	t.Helper()
	o.Args = slices.Concat(o.Args, []string{"--group-initial-rebalance-delay-ms", "0"})
	testkit.Binary(t) // building it is not part of a start
	begin := time.Now()
	s := testkit.Start(t, o)
	return &gateway{Stream: s, started: begin}, time.Since(begin)
}

// memory is the resident memory of the process, now and at most, in bytes.
func (g *gateway) memory(t *testing.T) (now, peak int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.Process().Pid()))
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "VmRSS:":
			now = n << 10
		case "VmHWM:":
			peak = n << 10
		}
	}
	return now, peak
}

// read is the number of bytes received from the store so far.
func (g *gateway) read(t *testing.T) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.Admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	sum, found := 0.0, false
	for s := bufio.NewScanner(res.Body); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), "} "); ok && strings.HasPrefix(name, "stream_nats_received_bytes_total{") {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum, found = sum+n, true
		}
	}
	if !found {
		t.Fatal("no stream_nats_received_bytes_total in /metrics")
	}
	return int(sum)
}

// timed runs one step and reports its time and the bytes it read from the store.
func (g *gateway) timed(t *testing.T, what string, step func()) (bytes int) {
	t.Helper()
	before := g.read(t)
	begin := time.Now()
	step()
	took := time.Since(begin)
	bytes = g.read(t) - before
	promise(t, what, took, fmt.Sprintf("%d bytes read from the store", bytes))
	return bytes
}
