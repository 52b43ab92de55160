package main

import (
	"context"
	bigendian "encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// world is one store in memory with whole gateways on it: wire, broker, all.
type world struct {
	t      *testing.T
	server *memory.Server
	args   []string
	nodes  []*node
	// wrap, if set, is what the next gateways see of the store.
	wrap func(pubsub.Store) pubsub.Store
}

// node is one gateway and a connection to it.
type node struct {
	t       *testing.T
	gateway gateway
	store   *memory.Client
	addr    string
	conn    net.Conn
	corr    int32
	served  chan error
	dead    bool
}

// newWorld has n gateways. Several on one store are external to it.
func newWorld(t *testing.T, n int, args ...string) *world {
	t.Helper()
	return newWorldOn(t, 1, n, args...)
}

// newWorldOn is newWorld on a store of so many servers.
func newWorldOn(t *testing.T, servers, n int, args ...string) *world {
	t.Helper()
	w := &world{t: t, server: memory.NewServer(memory.Config{MaxReplicas: servers}),
		args: append([]string{"--pubsub-url", "nats://127.0.0.1:4222", "--group-initial-rebalance-delay-ms", "0"}, args...)}
	for range n {
		w.start()
	}
	return w
}

// start adds a gateway.
func (w *world) start() *node {
	w.t.Helper()
	l := loadWith(w.t, w.args, nil)
	if len(l.problems) > 0 {
		w.t.Fatal(l.problems)
	}
	l.resolve(readMemory())
	n := &node{t: w.t, store: w.server.Client(memory.Faults{}), served: make(chan error, 1)}
	w.t.Cleanup(n.kill)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	n.addr = ln.Addr().String()
	seen := pubsub.Store(n.store)
	if w.wrap != nil {
		seen = w.wrap(seen)
	}
	if n.gateway, err = openGateway(w.t.Context(), l, seen, advertised{Host: "127.0.0.1", Port: int32(portOf(ln))}, logging.Discard(), prometheus.NewRegistry(), func(string) {}, nil); err != nil {
		w.t.Fatal(err)
	}
	go func() { n.served <- n.gateway.Serve(context.Background(), ln) }()
	w.nodes = append(w.nodes, n)
	return n
}

// kill ends a gateway as SIGKILL does, as far as the store can tell.
func (n *node) kill() {
	if n.dead {
		return
	}
	n.dead = true
	if n.conn != nil {
		_ = n.conn.Close()
	}
	n.store.Disconnect()
	if n.gateway != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.gateway.Shutdown(ctx)
		n.gateway.Close(ctx)
		if err := <-n.served; err != nil {
			n.t.Errorf("serve: %v", err)
		}
	}
	n.store.Close()
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("tester"))

// ask sends one request in a version and gives its answer.
func ask[R kmsg.Response](n *node, version int16, req kmsg.Request) R {
	n.t.Helper()
	if n.conn == nil {
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			n.t.Fatal(err)
		}
		n.conn = c
	}
	_ = n.conn.SetDeadline(time.Now().Add(30 * time.Second))
	req.SetVersion(version)
	n.corr++
	if _, err := n.conn.Write(formatter.AppendRequest(nil, req, n.corr)); err != nil {
		n.t.Fatalf("send: %v", err)
	}
	var head [8]byte
	if _, err := io.ReadFull(n.conn, head[:]); err != nil {
		n.t.Fatalf("receive: %v", err)
	}
	b := make([]byte, bigendian.BigEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(n.conn, b); err != nil {
		n.t.Fatalf("receive: %v", err)
	}
	if got := int32(bigendian.BigEndian.Uint32(head[4:])); got != n.corr {
		n.t.Fatalf("answer to %d, not to %d", got, n.corr)
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != 18 {
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		n.t.Fatalf("decode: %v", err)
	}
	return resp.(R)
}

// create makes a topic and gives its code and id.
func (n *node) create(name string, partitions int32) (int16, types.TopicID) {
	n.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, -1
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 30_000
	st := ask[*kmsg.CreateTopicsResponse](n, 7, req).Topics[0]
	return st.ErrorCode, st.TopicID
}

func (n *node) mustCreate(name string, partitions int32) types.TopicID {
	n.t.Helper()
	code, id := n.create(name, partitions)
	if code != 0 {
		n.t.Fatalf("create %s: %d", name, code)
	}
	return id
}

func (n *node) deleteTopic(name string) {
	n.t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames, req.TimeoutMillis = []string{name}, 30_000
	if st := ask[*kmsg.DeleteTopicsResponse](n, 5, req).Topics[0]; st.ErrorCode != 0 {
		n.t.Fatalf("delete %s: %d", name, st.ErrorCode)
	}
}

// metadata asks for one topic by name, or for all if name is "".
func (n *node) metadata(version int16, name string, create bool) []kmsg.MetadataResponseTopic {
	n.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = create
	if name != "" {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &name
		req.Topics = append(req.Topics, rt)
	}
	return ask[*kmsg.MetadataResponse](n, version, req).Topics
}

// produce appends a batch to partition 0, by name and with acks −1.
func (n *node) produce(version int16, topic string, batch []byte) kmsg.ProduceResponseTopicPartition {
	n.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rt.Topic, rp.Records = topic, batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.ProduceResponse](n, version, req).Topics[0].Partitions[0]
}

