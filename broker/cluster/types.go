package cluster

import "time"

// Identity is one life of one gateway process.
type Identity struct {
	Node        int32  // internal node id; Metadata shows 1 in shared address mode
	Incarnation string // random, new at every start and after being found dead
}

// Peer is a gateway as its key in the membership table and our watch show it.
type Peer struct {
	Identity
	Host  string
	Port  int32
	Dead  bool
	Adopt time.Time // from when what it owned may be adopted; zero while it lives
}
