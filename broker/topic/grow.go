package topic

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

// Growth asks for more partitions.
type Growth struct {
	// Partitions is the number wanted, more than there are.
	Partitions int32
	// Assignments, if not nil, name the brokers of each new partition. The store
	// places streams: they are only checked.
	Assignments [][]int32
	// ValidateOnly checks everything and makes nothing.
	ValidateOnly bool
}

// Grow gives this very incarnation of a topic more partitions: record `growing`,
// streams and partition records, record with the new number. When it has
// succeeded, they are usable through every gateway. A growth that has begun is
// always finished, by this call, by another gateway's or by a sweep, never taken
// back: a partition record that was removed could not be made again under the
// same topic id. Until then clients see the old number.
//
// Refusals: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
// INVALID_REPLICA_ASSIGNMENT, in the order of Kafka's
// ReplicationControlManager.createPartitions.
func (ts *Topics) Grow(ctx context.Context, t *Topic, g Growth) error {
	key := pubsub.Token(t.Name)
	if !g.ValidateOnly {
		if err := ts.claim(ctx, key); err != nil {
			return err
		}
		defer ts.end(key)
	}
	lives := ts.unbroken()
	for range attempts {
		r, _, err := ts.load(ctx, key)
		if err != nil {
			return err
		}
		if r == nil || r.ID != t.ID || r.State != active {
			return kerr.UnknownTopicOrPartition
		}
		if r.Growing > r.Partitions && !g.ValidateOnly {
			// Another's growth, alive or not: both make the same partitions.
			if err := ts.finishGrowth(ctx, key, r); err != nil && !errors.Is(err, pubsub.ErrConflict) {
				return err
			}
			continue
		}
		if err := ts.checkGrowth(r, g); err != nil || g.ValidateOnly {
			return err
		}
		if err := ts.roomToGrow(ctx, r, g.Partitions); err != nil {
			return err
		}
		next := r.with(active)
		next.Growing, next.Creator = g.Partitions, ts.deps.Incarnation()
		next.rev, err = ts.put(ctx, key, next, r.rev)
		if errors.Is(err, pubsub.ErrConflict) {
			if err := lives(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			ts.kickSweep() // it may be stored, now or later
			return fmt.Errorf("grow topic %s: %w", t.Name, err)
		}
		if err := ts.finishGrowth(ctx, key, next); err != nil {
			ts.kickSweep()
			return err
		}
		return nil
	}
	return fmt.Errorf("grow topic %s: %w", t.Name, pubsub.ErrConflict)
}

func (ts *Topics) checkGrowth(r *record, g Growth) error {
	switch {
	case g.Partitions == r.Partitions:
		return refuse(kerr.InvalidPartitions, "Topic already has %d partition(s).", r.Partitions)
	case g.Partitions < r.Partitions:
		return refuse(kerr.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", r.Name, r.Partitions, g.Partitions)
	}
	more := int(g.Partitions - r.Partitions)
	if g.Assignments != nil {
		if len(g.Assignments) != more {
			return refuse(kerr.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", more, len(g.Assignments))
		}
		all := make(map[int32][]int32, more)
		for i, brokers := range g.Assignments {
			all[int32(i)] = brokers
		}
		if _, err := ts.checkAssignments(all); err != nil {
			return err
		}
	}
	ts.mu.RLock()
	total := ts.total
	ts.mu.RUnlock()
	if more > ts.config.MaxPartitions-total {
		return refuse(kerr.InvalidPartitions, "%d more partitions are too many: %d exist, the limit of this cluster is %d.", more, total, ts.config.MaxPartitions)
	}
	return nil
}

// roomToGrow refuses a growth that could never be finished, before it begins:
// where somebody's stream has the name or the subject of a new partition.
func (ts *Topics) roomToGrow(ctx context.Context, r *record, to int32) error {
	t := r.topic()
	return parallel(ctx, to-r.Partitions, func(ctx context.Context, i int32) error {
		s := ts.Partition(t, r.Partitions+i)
		there, silent, err := ts.deps.Store.Logs(ctx, s.LogConfig.Subject)
		if err != nil {
			return err
		}
		if len(silent) > 0 {
			return fmt.Errorf("stream %s has no leader: %w", silent[0], pubsub.ErrUnavailable)
		}
		switch l, err := ts.deps.Store.FindLog(ctx, s.LogConfig.Name); {
		case err == nil:
			there = append(there, l)
		case !errors.Is(err, pubsub.ErrNotFound):
			return err
		}
		for _, l := range there {
			i, ok := identify(ts.deps.Cluster, l.LogConfig)
			switch {
			case ok && i == identity{t.Name, t.ID, t.N, s.N}:
			case ok && i.topic == t.Name && ended(i.n, r, r.rev): // making it removes that
			default:
				return ts.inTheWay(s, fmt.Errorf("stream %s: %w", l.Name, pubsub.ErrExists))
			}
		}
		return nil
	})
}

// finishGrowth makes the partitions of a growing record and shows them. Any
// number of gateways may do it at once, and repeat it.
func (ts *Topics) finishGrowth(ctx context.Context, key string, r *record) error {
	t := r.topic()
	if err := parallel(ctx, r.Growing-r.Partitions, func(ctx context.Context, i int32) error {
		return ts.createPartition(ctx, key, r, ts.Partition(t, r.Partitions+i))
	}); err != nil {
		ts.tidyGrowth(ctx, key, r)
		return fmt.Errorf("grow topic %s: %w", t.Name, err)
	}
	now := r
	for range attempts {
		next := now.with(active)
		next.Partitions, next.Growing = now.Growing, 0
		_, err := ts.put(ctx, key, next, now.rev)
		if err == nil {
			return nil
		}
		if !errors.Is(err, pubsub.ErrConflict) {
			return fmt.Errorf("grow topic %s: %w", t.Name, err)
		}
		// Its configs were changed, another has finished it, or it is deleted.
		current, _, err := ts.load(ctx, key)
		switch {
		case err != nil:
			return err
		case current == nil || current.number() != r.number() || current.State != active:
			ts.tidyGrowth(ctx, key, r)
			return kerr.UnknownTopicOrPartition
		case current.Partitions >= r.Growing:
			return nil
		case current.Growing != r.Growing:
			return fmt.Errorf("grow topic %s: %w", t.Name, pubsub.ErrConflict)
		}
		now = current
	}
	return fmt.Errorf("grow topic %s: %w", t.Name, pubsub.ErrConflict)
}

// tidyGrowth removes what this gateway made for a topic that was deleted
// meanwhile: the deletion may have passed a partition before it was made.
func (ts *Topics) tidyGrowth(ctx context.Context, key string, r *record) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	now, rev, err := ts.load(ctx, key)
	if err == nil && ended(r.number(), now, rev) {
		err = ts.destroy(ctx, r)
	}
	if err != nil {
		ts.deps.Logger.Warn("what was made for a topic that is gone may be left; a sweep removes it", logging.Topic, r.Name, logging.Error, err)
		ts.kickSweep()
	}
}

// growable reports that a growth is unfinished and that we may finish it: ours,
// and no call of ours is at it, or a dead gateway's.
func (ts *Topics) growable(r *record) (mine, unfinished bool) {
	if r.State != active || r.Growing <= r.Partitions {
		return false, false
	}
	if r.Creator == ts.deps.Incarnation() {
		return true, true // begin decides whether a call is at it
	}
	return ts.deps.MayAdopt(r.Creator), true
}

// Newest asks the store for a topic's present record, for those who would say
// "there is no such partition" from memory. The same topic, perhaps with more
// partitions, or an error: UNKNOWN_TOPIC_OR_PARTITION if it is gone.
func (ts *Topics) Newest(ctx context.Context, t *Topic) (*Topic, error) {
	key := pubsub.Token(t.Name)
	if err := ts.ask(ctx, key); err != nil {
		return nil, err
	}
	if now := ts.cached(t.Name); now != nil && now.ID == t.ID {
		return now, nil
	}
	return nil, kerr.UnknownTopicOrPartition
}

// Reaching is Newest for one who asks for partition n. If the topic does not reach so
// far, UNKNOWN_TOPIC_OR_PARTITION, or LEADER_NOT_AVAILABLE while a growth that we
// have not heard of may be denied by a leader that woke from a freeze.
func (ts *Topics) Reaching(ctx context.Context, t *Topic, n int32) (*Topic, error) {
	t, err := ts.Newest(ctx, t)
	switch {
	case err != nil || n < t.Partitions:
		return t, err
	case !ts.complete(ctx):
		return nil, refuse(kerr.LeaderNotAvailable, "It is not certain yet that topic %s has only %d partitions.", t.Name, t.Partitions)
	}
	if now := ts.cached(t.Name); now != nil && now.ID == t.ID && n < now.Partitions {
		return now, nil
	}
	return nil, kerr.UnknownTopicOrPartition
}

// Current is the topic as this gateway knows it now, t itself if it is not
// known any more.
func (ts *Topics) Current(t *Topic) *Topic {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	if now := ts.byID[t.ID]; now != nil {
		return now
	}
	return t
}

// Refresh takes in what the store has now of some topics, and the brokers'
// configs.
func (ts *Topics) Refresh(ctx context.Context, names []string) error {
	err := ts.flights.do(ctx, "\x00configs", func(ctx context.Context) error { // nobody's key
		_, err := ts.loadSettings(ctx)
		return err
	})
	switch {
	case len(names) == 1 && CheckName(names[0]) == nil:
		err = errors.Join(err, ts.ask(ctx, pubsub.Token(names[0])))
	case len(names) > 1:
		err = errors.Join(err, ts.askAll(ctx))
	}
	return err
}