func (n *node) mustProduce(topic string, batch []byte) int64 {
	n.t.Helper()
	sp := n.produce(9, topic, batch)
	if sp.ErrorCode != 0 {
		n.t.Fatalf("produce to %s: %d", topic, sp.ErrorCode)
	}
	return sp.BaseOffset
}

// fetch reads partition 0 from an offset; from v13 by id.
func (n *node) fetch(version int16, topic string, id types.TopicID, offset int64) kmsg.FetchResponseTopicPartition {
	n.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MinBytes, req.MaxBytes = -1, 1, 1<<20
	rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	rt.Topic, rt.TopicID = topic, id
	rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = offset, 1<<20, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.FetchResponse](n, version, req).Topics[0].Partitions[0]
}

// list asks ListOffsets of partition 0.
func (n *node) list(version int16, topic string, at int64) kmsg.ListOffsetsResponseTopicPartition {
	n.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	rt.Topic, rp.Timestamp, rp.CurrentLeaderEpoch = topic, at, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.ListOffsetsResponse](n, version, req).Topics[0].Partitions[0]
}

// commit stores an offset of partition 0 from outside the group, through
// whichever gateway owns it, as clients do.
func (w *world) commit(group, topic string, offset int64, epoch int32) (code int16) {
	w.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	rt, rp := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	rt.Topic, rp.Offset, rp.LeaderEpoch = topic, offset, epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	w.owner(func(n *node) int16 {
		code = ask[*kmsg.OffsetCommitResponse](n, 8, req).Topics[0].Partitions[0].ErrorCode
		return code
	})
	return code
}

// committed asks OffsetFetch of partition 0, in the form of one group.
func (w *world) committed(version int16, group, topic string) (sp kmsg.OffsetFetchResponseTopicPartition) {
	w.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, rt)
	w.owner(func(n *node) int16 {
		resp := ask[*kmsg.OffsetFetchResponse](n, version, req)
		if resp.ErrorCode == 0 {
			sp = resp.Topics[0].Partitions[0]
		}
		return resp.ErrorCode
	})
	return sp
}

// owner asks the gateways in turn until one answers for the group.
func (w *world) owner(ask func(*node) int16) {
	w.t.Helper()
	turn := 0
	eventually(w.t, "a gateway that owns the group", func() bool {
		for turn++; w.nodes[turn%len(w.nodes)].dead; turn++ {
		}
		switch code := ask(w.nodes[turn%len(w.nodes)]); code {
		case kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code:
			return false
		default:
			return true
		}
	})
}

// records is a batch of n records with a value; pid 0 means not idempotent.
func records(pid int64, seq int32, n int, value string) []byte {
	f := serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	if pid != 0 {
		f = serde.BatchFields{ProducerID: pid, BaseSequence: seq}
	}
	rs := make([]serde.NewRecord, n)
	for i := range rs {
		rs[i] = serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Key: []byte("k"), Value: []byte(value)}
	}
	return serde.Build(f, rs)
}

// batches splits what a fetch returned.
func batches(t *testing.T, sp kmsg.FetchResponseTopicPartition) (all []serde.Batch) {
	t.Helper()
	if sp.ErrorCode != 0 {
		t.Fatalf("fetch: %d", sp.ErrorCode)
	}
	for rest := sp.RecordBatches; len(rest) > 0; {
		b, next, err := serde.ParseBatch(rest)
		if err != nil || !b.ChecksumOK() {
			t.Fatal(errors.Join(err, errors.New("a batch that cannot be read")))
		}
		all, rest = append(all, b), next
	}
	return all
}

// TestAlone: only a gateway whose store nobody else reaches may take over at once
// what others owned.
func TestAlone(t *testing.T) {
	for _, c := range []struct {
		args  []string
		alone bool
	}{
		{nil, true},
		{[]string{"--nats-listen", "127.0.0.1:4222"}, false},
		{[]string{"--pubsub-url", "nats://127.0.0.1:4222"}, false},
		{[]string{"--cluster-listen", "127.0.0.1:6222", "--cluster-peers", "127.0.0.1:6222,127.0.0.1:6223,127.0.0.1:6224", "--cluster-name", "n1"}, false},
	} {
		l := loadWith(t, c.args, nil)
		if got := l.brokerConfig(advertised{}).Cluster.Alone; got != c.alone {
			t.Errorf("%v: alone is %v", c.args, got)
		}
	}
}
