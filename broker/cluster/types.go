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
}

// State of a gateway's key. Only a written state counts; silence is none.
type State string

// The states of a gateway's key.
const (
	Alive State = "alive"
	Dead  State = "dead" // written by a peer that saw no renewal for a time-to-live
	Gone  State = "gone" // written by the gateway itself when it left in order
)
