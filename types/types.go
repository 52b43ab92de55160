package types

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// Offset is the position of a record in a partition's log, counted from 0 in
// records. It is never a stream sequence: those count messages and are
// pubsub.Seq, so that a mix-up does not compile.
type Offset int64

// NoOffset stands for "not known" or "nothing", as -1 does on the wire.
const NoOffset Offset = -1

// TopicPartition names one partition of a topic by the topic's name.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String gives topic-partition as Kafka's tools print it.
func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// TopicID is the identity of one incarnation of a topic: random, never zero,
// new after delete and re-create (KIP-516).
type TopicID [16]byte

// NewTopicID makes a random (version 4) id. It is never zero.
func NewTopicID() TopicID {
	var id TopicID
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// IsZero reports the id that means "none" on the wire.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// String gives the 22 characters of URL-safe base64 that Kafka's tools show.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseTopicID is the inverse of String.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("topic id %q: not 22 characters of URL-safe base64", s)
	}
	copy(id[:], b)
	return id, nil
}

// MarshalText and UnmarshalText make a TopicID readable in stored JSON.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses what MarshalText wrote.
func (id *TopicID) UnmarshalText(b []byte) error {
	v, err := ParseTopicID(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}
