package topic

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"

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
	// Static are defaults of topic configs for the whole cluster, by the names
	// of Kafka's broker configs (log.retention.ms, min.insync.replicas, …), as
	// CheckStatic takes them. All gateways should have the same.
	Static map[string]string
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
	for _, name := range slices.Sorted(maps.Keys(c.Static)) {
		if err := CheckStatic(name, c.Static[name]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// IsDefault reports a name that Config.Static may have.
func IsDefault(name string) bool { return chains[name] != nil && name != "message.max.bytes" }

// Defaultable lists the names that Config.Static may have.
func Defaultable() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(chains)), func(name string) bool { return !IsDefault(name) })
}

// CheckStatic says what is wrong with a value of Config.Static: a key that is no
// default of a topic config, or a value that Kafka does not take.
func CheckStatic(name, value string) error {
	if !IsDefault(name) {
		return fmt.Errorf("topic.defaults: %s is no default of topics", name)
	}
	check := dynamic[name]
	if check == nil { // of another unit
		check = number(brokerByKey[name].typ, math.MinInt32, math.MaxInt32)
		if brokerByKey[name].typ == typeLong {
			check = number(typeLong, math.MinInt64, math.MaxInt64)
		}
	}
	if err := check(value); err != nil {
		return errors.New("topic.defaults: " + reason(name, value, err))
	}
	return nil
}

// largest is the most that fits into one message of the store.
func largest(s pubsub.Store) int { return s.Info().MaxPayload - partition.StorageRoom }

// Effective is what a topic's partitions obey.
func (ts *Topics) Effective(t *Topic) partition.Config {
	layers := ts.layers(ts.deps.Self(), ts.static(nil)) // once: a change of the brokers' configs comes here for every topic
	text := func(name string) string {
		return ts.value(t.Configs, byKey[name], layers)
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(text(name), 10, 64)
		return n
	}
	policy, codec := list(text(cleanupPolicy)), text(compressionType)
	dirty, _ := strconv.ParseFloat(text(dirtyRatio), 64)
	level := int64(0)
	if k := "compression." + codec + ".level"; byKey[k] != nil {
		level = number(k)
	}
	return partition.Config{
		MaxMessageBytes:       int(number(maxMessageBytes)),
		LogAppendTime:         text(timestampType) == logAppendTime,
		MaxAheadMillis:        number(timestampAfter),
		MaxBehindMillis:       number(timestampBefore),
		Compacted:             slices.Contains(policy, "compact"),
		MinDirtyRatio:         dirty,
		MinLagMillis:          number(minCompactionLag),
		MaxLagMillis:          number(maxCompactionLag),
		DeleteRetentionMillis: number(deleteRetention),
		Retained:              slices.Contains(policy, "delete"),
		RetentionMillis:       number(retentionMillis),
		RetentionBytes:        number(retentionBytes),
		Compression:           codec,
		CompressionLevel:      int(level),
		MinInsync:             int(number(minInsync)),
	}
}
