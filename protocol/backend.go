package protocol

import (
	"context"
	"strconv"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/types"
)

// Node is a broker as clients see it.
type Node struct {
	ID   int32
	Host string // no brackets around IPv6; "": the address that the client has reached
	Port int32
	Rack *string
}

// Cluster tells who is there. Every API that names brokers asks it.
type Cluster interface {
	ClusterID() string
	// Brokers are who clients are told of at this moment. One answer is made
	// from one of them, so that it names nobody who is not in its list.
	Brokers() Brokers
	// Coordinator is the node that clients should ask for a group; −1 if that
	// cannot be known now.
	Coordinator(group string) int32
	// TxnCoordinator is the same for a transactional id.
	TxnCoordinator(id string) int32
}

// Brokers are the brokers that clients are told of at one moment.
type Brokers struct {
	// Nodes are all of them, by id: exactly one in shared address mode.
	Nodes []Node
	// Self is the node that this server answers as. It may be missing in Nodes
	// while it drains.
	Self int32
	// Controller is the id of a node of Nodes.
	Controller int32
	// Replicas are the nodes to name for a partition of which the store has so
	// many copies, at least one, the one that clients should ask first. The
	// caller may keep the slice.
	Replicas func(id types.TopicID, partition int32, copies int) []int32
}

// Find is the node of an id.
func (b Brokers) Find(id int32) (Node, bool) {
	for _, n := range b.Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return Node{}, false
}

func (b Brokers) knows(id int64) bool {
	_, ok := b.Find(int32(id))
	return ok && int64(int32(id)) == id
}

// ids names the nodes: "1, 2".
func (b Brokers) ids() string {
	text := ""
	for i, n := range b.Nodes {
		if i > 0 {
			text += ", "
		}
		text += strconv.Itoa(int(n.ID))
	}
	return text
}

// Topics finds and changes topics. Errors are *kerr.Error (refusals, as
// UNKNOWN_TOPIC_OR_PARTITION) or failures of the store.
type Topics interface {
	Topic(ctx context.Context, name string) (*topic.Topic, error)
	TopicByID(ctx context.Context, id types.TopicID) (*topic.Topic, error) // UNKNOWN_TOPIC_ID
	Topics(ctx context.Context) ([]*topic.Topic, error)                    // by name
	CreateTopic(ctx context.Context, s topic.Spec) (*topic.Topic, error)
	// Unbroken marks a moment in the life of this gateway; what it returns tells
	// whether nobody can have held it for dead since.
	Unbroken() func(ctx context.Context) bool
	// DeleteTopic deletes this very incarnation.
	DeleteTopic(ctx context.Context, t *topic.Topic) error
	// AutoCreate reports auto.create.topics.enable.
	AutoCreate() bool
	// TopicConfigs are all configs of a topic, by name (also of a spec that
	// was only validated).
	TopicConfigs(t *topic.Topic) []topic.ConfigValue
	// BrokerConfigs are those of one of Brokers, by name; ClusterConfigs those that
	// were set for all brokers while they ran.
	BrokerConfigs(id int32) []topic.ConfigValue
	ClusterConfigs() []topic.ConfigValue
	// RefreshConfigs takes in what the store has now of some topics' configs and
	// of the brokers'; what cannot be asked stays as it is known.
	RefreshConfigs(ctx context.Context, topics []string)
	// AlterTopic changes the configs of this very incarnation.
	AlterTopic(ctx context.Context, t *topic.Topic, a topic.Alteration) error
	// AlterBroker changes the configs of one broker, or with "" of all.
	AlterBroker(ctx context.Context, id string, a topic.Alteration) error
	// AlterGroup changes the configs of a group, AlterMetrics a subscription of
	// client metrics; GroupConfigs and MetricsConfigs are all of one, by name.
	AlterGroup(ctx context.Context, name string, a topic.Alteration) error
	AlterMetrics(ctx context.Context, name string, a topic.Alteration) error
	GroupConfigs(name string) []topic.ConfigValue
	MetricsConfigs(name string) []topic.ConfigValue
	// Configured names those for which configs were set.
	Configured() (groups, metrics []string)
	// GrowTopic gives this very incarnation more partitions.
	GrowTopic(ctx context.Context, t *topic.Topic, g topic.Growth) error
	// NewestTopic is the topic as the store has it now, perhaps with more
	// partitions: asked before a partition is said not to exist.
	NewestTopic(ctx context.Context, t *topic.Topic) (*topic.Topic, error)
}

