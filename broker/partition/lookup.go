package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// Lookup finds the offset that belongs to a time, after catching up with the
// leader.
func (p *Partition) Lookup(ctx context.Context, r LookupRequest) (LookupResult, error) {
	for tries := 0; ; tries++ {
		var res LookupResult
		err := p.steady(ctx, func() (err error) {
			res, err = p.lookup(ctx, r)
			return err
		})
		// What was to be read is deleted meanwhile: the answer is another one now.
		if err == nil || tries == 3 || !errors.Is(err, kerr.OffsetOutOfRange) {
			if errors.Is(err, kerr.OffsetOutOfRange) {
				err = fmt.Errorf("lookup in %s: the log start moves all the time: %w", p, pubsub.ErrUnavailable)
			}
			return res, err
		}
	}
}

// lookup is Lookup as of one moment. OFFSET_OUT_OF_RANGE: what the answer hangs
// on was deleted under it.
func (p *Partition) lookup(ctx context.Context, r LookupRequest) (LookupResult, error) {
	none := LookupResult{Offset: types.NoOffset, Timestamp: -1, LeaderEpoch: -1}
	catchUp := p.sync
	if r.Timestamp == Latest || r.Timestamp == MaxTimestamp {
		catchUp = p.settle
	}
	v, err := p.viewAfter(ctx, catchUp, r.Committed)
	if err != nil {
		return none, err
	}
	if v.start > v.hw { // deleted up to an end that was not there when we asked
		return none, kerr.OffsetOutOfRange
	}
	switch r.Timestamp {
	case Latest:
		return LookupResult{Offset: v.limit, Timestamp: -1}, nil
	case Earliest, EarliestLocal:
		return LookupResult{Offset: v.start, Timestamp: -1}, nil
	case MaxTimestamp:
		limit := v.limit
		v.limit = v.hw
		res, err := p.newest(ctx, v.main(), none)
		if err == nil && v.clean != nil {
			var old LookupResult
			if old, err = p.siblingNewest(ctx, v, none); err == nil && old.Offset >= 0 && old.Timestamp >= res.Timestamp {
				res = old
			}
		}
		if err == nil && res.Offset >= limit {
			return none, nil // as in Kafka: it is that record or none
		}
		return res, err
	}
	if r.Timestamp < 0 {
		return none, fmt.Errorf("lookup in %s: %d is no timestamp", p, r.Timestamp)
	}
	res, found, err := p.firstAt(ctx, v, r.Timestamp)
	if err == nil && !found && p.replicated() {
		// What was found comes first, whatever follows. That there is none must be
		// certain.
		if v, err = p.viewAfter(ctx, p.settle, r.Committed); err == nil {
			res, found, err = p.firstAt(ctx, v, r.Timestamp)
		}
	}
	if err != nil || !found {
		return none, err
	}
	return res, nil
}

