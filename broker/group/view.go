package group

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
)

// Versions that the group coordinator of Kafka 4.3.1 writes
// (org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers).
const (
	offsetKeyVersion   = 1
	offsetValueVersion = 4
	groupKeyVersion    = 2
	groupValueVersion  = 3
)

// topicHeader names the topic, percent-encoded, of a delete marker whose key has
// only a hash of it.
const topicHeader = "Topic"

// KafkaRecord is a stored value in the form in which Kafka's group coordinator
// keeps it in __consumer_offsets.
type KafkaRecord struct {
	Key       []byte
	Value     []byte // nil: a tombstone
	Timestamp int64  // ms: when committed; of anything but a commit, when stored
}

// ToKafka translates a value of the offsets' table. ok is false for what Kafka
// has no record for: a key made ours without a commit, commits of a transaction
// that is open, keys that are not a group's, and the end of something whose name
// is not stored. It looks at that one value: an offset that a frozen gateway left
// behind for an earlier life of its group is a record too, until it is removed.
// An unreadable value is an error.
func ToKafka(v pubsub.Value) (r KafkaRecord, ok bool, err error) {
	r.Timestamp = v.Time.UnixMilli()
	token, _, below := strings.Cut(v.Key, ".")
	group, known := headerName(token, v.Header, nameHeader)
	if !below {
		return groupRecord(r, group, known, v)
	}
	tp, val, err := parseOffset(v)
	switch {
	case tp.Topic == "" && v.Deleted:
		name := v.Header.Get(topicHeader)
		if tp.Topic, err = url.QueryUnescape(name); err != nil || name == "" {
			return r, false, nil
		}
	case err != nil && offsetShaped(v.Key):
		return r, false, err
	case tp.Topic == "":
		return r, false, nil
	}
	if val != nil && val.Placeholder {
		known = known && val.Erased // a commit was there: its end shows
		val = nil
	}
	if !known {
		return r, false, nil
	}
	k := kmsg.OffsetCommitKey{Version: offsetKeyVersion, Group: group, Topic: tp.Topic, Partition: tp.Partition}
	r.Key = k.AppendTo(nil)
	if val != nil {
		r.Timestamp = val.Timestamp
		o := kmsg.OffsetCommitValue{
			Version: offsetValueVersion, Offset: int64(val.Offset), LeaderEpoch: val.Epoch,
			Metadata: val.Metadata, CommitTimestamp: val.Timestamp, ExpireTimestamp: -1, TopicID: val.TopicID,
		}
		r.Value = o.AppendTo(nil)
	}
	return r, true, nil
}

// offsetShaped reports a key that can be an offset's.
func offsetShaped(key string) bool {
	f := strings.Split(key, ".")
	if len(f) != 3 {
		return false
	}
	_, err := strconv.ParseInt(f[2], 10, 32)
	return err == nil
}

// headerName is the name that a token stands for, from a header if the token is
// a hash.
func headerName(token string, h pubsub.Header, key string) (string, bool) {
	if name, ok := pubsub.Name(token); ok {
		return name, true
	}
	name, err := url.QueryUnescape(h.Get(key))
	return name, err == nil && name != ""
}

// groupRecord translates a group's own record.
func groupRecord(r KafkaRecord, name string, known bool, v pubsub.Value) (KafkaRecord, bool, error) {
	var g record
	if !v.Deleted {
		body, _, err := coord.Open(v)
		if err != nil {
			return r, false, err
		}
		if _, err := coord.Unmarshal(body, &g); err != nil {
			return r, false, fmt.Errorf("group %s at revision %d: %w", v.Key, v.Rev, err)
		}
		if g.Type != classic {
			return r, false, fmt.Errorf("group %s at revision %d: type %q: %w", v.Key, v.Rev, g.Type, coord.ErrVersion)
		}
		name, known = g.Name, true
	}
	if !known {
		return r, false, nil
	}
	k := kmsg.GroupMetadataKey{Version: groupKeyVersion, Group: name}
	r.Key = k.AppendTo(nil)
	if v.Deleted || g.Deleting {
		return r, true, nil
	}
	out := kmsg.GroupMetadataValue{
		Version: groupValueVersion, ProtocolType: g.ProtocolType, Generation: g.Generation,
		Protocol: notEmpty(g.Protocol), Leader: notEmpty(g.Leader), CurrentStateTimestamp: g.Since,
	}
	for _, m := range g.Members {
		to := kmsg.NewGroupMetadataValueMember()
		to.MemberID, to.InstanceID, to.ClientID, to.ClientHost = m.ID, m.Instance, m.ClientID, m.Host
		to.RebalanceTimeoutMillis, to.SessionTimeoutMillis = int32(m.Rebalance), int32(m.Session)
		to.Subscription, to.Assignment = []byte{}, m.Assignment
		for _, p := range m.Protocols {
			if p.Name == g.Protocol {
				to.Subscription = p.Metadata
			}
		}
		out.Members = append(out.Members, to)
	}
	r.Value = out.AppendTo(nil)
	return r, true, nil
}

func notEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// namesBeyond are the headers of an offset's value, or marker, that tell the
// names of which its key has only hashes; nil if it has the names themselves.
func namesBeyond(group, topic string, marker bool) pubsub.Header {
	var h pubsub.Header
	add := func(key, name string) {
		if _, ok := pubsub.Name(pubsub.Token(name)); ok {
			return
		}
		if h == nil {
			h = pubsub.Header{}
		}
		h[key] = []string{url.QueryEscape(name)}
	}
	add(nameHeader, group)
	if marker {
		add(topicHeader, topic)
	}
	return h
}
