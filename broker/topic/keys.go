package topic

import (
	"errors"
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
	dirtyRatio        = "min.cleanable.dirty.ratio"
	deleteRetention   = "delete.retention.ms"
	remoteStorage     = "remote.storage.enable"
	logAppendTime     = "LogAppendTime"
	defaultMaxMessage = 1048588
)

// use says what becomes of a config's value here.
type use string

const (
	// obeyed: what happens is what Kafka documents for the value.
	obeyed use = "obeyed"
	// meaningless: taken, kept and shown, because it steers what does not exist
	// here (files of the broker, its replication):
	// no client could tell from the records that it was ignored.
	meaningless use = "accepted, means nothing here"
	// refused: only the default is taken, by Kafka without the feature as well.
	refused use = "refused"
)

// key is one topic config.
type key struct {
	name string
	typ  int8
	def  string
	// check is Kafka's ConfigDef.
	check func(value string) error
	use   use
	// from are the broker configs that its default comes from, the first that
	// is set wins (org.apache.kafka.server.config.ServerTopicConfigSynonyms).
	from []origin
	doc  string
}

// origin is a broker config in whose place a topic config stands; times scales
// its unit, 0 is 1.
type origin struct {
	name  string
	times int64
}

func from(name string) []origin { return []origin{{name: name}} }

const (
	noMeaning = " Without effect here: the store has its own files."
	noRemote  = " There is no tiered storage."
	hour      = 3_600_000 // ms
)

