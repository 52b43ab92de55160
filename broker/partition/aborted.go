package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sort"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// abortedSpan is the number of aborted transactions in one stored part. The newest
// ones, less than two parts and what came since the last snapshot, are in memory.
const abortedSpan = 1024

// abortedLimit is from how many in memory on a gateway that writes no snapshots
// loads the newest one.
const abortedLimit = 8 * abortedSpan

// aborts are the aborted transactions of a log, in the order of their markers.
type aborts struct {
	parts []abortedRef // stored, oldest first
	tail  []abortedTxn
}

// abortedRef describes one stored part. Parts are never changed: where one lies
// says its content.
type abortedRef struct {
	First  types.Offset `json:"first"`  // the smallest first offset in it
	Last   types.Offset `json:"last"`   // its last marker
	Stable types.Offset `json:"stable"` // of its last one
	Hash   uint64       `json:"hash"`   // of its content
}

// abortedPart is a stored part: four numbers for each transaction.
type abortedPart struct {
	V    int        `json:"v"`
	Txns [][4]int64 `json:"txns"` // producer id, first offset, marker, stable offset
}

func abortedImage(in []abortedTxn) [][4]int64 {
	if len(in) == 0 {
		return nil
	}
	out := make([][4]int64, len(in))
	for i, a := range in {
		out[i] = [4]int64{a.pid, int64(a.first), int64(a.last), int64(a.stable)}
	}
	return out
}

func abortedOf(in [][4]int64) []abortedTxn {
	if len(in) == 0 {
		return nil
	}
	out := make([]abortedTxn, len(in))
	for i, a := range in {
		out[i] = abortedTxn{a[0], types.Offset(a[1]), types.Offset(a[2]), types.Offset(a[3])}
	}
	return out
}

// after leaves out what lies before an offset, of which nobody asks any more, and
// returns the parts that are of no use.
func (a *aborts) after(start types.Offset) (useless []abortedRef) {
	n := 0
	for n < len(a.parts) && a.parts[n].Last < start {
		n++
	}
	useless, a.parts = a.parts[:n], a.parts[n:]
	a.tail = a.tail[abortedFrom(a.tail, start):]
	return useless
}

// abortedFrom is the place of the first whose marker is at offset or later.
func abortedFrom(l []abortedTxn, offset types.Offset) int {
	return sort.Search(len(l), func(i int) bool { return l[i].last >= offset })
}

// overlapping appends those that have something in the offsets from to to-1. more
// is false if none that comes later has.
func overlapping(out, l []abortedTxn, from, to types.Offset) (_ []abortedTxn, more bool) {
	for _, a := range l[abortedFrom(l, from):] {
		if a.first < to {
			out = append(out, a)
		}
		if a.stable >= to {
			return out, false
		}
	}
	return out, true
}

// abortedWithin lists the aborted transactions that have something in the offsets
// from to to-1, which the state of the partition covers, by first offset. Errors:
// OFFSET_OUT_OF_RANGE if they were deleted meanwhile, errMoved if compacted, failures of
// the store.
func (p *Partition) abortedWithin(ctx context.Context, from, to types.Offset) ([]Aborted, error) {
	l, err := p.abortedTxns(ctx, from, to)
	if err != nil {
		return nil, err
	}
	out := make([]Aborted, len(l))
	for i, a := range l {
		out[i] = Aborted{ProducerID: a.pid, First: a.first}
	}
	slices.SortFunc(out, func(a, b Aborted) int { return cmp.Compare(a.First, b.First) })
	return out, nil
}

// abortedTxns is abortedWithin with all that is known of them, in no order.
func (p *Partition) abortedTxns(ctx context.Context, from, to types.Offset) (out []abortedTxn, err error) {
	if from >= to {
		return nil, nil
	}
	p.mu.Lock()
	switch { // what lies below is not all known any more
	case from < p.start:
		p.mu.Unlock()
		return nil, kerr.OffsetOutOfRange
	case from < p.base:
		p.mu.Unlock()
		return nil, errMoved
	case p.st == nil || p.st.lastStable() < to && p.start < to:
		p.mu.Unlock()
		return nil, p.unloaded()
	}
	var parts []abortedRef
	more := true
	for _, r := range p.st.aborted.parts {
		if r.Last >= from && r.First < to {
			parts = append(parts, r)
		}
		if more = r.Last < from || r.Stable < to; !more {
			break
		}
	}
	if more {
		out, _ = overlapping(out, p.st.aborted.tail, from, to)
	}
	p.mu.Unlock()
	for _, r := range parts {
		l, err := p.abortedPart(ctx, r)
		if err != nil {
			if moved := p.movedFrom(from); moved != nil {
				err = moved
			}
			return nil, err
		}
		out, _ = overlapping(out, l, from, to)
	}
	return out, nil
}

