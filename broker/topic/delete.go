package topic

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/utils/killpoint"
)

// Delete deletes this very incarnation of a topic: another one, or none, is
// UNKNOWN_TOPIC_OR_PARTITION. Once its record says `deleting` the topic is gone
// for clients and the call succeeds; partitions that cannot be removed now are
// removed by a later sweep.
func (ts *Topics) Delete(ctx context.Context, t *Topic) error {
	key := pubsub.Token(t.Name)
	if err := ts.claim(ctx, key); err != nil {
		return err
	}
	defer ts.end(key)
	lives := ts.unbroken()
	for range 10 {
		r, _, err := ts.load(ctx, key)
		if err != nil {
			return err
		}
		if r == nil || r.ID != t.ID || r.State != active {
			return kerr.UnknownTopicOrPartition
		}
		next := r.with(deleting)
		next.rev, err = ts.put(ctx, key, next, r.rev)
		if errors.Is(err, pubsub.ErrConflict) {
			// Its configs were changed meanwhile, or another deletes it.
			if err := lives(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			ts.kickSweep()
			return fmt.Errorf("delete topic %s: %w", t.Name, err)
		}
		if _, err := ts.finish(ctx, key, next); err != nil {
			ts.deps.Logger.Warn("a deleted topic's partitions are not removed yet", logging.Topic, t.Name, logging.Error, err)
			ts.kickSweep()
		}
		return nil
	}
	return fmt.Errorf("delete topic %s: %w", t.Name, pubsub.ErrConflict)
}

// finish removes a topic that is deleting, or was left creating: record
// `deleting`, partitions, record removed, its marker kept for ever. Any number
// of gateways may do it at once, and repeat it. It returns the marker's
// revision, 0 if another's is in force.
func (ts *Topics) finish(ctx context.Context, key string, r *record) (pubsub.Rev, error) {
	if r.State == creating {
		next := r.with(deleting)
		rev, err := ts.put(ctx, key, next, r.rev)
		if err != nil {
			return 0, ts.settled(ctx, key, r, err)
		}
		next.rev = rev
		r = next
	}
	if err := ts.destroy(ctx, r); err != nil {
		return 0, err
	}
	rev, err := pubsub.Put(ctx, ts.deps.Table, pubsub.Write{Key: key, Expect: r.rev, Delete: true})
	if err != nil {
		return 0, ts.settled(ctx, key, r, err)
	}
	ts.apply(pubsub.Value{Key: key, Rev: rev, Deleted: true})
	return rev, nil
}

// destroy removes all partitions of a record's incarnation. A stream of a
// partition's name that is not that partition (it stood in the way when the
// topic was to be made) is somebody's data and stays.
func (ts *Topics) destroy(ctx context.Context, r *record) error {
	t := r.topic()
	return parallel(ctx, max(r.Partitions, r.Growing), func(ctx context.Context, p int32) error {
		s := ts.Partition(t, p)
		l, err := ts.deps.Store.FindLog(ctx, s.LogConfig.Name)
		switch {
		case err == nil:
			if i, ok := identify(ts.deps.Cluster, l.LogConfig); !ok || i != (identity{t.Name, t.ID, t.N, p}) {
				ts.deps.Logger.Warn("a stream with a topic's name is not that topic's; it is left alone", logging.Topic, t.Name, logging.Partition, p, "stream", l.Name)
				return nil
			}
		case !errors.Is(err, pubsub.ErrNotFound):
			return err
		}
		err = ts.deps.Partitions.Destroy(ctx, s)
		killpoint.At("partition.removed")
		return err
	})
}

// settled turns a conflict into success if another has finished the work.
func (ts *Topics) settled(ctx context.Context, key string, r *record, err error) error {
	if !errors.Is(err, pubsub.ErrConflict) {
		return err
	}
	now, rev, lerr := ts.load(ctx, key)
	if lerr != nil {
		return lerr
	}
	if ended(r.number(), now, rev) {
		return nil
	}
	return err
}
