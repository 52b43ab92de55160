package partition

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// place is one message of an interval, known exactly.
type place struct {
	seq     pubsub.Seq
	base    types.Offset
	maxTime int64
	size    int
}

// placeSize is what a place costs the memo.
const placeSize = 32

// locate finds the message that contains an offset below the high watermark:
// among the recent ones, where a reader left off, or by the index, whose
// intervals are read as headers (one consumer without payloads) and remembered.
func (p *Partition) locate(ctx context.Context, offset types.Offset) (pubsub.Seq, types.Offset, error) {
	p.mu.Lock()
	if p.st == nil {
		p.mu.Unlock()
		return 0, 0, p.unloaded()
	}
	if seq, ok := p.ix.find(offset); ok {
		x, _ := p.ix.point(seq)
		p.mu.Unlock()
		return seq, x.base, nil
	}
	if h, ok := p.hints.find(offset); ok {
		seq, base := p.cuts.after(h.seq, h.base)
		p.mu.Unlock()
		return seq, base, nil
	}
	p.mu.Unlock()
	k, iv, err := p.intervalAt(ctx, offset)
	if err != nil {
		return 0, 0, err
	}
	places, err := p.places(ctx, k, iv.base)
	if err != nil {
		return 0, 0, err
	}
	i := sort.Search(len(places), func(i int) bool { return places[i].base > offset }) - 1
	if i < 0 {
		if err := p.movedFrom(offset); err != nil {
			return 0, 0, err
		}
		return 0, 0, fmt.Errorf("%s: offset %d is not in interval %d of the index: %w", p, offset, k, pubsub.ErrUnavailable)
	}
	return places[i].seq, places[i].base, nil
}

// movedFrom says why an offset is not in the main stream: OFFSET_OUT_OF_RANGE below
// the log start, errMoved where it was compacted. nil: it is there.
func (p *Partition) movedFrom(offset types.Offset) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case offset < p.start:
		return kerr.OffsetOutOfRange
	case offset < p.base:
		return errMoved
	}
	return nil
}

// unloaded is the failure of a call whose state was dropped under it.
func (p *Partition) unloaded() error {
	return fmt.Errorf("%s: state is being rebuilt: %w", p, pubsub.ErrUnavailable)
}

// intervalAt finds the interval that contains an offset.
func (p *Partition) intervalAt(ctx context.Context, offset types.Offset) (uint64, interval, error) {
	p.mu.Lock()
	if p.st == nil {
		p.mu.Unlock()
		return 0, interval{}, p.unloaded()
	}
	if i := search(p.ix.tail, offset); i >= 0 {
		k, iv := p.ix.tailFirst+uint64(i), p.ix.tail[i]
		p.mu.Unlock()
		return k, iv, nil
	}
	chunks := p.ix.chunks
	i := sort.Search(len(chunks), func(i int) bool { return chunks[i].Base > offset }) - 1
	if i < 0 {
		// Before all that is indexed: the first message, if it has no entry of
		// its own after a purge.
		k, iv := p.ix.tailFirst, interval{}
		if len(chunks) > 0 {
			k, iv.base = chunks[0].First, chunks[0].Base
		} else if len(p.ix.tail) > 0 {
			iv = p.ix.tail[0]
		}
		p.mu.Unlock()
		return k, iv, nil
	}
	c := chunks[i]
	p.mu.Unlock()
	part, err := p.chunk(ctx, c)
	if err != nil {
		return 0, interval{}, err
	}
	j := max(search(part, offset), 0)
	return c.First + uint64(j), part[j], nil
}

// places lists the messages of interval k, whose first message has base offset
// base: from the recent ones, from memory, or by reading headers. Those that were
// deleted may be missing; OFFSET_OUT_OF_RANGE or errMoved if all of them were.
func (p *Partition) places(ctx context.Context, k uint64, base types.Offset) ([]place, error) {
	for {
		p.mu.Lock()
		first := p.first
		p.mu.Unlock()
		ps, err := p.placesOnce(ctx, k, base)
		if err == nil {
			return ps, nil
		}
		p.mu.Lock()
		now := p.first
		p.mu.Unlock()
		switch {
		case now >= startOf(k+1):
			if err := p.movedFrom(base); err != nil {
				return nil, err
			}
			return nil, errMoved
		case now == first || ctx.Err() != nil:
			return nil, err
		}
		// Deleted while we read: it begins elsewhere now.
	}
}

