package topic

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// state of a topic record: creating → active → deleting → record removed, its
// marker kept; creating → deleting if the creator is gone or gave up.
type state string

const (
	creating state = "creating" // partitions are being made; invisible
	active   state = "active"
	deleting state = "deleting" // gone for clients; partitions are being removed
)

const recordVersion = 1

// errFormat: written by a later version; neither used nor overwritten.
var errFormat = errors.New("in a format that this version does not know")

// record is the value of kafka-topics/{Token(name)}: the commit point of a
// topic's creation, change and deletion.
type record struct {
	V    int           `json:"v"`
	Name string        `json:"name"`
	ID   types.TopicID `json:"id"`
	// N is the revision of the creating write, 0 in that write itself, which
	// cannot know it: read it by number.
	N     pubsub.Rev `json:"n"`
	Bare  bool       `json:"bare"`
	State state      `json:"state"`
	// Growing is the number of partitions that an active topic is growing to.
	Growing int32 `json:"growing,omitempty"`
	// Creator is the incarnation of the gateway that creates (or grows) it.
	Creator    string            `json:"creator"`
	Partitions int32             `json:"partitions"`
	Replicas   int               `json:"replicas"`
	Configs    map[string]string `json:"configs,omitempty"`

	rev  pubsub.Rev                 // of the value it was read from
	rest map[string]json.RawMessage // fields of later versions, carried through
}

var recordFields = []string{"v", "name", "id", "n", "bare", "state", "growing", "creator", "partitions", "replicas", "configs"}

// parseRecord reads a stored value that is no delete marker.
func parseRecord(v pubsub.Value) (*record, error) {
	r := &record{rev: v.Rev}
	var version struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(v.Data, &version); err != nil {
		return nil, fmt.Errorf("topic record %s: %w", v.Key, err)
	}
	if version.V != recordVersion {
		return nil, fmt.Errorf("topic record %s, v%d: %w", v.Key, version.V, errFormat)
	}
	if err := json.Unmarshal(v.Data, r); err != nil {
		return nil, fmt.Errorf("topic record %s: %w", v.Key, err)
	}
	if err := json.Unmarshal(v.Data, &r.rest); err != nil {
		return nil, fmt.Errorf("topic record %s: %w", v.Key, err)
	}
	for _, f := range recordFields {
		delete(r.rest, f)
	}
	switch {
	case pubsub.Token(r.Name) != v.Key:
		return nil, fmt.Errorf("topic record %s is of topic %q", v.Key, r.Name)
	case r.State != creating && r.State != active && r.State != deleting:
		return nil, fmt.Errorf("topic record %s, state %q: %w", v.Key, r.State, errFormat)
	case r.Partitions < 1 || r.ID.IsZero() || r.Replicas < 1:
		return nil, fmt.Errorf("topic record %s: %d partitions, %d replicas, id %s", v.Key, r.Partitions, r.Replicas, r.ID)
	case r.N == 0 && r.State != creating || r.N > r.rev || r.Growing != 0 && r.Growing < r.Partitions:
		return nil, fmt.Errorf("topic record %s: n %d at revision %d, growing to %d", v.Key, r.N, r.rev, r.Growing)
	}
	return r, nil
}

func (r *record) encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil || len(r.rest) == 0 {
		return b, err
	}
	all := maps.Clone(r.rest)
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// number is n: the revision of the creating write.
func (r *record) number() pubsub.Rev {
	if r.N == 0 {
		return r.rev
	}
	return r.N
}

// with is a copy in another state, its number filled in.
func (r *record) with(s state) *record {
	c := *r
	c.State, c.N = s, r.number()
	return &c
}

// topic is what clients see of an active record.
func (r *record) topic() *Topic {
	return &Topic{Name: r.Name, ID: r.ID, N: r.number(), Bare: r.Bare, Partitions: r.Partitions, Replicas: r.Replicas, Configs: r.Configs}
}