// keys are all topic configs of Kafka 4.3, by name.
var keys = []key{
	{cleanupPolicy, typeList, "delete", listOf("compact", "delete"), obeyed, from("log.cleanup.policy"),
		"What may be removed: old records (delete), records with a newer one of the same key (compact), or nothing (an empty list). With compact, records without a key are refused."},
	{"compression.gzip.level", typeInt, "-1", gzipLevel, obeyed, from("compression.gzip.level"),
		"Level for compression.type gzip."},
	{"compression.lz4.level", typeInt, "9", number(typeInt, 1, 17), obeyed, from("compression.lz4.level"),
		"Level for compression.type lz4."},
	{compressionType, typeString, "producer", oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), obeyed, from("compression.type"),
		"Compression of stored batches: a codec, uncompressed, or producer, which leaves them as they came."},
	{"compression.zstd.level", typeInt, "3", number(typeInt, -131072, 22), obeyed, from("compression.zstd.level"),
		"Level for compression.type zstd."},
	{deleteRetention, typeLong, "86400000", number(typeLong, 0, math.MaxInt64), obeyed, from("log.cleaner.delete.retention.ms"),
		"How long a tombstone of a compacted topic, and the end of a transaction without records, stay at least after the run that has met them first. They go with a later run; for their sake alone a log is rewritten a quarter of that time later, a minute at least."},
	{"file.delete.delay.ms", typeLong, "60000", number(typeLong, 0, math.MaxInt64), meaningless, from("log.segment.delete.delay.ms"),
		"Time before a deleted file is removed from the disk." + noMeaning},
	{"flush.messages", typeLong, "9223372036854775807", number(typeLong, 1, math.MaxInt64), meaningless, from("log.flush.interval.messages"),
		"Records after which a log is synced to disk. Syncing is a setting of the store, for all topics."},
	{"flush.ms", typeLong, "9223372036854775807", number(typeLong, 0, math.MaxInt64), meaningless, []origin{{name: "log.flush.interval.ms"}, {name: "log.flush.scheduler.interval.ms"}},
		"Time after which a log is synced to disk. Syncing is a setting of the store, for all topics."},
	{"follower.replication.throttled.replicas", typeList, "", throttled, meaningless, nil,
		"Replicas whose replication is throttled on the follower's side. Replication is the store's."},
	{"index.interval.bytes", typeInt, "4096", number(typeInt, 0, math.MaxInt32), meaningless, from("log.index.interval.bytes"),
		"Bytes between two entries of the offset index." + noMeaning},
	{"leader.replication.throttled.replicas", typeList, "", throttled, meaningless, nil,
		"Replicas whose replication is throttled on the leader's side. Replication is the store's."},
	{"local.retention.bytes", typeLong, "-2", number(typeLong, -2, math.MaxInt64), meaningless, from("log.local.retention.bytes"),
		"Bytes kept locally of a log in tiered storage." + noRemote},
	{"local.retention.ms", typeLong, "-2", number(typeLong, -2, math.MaxInt64), meaningless, from("log.local.retention.ms"),
		"Time kept locally of a log in tiered storage." + noRemote},
	{maxCompactionLag, typeLong, "9223372036854775807", number(typeLong, 1, math.MaxInt64), obeyed, from("log.cleaner.max.compaction.lag.ms"),
		"Age of the oldest record that was not compacted yet above which a log is compacted whatever its ratio. The last stored message is always left alone."},
	{maxMessageBytes, typeInt, strconv.Itoa(defaultMaxMessage), number(typeInt, 0, math.MaxInt32), obeyed, from("message.max.bytes"),
		"Largest record batch that is accepted, in bytes, its 12 bytes of overhead included; never more than the store takes in one message."},
	{timestampAfter, typeLong, "3600000", number(typeLong, 0, math.MaxInt64), obeyed, from("log.message.timestamp.after.max.ms"),
		"How far a record's timestamp may lie after the broker's time (CreateTime only)."},
	{timestampBefore, typeLong, "9223372036854775807", number(typeLong, 0, math.MaxInt64), obeyed, from("log.message.timestamp.before.max.ms"),
		"How far a record's timestamp may lie before the broker's time (CreateTime only)."},
	{timestampType, typeString, "CreateTime", oneOf("CreateTime", logAppendTime), obeyed, from("log.message.timestamp.type"),
		"Whether a record's timestamp is the producer's (CreateTime) or the time of its append (LogAppendTime)."},
	{dirtyRatio, typeDouble, "0.5", ratio, obeyed, from("log.cleaner.min.cleanable.ratio"),
		"Share of a log that must be uncompacted, by bytes, before it is compacted; one log is compacted once per log.cleaner.backoff.ms at most."},
	{minCompactionLag, typeLong, "0", number(typeLong, 0, math.MaxInt64), obeyed, from("log.cleaner.min.compaction.lag.ms"),
		"Time for which a record stays uncompacted, at least."},
	{minInsync, typeInt, "1", number(typeInt, 1, math.MaxInt32), obeyed, from("min.insync.replicas"),
		"Replicas that must have a record before acks=all is answered. While fewer replicas of the stream are in sync they are refused with NOT_ENOUGH_REPLICAS. The store answers once a majority has it, whatever acks says: more than that majority is refused as a value, more than there are replicas means all of them."},
	{"preallocate", typeBoolean, "false", boolean, meaningless, from("log.preallocate"),
		"Whether a new file is allocated at once." + noMeaning},
	{"remote.log.copy.disable", typeBoolean, "false", boolean, meaningless, nil,
		"Stops copying to tiered storage." + noRemote},
	{"remote.log.delete.on.disable", typeBoolean, "false", boolean, meaningless, nil,
		"Deletes what is in tiered storage when it is switched off." + noRemote},
	{remoteStorage, typeBoolean, "false", boolean, refused, nil,
		"Tiered storage." + noRemote},
	{retentionBytes, typeLong, "-1", number(typeLong, math.MinInt64, math.MaxInt64), obeyed, from("log.retention.bytes"),
		"Bytes that a partition keeps at least, as its stream counts them (headers included): stored messages beyond are deleted, the oldest first; negative: no limit. Without delete in cleanup.policy it means nothing."},
	{retentionMillis, typeLong, "604800000", number(typeLong, -1, math.MaxInt64), obeyed, []origin{{name: "log.retention.ms"}, {"log.retention.minutes", 60_000}, {"log.retention.hours", hour}},
		"Time after which a record is deleted, by its timestamp; a stored message goes as a whole, within a minute, 20 s after it was written at the earliest; -1: never. Without delete in cleanup.policy it means nothing."},
	{"segment.bytes", typeInt, "1073741824", number(typeInt, 1<<20, math.MaxInt32), meaningless, from("log.segment.bytes"),
		"Size of a log's files." + noMeaning},
	{"segment.index.bytes", typeInt, "10485760", number(typeInt, 4, math.MaxInt32), meaningless, from("log.index.size.max.bytes"),
		"Size of the offset index of one file." + noMeaning},
	{"segment.jitter.ms", typeLong, "0", number(typeLong, 0, math.MaxInt64), meaningless, []origin{{name: "log.roll.jitter.ms"}, {"log.roll.jitter.hours", hour}},
		"Random part of segment.ms." + noMeaning},
	{"segment.ms", typeLong, "604800000", number(typeLong, 1, math.MaxInt64), meaningless, []origin{{name: "log.roll.ms"}, {"log.roll.hours", hour}},
		"Time after which a new file is begun." + noMeaning},
	{"unclean.leader.election.enable", typeBoolean, "false", boolean, meaningless, from("unclean.leader.election.enable"),
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

// checkConfigs refuses (INVALID_CONFIG), in Kafka's order and words, unknown
// keys, values that Kafka does not take, and settings that contradict each other
// (org.apache.kafka.storage.internals.log.LogConfig.validate).
func checkConfigs(configs map[string]string) error {
	names := slices.Sorted(maps.Keys(configs))
	for _, name := range names {
		if byKey[name] == nil {
			return refuse(kerr.InvalidConfig, "Unknown topic config name: %s", name)
		}
	}
	for _, name := range names {
		if err := byKey[name].check(configs[name]); err != nil {
			return refuse(kerr.InvalidConfig, "%s", reason(name, configs[name], err))
		}
	}
	if low, high := number64(configs, minCompactionLag), number64(configs, maxCompactionLag); low > high {
		return refuse(kerr.InvalidConfig, "conflict topic config setting %s (%d) > %s (%d)", minCompactionLag, low, maxCompactionLag, high)
	}
	if strings.EqualFold(strings.TrimSpace(configs[remoteStorage]), "true") {
		return refuse(kerr.InvalidConfig, "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
	}
	return nil
}

// reason is Kafka's ConfigException.
func reason(name, value string, err error) string {
	if w := sentence(""); errors.As(err, &w) {
		return fmt.Sprintf(string(w), name)
	}
	if b := (badValue{}); errors.As(err, &b) {
		value = b.value
	}
	return fmt.Sprintf("Invalid value %s for configuration %s: %s", value, name, strings.ReplaceAll(err.Error(), "%name", name))
}

// checkLimits refuses what Kafka takes and we cannot do, for what was changed:
// max.message.bytes beyond largest, the most that the store takes, and a
// min.insync.replicas that no acknowledgement of the store can stand for: it
// says nothing of the replicas beyond a majority. More than there are replicas
// is taken: as in Kafka, it means all of them.
func checkLimits(configs map[string]string, changed func(name string) bool, largest, replicas int) error {
	if v, ok := configs[maxMessageBytes]; ok && changed(maxMessageBytes) && number64(configs, maxMessageBytes) > int64(largest) {
		return refuse(kerr.InvalidConfig, "Invalid value %s for configuration %s: the store takes at most %d (raise max_payload of the NATS server)", v, maxMessageBytes, largest)
	}
	if v, quorum := number64(configs, minInsync), replicas/2+1; changed(minInsync) && v > int64(quorum) && v <= int64(replicas) {
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

// canonical is a valid value as Kafka shows it (ConfigDef.convertToString).
func canonical(typ int8, v string) string {
	v = strings.TrimSpace(v)
	switch typ {
	case typeInt, typeLong:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return strconv.FormatInt(n, 10)
		}
	case typeDouble:
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			if f == math.Trunc(f) {
				return strconv.FormatFloat(f, 'f', 1, 64) // as Java: 1.0
			}
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
	case typeBoolean:
		return strings.ToLower(v)
	case typeList:
		return strings.Join(distinct(list(v)), ",")
	}
	return v
}

// distinct leaves out repetitions.
func distinct(all []string) []string {
	var out []string
	for _, v := range all {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
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
			return badValue{strconv.FormatInt(n, 10), fmt.Sprintf("Value must be at least %d", low)}
		case n > high:
			return badValue{strconv.FormatInt(n, 10), fmt.Sprintf("Value must be no more than %d", high)}
		}
		return nil
	}
}

// gzipLevel is CompressionType.GZIP.levelValidator.
func gzipLevel(v string) error {
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 32)
	switch {
	case err != nil:
		return fmt.Errorf("Not a number of type INT") //nolint:staticcheck // Kafka's words
	case n != -1 && (n < 1 || n > 9):
		return fmt.Errorf("Value must be between 1 and 9 or equal to -1") //nolint:staticcheck // Kafka's words
	}
	return nil
}

func oneOf(values ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(values, strings.TrimSpace(v)) {
			return fmt.Errorf("String must be one of: %s", strings.Join(values, ", ")) //nolint:staticcheck // Kafka's words
		}
		return nil
	}
}

