package admin

import "context"

// Backend is what the HTTP side needs of the gateway. An error is a *Refusal or
// means that the store could not be asked: then it becomes 503, never an empty list.
// Methods are called concurrently.
type Backend interface {
	// Status is made from memory, without a call to anybody; Compaction is left to
	// Cleaner.
	Status() Status
	// Topics lists topics with their partitions; a name asks for that topic
	// only, and an unknown one is an empty list.
	Topics(ctx context.Context, name string) ([]Topic, error)
	// Offsets lists committed offsets; a group or topic that is not "" filters.
	Offsets(ctx context.Context, group, topic string) ([]Offset, error)
	// Cleaner asks the gateway that compacts what it does. What cannot be known is
	// said to be unknown.
	Cleaner(ctx context.Context) Compaction
	// Compaction tells how far a topic is compacted.
	Compaction(ctx context.Context, topic string) (TopicCompaction, error)
	// Compact asks that all of a topic that may be compacted is, and returns how
	// far it is and, in Wanted, to where it will be.
	Compact(ctx context.Context, topic string) (TopicCompaction, error)
	// Ready lists every condition of readiness, held or not.
	Ready(ctx context.Context) []Check
}

// Service is the name in Status that the first version of the API had.
const Service = "hanzo-stream"

// Status is GET /v1/stream/status.
type Status struct {
	Service   string `json:"service"`
	KafkaPort int    `json:"kafka_port"`
	AdminPort int    `json:"admin_port"`
	PubsubURL string `json:"pubsub_url"` // without user info; "embedded"
	Connected Link   `json:"pubsub_connected"`
	NodeID    int32  `json:"node_id"`

	Version       string     `json:"version"`
	ClusterID     string     `json:"cluster_id"`
	Ready         bool       `json:"ready"`
	Reasons       []string   `json:"reasons"` // why not ready
	UptimeSeconds int64      `json:"uptime_seconds"`
	Gateways      []Gateway  `json:"gateways"`
	Listeners     []Listener `json:"listeners"`
	NATS          NATS       `json:"nats"`
	Durability    Durability `json:"durability"`
	Warnings      []string   `json:"warnings"`
	// LateTransactions are the partitions in use here whose oldest open
	// transaction has had nothing appended for 20 minutes: the longest timeout by
	// default, and five minutes.
	LateTransactions []LateTransaction `json:"late_transactions"`
	Compaction       Compaction        `json:"compaction"`
}

// LateTransaction keeps the committed readers of a partition from going on.
type LateTransaction struct {
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	ProducerID  int64  `json:"producer_id"`
	FirstOffset int64  `json:"first_offset"`
	OpenSeconds int64  `json:"open_seconds"`
}

// Link is a connection's state; in JSON the word connected or disconnected.
type Link bool

// MarshalText implements encoding.TextMarshaler.
func (l Link) MarshalText() ([]byte, error) {
	if l {
		return []byte("connected"), nil
	}
	return []byte("disconnected"), nil
}

// Gateway is one living gateway.
type Gateway struct {
	NodeID int32  `json:"node_id"`
	Host   string `json:"host"`
	Port   int    `json:"port"`
}

// Listener is one socket that takes connections.
type Listener struct {
	Name     string `json:"name"` // kafka, admin or nats
	Address  string `json:"address"`
	Security string `json:"security"` // PLAINTEXT
}

// NATS is the server this gateway is connected to.
type NATS struct {
	ServerVersion string `json:"server_version"`
	MaxPayload    int    `json:"max_payload"` // bytes
	// MaxMessageBytes is message.max.bytes as it is in force: what was
	// configured, or less if the server takes less.
	MaxMessageBytes int `json:"max_message_bytes"`
}

// Durability is what an acknowledged record of a new topic survives.
type Durability struct {
	Level    string `json:"level"`
	Sentence string `json:"sentence"`
	Sync     string `json:"sync"` // always, an interval, none, or unknown
	Note     string `json:"note,omitempty"`
}

// Topic is one element of GET /v1/stream/topics.
type Topic struct {
	Name       string      `json:"name"`
	Partitions []Partition `json:"partitions"`
}

// Partition is one partition of a Topic. Messages counts JetStream messages,
// of which one can hold many records: lag is a difference of offsets.
type Partition struct {
	Partition int32  `json:"partition"`
	Messages  uint64 `json:"messages"`
	FirstSeq  uint64 `json:"first_seq"`
	LastSeq   uint64 `json:"last_seq"`
	Bytes     uint64 `json:"bytes"`
	Stream    string `json:"stream"`
	Subject   string `json:"subject"`

	StartOffset int64 `json:"start_offset"`
	EndOffset   int64 `json:"end_offset"`
	// LastStableOffset is where committed readers stop. A transaction that begins
	// there has been open for OpenTransactionSeconds; below a second, or where none
	// is open, that is left out.
	LastStableOffset       int64 `json:"last_stable_offset"`
	OpenTransactionSeconds int64 `json:"open_transaction_seconds,omitempty"`
	Leader                 int32 `json:"leader"`
	Replicas               int   `json:"replicas"`
	InSync                 int   `json:"in_sync"`
	// StreamLeader is the NATS server that leads the stream; "" if none does, or
	// if there is only one server.
	StreamLeader string `json:"stream_leader,omitempty"`
	Error        string `json:"error,omitempty"` // why the partition is not served
}

// Offset is one element of GET /v1/stream/groups.
type Offset struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Check is one condition of readiness.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}
