package protocol

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/types"
)

// errStore is a failure: not one of Kafka's errors.
var errStore = errors.New("stream kafka-orders-0 at 10.0.0.7 did not answer")

// stub is a backend whose answers a test writes down. A call that the test did
// not expect panics.
type stub struct {
	Backend // nil: what is not below is not expected

	nodes       []Node
	controller  int32
	coordinator func(group string) int32

	topics   []*topic.Topic
	topicErr error // instead of any topic

	create  func(ctx context.Context, s topic.Spec) (*topic.Topic, error)
	delete  func(ctx context.Context, t *topic.Topic) error
	configs []topic.ConfigValue // of every topic
	broker  []topic.ConfigValue
	cluster []topic.ConfigValue

	alterTopic  func(t *topic.Topic, a topic.Alteration) error
	alterBroker func(id string, a topic.Alteration) error
	alterGroup  func(name string, a topic.Alteration) error
	alterMetric func(name string, a topic.Alteration) error
	grow        func(t *topic.Topic, g topic.Growth) error
	late        func() bool  // whether the gateway stood still; nil: never
	newest      *topic.Topic // instead of the one that is known

	producerID func() (int64, error)
	groups     stubGroups
	txns       stubTransactions

	copies func(t *topic.Topic, partition int32) partition.Copies // nil: one

	space func() (Space, error)
	sizes func([]*topic.Topic) ([][]int64, error)
}

// stubGroups has a function per call.
type stubGroups struct {
	join      func(group.JoinRequest) group.JoinResponse
	sync      func(group.SyncRequest) group.SyncResponse
	heartbeat func(group.Membership) error
	leave     func(string, []group.LeaveMember) group.LeaveResponse
	commit    func(group.CommitRequest) group.CommitResponse
	fetch     func(group.FetchRequest) group.FetchResponse
	describe  func(string) group.Description
	list      func(states, types []string) ([]group.Listing, error)
	delete    func(string) error
	forget    func(string, []types.TopicPartition) group.DeleteOffsetsResponse
}

// stubTransactions has a function per call.
type stubTransactions struct {
	init          func(txn.InitRequest) txn.InitResponse
	addPartitions func(txn.AddPartitionsRequest) txn.AddPartitionsResponse
	addOffsets    func(txn.AddOffsetsRequest) txn.AddOffsetsResponse
	end           func(txn.EndRequest) txn.EndResponse
	describe      func(string) txn.Description
	list          func(txn.ListRequest) ([]txn.Listing, error)
}

// Unbroken says that the gateway lives on, unless late is set.
func (s *stub) Unbroken() func(context.Context) bool {
	return func(context.Context) bool { return s.late == nil || !s.late() }
}

func (s *stub) ClusterID() string { return "clusterclusterclusterc" }
func (s *stub) Brokers() Brokers {
	return Brokers{Nodes: s.nodes, Self: 1, Controller: s.controller, Replicas: func(types.TopicID, int32, int) []int32 { return []int32{1} }}
}

func (s *stub) Coordinator(g string) int32              { return s.coordinator(g) }
func (s *stub) Groups() Groups                          { return s.groups }
func (s *stub) Transactions() Transactions              { return s.txns }
func (s *stub) TxnCoordinator(id string) int32          { return s.coordinator("txn " + id) }
func (s *stub) BrokerConfigs(int32) []topic.ConfigValue { return s.broker }

func (s *stub) ClusterConfigs() []topic.ConfigValue { return s.cluster }

func (s *stub) RefreshConfigs(context.Context, []string)       {}
func (s *stub) RefreshCopies(context.Context, ...*topic.Topic) {}
func (s *stub) Copies(t *topic.Topic, n int32) partition.Copies {
	if s.copies != nil {
		return s.copies(t, n)
	}
	return partition.Copies{Replicas: 1, InSync: 1}
}

func (s *stub) AlterTopic(_ context.Context, t *topic.Topic, a topic.Alteration) error {
	return s.alterTopic(t, a)
}

func (s *stub) AlterGroup(_ context.Context, name string, a topic.Alteration) error {
	return s.alterGroup(name, a)
}

func (s *stub) AlterMetrics(_ context.Context, name string, a topic.Alteration) error {
	return s.alterMetric(name, a)
}

func (s *stub) GroupConfigs(name string) []topic.ConfigValue {
	return []topic.ConfigValue{{Name: "of.group", Value: name, Source: topic.FromGroup, Type: 2}}
}

func (s *stub) MetricsConfigs(name string) []topic.ConfigValue {
	return []topic.ConfigValue{{Name: "of.metrics", Value: name, Source: topic.FromMetrics, Type: 2}}
}

func (s *stub) Configured() (groups, metrics []string) { return []string{"g1", "g2"}, []string{"m"} }

func (s *stub) AlterBroker(_ context.Context, id string, a topic.Alteration) error {
	return s.alterBroker(id, a)
}

func (s *stub) GrowTopic(_ context.Context, t *topic.Topic, g topic.Growth) error {
	return s.grow(t, g)
}

func (s *stub) NewestTopic(_ context.Context, t *topic.Topic) (*topic.Topic, error) {
	if s.newest != nil {
		return s.newest, nil
	}
	return t, nil
}

func (s *stub) TopicConfigs(*topic.Topic) []topic.ConfigValue { return s.configs }

