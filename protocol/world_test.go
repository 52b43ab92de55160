package protocol

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a backend that keeps its topics and batches in memory.
type world struct {
	stub
	autoCreate bool

	mu         sync.Mutex // guards: stub.topics, partitions
	partitions map[types.TopicPartition]*log
}

// newWorld has topics t0 (1 partition) and t1 (3).
func newWorld() *world {
	w := &world{partitions: map[types.TopicPartition]*log{}}
	w.nodes = []Node{{ID: 1, Host: "broker", Port: 9092}}
	w.controller = 1
	w.topics = []*topic.Topic{stubTopic(1, "t0", 1), stubTopic(2, "t1", 3)}
	w.coordinator = func(string) int32 { return 1 }
	w.create = func(_ context.Context, s topic.Spec) (*topic.Topic, error) {
		if s.Partitions > 100 {
			return nil, kerr.InvalidPartitions
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		t := stubTopic(byte(len(w.topics)+1), s.Name, max(s.Partitions, 4))
		w.topics = append(w.topics[:len(w.topics):len(w.topics)], t)
		return t, nil
	}
	w.delete = func(context.Context, *topic.Topic) error { return kerr.TopicAuthorizationFailed }
	w.alterTopic = func(*topic.Topic, topic.Alteration) error { return kerr.InvalidConfig }
	w.alterBroker = func(string, topic.Alteration) error { return kerr.InvalidRequest }
	w.grow = func(*topic.Topic, topic.Growth) error { return kerr.InvalidPartitions }
	w.producerID = func() (int64, error) { return 7, nil }
	unknown := kerr.UnknownMemberID
	w.groups = stubGroups{
		join:      func(group.JoinRequest) group.JoinResponse { return group.JoinResponse{Err: unknown} },
		sync:      func(group.SyncRequest) group.SyncResponse { return group.SyncResponse{Err: unknown} },
		heartbeat: func(group.Membership) error { return unknown },
		leave:     func(string, []group.LeaveMember) group.LeaveResponse { return group.LeaveResponse{Err: unknown} },
		commit:    func(group.CommitRequest) group.CommitResponse { return group.CommitResponse{Err: unknown} },
		fetch:     func(group.FetchRequest) group.FetchResponse { return group.FetchResponse{Err: kerr.NotCoordinator} },
		describe:  func(string) group.Description { return group.Description{Err: kerr.NotCoordinator} },
		list:      func(_, _ []string) ([]group.Listing, error) { return nil, nil },
		delete:    func(string) error { return kerr.GroupIDNotFound },
		forget: func(string, []types.TopicPartition) group.DeleteOffsetsResponse {
			return group.DeleteOffsetsResponse{Err: kerr.GroupIDNotFound}
		},
	}
	w.txns = stubTransactions{
		init: func(txn.InitRequest) txn.InitResponse { return txn.InitResponse{Producer: txn.Producer{ID: 7}} },
		addPartitions: func(txn.AddPartitionsRequest) txn.AddPartitionsResponse {
			return txn.AddPartitionsResponse{Err: kerr.InvalidProducerIDMapping}
		},
		addOffsets: func(txn.AddOffsetsRequest) txn.AddOffsetsResponse {
			return txn.AddOffsetsResponse{Err: kerr.InvalidProducerIDMapping}
		},
		end:      func(txn.EndRequest) txn.EndResponse { return txn.EndResponse{Err: kerr.InvalidTxnState} },
		describe: func(string) txn.Description { return txn.Description{Err: kerr.TransactionalIDNotFound} },
		list:     func(txn.ListRequest) ([]txn.Listing, error) { return nil, nil },
	}
	w.space = func() (Space, error) { return Space{Dir: "here", Total: 100, Usable: 50}, nil }
	w.sizes = func(ts []*topic.Topic) (all [][]int64, err error) {
		for _, t := range ts {
			all = append(all, make([]int64, t.Partitions))
		}
		return all, nil
	}
	return w
}

func (w *world) AutoCreate() bool { return w.autoCreate }
func (w *world) Topics(context.Context) ([]*topic.Topic, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.topics, w.topicErr
}
func (w *world) Topic(ctx context.Context, name string) (*topic.Topic, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stub.Topic(ctx, name)
}
func (w *world) TopicByID(ctx context.Context, id types.TopicID) (*topic.Topic, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stub.TopicByID(ctx, id)
}
func (w *world) Partition(_ context.Context, t *topic.Topic, n int32) (Partition, error) {
	if n < 0 || n >= t.Partitions {
		return nil, kerr.UnknownTopicOrPartition
	}
	return w.log(t.Name, n), nil
}

func (w *world) log(name string, n int32) *log {
	w.mu.Lock()
	defer w.mu.Unlock()
	tp := types.TopicPartition{Topic: name, Partition: n}
	l := w.partitions[tp]
	if l == nil {
		l = &log{waiters: map[chan<- struct{}]struct{}{}}
		w.partitions[tp] = l
	}
	return l
}

// log is a partition in memory. Its hooks, set before use, come first.
type log struct {
	onSubmit func(r partition.AppendRequest, done func(partition.AppendResult)) bool // true: it answers
	onRead   func(partition.ReadRequest)
	lend     func(*partition.ReadResult) // its batches are memory that is given back

	mu      sync.Mutex // guards: all below
	batches []serde.Batch
	end     int64
	start   types.Offset // only DeleteRecords knows it
	// producers is what Producers answers.
	producers []partition.ProducerState
	aborted   []partition.Aborted
	markers   []partition.Marker
	fail      error
	waiters   map[chan<- struct{}]struct{}
}

func (l *log) Submit(r partition.AppendRequest, done func(partition.AppendResult)) {
	if l.onSubmit != nil && l.onSubmit(r, done) {
		return
	}
	done(l.append(r.Records))
}

func (l *log) append(records []byte) partition.AppendResult {
	refused := func(k *kerr.Error, why string) partition.AppendResult {
		return partition.AppendResult{Err: k, Message: why, BaseOffset: -1, LogStart: -1, AppendTime: -1, Records: []partition.RecordError{{Index: 1, Message: "bad"}}}
	}
	b, rest, err := serde.ParseBatch(records)
	switch {
	case err != nil || len(rest) > 0:
		return refused(kerr.InvalidRecord, "one batch, please")
	case !b.ChecksumOK():
		return refused(kerr.CorruptMessage, "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return partition.AppendResult{Err: l.fail, BaseOffset: -1, LogStart: -1, AppendTime: -1}
	}
	base := l.end
	b.Stamp(base, 0)
	l.batches = append(l.batches, bytes.Clone(b))
	l.end += int64(b.LastOffsetDelta()) + 1
	for ch := range l.waiters {
		signal2(ch)
	}
	return partition.AppendResult{BaseOffset: types.Offset(base), AppendTime: -1}
}

func signal2(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (l *log) Read(_ context.Context, r partition.ReadRequest) (partition.ReadResult, error) {
	if l.onRead != nil {
		l.onRead(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return partition.ReadResult{}, l.fail
	}
	if r.Offset < 0 || int64(r.Offset) > l.end {
		return partition.ReadResult{}, kerr.OffsetOutOfRange
	}
	res := partition.ReadResult{HighWatermark: types.Offset(l.end), LastStable: types.Offset(l.end)}
	for _, b := range l.batches {
		if b.LastOffset() < int64(r.Offset) {
			continue
		}
		if res.Bytes+len(b) > r.MaxBytes && (!r.Whole || res.Bytes > 0 || r.MaxBytes <= 0) {
			break
		}
		res.Batches = append(res.Batches, b)
		res.Bytes += len(b)
	}
	if r.Committed {
		res.Aborted = append([]partition.Aborted{}, l.aborted...)
	}
	if l.lend != nil {
		l.lend(&res)
	}
	return res, nil
}

func (l *log) Available(_ context.Context, offset types.Offset, _ bool) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return 0, l.fail
	}
	if offset < 0 || int64(offset) > l.end {
		return 0, kerr.OffsetOutOfRange
	}
	n := 0
	for _, b := range l.batches {
		if b.LastOffset() >= int64(offset) {
			n += len(b)
		}
	}
	return n, nil
}

func (l *log) Notify(ch chan<- struct{}) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters[ch] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiters, ch)
	}
}

