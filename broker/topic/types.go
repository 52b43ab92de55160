package topic

import (
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// Topic is an active topic as this gateway knows it. It is immutable: a change
// makes a new one.
type Topic struct {
	Name       string
	ID         types.TopicID
	N          pubsub.Rev // revision of its creating write: names its streams
	Bare       bool       // its streams carry the bare name (no earlier topic)
	Partitions int32
	Replicas   int               // what its streams were made with
	Configs    map[string]string // what was set, nothing else; not to be written to
}

// Spec asks for a topic.
type Spec struct {
	Name string
	// Partitions and Replicas: -1 takes the default.
	Partitions int32
	Replicas   int16
	// Assignments, if not empty, replaces both: partition -> broker ids.
	Assignments map[int32][]int32
	Configs     map[string]*string
	// ValidateOnly checks everything and makes nothing.
	ValidateOnly bool
}

// Source is where a config's value was set (Kafka's ConfigSource).
type Source int8

// Sources, the stronger first.
const (
	FromTopic   Source = 1 // DYNAMIC_TOPIC_CONFIG
	FromBroker  Source = 2 // DYNAMIC_BROKER_CONFIG: of one broker
	FromCluster Source = 3 // DYNAMIC_DEFAULT_BROKER_CONFIG: of all
	FromStatic  Source = 4 // STATIC_BROKER_CONFIG: of the process's configuration
	FromDefault Source = 5 // DEFAULT_CONFIG
	FromMetrics Source = 7 // DYNAMIC_CLIENT_METRICS_CONFIG
	FromGroup   Source = 8 // DYNAMIC_GROUP_CONFIG
)

// Synonym is one place where a config has a value.
type Synonym struct {
	Name, Value string
	Source      Source
}

// ConfigValue is one config as DescribeConfigs and CreateTopics report it.
type ConfigValue struct {
	Name  string
	Value string
	Null  bool // no value of its own: another key's is in force
	// Source is where the value comes from; Synonyms are all places that have
	// one, the strongest first.
	Source   Source
	Synonyms []Synonym
	Type     int8 // Kafka's ConfigType: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list
	ReadOnly bool // cannot be changed while brokers run
	Doc      string
}
