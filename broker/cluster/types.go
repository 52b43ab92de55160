package cluster

// Identity is one life of one gateway process.
type Identity struct {
	Node        int32  `json:"node"`        // internal node id; Metadata shows 1 in shared address mode
	Incarnation string `json:"incarnation"` // random, new at every start and after being found dead
}

// Peer is a gateway as the membership table shows it.
type Peer struct {
	Identity
	Host  string
	Port  int32
	State State
	// Draining is set while a gateway that lives prepares to leave: nothing new
	// should go to it.
	Draining bool
	// Suspect is this gateway's own guess that a peer is gone before that is
	// written: it missed a renewal and does not answer. Only hints may follow it.
	Suspect bool
	// Mode is how clients reach the gateways, the same for all that live.
	Mode Mode
	// Formats are what it can read of the store.
	Formats Formats
}

// Mode is how clients reach the gateways of a cluster.
type Mode string

// The address modes.
const (
	Shared     Mode = "shared"      // one address for all, one broker in Metadata
	PerGateway Mode = "per-gateway" // each gateway is a broker with its own address
)

// Formats is a range of versions of what is stored, both ends included.
type Formats struct {
	Oldest int `json:"oldest"`
	Newest int `json:"newest"`
}

// Knows reports whether v lies in the range.
func (f Formats) Knows(v int) bool { return f.Oldest <= v && v <= f.Newest }

// State of a gateway's key. Only a written state counts; silence is none.
type State string

// The states of a gateway's key.
const (
	Alive State = "alive"
	Dead  State = "dead" // written by a peer that saw no renewal for a time-to-live
	Gone  State = "gone" // written by the gateway itself when it left in order
)