func (l *log) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiters)
}

func (l *log) Lookup(_ context.Context, r partition.LookupRequest) (partition.LookupResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	none := partition.LookupResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
	switch r.Timestamp {
	case 666:
		panic("as a test wants it")
	case partition.Latest:
		return partition.LookupResult{Offset: types.Offset(l.end), Timestamp: -1}, l.fail
	case partition.Earliest, partition.EarliestLocal:
		return partition.LookupResult{Timestamp: -1}, l.fail
	case partition.MaxTimestamp:
		for _, b := range l.batches {
			if b.MaxTimestamp() > none.Timestamp {
				none = partition.LookupResult{Offset: types.Offset(b.LastOffset()), Timestamp: b.MaxTimestamp()}
			}
		}
		return none, l.fail
	}
	for _, b := range l.batches {
		if b.MaxTimestamp() >= r.Timestamp {
			return partition.LookupResult{Offset: types.Offset(b.LastOffset()), Timestamp: b.MaxTimestamp()}, l.fail
		}
	}
	return none, l.fail
}

func (l *log) DeleteRecords(_ context.Context, to types.Offset) (types.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.fail != nil:
		return 0, l.fail
	case to == partition.HighWatermark:
		to = types.Offset(l.end)
	case to < 0 || int64(to) > l.end:
		return 0, kerr.OffsetOutOfRange
	}
	l.start = max(l.start, to)
	return l.start, nil
}

