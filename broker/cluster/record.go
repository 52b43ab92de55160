package cluster

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// recordVersion is the version of a gateway's key that this build writes.
const recordVersion = 1

// record is the stored value of a gateway's key, {node id} in decimal.
type record struct {
	V           int    `json:"v"`
	Incarnation string `json:"incarnation"`
	State       State  `json:"state"`
	Host        string `json:"host"`
	Port        int32  `json:"port"`
	// Draining is a fact about a gateway that is alive, not a state of its own:
	// builds that do not know it must go on seeing it alive.
	Draining bool     `json:"draining,omitempty"`
	Mode     Mode     `json:"mode,omitempty"`
	Formats  *Formats `json:"formats,omitempty"`
	// Renewals makes each renewal's value differ, for people who watch.
	Renewals uint64 `json:"renewals"`
}

func (r record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return b
}

func decode(key string, data []byte) (Peer, error) {
	node, err := strconv.ParseInt(key, 10, 32)
	if err != nil {
		return Peer{}, fmt.Errorf("gateway key %q: not a node id", key)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return Peer{}, fmt.Errorf("gateway %d: %w", node, err)
	}
	// A later version still says whether it lives: those fields never change.
	p := Peer{Identity: Identity{int32(node), r.Incarnation}, Host: r.Host, Port: r.Port, State: r.State, Draining: r.Draining, Mode: r.Mode}
	// Builds from before these fields knew one mode and one format.
	if p.Mode == "" {
		p.Mode = Shared
	}
	if p.Formats = (Formats{1, 1}); r.Formats != nil {
		p.Formats = *r.Formats
	}
	return p, nil
}

func keyOf(node int32) string { return strconv.FormatInt(int64(node), 10) }
