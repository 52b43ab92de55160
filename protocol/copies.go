package protocol

import (
	"context"
	"slices"
	"time"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
)

// Copies tells on how many servers partitions are.
type Copies interface {
	// Copies tells of one partition, from memory.
	Copies(t *topic.Topic, partition int32) partition.Copies
	// RefreshCopies makes what Copies tells of these topics new, and waits for
	// that as long as ctx lasts.
	RefreshCopies(ctx context.Context, topics ...*topic.Topic)
}

// copiesPatience is how long Metadata waits for news of copies. Most clients that
// ask it want leaders only.
const copiesPatience = 250 * time.Millisecond

// replicas are the lists that describe a partition: all replicas, those in sync and
// those that are away, the leader first. Tools look at how many there are, and the
// store's servers are no brokers: so the list begins with brokers, and where the
// store has more copies than there are brokers it goes on with ids that no broker
// has, as those of a broker that is down.
func (h *handler) replicas(b Brokers, t *topic.Topic, n int32) (all, inSync, offline []int32) {
	c := h.backend.Copies(t, n)
	all = b.Replicas(t.ID, n, c.Replicas)
	for id := int32(1); len(all) < c.Replicas; id++ {
		if _, ok := b.Find(id); !ok && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	ready := c.InSync
	if c.Silent {
		ready = 1 // nobody knows: no more than the one that is asked
	}
	ready = min(max(ready, 1), len(all))
	away := min(max(c.Offline, 0), len(all)-ready)
	return all, all[:ready:ready], append([]int32{}, all[len(all)-away:]...)
}