func (p *Partition) placesOnce(ctx context.Context, k uint64, base types.Offset) ([]place, error) {
	from, to := startOf(k), startOf(k+1)-1
	p.mu.Lock()
	if p.st == nil {
		p.mu.Unlock()
		return nil, p.unloaded()
	}
	end, first, firstBase, cuts := p.st.seq, p.first, p.base, p.cuts
	key := memoKey{p: p, k: k, repaired: p.repaired}
	if len(p.ix.recent) > 0 && p.ix.recentFirst <= max(from, p.ix.first) {
		var ps []place
		for s := max(from, p.ix.recentFirst); s <= min(to, end); s++ {
			x, ok := p.ix.point(s)
			if !ok {
				break // the end of the log is a break
			}
			ps = append(ps, place{s, x.base, x.maxTime, int(x.size)})
		}
		p.mu.Unlock()
		return ps, nil
	}
	p.mu.Unlock()
	if v := p.host.memo.get(key); v != nil {
		return v.([]place), nil
	}
	ps := make([]place, 0, span)
	next, want := base, cuts.member(from)
	if first > want { // what comes before is gone, or about to go
		next, want = firstBase, cuts.member(first)
	}
	if want > min(to, end) {
		return ps, nil // all of it was left out by a repair
	}
	err := p.log.Headers(ctx, want, min(to, end), func(m pubsub.Message) error {
		if m.Seq > min(to, end) || m.Seq < want {
			return nil
		}
		if m.Seq != want {
			return errGap
		}
		d, err := decodeHeader(p.idTxt, &m)
		if err != nil {
			return err
		}
		if d.plain {
			d.base, d.last = next, next
		}
		ps = append(ps, place{d.seq, d.base, d.maxTime, d.size})
		want, next = cuts.after(d.seq+1, d.last+1)
		return nil
	})
	if errors.Is(err, errGap) || err == nil && want <= min(to, end) {
		if err := p.absent(ctx, want); err != nil {
			return nil, err
		}
		err = fmt.Errorf("message %d is not readable: %w", want, pubsub.ErrUnavailable)
	}
	if err != nil {
		return nil, fmt.Errorf("read headers of %s from sequence %d: %w", p, from, p.missingLog(err))
	}
	if end >= to {
		p.host.memo.put(key, ps, len(ps)*placeSize+64)
	}
	return ps, nil
}

// chunk loads one stored part of the index.
func (p *Partition) chunk(ctx context.Context, c chunkRef) ([]interval, error) {
	key := memoKey{p: p, kind: memoChunk, k: c.First, repaired: c.Repaired}
	if v := p.host.memo.get(key); v != nil {
		return v.([]interval), nil
	}
	part, err := p.loadChunk(ctx, c)
	if errors.Is(err, pubsub.ErrNotFound) {
		p.host.warn(p, "a part of the index is lost; rebuilding it from headers", err)
		part, err = p.rebuildChunk(ctx, c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: index part %d: %w", p, c.First, p.missingLog(err))
	}
	p.host.memo.put(key, part, len(part)*16+64)
	return part, nil
}

// rebuildChunk makes a part of the index from the headers of its messages.
func (p *Partition) rebuildChunk(ctx context.Context, c chunkRef) ([]interval, error) {
	end := c.end()
	p.mu.Lock()
	cuts, first, firstBase := p.cuts, p.first, p.base
	p.mu.Unlock()
	x, next, want := index{}, c.Base, cuts.member(startOf(c.First))
	if first > want { // deleted up to there
		next, want = firstBase, cuts.member(first)
	}
	err := p.log.Headers(ctx, want, startOf(end)-1, func(m pubsub.Message) error {
		if m.Seq >= startOf(end) || m.Seq < want {
			return nil
		}
		if m.Seq != want {
			return fmt.Errorf("message %d is not readable: %w", want, pubsub.ErrUnavailable)
		}
		d, err := decodeHeader(p.idTxt, &m)
		if err != nil {
			return err
		}
		if d.plain {
			d.base, d.last = next, next
		}
		x.add(&d)
		want, next = cuts.after(d.seq+1, d.last+1)
		return nil
	})
	if err == nil && want < startOf(end) {
		err = fmt.Errorf("%d of %d intervals are readable: %w", len(x.tail), end-c.First, pubsub.ErrUnavailable)
	}
	// Whole intervals may have been left out by a repair at either end, or deleted.
	part := make([]interval, 0, end-c.First)
	for k := c.First; err == nil && len(x.tail) > 0 && k < x.tailFirst; k++ {
		part = append(part, interval{c.Base, -1})
	}
	part = append(part, x.tail...)
	for err == nil && uint64(len(part)) < end-c.First {
		part = append(part, interval{next, -1})
	}
	return part, err
}
