package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
)

// Sweep finishes deletions and growths that were left half done and removes what creators
// that are no more (or gave up) have left, then looks for streams that no record
// explains: those of incarnations that are over for sure are removed, the others
// are reported and never touched. Of others' work only the one that maintains
// finishes any (Deps.Maintains); deletions are finished by whoever meets them.
// Call it when that falls to this gateway and whenever the membership has changed.
func (ts *Topics) Sweep(ctx context.Context) error {
	select {
	case ts.sweeps <- struct{}{}:
		defer func() { <-ts.sweeps }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var errs []error
	var left, growing []*record
	undecided := false
	maintains := ts.deps.Maintains == nil || ts.deps.Maintains()
	if err := ts.deps.Table.Scan(ctx, pubsub.WatchOptions{}, 0, func(v pubsub.Value) error {
		ts.apply(v)
		if !v.Deleted {
			r, err := parseRecord(v)
			if err == nil {
				switch mine, unfinished := ts.growable(r); {
				case unfinished && !maintains && r.Creator != ts.deps.Incarnation():
				case mine:
					growing = append(growing, r)
				case unfinished:
					undecided = true
				}
			}
			switch {
			case err != nil || r.State == active:
			case r.State == creating && !maintains && r.Creator != ts.deps.Incarnation():
			case ts.leftover(r):
				left = append(left, r)
			default:
				undecided = true
			}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("sweep topics: %w", err)
	}
	if undecided {
		// Its creator lives, or is not known to be dead yet; that may turn out
		// without any change of the membership that would call us.
		ts.kickSweep()
	}
	for _, r := range left {
		key := pubsub.Token(r.Name)
		if _, ok := ts.begin(key); !ok {
			continue
		}
		_, err := ts.finish(ctx, key, r)
		ts.end(key)
		if err != nil {
			errs = append(errs, fmt.Errorf("remove what is left of topic %s: %w", r.Name, err))
			continue
		}
		ts.deps.Logger.Info("removed what was left of a topic", logging.Topic, r.Name, "state", string(r.State))
	}
	for _, r := range growing {
		key := pubsub.Token(r.Name)
		if _, ok := ts.begin(key); !ok {
			continue
		}
		err := ts.finishGrowth(ctx, key, r)
		ts.end(key)
		if err != nil {
			errs = append(errs, fmt.Errorf("finish a growth: %w", err))
			continue
		}
		ts.deps.Logger.Info("finished the growth of a topic", logging.Topic, r.Name, "partitions", r.Growing)
	}
	return errors.Join(append(errs, ts.explain(ctx))...)
}

// explain compares streams with records.
func (ts *Topics) explain(ctx context.Context) error {
	logs, _, err := ts.deps.Store.Logs(ctx, ts.config.Prefix+".>")
	if err != nil {
		return fmt.Errorf("list streams: %w", err)
	}
	var unknown []string
	for _, l := range logs {
		i, ok := identify(ts.deps.Cluster, l.LogConfig)
		if !ok {
			unknown = append(unknown, l.Name)
			continue
		}
		key := pubsub.Token(i.topic)
		ts.mu.RLock()
		e := ts.entries[key]
		ts.mu.RUnlock()
		if e != nil && (e.err != nil || e.record != nil && e.record.number() == i.n && i.partition < int32(e.count())) {
			continue
		}
		r, rev, err := ts.load(ctx, key)
		switch {
		case err != nil:
			return err
		case ended(i.n, r, rev):
			ts.deps.Logger.Warn("removing the stream of a topic that has ended", logging.Topic, i.topic, logging.Partition, i.partition, "stream", l.Name)
			if err := ts.deps.Partitions.Destroy(ctx, PartitionSpec{Topic: i.topic, ID: i.id, N: i.partition, LogConfig: l.LogConfig}); err != nil {
				return err
			}
		case r == nil || r.number() != i.n || i.partition >= max(r.Partitions, r.Growing):
			unknown = append(unknown, l.Name)
		}
	}
	slices.Sort(unknown)
	ts.mu.Lock()
	news := !slices.Equal(ts.unknown, unknown)
	ts.unknown = unknown
	ts.mu.Unlock()
	if news && len(unknown) > 0 {
		ts.deps.Logger.Warn("streams under our prefix that no topic explains; they are left alone", "streams", unknown)
	}
	return nil
}

// Unexplained names the streams under our prefix that the last sweep could not
// explain.
func (ts *Topics) Unexplained() []string {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	return slices.Clone(ts.unknown)
}

// kickSweep asks for a sweep soon.
func (ts *Topics) kickSweep() {
	select {
	case ts.kick <- struct{}{}:
	default:
	}
}

// tidy sweeps after failures of our own, until it succeeds.
func (ts *Topics) tidy(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ts.kick:
		}
		for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			err := ts.Sweep(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			ts.deps.Logger.Warn("sweep of topics failed, it is repeated", logging.Error, err)
		}
	}
}
