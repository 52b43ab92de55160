package topic

import (
	"math"
	"strconv"
)

// unset stands for a default of null: another key's value is in force.
const unset = "\x00"

const (
	noThreads = " Without effect: threads are Go's."
)

// brokerKey is one broker config.
type brokerKey struct {
	name string
	typ  int8
	def  string // or unset
	doc  string
}

// brokerKeys are the broker configs that are shown, with Kafka's defaults: the
// defaults of topic configs, what tools look for, and what has a true value here.
var brokerKeys = []brokerKey{
	{"advertised.listeners", typeList, "", "Where clients reach this broker."},
	{"auto.create.topics.enable", typeBoolean, "true", "Whether Metadata that names an unknown topic creates it."},
	{"auto.leader.rebalance.enable", typeBoolean, "true", "Whether leaders move back to preferred replicas. Without effect: any gateway serves any partition."},
	{"background.threads", typeInt, "10", "Threads for background work." + noThreads},
	{"broker.id", typeInt, "-1", "The broker's id, as clients see it."},
	{"broker.rack", typeString, "", "The broker's rack."},
	{"compression.gzip.level", typeInt, "-1", "Default of the topic config."},
	{"compression.lz4.level", typeInt, "9", "Default of the topic config."},
	{"compression.type", typeString, "producer", "Default of the topic config: batches stay as they came."},
	{"compression.zstd.level", typeInt, "3", "Default of the topic config."},
	{"connections.max.idle.ms", typeLong, "600000", "Idle time after which a connection is closed."},
	{"default.replication.factor", typeInt, "1", "Replicas of a topic whose creator leaves it to the broker."},
	{"delete.topic.enable", typeBoolean, "true", "Whether topics can be deleted."},
	{"fetch.max.bytes", typeInt, "57671680", "Most bytes of one Fetch answer, but for a first batch larger than that."},
	{"group.initial.rebalance.delay.ms", typeInt, "3000", "How long a new group waits for more members."},
	{"group.max.session.timeout.ms", typeInt, "1800000", "Longest session timeout that a member may ask for."},
	{"group.max.size", typeInt, "2147483647", "Most members of a group."},
	{"group.min.session.timeout.ms", typeInt, "6000", "Shortest session timeout that a member may ask for."},
	{"listeners", typeList, "PLAINTEXT://:9092", "Where this broker listens."},
	{"log.cleaner.backoff.ms", typeLong, "15000", "How long the cleaner rests when there is nothing to clean, and between two runs on one partition; at least a second. Where there was next to nothing to do: a second for each compacted partition."},
	{"log.cleaner.dedupe.buffer.size", typeLong, "134217728", "Memory for the keys of the partition that is being compacted; what the process was started with, at most an eighth of its memory, bounds it."},
	{"log.cleaner.delete.retention.ms", typeLong, "86400000", "Default of delete.retention.ms."},
	{"log.cleaner.enable", typeBoolean, "true", "Whether logs are compacted."},
	{"log.cleaner.io.buffer.load.factor", typeDouble, "0.9", "Share of the cleaner's memory that is used."},
	{"log.cleaner.io.buffer.size", typeInt, "524288", "Memory of the cleaner for reading and writing. Without effect: it takes a few batches."},
	{"log.cleaner.io.max.bytes.per.second", typeDouble, "1.7976931348623157E308", "Bytes a second that the cleaner reads and writes, both together."},
	{"log.cleaner.max.compaction.lag.ms", typeLong, "9223372036854775807", "Default of max.compaction.lag.ms."},
	{"log.cleaner.min.cleanable.ratio", typeDouble, "0.5", "Default of min.cleanable.dirty.ratio."},
	{"log.cleaner.min.compaction.lag.ms", typeLong, "0", "Default of min.compaction.lag.ms."},
	{"log.cleaner.threads", typeInt, "1", "Threads of the cleaner. Without effect: one partition is compacted at a time."},
	{"log.cleanup.policy", typeList, "delete", "Default of cleanup.policy."},
	{"log.dirs", typeString, "", "Where the logs are."},
	{"log.flush.interval.messages", typeLong, "9223372036854775807", "Default of flush.messages."},
	{"log.flush.interval.ms", typeLong, unset, "Default of flush.ms."},
	{"log.flush.scheduler.interval.ms", typeLong, "9223372036854775807", "Default of log.flush.interval.ms."},
	{"log.index.interval.bytes", typeInt, "4096", "Default of index.interval.bytes."},
	{"log.index.size.max.bytes", typeInt, "10485760", "Default of segment.index.bytes."},
	{"log.local.retention.bytes", typeLong, "-2", "Default of local.retention.bytes."},
	{"log.local.retention.ms", typeLong, "-2", "Default of local.retention.ms."},
	{"log.message.timestamp.after.max.ms", typeLong, "3600000", "Default of message.timestamp.after.max.ms."},
	{"log.message.timestamp.before.max.ms", typeLong, "9223372036854775807", "Default of message.timestamp.before.max.ms."},
	{"log.message.timestamp.type", typeString, "CreateTime", "Default of message.timestamp.type."},
	{"log.preallocate", typeBoolean, "false", "Default of preallocate."},
	{"log.retention.bytes", typeLong, "-1", "Default of retention.bytes."},
	{"log.retention.check.interval.ms", typeLong, "300000", "How often it is looked for what retention removes."},
	{"log.retention.hours", typeInt, "168", "Default of log.retention.ms, in hours."},
	{"log.retention.minutes", typeInt, unset, "Default of log.retention.ms, in minutes."},
	{"log.retention.ms", typeLong, unset, "Default of retention.ms; before log.retention.minutes and log.retention.hours."},
	{"log.roll.hours", typeInt, "168", "Default of segment.ms, in hours."},
	{"log.roll.jitter.hours", typeInt, "0", "Default of log.roll.jitter.ms, in hours."},
	{"log.roll.jitter.ms", typeLong, unset, "Default of segment.jitter.ms."},
	{"log.roll.ms", typeLong, unset, "Default of segment.ms; before log.roll.hours."},
	{"log.segment.bytes", typeInt, "1073741824", "Default of segment.bytes."},
	{"log.segment.delete.delay.ms", typeLong, "60000", "Default of file.delete.delay.ms."},
	{"max.connections", typeInt, "2147483647", "Most connections."},
	{"max.connections.per.ip", typeInt, "2147483647", "Most connections of one address."},
	{"message.max.bytes", typeInt, strconv.Itoa(defaultMaxMessage), "Default of max.message.bytes; never more than the store takes in one message."},
	{"min.insync.replicas", typeInt, "1", "Default of the topic config."},
	{"node.id", typeInt, "", "The broker's id, as clients see it."},
	{"num.io.threads", typeInt, "8", "Threads that serve requests." + noThreads},
	{"num.network.threads", typeInt, "3", "Threads that read and write requests." + noThreads},
	{"num.partitions", typeInt, "1", "Partitions of a topic whose creator leaves it to the broker."},
	{"num.recovery.threads.per.data.dir", typeInt, "2", "Threads that recover logs at the start." + noThreads},
	{"num.replica.fetchers", typeInt, "1", "Threads that fetch from leaders." + noThreads},
	{"offset.metadata.max.bytes", typeInt, "4096", "Most bytes of metadata with a committed offset."},
	{"offsets.retention.check.interval.ms", typeLong, "600000", "How often expired offsets are looked for."},
	{"offsets.retention.minutes", typeInt, "10080", "How long offsets of an empty group are kept."},
	{"process.roles", typeList, "", "What this process is."},
	{"socket.request.max.bytes", typeInt, "104857600", "Largest request."},
	{"transaction.max.timeout.ms", typeInt, "900000", "Longest timeout that a transaction may ask for."},
	{"transactional.id.expiration.ms", typeInt, "604800000", "How long a transactional id is kept that nobody uses."},
	{"unclean.leader.election.enable", typeBoolean, "false", "Default of the topic config."},
}

