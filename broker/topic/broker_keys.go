package topic

import "strconv"

// brokerKeys are the broker configs that are shown, with Kafka's defaults: what
// tools look for, and what has a true value here. A topic config whose default
// they are has the same value (topic configs are not shifted by the broker's).
var brokerKeys = []struct {
	name string
	typ  int8
	def  string
	doc  string
}{
	{"advertised.listeners", typeList, "", "Where clients reach this broker."},
	{"auto.create.topics.enable", typeBoolean, "true", "Whether Metadata that names an unknown topic creates it."},
	{"auto.leader.rebalance.enable", typeBoolean, "true", "Whether leaders move back to preferred replicas. Without effect: any gateway serves any partition."},
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
	{"log.cleaner.delete.retention.ms", typeLong, "86400000", "Default of delete.retention.ms."},
	{"log.cleaner.enable", typeBoolean, "true", "Whether logs are compacted. There is no cleaner yet: compacted topics are kept whole."},
	{"log.cleaner.max.compaction.lag.ms", typeLong, "9223372036854775807", "Default of max.compaction.lag.ms."},
	{"log.cleaner.min.cleanable.ratio", typeDouble, "0.5", "Default of min.cleanable.dirty.ratio."},
	{"log.cleaner.min.compaction.lag.ms", typeLong, "0", "Default of min.compaction.lag.ms."},
	{"log.cleanup.policy", typeList, "delete", "Default of cleanup.policy."},
	{"log.dirs", typeString, "", "Where the logs are."},
	{"log.flush.interval.messages", typeLong, "9223372036854775807", "Default of flush.messages."},
	{"log.index.interval.bytes", typeInt, "4096", "Default of index.interval.bytes."},
	{"log.index.size.max.bytes", typeInt, "10485760", "Default of segment.index.bytes."},
	{"log.local.retention.bytes", typeLong, "-2", "Default of local.retention.bytes."},
	{"log.local.retention.ms", typeLong, "-2", "Default of local.retention.ms."},
	{"log.message.timestamp.after.max.ms", typeLong, "3600000", "Default of message.timestamp.after.max.ms."},
	{"log.message.timestamp.before.max.ms", typeLong, "9223372036854775807", "Default of message.timestamp.before.max.ms."},
	{"log.message.timestamp.type", typeString, "CreateTime", "Default of message.timestamp.type."},
	{"log.preallocate", typeBoolean, "false", "Default of preallocate."},
	{"log.retention.bytes", typeLong, "-1", "Default of retention.bytes." + noCleaner},
	{"log.retention.check.interval.ms", typeLong, "300000", "How often retention is carried out." + noCleaner},
	{"log.retention.hours", typeInt, "168", "Default of retention.ms, in hours." + noCleaner},
	{"log.roll.hours", typeInt, "168", "Default of segment.ms, in hours."},
	{"log.segment.bytes", typeInt, "1073741824", "Default of segment.bytes."},
	{"log.segment.delete.delay.ms", typeLong, "60000", "Default of file.delete.delay.ms."},
	{"max.connections", typeInt, "2147483647", "Most connections."},
	{"max.connections.per.ip", typeInt, "2147483647", "Most connections of one address."},
	{"message.max.bytes", typeInt, strconv.Itoa(defaultMaxMessage), "Default of max.message.bytes; never more than the store takes in one message."},
	{"min.insync.replicas", typeInt, "1", "Default of the topic config."},
	{"node.id", typeInt, "", "The broker's id, as clients see it."},
	{"num.partitions", typeInt, "1", "Partitions of a topic whose creator leaves it to the broker."},
	{"offset.metadata.max.bytes", typeInt, "4096", "Most bytes of metadata with a committed offset."},
	{"offsets.retention.check.interval.ms", typeLong, "600000", "How often expired offsets are looked for."},
	{"offsets.retention.minutes", typeInt, "10080", "How long offsets of an empty group are kept."},
	{"process.roles", typeList, "", "What this process is."},
	{"socket.request.max.bytes", typeInt, "104857600", "Largest request."},
	{"unclean.leader.election.enable", typeBoolean, "false", "Default of the topic config."},
}
