package topic

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Kafka's config types (org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigType).
const (
	typeBoolean int8 = 1
	typeString  int8 = 2
	typeInt     int8 = 3
	typeLong    int8 = 5
	typeDouble  int8 = 6
	typeList    int8 = 7
)

// Names of the topic configs that something here obeys.
const (
	cleanupPolicy     = "cleanup.policy"
	compressionType   = "compression.type"
	maxMessageBytes   = "max.message.bytes"
	minInsync         = "min.insync.replicas"
	retentionBytes    = "retention.bytes"
	retentionMillis   = "retention.ms"
	timestampAfter    = "message.timestamp.after.max.ms"
	timestampBefore   = "message.timestamp.before.max.ms"
	timestampType     = "message.timestamp.type"
	minCompactionLag  = "min.compaction.lag.ms"
	maxCompactionLag  = "max.compaction.lag.ms"
	deleteRetention   = "delete.retention.ms"
	logAppendTime     = "LogAppendTime"
	defaultMaxMessage = 1048588
)

// key is one topic config. A value is taken if Kafka would take it (check) and
// if what happens today is what Kafka documents for it: the default, or what
// obeyed says. Everything else is refused rather than stored and ignored.
type key struct {
	name  string
	typ   int8
	def   string
	check func(value string) error
	// obeyed is nil for a key that is accepted at its default only. all are
	// the configs asked for.
	obeyed func(value string, all map[string]string) bool
	doc    string
}

func always(string, map[string]string) bool { return true }

const (
	noCleaner = " Not carried out yet: nothing is deleted by age or size until the cleaner exists; -1, or any value on a topic that is only compacted, is what happens today."
	noMeaning = " Without effect here: the store has its own files."
	noRemote  = " There is no tiered storage."
)

// keys are all topic configs of Kafka 4.3, by name.
var keys = []key{
	{cleanupPolicy, typeList, "delete", listOf("compact", "delete"),
		func(v string, _ map[string]string) bool { return slices.Equal(list(v), []string{"compact"}) },
		"What may be removed: old records (delete), or records with a newer one of the same key (compact). Until the cleaner exists a compacted topic is kept whole, as Kafka keeps it before its cleaner has run; records without a key are refused."},
	{"compression.gzip.level", typeInt, "-1", either(number(typeInt, 1, 9), only("-1")), always,
		"Level for compression.type gzip. Batches stay as the producer compressed them, so it has no effect."},
	{"compression.lz4.level", typeInt, "9", number(typeInt, 1, 17), always,
		"Level for compression.type lz4. Batches stay as the producer compressed them, so it has no effect."},
	{compressionType, typeString, "producer", oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), nil,
		"Compression of stored batches. Only producer: they stay as the producer compressed them."},
	{"compression.zstd.level", typeInt, "3", number(typeInt, -131072, 22), always,
		"Level for compression.type zstd. Batches stay as the producer compressed them, so it has no effect."},
	{deleteRetention, typeLong, "86400000", number(typeLong, 0, math.MaxInt64), always,
		"How long at least a tombstone of a compacted topic is kept. Tombstones are kept for ever until the cleaner exists."},
	{"file.delete.delay.ms", typeLong, "60000", number(typeLong, 0, math.MaxInt64), nil,
		"Time before a deleted file is removed from the disk." + noMeaning},
	{"flush.messages", typeLong, "9223372036854775807", number(typeLong, 1, math.MaxInt64), nil,
		"Records after which a log is synced to disk. Syncing is a setting of the store, for all topics."},
	{"flush.ms", typeLong, "9223372036854775807", number(typeLong, 0, math.MaxInt64), nil,
		"Time after which a log is synced to disk. Syncing is a setting of the store, for all topics."},
	{"follower.replication.throttled.replicas", typeList, "", throttled, nil,
		"Replicas whose replication is throttled on the follower's side. Replication is the store's."},
	{"index.interval.bytes", typeInt, "4096", number(typeInt, 0, math.MaxInt32), nil,
		"Bytes between two entries of the offset index." + noMeaning},
	{"leader.replication.throttled.replicas", typeList, "", throttled, nil,
		"Replicas whose replication is throttled on the leader's side. Replication is the store's."},
	{"local.retention.bytes", typeLong, "-2", number(typeLong, -2, math.MaxInt64), nil,
		"Bytes kept locally of a log in tiered storage." + noRemote},
	{"local.retention.ms", typeLong, "-2", number(typeLong, -2, math.MaxInt64), nil,
		"Time kept locally of a log in tiered storage." + noRemote},
	{maxCompactionLag, typeLong, "9223372036854775807", number(typeLong, 1, math.MaxInt64), nil,
		"Time after which a record must be compacted, at the latest. Only the default until the cleaner exists."},
	{maxMessageBytes, typeInt, strconv.Itoa(defaultMaxMessage), number(typeInt, 0, math.MaxInt32), always,
		"Largest record batch that is accepted, in bytes, its 12 bytes of overhead included; never more than the store takes in one message."},
	{timestampAfter, typeLong, "3600000", number(typeLong, 0, math.MaxInt64), always,
		"How far a record's timestamp may lie after the broker's time (CreateTime only)."},
	{timestampBefore, typeLong, "9223372036854775807", number(typeLong, 0, math.MaxInt64), always,
		"How far a record's timestamp may lie before the broker's time (CreateTime only)."},
	{timestampType, typeString, "CreateTime", oneOf("CreateTime", logAppendTime), always,
		"Whether a record's timestamp is the producer's (CreateTime) or the time of its append (LogAppendTime)."},
	{"min.cleanable.dirty.ratio", typeDouble, "0.5", ratio, nil,
		"Share of a log that must be uncompacted before it is compacted. Only the default until the cleaner exists."},
	{minCompactionLag, typeLong, "0", number(typeLong, 0, math.MaxInt64), always,
		"Time for which a record stays uncompacted, at least. Nothing is compacted until the cleaner exists."},
	{minInsync, typeInt, "1", number(typeInt, 1, math.MaxInt32), always, // compared with the replicas by checkInsync
		"Replicas that must have a record before acks=all is answered. The store answers once a majority has it, whatever acks says: more than that majority is refused."},
	{"preallocate", typeBoolean, "false", boolean, nil,
		"Whether a new file is allocated at once." + noMeaning},
	{"remote.log.copy.disable", typeBoolean, "false", boolean, nil,
		"Stops copying to tiered storage." + noRemote},
	{"remote.log.delete.on.disable", typeBoolean, "false", boolean, nil,
		"Deletes what is in tiered storage when it is switched off." + noRemote},
	{"remote.storage.enable", typeBoolean, "false", boolean, nil,
		"Tiered storage." + noRemote},
	{retentionBytes, typeLong, "-1", number(typeLong, math.MinInt64, math.MaxInt64), kept,
		"Bytes per partition above which the oldest records are deleted; -1: no limit." + noCleaner},
	{retentionMillis, typeLong, "604800000", number(typeLong, -1, math.MaxInt64), kept,
		"Time after which a record is deleted; -1: never." + noCleaner},
	{"segment.bytes", typeInt, "1073741824", number(typeInt, 1<<20, math.MaxInt32), nil,
		"Size of a log's files." + noMeaning},
	{"segment.index.bytes", typeInt, "10485760", number(typeInt, 4, math.MaxInt32), nil,
		"Size of the offset index of one file." + noMeaning},
	{"segment.jitter.ms", typeLong, "0", number(typeLong, 0, math.MaxInt64), nil,
		"Random part of segment.ms." + noMeaning},
	{"segment.ms", typeLong, "604800000", number(typeLong, 1, math.MaxInt64), nil,
		"Time after which a new file is begun." + noMeaning},
	{"unclean.leader.election.enable", typeBoolean, "false", boolean, nil,
		"Whether a replica that lacks records may become leader. Never here."},
}