var brokerByKey = func() map[string]*brokerKey {
	m := make(map[string]*brokerKey, len(brokerKeys))
	for i := range brokerKeys {
		m[brokerKeys[i].name] = &brokerKeys[i]
	}
	return m
}()

// dynamic are the broker configs that can be changed while brokers run, with
// what they may be: those in whose place topic configs stand, and some that mean
// nothing here and do no harm. What Kafka can change besides (connections,
// listeners, quotas) is in force from the configuration only and refused: a
// change that is taken is obeyed.
var dynamic = func() map[string]func(string) error {
	m := map[string]func(string) error{
		"background.threads":                  number(typeInt, 1, math.MaxInt32),
		"log.cleaner.backoff.ms":              number(typeLong, 0, math.MaxInt64),
		"log.cleaner.dedupe.buffer.size":      dedupe,
		"log.cleaner.io.buffer.load.factor":   double,
		"log.cleaner.io.buffer.size":          number(typeInt, 0, math.MaxInt32),
		"log.cleaner.io.max.bytes.per.second": double,
		"log.cleaner.threads":                 number(typeInt, 1, math.MaxInt32),
		"num.io.threads":                      number(typeInt, 1, math.MaxInt32),
		"num.network.threads":                 number(typeInt, 1, math.MaxInt32),
		"num.recovery.threads.per.data.dir":   number(typeInt, 1, math.MaxInt32),
		"num.replica.fetchers":                number(typeInt, math.MinInt32, math.MaxInt32),
	}
	for i := range keys {
		if from := keys[i].from; len(from) > 0 {
			m[from[0].name] = keys[i].check
		}
	}
	m["log.retention.ms"] = number(typeLong, math.MinInt64, math.MaxInt64) // negative is -1
	return m
}()

// dedupe is LogCleaner's check of the memory for keys.
func dedupe(v string) error {
	if err := number(typeLong, math.MinInt64, math.MaxInt64)(v); err != nil {
		return err
	}
	if number(typeLong, 1<<20, math.MaxInt64)(v) != nil {
		return sentence("requirement failed: %s must be at least 1MB per cleaner thread.")
	}
	return nil
}

// chains are the keys that stand in for one that is not set, best first
// (DynamicBrokerConfig.brokerConfigSynonyms).
var chains = func() map[string][]string {
	m := map[string][]string{}
	for i := range keys {
		var chain []string
		for _, o := range keys[i].from {
			chain = append(chain, o.name)
		}
		for _, name := range chain {
			m[name] = chain
		}
	}
	return m
}()