// Partition is one partition of one incarnation of a topic; partition.Partition
// is the real one.
type Partition interface {
	// Submit queues one batch; calls are appended in the order made. done is
	// called exactly once, from any goroutine, perhaps before Submit returns,
	// and must not block.
	Submit(r partition.AppendRequest, done func(partition.AppendResult))
	Read(ctx context.Context, r partition.ReadRequest) (partition.ReadResult, error)
	// Available estimates the bytes a Read at offset would find, from memory.
	// An offset out of range is an error, as in Read.
	Available(ctx context.Context, offset types.Offset, committed bool) (int, error)
	// Notify sends on ch, without blocking, whenever what can be read changes
	// or reading begins to fail.
	Notify(ch chan<- struct{}) (cancel func())
	Lookup(ctx context.Context, r partition.LookupRequest) (partition.LookupResult, error)
	// DeleteRecords moves the log start up, to the end for
	// partition.HighWatermark, and returns it.
	DeleteRecords(ctx context.Context, offset types.Offset) (types.Offset, error)
	// Producers lists the producer ids that are known, by id.
	Producers(ctx context.Context) ([]partition.ProducerState, error)
	// EndTransaction appends a marker; it returns when that is applied.
	EndTransaction(ctx context.Context, m partition.Marker) error
}

// Partitions opens partitions.
type Partitions interface {
	// Partition is UNKNOWN_TOPIC_OR_PARTITION for a number the topic lacks.
	Partition(ctx context.Context, t *topic.Topic, n int32) (Partition, error)
}

// Groups are the consumer groups; group.Forwarder is the real one.
type Groups interface {
	Join(ctx context.Context, r group.JoinRequest) group.JoinResponse
	Sync(ctx context.Context, r group.SyncRequest) group.SyncResponse
	Heartbeat(ctx context.Context, m group.Membership) error
	Leave(ctx context.Context, name string, members []group.LeaveMember) group.LeaveResponse
	Commit(ctx context.Context, r group.CommitRequest) group.CommitResponse
	Fetch(ctx context.Context, r group.FetchRequest) group.FetchResponse
	Describe(ctx context.Context, name string) group.Description
	// List filters by state and type, ignoring case; none means all.
	List(ctx context.Context, states, types []string) ([]group.Listing, error)
	Delete(ctx context.Context, name string) error
	// DeleteOffsets forgets what a group committed for some partitions.
	DeleteOffsets(ctx context.Context, name string, partitions []types.TopicPartition) group.DeleteOffsetsResponse
}

// Transactions are the transactional ids; txn.Forwarder is the real one.
type Transactions interface {
	Init(ctx context.Context, r txn.InitRequest) txn.InitResponse
	AddPartitions(ctx context.Context, r txn.AddPartitionsRequest) txn.AddPartitionsResponse
	AddOffsets(ctx context.Context, r txn.AddOffsetsRequest) txn.AddOffsetsResponse
	End(ctx context.Context, r txn.EndRequest) txn.EndResponse
	// Describe is TRANSACTIONAL_ID_NOT_FOUND for an unknown one.
	Describe(ctx context.Context, id string) txn.Description
	List(ctx context.Context, r txn.ListRequest) ([]txn.Listing, error)
}

// Space is where the store keeps things and how much fits there.
type Space struct {
	Dir string // a folder of this machine, or what the store is called
	// Bytes: of all there is and of what is free; −1 if nobody knows.
	Total, Usable int64
}

// Storage tells what the store holds.
type Storage interface {
	Space(ctx context.Context) (Space, error)
	// Sizes are the bytes of every partition of the topics, in their order; nil
	// for a topic that was deleted since. All are known, or there is an error.
	Sizes(ctx context.Context, topics []*topic.Topic) ([][]int64, error)
}

// Producers hand out producer ids.
type Producers interface {
	// ProducerID is unique in the cluster for ever.
	ProducerID(ctx context.Context) (int64, error)
}

// Backend is all that the handlers need. Every error in its answers goes
// through Code.
type Backend interface {
	Cluster
	Topics
	Partitions
	Copies
	Storage
	Groups() Groups
	Transactions() Transactions
	Producers
	// Code maps an error to the code a client sees: refusals as they are,
	// failures logged once and mapped; group says that a coordinator API asks.
	Code(err error, group bool) int16
}