// viewAfter is the view after the leader was asked.
func (p *Partition) viewAfter(ctx context.Context, catchUp func(context.Context) error, committed bool) (view, error) {
	if err := catchUp(ctx); err != nil {
		return view{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.st == nil {
		return view{}, p.unloaded()
	}
	v := p.viewLocked(committed)
	if v.clean != nil && v.limit < v.clean.X {
		return view{}, errBehind
	}
	return v, nil
}

// firstAt finds the first record with a timestamp of at least t: the first
// interval whose largest timestamp reaches t, in it the first such message,
// then its records. The largest timestamps come from batch headers, which may
// claim more than the records hold: then the search goes on.
func (p *Partition) firstAt(ctx context.Context, v view, t int64) (LookupResult, bool, error) {
	if v.clean != nil {
		if res, found, err := p.siblingFirstAt(ctx, v, t); err != nil || found {
			return res, found, err
		}
		v = v.main()
	}
	if v.start >= v.limit {
		return LookupResult{}, false, nil
	}
	k, err := p.firstInterval(ctx, v)
	if err != nil {
		return LookupResult{}, false, err
	}
	for {
		iv, at, ok, err := p.intervalReaching(ctx, k, t)
		if err != nil || !ok || iv.base >= v.limit {
			return LookupResult{}, false, err
		}
		places, err := p.places(ctx, at, iv.base)
		if err != nil {
			return LookupResult{}, false, err
		}
		for i, x := range places {
			if x.maxTime < t || x.base >= v.limit || x.seq < v.first || i+1 < len(places) && places[i+1].base <= v.start {
				continue
			}
			res, found, err := p.recordAt(ctx, x, v, func(ts int64) bool { return ts >= t })
			if err != nil || found {
				return res, found, err
			}
		}
		k = at + 1
	}
}

// newest finds the first record with the largest timestamp of all.
func (p *Partition) newest(ctx context.Context, v view, none LookupResult) (LookupResult, error) {
	if v.start >= v.limit {
		return none, nil
	}
	t, err := p.largestTime(ctx, v)
	if err != nil || t < 0 {
		return none, err
	}
	for {
		res, found, err := p.firstAt(ctx, v, t)
		if err != nil || found {
			return res, err
		}
		// No record has what the headers claim, or it lies below the log start:
		// look for the largest that a record has.
		next, err := p.largestBelow(ctx, v, t)
		if err != nil || next < 0 {
			return none, err
		}
		t = next
	}
}

// largestBelow finds the largest timestamp of a record, below t, by reading
// what may hold it. It is needed only after a client's header lied.
func (p *Partition) largestBelow(ctx context.Context, v view, t int64) (int64, error) {
	best := int64(-1)
	better := func(ts int64) bool {
		if ts < t {
			best = max(best, ts)
		}
		return false
	}
	// Mostly the newest message has the largest timestamp: with it known, next to
	// nothing else needs to be read.
	if seq, base, err := p.kept(ctx, v.limit-1); err != nil {
		return best, err
	} else if seq != 0 {
		if _, _, err := p.recordAt(ctx, place{seq: seq, base: base}, v, better); err != nil {
			return best, err
		}
	}
	k, err := p.firstInterval(ctx, v)
	for err == nil {
		iv, at, ok, err := p.intervalReaching(ctx, k, best+1)
		if err != nil || !ok || iv.base >= v.limit {
			return best, err
		}
		places, err := p.places(ctx, at, iv.base)
		if err != nil {
			return best, err
		}
		for i, x := range places {
			if x.maxTime <= best || x.base >= v.limit || x.seq < v.first || i+1 < len(places) && places[i+1].base <= v.start {
				continue
			}
			if _, _, err := p.recordAt(ctx, x, v, better); err != nil {
				return best, err
			}
		}
		k = at + 1
	}
	return best, err
}

// intervalReaching finds the first interval from number k on whose largest
// timestamp is at least t.
func (p *Partition) intervalReaching(ctx context.Context, k uint64, t int64) (interval, uint64, bool, error) {
	for {
		p.mu.Lock()
		if p.st == nil {
			p.mu.Unlock()
			return interval{}, 0, false, p.unloaded()
		}
		var load *chunkRef
		for i := range p.ix.chunks {
			if c := p.ix.chunks[i]; c.end() > k && c.MaxTime >= t {
				load = &c
				break
			}
		}
		if load == nil {
			for i, iv := range p.ix.tail {
				if n := p.ix.tailFirst + uint64(i); n >= k && iv.maxTime >= t {
					p.mu.Unlock()
					return iv, n, true, nil
				}
			}
			p.mu.Unlock()
			return interval{}, 0, false, nil
		}
		p.mu.Unlock()
		part, err := p.chunk(ctx, *load)
		if err != nil {
			return interval{}, 0, false, err
		}
		for i, iv := range part {
			if n := load.First + uint64(i); n >= k && iv.maxTime >= t {
				return iv, n, true, nil
			}
		}
		k = load.end()
	}
}

// largestTime is the largest timestamp that the index knows of what was not
// deleted. In the interval of the log start each message counts for itself.
func (p *Partition) largestTime(ctx context.Context, v view) (int64, error) {
	t := int64(-1)
	begin, err := p.firstInterval(ctx, v)
	for k := begin; err == nil; {
		iv, at, ok, err := p.intervalReaching(ctx, k, t+1)
		if err != nil || !ok {
			return t, err
		}
		if k = at + 1; at > begin {
			t = iv.maxTime
			continue
		}
		places, err := p.places(ctx, at, iv.base)
		if err != nil {
			return t, err
		}
		for i, x := range places {
			if x.seq >= v.first && (i+1 == len(places) || places[i+1].base > v.start) {
				t = max(t, x.maxTime)
			}
		}
	}
	return t, err
}

// firstInterval is the number of the interval that the log start lies in.
func (p *Partition) firstInterval(ctx context.Context, v view) (uint64, error) {
	k := intervalOf(max(v.first, 1))
	if v.start <= 0 {
		return k, nil
	}
	at, _, err := p.intervalAt(ctx, v.start)
	return max(k, at), err
}

// recordAt reads one message and finds its first record, within v, whose
// timestamp want accepts.
func (p *Partition) recordAt(ctx context.Context, x place, v view, want func(int64) bool) (LookupResult, bool, error) {
	var res ReadResult
	c := collector{offset: x.base, limit: v.limit, budget: 1 << 30, whole: true, res: &res}
	c.one = true
	p.host.cache.from(p, x.seq, c.message)
	if c.seq == 0 {
		if err := p.readWithin(ctx, x.seq, x.base, &c); err != nil {
			return LookupResult{}, false, err
		}
	}
	if c.bad {
		return LookupResult{}, false, p.unreadable(ctx, x.seq)
	}
	limit := p.Config().MaxMessageBytes
	for _, data := range res.Batches {
		for len(data) > 0 {
			b, rest, err := serde.ParseBatch(data)
			if err != nil {
				return LookupResult{}, false, p.unreadable(ctx, x.seq)
			}
			data = rest
			if types.Offset(b.LastOffset()) < v.start {
				continue
			}
			if r, found := batchRecordAt(b, v.start, limit, want); found {
				return r, true, nil
			}
		}
	}
	return LookupResult{}, false, nil
}

// batchRecordAt finds the first record of a batch, not below start, whose
// timestamp want accepts.
func batchRecordAt(b serde.Batch, start types.Offset, limit int, want func(int64) bool) (LookupResult, bool) {
	if b.Count() == 0 { // compaction left its place only
		return LookupResult{}, false
	}
	whole := func() (LookupResult, bool) {
		if want(b.MaxTimestamp()) {
			return LookupResult{Offset: max(types.Offset(b.BaseOffset()), start), Timestamp: b.MaxTimestamp()}, true
		}
		return LookupResult{}, false
	}
	if b.LogAppendTime() {
		return whole()
	}
	var res LookupResult
	found := false
	err := eachRecord(b, limit, func(delta int32, _ bool, after int64) bool {
		offset := types.Offset(b.BaseOffset()) + types.Offset(delta)
		if ts := b.BaseTimestamp() + after; offset >= start && want(ts) {
			res, found = LookupResult{Offset: offset, Timestamp: ts}, true
		}
		return !found
	})
	if err != nil {
		// Opaque: not what its codec says, or larger than we decompress. It
		// counts as one record rather than failing every lookup for ever.
		return whole()
	}
	return res, found
}