func (p *Partition) abortedPrefix() string { return p.key + ".a." + pubsub.Token(p.log.Name()) + "." }

func (p *Partition) abortedKey(r abortedRef) string {
	return p.abortedPrefix() + strconv.FormatInt(int64(r.Last), 10) + "." + strconv.FormatUint(r.Hash, 16)
}

// storeAborted stores a part. Where it lies already it is the same.
func (p *Partition) storeAborted(ctx context.Context, l []abortedTxn) (abortedRef, int, error) {
	b, err := pack(&abortedPart{V: 1, Txns: abortedImage(l)})
	if err != nil {
		return abortedRef{}, 0, err
	}
	h := fnv.New64a()
	r := abortedRef{First: l[0].first, Last: l[len(l)-1].last, Stable: l[len(l)-1].stable}
	for _, a := range l {
		r.First = min(r.First, a.first)
		_, _ = fmt.Fprintln(h, a.pid, a.first, a.last, a.stable)
	}
	r.Hash = h.Sum64()
	_, err = pubsub.Put(ctx, p.host.records, pubsub.Write{Key: p.abortedKey(r), Data: b})
	if err != nil && !errors.Is(err, pubsub.ErrConflict) {
		return r, 0, fmt.Errorf("aborted transactions of %s: %w", p, err)
	}
	return r, len(b), nil
}

// abortedPart loads a stored part. One that is lost is made again from headers.
func (p *Partition) abortedPart(ctx context.Context, r abortedRef) ([]abortedTxn, error) {
	key := memoKey{p: p, kind: memoAborted, k: uint64(r.Last), repaired: int64(r.Hash)}
	if v := p.host.memo.get(key); v != nil {
		return v.([]abortedTxn), nil
	}
	l, err := p.loadAborted(ctx, r)
	if errors.Is(err, pubsub.ErrNotFound) {
		p.host.warn(p, "a part of the list of aborted transactions is lost; rebuilding it from headers", err)
		l, err = p.rebuildAborted(ctx, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: aborted transactions up to offset %d: %w", p, r.Last, p.missingLog(err))
	}
	p.host.memo.put(key, l, 32*len(l)+64)
	return l, nil
}

func (p *Partition) loadAborted(ctx context.Context, r abortedRef) ([]abortedTxn, error) {
	v, err := p.host.records.Get(ctx, p.abortedKey(r))
	if err != nil {
		return nil, err
	}
	var part abortedPart
	if err := unpack(v.Data, &part); err != nil {
		return nil, err
	}
	if part.V != 1 {
		return nil, fmt.Errorf("v%d: %w", part.V, errUnknownFormat)
	}
	return abortedOf(part.Txns), nil
}

// rebuildAborted follows the log from the first offset of a part to its last
// marker. What was open before that is not among what it finds; what was deleted
// need not be.
func (p *Partition) rebuildAborted(ctx context.Context, r abortedRef) ([]abortedTxn, error) {
	p.mu.Lock()
	begin, cuts := max(r.First, p.start, p.base), p.cuts
	p.mu.Unlock()
	seq, base, err := p.locate(ctx, cuts.forward(begin))
	if err != nil {
		return nil, err
	}
	last, _ := p.seq()
	s := newState()
	s.seq, s.next, s.cuts = seq-1, base, cuts
	err = p.log.Headers(ctx, seq, last, func(m pubsub.Message) error {
		if m.Seq <= s.seq {
			return nil
		}
		if m.Seq != s.seq+1 {
			return errGap
		}
		d, err := decodeHeader(p.idTxt, &m)
		if err != nil {
			return err
		}
		if d.plain {
			d.base, d.last = s.next, s.next
		}
		s.apply(&d)
		if s.next > r.Last {
			return errEnough
		}
		return nil
	})
	if err == nil && s.next <= r.Last || errors.Is(err, errGap) {
		return nil, fmt.Errorf("message %d is not readable: %w", s.seq+1, pubsub.ErrUnavailable)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	l := s.aborted.tail
	l = l[:abortedFrom(l, r.Last+1)]
	for i := range l {
		l[i].stable = 0 // others may have been open
	}
	return l, nil
}
