package coord

import (
	"github.com/hanzoai/stream/broker/cluster"
)

// Membership is what ownership needs to know of the cluster. Methods are safe
// for concurrent use and answer from memory at once.
type Membership interface {
	// Self is this gateway's present life. It changes when the gateway was
	// found dead and came back as a new incarnation.
	Self() cluster.Identity
	// Fresh reports whether answers from memory may leave now: our renewal was
	// acknowledged recently enough that nobody can have adopted what we own.
	Fresh() bool
	// MayAdopt reports that the named incarnation is dead, gone or has let go,
	// and that the time it must be waited for has passed.
	MayAdopt(owner cluster.Identity) bool
	// Peers lists the gateways that live, this one included once it is known to.
	Peers() []cluster.Peer
	// Changed is closed at the next change of anything above.
	Changed() <-chan struct{}
}

// Owner names the gateway that alone may change a record, and how many owners
// the record had before: a value that carries a higher term than ours was
// written by whoever took over from us.
type Owner struct {
	Node        int32  `json:"node"`
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
}

// Identity is the owner without its term.
func (o Owner) Identity() cluster.Identity {
	return cluster.Identity{Node: o.Node, Incarnation: o.Incarnation}
}
