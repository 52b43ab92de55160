package offsets

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

const (
	// readBytes and readValues bound one read of the store.
	readBytes  = 1 << 20
	readValues = 1000
	// readsAtOnce is how many reads one answer may take: it then covers what was
	// found, perhaps without a record, and the reader goes on.
	readsAtOnce = 16
	// typical is the size of a record in bytes, where none is known.
	typical = 100
)

// Read implements protocol.Partition: one batch from r.Offset on. It covers all
// offsets that it was made of, with a record or without, so that a reader
// reaches the end whatever was overwritten.
func (v *View) Read(ctx context.Context, r partition.ReadRequest) (partition.ReadResult, error) {
	end, err := v.look(ctx, r.Offset)
	if err != nil {
		return partition.ReadResult{}, err
	}
	var batch serde.Batch
	if r.Offset < end && (r.Whole || r.MaxBytes >= serde.BatchHeaderSize) {
		if batch, err = v.gather(ctx, r, end); err != nil {
			return partition.ReadResult{}, err
		}
	}
	v.mu.Lock()
	end = max(end, v.end)
	v.mu.Unlock()
	res := partition.ReadResult{HighWatermark: end, LastStable: end}
	if r.Committed {
		res.Aborted = []partition.Aborted{}
	}
	if batch != nil {
		res.Batches, res.Bytes = [][]byte{batch}, len(batch)
	}
	return res, nil
}

// gather makes the batch, nil if not even its first record fits.
func (v *View) gather(ctx context.Context, r partition.ReadRequest, end types.Offset) (serde.Batch, error) {
	out := serde.NewSparse(int64(r.Offset))
	next := r.Offset // what lies before is covered
	limit := min(end, r.Offset+math.MaxInt32)
	full := false
	for range readsAtOnce {
		vs, err := v.values(ctx, next, r.MaxBytes-out.Len())
		if err != nil {
			if next > r.Offset {
				break // what there is; the next read finds out
			}
			return nil, err
		}
		if len(vs) == 0 { // the leader says so
			next = limit
		}
		for _, val := range vs {
			offset := offsetOf(val)
			if offset >= limit {
				next, full = limit, true
				break
			}
			rec, ok, err := group.ToKafka(val)
			if err != nil {
				if offset == r.Offset {
					return nil, fmt.Errorf("read %s at %d: %w: %w", Name, offset, pubsub.ErrUnavailable, err)
				}
				next, full = offset, true
				break
			}
			if ok {
				n := serde.NewRecord{TimestampMillis: rec.Timestamp, Key: rec.Key, Value: rec.Value}
				if out.Size(int64(offset), n) > r.MaxBytes && (!r.Whole || out.Count() > 0) {
					next, full = offset, true
					break
				}
				out.Add(int64(offset), n)
			}
			next = offset + 1
		}
		if full || next >= limit || out.Len() >= r.MaxBytes {
			break
		}
	}
	if next == r.Offset {
		return nil, nil
	}
	return out.Batch(int64(next) - 1), nil
}

func offsetOf(v pubsub.Value) types.Offset { return types.Offset(v.Rev) - 1 }

// errEnough ends a scan.
var errEnough = errors.New("enough")

// values reads what is stored from an offset on that is known to be below the
// end. Nothing, without error, is what the leader says.
func (v *View) values(ctx context.Context, from types.Offset, size int) (vs []pubsub.Value, err error) {
	err = v.within(ctx, func(ctx context.Context) (err error) {
		limit := pubsub.Limit{MaxBytes: min(max(size, 4<<10), readBytes), MaxMessages: readValues}
		vs, err = v.stored(ctx, pubsub.Rev(from)+1, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", Name, from, err)
	}
	if len(vs) > 0 {
		v.mu.Lock()
		v.setEndLocked(offsetOf(vs[len(vs)-1]) + 1)
		v.mu.Unlock()
	}
	return vs, nil
}

// stored reads from a revision on. A read that fails or comes back empty is
// tried again, then the leader is asked.
func (v *View) stored(ctx context.Context, from pubsub.Rev, limit pubsub.Limit) (vs []pubsub.Value, err error) {
	for try := range 4 {
		if try > 0 && !sleep(ctx, time.Millisecond<<try) {
			return nil, ctx.Err()
		}
		if vs, err = v.d.Table.Read(ctx, from, limit); len(vs) > 0 || ctx.Err() != nil {
			return vs, err
		}
	}
	if err != nil {
		return nil, err
	}
	held := 0
	err = v.d.Table.Scan(ctx, pubsub.WatchOptions{After: from - 1}, 0, func(val pubsub.Value) error {
		vs = append(vs, val)
		if held += len(val.Data); held >= limit.MaxBytes || len(vs) >= limit.MaxMessages {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	if len(vs) > 0 {
		return vs, nil
	}
	// Then it was removed, unless the leader has not even heard of it.
	b, err := v.d.Table.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	end := v.end
	v.mu.Unlock()
	if types.Offset(b.Last) < end {
		_ = v.ask(ctx) // notes since when
		return nil, fmt.Errorf("the leader ends at revision %d, before %d: %w", b.Last, end, pubsub.ErrUnavailable)
	}
	return nil, nil
}

// Available implements protocol.Partition. How much a range with gaps holds is
// guessed; nothing is 0.
func (v *View) Available(ctx context.Context, offset types.Offset, _ bool) (int, error) {
	end, err := v.look(ctx, offset)
	if err != nil {
		return 0, err
	}
	return int(min(end-offset, 1<<23)) * typical, nil
}
