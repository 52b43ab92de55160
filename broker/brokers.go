package broker

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// SharedNode is the one broker id that clients see when all gateways stand
// behind one address.
const SharedNode int32 = 1

// Brokers are the brokers that clients are told of at one moment: the one that
// stands for all gateways, or each gateway that lives and does not drain. Gateways
// with the same view of the membership tell the same.
//
// One that is suspect is told of as well, though nothing is led there: suspicion is
// our own, another gateway may name it as a coordinator for a second more, and
// clients of franz-go give a transactional producer up for good over a coordinator
// that is no broker.
type Brokers struct {
	// Nodes are all of them, by id: never none.
	Nodes []Node
	// Self is the id that this gateway answers as.
	Self int32

	peers []cluster.Peer // those of Nodes to lead clients to; nil with one address for all
}

// Node is a broker as clients see it.
type Node struct {
	ID   int32
	Host string // "": whatever address the client has reached
	Port int32
	Rack *string
}

// Brokers are who clients are told of now.
func (b *Broker) Brokers() Brokers {
	if !b.perGateway() {
		return Brokers{Nodes: []Node{{SharedNode, b.cfg.Host, b.cfg.Port, b.cfg.Rack}}, Self: SharedNode}
	}
	b.cluster.Probe(100 * time.Millisecond)
	peers := b.cluster.Peers()
	v := Brokers{Self: b.cluster.Self().Node, peers: cluster.Fit(peers)}
	for _, p := range peers {
		if !p.Draining || slices.Contains(v.peers, p) { // those if all do
			v.Nodes = append(v.Nodes, Node{ID: p.Node, Host: p.Host, Port: p.Port})
		}
	}
	if len(v.Nodes) == 0 { // the watch has not even shown ourselves
		v.Nodes = []Node{{v.Self, b.cfg.Host, b.cfg.Port, b.cfg.Rack}}
	}
	return v
}

// Controller is the node that admin clients are sent to: any gateway serves.
func (v Brokers) Controller() int32 {
	if len(v.peers) > 0 {
		return v.peers[0].Node
	}
	return v.Nodes[0].ID
}

// Replicas are the brokers to name for a partition of which the store has so
// many copies: at least one, the one that clients should ask first. Any gateway
// serves any partition, so the choice is for affinity alone, and moves only what
// a gateway that came or went gets or had.
func (v Brokers) Replicas(id types.TopicID, partition int32, copies int) []int32 {
	if len(v.peers) == 0 {
		return []int32{v.Nodes[0].ID}
	}
	key := id.String() + "." + strconv.Itoa(int(partition))
	if copies <= 1 || len(v.peers) == 1 {
		p, _ := cluster.Choose(v.peers, key)
		return []int32{p.Node}
	}
	var ids []int32
	for _, p := range cluster.Rank(v.peers, key, copies) {
		ids = append(ids, p.Node)
	}
	return ids
}

func (b *Broker) perGateway() bool { return b.cfg.Cluster.Mode == cluster.PerGateway }

// self is the id that clients know this gateway by.
func (b *Broker) self() int32 {
	if b.perGateway() {
		return b.cluster.Self().Node
	}
	return SharedNode
}

func (b *Broker) isBroker(id int32) bool {
	for _, n := range b.Brokers().Nodes {
		if n.ID == id {
			return true
		}
	}
	return false
}

// Coordinator is the node that clients should ask for a group; −1 while this
// gateway cannot know. Whoever asks is about to use groups: from then on there
// is a topic of committed offsets.
//
// With an address per gateway that is the owner of the group's record, if that
// may be asked, else who should take it over first.
func (b *Broker) Coordinator(name string) int32 {
	b.offsets.Use()
	if !b.perGateway() {
		return SharedNode
	}
	if !b.cluster.Fresh() {
		return -1
	}
	// Clients ask when they have lost the one they knew.
	b.cluster.Probe(0)
	if id, ok := b.groups.Seat(name); ok {
		return id.Node
	}
	return -1
}

// TxnCoordinator is the node that clients should ask for a transactional id; −1
// while this gateway cannot know. It is a hint as Coordinator's is, and any gateway
// passes on what it is asked.
func (b *Broker) TxnCoordinator(id string) int32 {
	if !b.perGateway() {
		return SharedNode
	}
	if !b.cluster.Fresh() {
		return -1
	}
	b.cluster.Probe(0)
	if to, ok := b.txns.Seat(id); ok {
		return to.Node
	}
	return -1
}

// BrokerConfigs lists the configs of one of Brokers under Kafka's names, by name.
// All gateways should be configured alike; what differs by design is told of the
// one that is asked for.
func (b *Broker) BrokerConfigs(id int32) []topic.ConfigValue {
	shown := b.cfg.Shown
	if b.perGateway() {
		shown = maps.Clone(shown)
		shown["broker.id"], shown["node.id"] = strconv.Itoa(int(id)), strconv.Itoa(int(id))
		for _, n := range b.Brokers().Nodes {
			if n.ID == id {
				shown["advertised.listeners"] = b.cfg.Listener(n.Host, n.Port)
			}
		}
	}
	return b.topics.BrokerConfigs(strconv.Itoa(int(id)), shown)
}
