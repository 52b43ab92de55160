package offsets

import (
	"context"
	"fmt"
	"time"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// slack is how far a gateway's clock, which commits are stamped with, may be
// ahead of the store's, by which they are looked up.
const slack = 10 * time.Second

// Lookup implements protocol.Partition. Store times narrow a search by time
// down; the answer is the first record whose own timestamp is not before it.
func (v *View) Lookup(ctx context.Context, r partition.LookupRequest) (partition.LookupResult, error) {
	none := partition.LookupResult{Offset: types.NoOffset, Timestamp: -1, LeaderEpoch: -1}
	if err := v.ask(ctx); err != nil {
		return none, err
	}
	v.mu.Lock()
	end := v.end
	v.mu.Unlock()
	switch r.Timestamp {
	case partition.Latest:
		return partition.LookupResult{Offset: end, Timestamp: -1}, nil
	case partition.Earliest, partition.EarliestLocal:
		return partition.LookupResult{Offset: 0, Timestamp: -1}, nil
	case partition.MaxTimestamp:
		return v.newest(ctx, end, none)
	}
	if r.Timestamp < 0 {
		return none, fmt.Errorf("lookup in %s: %d is no timestamp", Name, r.Timestamp)
	}
	from, err := v.storedSince(ctx, end, time.UnixMilli(r.Timestamp).Add(-slack))
	if err != nil {
		return none, err
	}
	res := none
	_, err = v.each(ctx, from, end, func(offset types.Offset, timestamp int64) bool {
		if timestamp < r.Timestamp {
			return true
		}
		res = partition.LookupResult{Offset: offset, Timestamp: timestamp}
		return false
	})
	if err != nil {
		return none, err
	}
	return res, nil
}

// storedSince finds an offset before which everything was stored before t. A
// replica that is behind makes it earlier, never later.
func (v *View) storedSince(ctx context.Context, end types.Offset, t time.Time) (types.Offset, error) {
	lo, hi := types.Offset(0), end
	for lo < hi {
		mid := lo + (hi-lo)/2
		var vs []pubsub.Value
		err := v.within(ctx, func(ctx context.Context) (err error) {
			vs, err = v.d.Table.Read(ctx, pubsub.Rev(mid)+1, pubsub.Limit{MaxMessages: 1, MaxBytes: 1})
			return err
		})
		switch {
		case err != nil:
			return 0, fmt.Errorf("lookup in %s: %w", Name, err)
		case len(vs) > 0 && vs[0].Time.Before(t):
			lo = offsetOf(vs[0]) + 1
		default:
			hi = mid
		}
	}
	return lo, nil
}

// each calls fn with every record from one offset up to, not including, another
// until fn returns false. first is when the first of what it read was stored,
// zero if there was nothing.
func (v *View) each(ctx context.Context, from, to types.Offset, fn func(offset types.Offset, timestamp int64) bool) (first time.Time, err error) {
	for from < to {
		vs, err := v.values(ctx, from, readBytes)
		if err != nil {
			return first, err
		}
		if len(vs) == 0 {
			return first, nil
		}
		for _, val := range vs {
			offset := offsetOf(val)
			if offset >= to {
				return first, nil
			}
			if first.IsZero() {
				first = val.Time
			}
			rec, ok, err := group.ToKafka(val)
			if err != nil {
				return first, fmt.Errorf("lookup in %s at %d: %w: %w", Name, offset, pubsub.ErrUnavailable, err)
			}
			if ok && !fn(offset, rec.Timestamp) {
				return first, nil
			}
			from = offset + 1
		}
	}
	return first, nil
}

// newest finds the first record with the largest timestamp, from the end
// backwards until nothing earlier can have a larger one.
func (v *View) newest(ctx context.Context, end types.Offset, none partition.LookupResult) (partition.LookupResult, error) {
	best := none
	for to, size := end, types.Offset(64); to > 0; size *= 4 {
		from := max(to-size, 0)
		first, err := v.each(ctx, from, to, func(offset types.Offset, timestamp int64) bool {
			if timestamp > best.Timestamp || timestamp == best.Timestamp && offset < best.Offset {
				best = partition.LookupResult{Offset: offset, Timestamp: timestamp}
			}
			return true
		})
		if err != nil {
			return none, err
		}
		if !first.IsZero() && first.Add(slack).UnixMilli() < best.Timestamp {
			break
		}
		to = from
	}
	return best, nil
}