func (s *stub) Topic(_ context.Context, name string) (*topic.Topic, error) {
	if s.topicErr != nil {
		return nil, s.topicErr
	}
	for _, t := range s.topics {
		if t.Name == name {
			return t, nil
		}
	}
	return nil, refuse(kerr.UnknownTopicOrPartition, "There is no topic %q.", name)
}

func (s *stub) TopicByID(_ context.Context, id types.TopicID) (*topic.Topic, error) {
	if s.topicErr != nil {
		return nil, s.topicErr
	}
	for _, t := range s.topics {
		if t.ID == id {
			return t, nil
		}
	}
	return nil, fmt.Errorf("look up topic %v: %w", id, kerr.UnknownTopicID)
}

func (s *stub) CreateTopic(ctx context.Context, spec topic.Spec) (*topic.Topic, error) {
	return s.create(ctx, spec)
}
func (s *stub) DeleteTopic(ctx context.Context, t *topic.Topic) error { return s.delete(ctx, t) }
func (s *stub) ProducerID(context.Context) (int64, error)             { return s.producerID() }

func (s *stub) Space(context.Context) (Space, error) { return s.space() }
func (s *stub) Sizes(_ context.Context, ts []*topic.Topic) ([][]int64, error) {
	return s.sizes(ts)
}

// Code is what a broker says, in short.
func (s *stub) Code(err error, group bool) int16 {
	k := (*kerr.Error)(nil)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &k):
		return k.Code
	case errors.Is(err, context.DeadlineExceeded):
		return kerr.RequestTimedOut.Code
	case group:
		return kerr.CoordinatorNotAvailable.Code
	}
	return kerr.KafkaStorageError.Code
}

func (g stubGroups) Join(_ context.Context, r group.JoinRequest) group.JoinResponse { return g.join(r) }
func (g stubGroups) Sync(_ context.Context, r group.SyncRequest) group.SyncResponse { return g.sync(r) }
func (g stubGroups) Heartbeat(_ context.Context, m group.Membership) error          { return g.heartbeat(m) }
func (g stubGroups) Leave(_ context.Context, name string, m []group.LeaveMember) group.LeaveResponse {
	return g.leave(name, m)
}
func (g stubGroups) Commit(_ context.Context, r group.CommitRequest) group.CommitResponse {
	return g.commit(r)
}
func (g stubGroups) Fetch(_ context.Context, r group.FetchRequest) group.FetchResponse {
	return g.fetch(r)
}
func (g stubGroups) Describe(_ context.Context, name string) group.Description {
	return g.describe(name)
}
func (g stubGroups) List(_ context.Context, states, types []string) ([]group.Listing, error) {
	return g.list(states, types)
}
func (g stubGroups) Delete(_ context.Context, name string) error { return g.delete(name) }
func (g stubGroups) DeleteOffsets(_ context.Context, name string, ps []types.TopicPartition) group.DeleteOffsetsResponse {
	return g.forget(name, ps)
}

func (x stubTransactions) Init(_ context.Context, r txn.InitRequest) txn.InitResponse {
	return x.init(r)
}
func (x stubTransactions) AddPartitions(_ context.Context, r txn.AddPartitionsRequest) txn.AddPartitionsResponse {
	return x.addPartitions(r)
}
func (x stubTransactions) AddOffsets(_ context.Context, r txn.AddOffsetsRequest) txn.AddOffsetsResponse {
	return x.addOffsets(r)
}
func (x stubTransactions) End(_ context.Context, r txn.EndRequest) txn.EndResponse { return x.end(r) }
func (x stubTransactions) Describe(_ context.Context, id string) txn.Description {
	return x.describe(id)
}
func (x stubTransactions) List(_ context.Context, r txn.ListRequest) ([]txn.Listing, error) {
	return x.list(r)
}

// stubTopic makes a topic whose id begins with n.
func stubTopic(n byte, name string, partitions int32) *topic.Topic {
	return &topic.Topic{Name: name, ID: types.TopicID{n, 15: 1}, Partitions: partitions, Replicas: 1}
}

// asked sends a request through its bytes, as a client does, and gives the
// answer as that client reads it.
func asked[R kmsg.Response](t *testing.T, b Backend, row *api, version int16, req kmsg.Request) R {
	t.Helper()
	if req.Key() != row.key {
		t.Fatalf("row of key %d asked with a request of key %d", row.key, req.Key())
	}
	req.SetVersion(version)
	got := kmsg.RequestForKey(row.key)
	got.SetVersion(version)
	if err := got.ReadFrom(req.AppendTo(nil)); err != nil {
		t.Fatalf("v%d: decode the request: %v", version, err)
	}
	h := &handler{backend: b}
	resp, err := row.serve(h, t.Context(), &request{Request: got, conn: &conn{host: "10.1.2.3"}, clientID: "me"})
	if err != nil {
		t.Fatalf("v%d: no answer: %v", version, err)
	}
	if resp.Key() != row.key {
		t.Fatalf("v%d: answer of key %d", version, resp.Key())
	}
	resp.SetVersion(version)
	back := kmsg.ResponseForKey(row.key)
	back.SetVersion(version)
	if err := back.ReadFrom(resp.AppendTo(nil)); err != nil {
		t.Fatalf("v%d: decode the answer: %v", version, err)
	}
	return back.(R)
}

// versions runs a test for each version of an API.
func versions(t *testing.T, row *api, f func(t *testing.T, v int16)) {
	t.Helper()
	for v := row.min; v <= row.max; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) { f(t, v) })
	}
}

// same compares, nil and empty being two things, unexported fields included.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func ptr[T any](v T) *T { return &v }
