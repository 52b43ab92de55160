package topic

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
)

// Config is the topics' section of the configuration.
type Config struct {
	// Prefix of all names in the store: [A-Za-z0-9_]+.
	Prefix string
	// Partitions of a topic whose creator leaves it to us (num.partitions); 1.
	Partitions int32
	// Replicas of new streams (default.replication.factor); 1.
	Replicas int
	// Memory keeps new streams in memory.
	Memory bool
	// ClampReplication makes what there is of a replication factor above what
	// the store has, instead of refusing it (38).
	ClampReplication bool
	// AutoCreate is auto.create.topics.enable.
	AutoCreate bool
	// MaxMessageBytes is message.max.bytes, the default of max.message.bytes;
	// 1,048,588. The store's limit lowers it.
	MaxMessageBytes int
	// MaxPartitions bounds the partitions of all topics together; 10,000.
	MaxPartitions int
}

// Defaults are Kafka's own.
func Defaults() Config {
	return Config{Prefix: "kafka", Partitions: 1, Replicas: 1, AutoCreate: true, MaxMessageBytes: defaultMaxMessage, MaxPartitions: 10_000}
}

func (c *Config) fill() {
	d := Defaults()
	if c.Prefix == "" {
		c.Prefix = d.Prefix
	}
	if c.Partitions == 0 {
		c.Partitions = d.Partitions
	}
	if c.Replicas == 0 {
		c.Replicas = d.Replicas
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = d.MaxMessageBytes
	}
	if c.MaxPartitions == 0 {
		c.MaxPartitions = d.MaxPartitions
	}
}

var prefixes = regexp.MustCompile(`^[A-Za-z0-9_]{1,30}$`)

// Validate reports every value that is out of range; 0 and "" take defaults.
func (c Config) Validate() error {
	c.fill()
	var errs []error
	if !prefixes.MatchString(c.Prefix) {
		errs = append(errs, fmt.Errorf("prefix %q: use 1 to 30 of [A-Za-z0-9_]", c.Prefix))
	}
	if c.MaxPartitions < 0 {
		errs = append(errs, fmt.Errorf("max partitions %d: use 1 or more", c.MaxPartitions))
	}
	if c.Partitions < 0 || int(c.Partitions) > c.MaxPartitions {
		errs = append(errs, fmt.Errorf("default partitions %d: use 1 to %d", c.Partitions, c.MaxPartitions))
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		errs = append(errs, fmt.Errorf("replicas %d: use 1 to 5", c.Replicas))
	}
	if c.MaxMessageBytes < 0 {
		errs = append(errs, fmt.Errorf("max message size %d: use 1 or more", c.MaxMessageBytes))
	}
	return errors.Join(errs...)
}

// largest is the most that fits into one message of the store.
func largest(s pubsub.Store) int { return s.Info().MaxPayload - partition.StorageRoom }

// value is what is in force of a config, and its default here.
func (ts *Topics) value(configs map[string]string, k *key) (value, def string) {
	def = k.def
	if k.name == maxMessageBytes {
		def = strconv.Itoa(min(ts.config.MaxMessageBytes, largest(ts.deps.Store)))
	}
	value, ok := configs[k.name]
	if !ok {
		return def, def
	}
	// A store with a smaller limit than the one the topic was made on.
	if k.name == maxMessageBytes && number64(configs, k.name) > int64(largest(ts.deps.Store)) {
		value = strconv.Itoa(largest(ts.deps.Store))
	}
	return value, def
}

// TopicConfigs lists all configs of a topic, by name. Values come back exactly
// as they were set.
func (ts *Topics) TopicConfigs(t *Topic) []ConfigValue {
	vs := make([]ConfigValue, len(keys))
	for i := range keys {
		k := &keys[i]
		_, set := t.Configs[k.name]
		v, def := ts.value(t.Configs, k)
		vs[i] = ConfigValue{Name: k.name, Value: v, Default: def, Set: set, Type: k.typ, Doc: k.doc}
	}
	return vs
}

// Effective is what a topic's partitions obey.
func (ts *Topics) Effective(t *Topic) partition.Config {
	text := func(name string) string {
		v, _ := ts.value(t.Configs, byKey[name])
		return strings.TrimSpace(v)
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(text(name), 10, 64)
		return n
	}
	policy, codec := list(text(cleanupPolicy)), text(compressionType)
	level := int64(0)
	if k := "compression." + codec + ".level"; byKey[k] != nil {
		level = number(k)
	}
	return partition.Config{
		MaxMessageBytes:  int(number(maxMessageBytes)),
		LogAppendTime:    text(timestampType) == logAppendTime,
		MaxAheadMillis:   number(timestampAfter),
		MaxBehindMillis:  number(timestampBefore),
		KeysRequired:     slices.Contains(policy, "compact"),
		Retained:         slices.Contains(policy, "delete"),
		RetentionMillis:  number(retentionMillis),
		RetentionBytes:   number(retentionBytes),
		Compression:      codec,
		CompressionLevel: int(level),
		MinInsync:        int(number(minInsync)),
	}
}

// KeptWhole reports that a topic asks for compaction, which is not carried out
// yet: it grows without end. Operators are told.
func (t *Topic) KeptWhole() bool { return slices.Contains(list(t.Configs[cleanupPolicy]), "compact") }

// BrokerConfigs lists the broker's configs under Kafka's names, by name. others
// are values in force that are decided elsewhere (listeners, group limits, …),
// and win over ours; one that is not in the list is added to it.
func (ts *Topics) BrokerConfigs(others map[string]string) []ConfigValue {
	inForce := map[string]string{
		"auto.create.topics.enable":  strconv.FormatBool(ts.config.AutoCreate),
		"log.cleaner.enable":         "false", // there is none yet
		"default.replication.factor": strconv.Itoa(ts.config.Replicas),
		"message.max.bytes":          strconv.Itoa(min(ts.config.MaxMessageBytes, largest(ts.deps.Store))),
		"num.partitions":             strconv.Itoa(int(ts.config.Partitions)),
	}
	maps.Copy(inForce, others)
	vs := make([]ConfigValue, 0, len(brokerKeys)+len(others))
	for _, k := range brokerKeys {
		v, ok := inForce[k.name]
		if !ok {
			v = k.def
		}
		delete(inForce, k.name)
		vs = append(vs, ConfigValue{Name: k.name, Value: v, Default: k.def, Set: v != k.def, Type: k.typ, Doc: k.doc})
	}
	for name, v := range inForce {
		vs = append(vs, ConfigValue{Name: name, Value: v, Set: true, Type: typeString})
	}
	slices.SortFunc(vs, func(a, b ConfigValue) int { return strings.Compare(a.Name, b.Name) })
	return vs
}
