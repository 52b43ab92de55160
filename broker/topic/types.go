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

// ConfigValue is one topic config as DescribeConfigs and CreateTopics report it.
type ConfigValue struct {
	Name    string
	Value   string
	Default string
	Set     bool // set on the topic itself, even to the default
	Type    int8 // Kafka's ConfigType: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list
	Doc     string
}