// sentence is a text without Kafka's usual beginning; %s is the key.
type sentence string

func (w sentence) Error() string { return string(w) }

// badValue blames another value than the one that was set: a part of a list, a
// number as it was read.
type badValue struct{ value, text string }

func (b badValue) Error() string { return b.text }

// listOf is ConfigDef.ValidList.in: the list may be empty, repetitions are taken
// once.
func listOf(values ...string) func(string) error {
	return func(v string) error {
		for _, p := range list(v) {
			if p == "" {
				return sentence("Configuration '%s' values must not be empty.")
			}
			if !slices.Contains(values, p) {
				return badValue{p, "String must be one of: " + strings.Join(values, ", ")}
			}
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

func double(v string) error {
	if _, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err != nil {
		return fmt.Errorf("Not a number of type DOUBLE") //nolint:staticcheck // Kafka's words
	}
	return nil
}

func ratio(v string) error {
	f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
	switch {
	case err != nil:
		return fmt.Errorf("Not a number of type DOUBLE") //nolint:staticcheck // Kafka's words
	case !(f >= 0):
		return badValue{canonical(typeDouble, v), "Value must be at least 0"}
	case f > 1:
		return badValue{canonical(typeDouble, v), "Value must be no more than 1"}
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
			return badValue{"[" + strings.Join(parts, ", ") + "]",
				"%name must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."}
		}
	}
	return nil
}
