package topic

import (
	"strconv"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// Keys of a stream's metadata: facts that never change, by which a stream
// explains itself without any record.
const (
	metaFormat    = "stream.format"
	metaCluster   = "stream.cluster"
	metaTopic     = "stream.topic"
	metaID        = "stream.topic_id"
	metaN         = "stream.n"
	metaPartition = "stream.partition"
	metaFormatOne = "1"
)

func metadata(cluster string, t *Topic, n int32) map[string]string {
	return map[string]string{
		metaFormat:    metaFormatOne,
		metaCluster:   cluster,
		metaTopic:     t.Name,
		metaID:        t.ID.String(),
		metaN:         strconv.FormatUint(uint64(t.N), 10),
		metaPartition: strconv.Itoa(int(n)),
	}
}

// identity is what a stream's metadata says of it.
type identity struct {
	topic     string
	id        types.TopicID
	n         pubsub.Rev
	partition int32
}

// identify reads a stream's metadata; ok is false unless it is one of this
// cluster's partitions.
func identify(cluster string, l pubsub.LogConfig) (i identity, ok bool) {
	m := l.Metadata
	id, err := types.ParseTopicID(m[metaID])
	n, err2 := strconv.ParseUint(m[metaN], 10, 64)
	p, err3 := strconv.ParseInt(m[metaPartition], 10, 32)
	if err != nil || err2 != nil || err3 != nil || m[metaFormat] != metaFormatOne || m[metaCluster] != cluster || CheckName(m[metaTopic]) != nil {
		return identity{}, false
	}
	return identity{topic: m[metaTopic], id: id, n: pubsub.Rev(n), partition: int32(p)}, true
}

// ended reports that incarnation n of a topic is over for sure, given what the
// store's leader says of the topic's key: a later revision than n, and no record
// or one of another number. Revisions are never reused, so no stale answer can
// make this true.
func ended(n pubsub.Rev, r *record, rev pubsub.Rev) bool {
	return rev > n && (r == nil || r.number() != n)
}