func (l *log) Producers(context.Context) ([]partition.ProducerState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers, l.fail
}

func (l *log) EndTransaction(_ context.Context, m partition.Marker) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail == nil {
		l.markers = append(l.markers, m)
	}
	return l.fail
}

// batch is a batch of one record with n bytes of value.
func batch(timestamp int64, n int) []byte {
	return serde.PlainBatch(99, timestamp, []byte("k"), bytes.Repeat([]byte("v"), n), nil)
}

// testServer is a running server on a loopback port.
type testServer struct {
	*Server
	addr string
	reg  *prometheus.Registry
}

func startServer(t *testing.T, b Backend, set func(*Config)) *testServer {
	t.Helper()
	c := DefaultConfig()
	c.QueuedMaxRequestBytes = 64 << 20
	if set != nil {
		set(&c)
	}
	reg := prometheus.NewRegistry()
	s := New(c, b, slog.New(slog.DiscardHandler), reg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if n := s.budget.held(); n != 0 {
			t.Errorf("%d request bytes are still held", n)
		}
		if n := s.handler.answers.held.Load(); n != 0 {
			t.Errorf("%d fetch bytes are still held", n)
		}
	})
	return &testServer{s, l.Addr().String(), reg}
}

// value is the sum of a metric over all its label sets that contain labels.
func (s *testServer) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	fams, err := s.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range fams {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			found := 0
			for _, want := range labels {
				for _, l := range m.GetLabel() {
					if l.GetValue() == want {
						found++
					}
				}
			}
			if found == len(labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// peer is a client that sends and reads bytes as a test wants them.
type peer struct {
	t *testing.T
	net.Conn
	corr int32
	sent map[int32]kmsg.Request
}

func (s *testServer) dial(t *testing.T) *peer {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &peer{t: t, Conn: c, sent: map[int32]kmsg.Request{}}
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("tester"))

// send writes requests, all in one piece.
func (p *peer) send(version int16, reqs ...kmsg.Request) {
	p.t.Helper()
	var b []byte
	for _, r := range reqs {
		r.SetVersion(version)
		p.corr++
		p.sent[p.corr] = r
		b = append(b, formatter.AppendRequest(nil, r, p.corr)...)
	}
	p.write(b)
}

func (p *peer) write(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

// recv reads the next answer and its correlation id.
func (p *peer) recv() (int32, kmsg.Response) {
	p.t.Helper()
	b, err := p.frame()
	if err != nil {
		p.t.Fatalf("receive: %v", err)
	}
	corr := int32(binary.BigEndian.Uint32(b))
	req := p.sent[corr]
	if req == nil {
		p.t.Fatalf("answer to an unknown request %d", corr)
	}
	delete(p.sent, corr)
	resp := req.ResponseKind()
	b = b[4:]
	if resp.IsFlexible() && resp.Key() != 18 {
		if b[0] != 0 {
			p.t.Fatalf("tag section %d", b[0])
		}
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		p.t.Fatalf("key %d v%d: decode the answer: %v", resp.Key(), resp.GetVersion(), err)
	}
	return corr, resp
}

// frame reads the next answer's bytes.
func (p *peer) frame() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(p, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(p, b)
	return b, err
}

// closed waits for the server to close the connection without another byte.
func (p *peer) closed(why string) {
	p.t.Helper()
	var b [1]byte
	n, err := p.Read(b[:])
	var timeout interface{ Timeout() bool }
	if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		p.t.Fatalf("%s: not closed: %d bytes, %v", why, n, err)
	}
}

// ask sends one request and gives its answer.
func ask[R kmsg.Response](p *peer, version int16, req kmsg.Request) R {
	p.t.Helper()
	p.send(version, req)
	_, resp := p.recv()
	return resp.(R)
}

// eventually waits for a condition that no channel tells.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// produceOf is a request with one batch for each partition of a topic.
func produceOf(w *world, topic string, acks int16, batches ...[]byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Acks = acks
	r.TimeoutMillis = 1000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	if t, err := w.stub.Topic(context.Background(), topic); err == nil {
		rt.TopicID = t.ID
	}
	for i, b := range batches {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = int32(i), b
		rt.Partitions = append(rt.Partitions, rp)
	}
	r.Topics = append(r.Topics, rt)
	return r
}

// recordsOf is a request for partitions of a topic from an offset.
func recordsOf(w *world, topic string, offset int64, partitions ...int32) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.MaxBytes, r.MinBytes, r.MaxWaitMillis = 50<<20, 1, 0
	r.ReplicaID = -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	if t, err := w.stub.Topic(context.Background(), topic); err == nil {
		rt.TopicID = t.ID
	}
	for _, n := range partitions {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = n, offset, 1<<20, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	r.Topics = append(r.Topics, rt)
	return r
}

var discard = slog.New(slog.DiscardHandler)