// byKey finds a key by name.
var byKey = func() map[string]*key {
	m := make(map[string]*key, len(keys))
	for i := range keys {
		m[keys[i].name] = &keys[i]
	}
	return m
}()

// kept: retention that removes nothing is obeyed already.
func kept(v string, all map[string]string) bool {
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	return err == nil && n < 0 || slices.Equal(list(all[cleanupPolicy]), []string{"compact"})
}

// checkConfigs refuses (INVALID_CONFIG) unknown keys, values that Kafka does not
// take, and values that we do not obey. largest is the most that
// max.message.bytes can be.
func checkConfigs(configs map[string]string, largest int) error {
	names := slices.Sorted(maps.Keys(configs))
	for _, name := range names {
		if byKey[name] == nil {
			return refuse(kerr.InvalidConfig, "Unknown topic config name: %s", name)
		}
	}
	for _, name := range names {
		if err := byKey[name].check(configs[name]); err != nil {
			return refuse(kerr.InvalidConfig, "Invalid value %s for configuration %s: %v", configs[name], name, err)
		}
	}
	if low, high := number64(configs, minCompactionLag), number64(configs, maxCompactionLag); low > high {
		return refuse(kerr.InvalidConfig, "conflict topic config setting %s (%d) > %s (%d)", minCompactionLag, low, maxCompactionLag, high)
	}
	for _, name := range names {
		k, v := byKey[name], configs[name]
		if !k.isDefault(v) && (k.obeyed == nil || !k.obeyed(v, configs)) {
			return refuse(kerr.InvalidConfig, "Invalid value %s for configuration %s: only %q is supported so far. %s", v, name, k.def, k.doc)
		}
	}
	if v, ok := configs[maxMessageBytes]; ok && number64(configs, maxMessageBytes) > int64(largest) {
		return refuse(kerr.InvalidConfig, "Invalid value %s for configuration %s: the store takes at most %d (raise max_payload of the NATS server)", v, maxMessageBytes, largest)
	}
	return nil
}

// checkInsync refuses a min.insync.replicas that an acknowledgement does not
// stand for. Kafka takes any number at creation and then refuses every write
// with NOT_ENOUGH_REPLICAS; a topic that cannot be written is no use here.
func checkInsync(configs map[string]string, replicas int) error {
	if v, quorum := number64(configs, minInsync), replicas/2+1; v > int64(quorum) {
		return refuse(kerr.InvalidConfig, "Invalid value %d for configuration %s: a write is acknowledged once %d of %d replicas have it", v, minInsync, quorum, replicas)
	}
	return nil
}

// number64 is a valid number's value, or its default.
func number64(configs map[string]string, name string) int64 {
	v, ok := configs[name]
	if !ok {
		v = byKey[name].def
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	return n
}

// isDefault compares by meaning: "0.50" is "0.5".
func (k *key) isDefault(v string) bool {
	v = strings.TrimSpace(v)
	switch k.typ {
	case typeInt, typeLong:
		a, err := strconv.ParseInt(v, 10, 64)
		b, _ := strconv.ParseInt(k.def, 10, 64)
		return err == nil && a == b
	case typeDouble:
		a, err := strconv.ParseFloat(v, 64)
		b, _ := strconv.ParseFloat(k.def, 64)
		return err == nil && a == b
	case typeBoolean:
		return strings.EqualFold(v, k.def)
	case typeList:
		return slices.Equal(list(v), list(k.def))
	}
	return v == k.def
}

// list splits a list as Kafka does.
func list(v string) []string {
	v = strings.TrimSpace(v)
	if v == "" {
		return nil
	}
	parts := strings.Split(v, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

func number(typ int8, low, high int64) func(string) error {
	name := "LONG"
	bits := 64
	if typ == typeInt {
		name, bits = "INT", 32
	}
	return func(v string) error {
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, bits)
		switch {
		case err != nil:
			return fmt.Errorf("Not a number of type %s", name) //nolint:staticcheck // Kafka's words, for people
		case n < low:
			return fmt.Errorf("Value must be at least %d", low) //nolint:staticcheck // as above
		case n > high:
			return fmt.Errorf("Value must be no more than %d", high) //nolint:staticcheck // as above
		}
		return nil
	}
}

func only(want string) func(string) error {
	return func(v string) error {
		if strings.TrimSpace(v) != want {
			return fmt.Errorf("Value must be %s", want) //nolint:staticcheck // Kafka's style
		}
		return nil
	}
}

func either(a, b func(string) error) func(string) error {
	return func(v string) error {
		if b(v) == nil {
			return nil
		}
		return a(v)
	}
}

func oneOf(values ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(values, strings.TrimSpace(v)) {
			return fmt.Errorf("String must be one of: %s", strings.Join(values, ", ")) //nolint:staticcheck // Kafka's words
		}
		return nil
	}
}

func listOf(values ...string) func(string) error {
	return func(v string) error {
		parts := list(v)
		if len(parts) == 0 {
			return fmt.Errorf("List must not be empty") //nolint:staticcheck // Kafka's style
		}
		seen := map[string]bool{}
		for _, p := range parts {
			if !slices.Contains(values, p) {
				return fmt.Errorf("String must be one of: %s", strings.Join(values, ", ")) //nolint:staticcheck // Kafka's words
			}
			if seen[p] {
				return fmt.Errorf("List must not have duplicates") //nolint:staticcheck // Kafka's style
			}
			seen[p] = true
		}
		return nil
	}
}

func boolean(v string) error {
	if v = strings.TrimSpace(v); !strings.EqualFold(v, "true") && !strings.EqualFold(v, "false") {
		return fmt.Errorf("Expected value to be either true or false") //nolint:staticcheck // Kafka's words
	}
	return nil
}

func ratio(v string) error {
	f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
	switch {
	case err != nil:
		return fmt.Errorf("Not a number of type DOUBLE") //nolint:staticcheck // Kafka's words
	case !(f >= 0 && f <= 1):
		return fmt.Errorf("Value must be between 0 and 1") //nolint:staticcheck // Kafka's style
	}
	return nil
}

// throttled accepts "*" or a list of partition:broker pairs
// (kafka.server.ThrottledReplicaListValidator).
func throttled(v string) error {
	parts := list(v)
	if len(parts) == 1 && parts[0] == "*" {
		return nil
	}
	for _, p := range parts {
		a, b, ok := strings.Cut(p, ":")
		_, err1 := strconv.ParseUint(a, 10, 31)
		_, err2 := strconv.ParseUint(b, 10, 31)
		if !ok || err1 != nil || err2 != nil {
			return fmt.Errorf("must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...")
		}
	}
	return nil
}
