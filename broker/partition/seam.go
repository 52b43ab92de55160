package partition

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// Reading across the seam: offsets below the manifest's X are in the sibling, those
// from X on in the main stream. Both may be replaced under a reader. What it meets
// then, a stream that is gone or a message that was purged, says nothing: it takes
// the record anew and begins again.

// errMoved: what was to be read is elsewhere by now, as the partition record says.
var errMoved = fmt.Errorf("the log was compacted or cut meanwhile: %w", pubsub.ErrUnavailable)

// errBehind: what is known of the main stream does not reach as far as the
// compaction does.
var errBehind = fmt.Errorf("the end of the log is not known as far as it was compacted: %w", pubsub.ErrUnavailable)

// steadyTries bounds how often something is tried anew. It takes a compaction or a
// purge each time.
const steadyTries = 20

// steady calls fn again while what it failed on was moved under it.
func (p *Partition) steady(ctx context.Context, fn func() error) error {
	for tries := 0; ; tries++ {
		p.mu.Lock()
		before := p.moves
		p.mu.Unlock()
		err := fn()
		var refusal *kerr.Error
		if err == nil || tries == steadyTries || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, errBehind) {
			if err := p.sync(ctx); err != nil {
				return err
			}
			continue
		}
		moved := func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.moves != before
		}
		if moved() {
			continue
		}
		p.mu.Lock()
		compacted := p.runs > 0
		p.mu.Unlock()
		if errors.As(err, &refusal) || !compacted {
			return err
		}
		// It failed before it could hear why.
		bound, cancel := context.WithTimeout(ctx, time.Second)
		_, _, rerr := p.fetchRecord(bound)
		cancel()
		if rerr != nil || !moved() {
			return err
		}
	}
}

// siblingGone is what to do about a sibling, or a message of it, that the store
// denies: errMoved if the record names another one by now. nil: it is still that,
// said twice on several replicas, since a leader that woke from a freeze may know
// an old record only.
func (p *Partition) siblingGone(ctx context.Context, m *manifest) error {
	for i := range 2 {
		if i > 0 && (!p.replicated() || !sleep(ctx, time.Second)) {
			break
		}
		r, _, err := p.fetchRecord(ctx)
		if err != nil {
			return err
		}
		if !sameSibling(r.Clean, m) {
			return errMoved
		}
	}
	return ctx.Err()
}

// siblingMessages reads messages of a sibling from seq on, the first of which is
// there: from any replica, else from the leader. Never none without an error.
func (p *Partition) siblingMessages(ctx context.Context, m *manifest, seq pubsub.Seq, l pubsub.Limit) ([]pubsub.Message, error) {
	log := p.siblingLog(m.Stream)
	var err error
	for try := range 3 {
		if try > 0 && !sleep(ctx, time.Millisecond<<try) {
			return nil, ctx.Err()
		}
		bound, cancel := context.WithTimeout(ctx, replicaTimeout)
		if !p.replicated() {
			bound = ctx
		}
		var ms []pubsub.Message
		ms, err = log.Read(bound, seq, l)
		cancel()
		if err == nil && len(ms) > 0 && ms[0].Seq == seq {
			for i := range ms {
				if ms[i].Seq != seq+pubsub.Seq(i) {
					return ms[:i], nil
				}
			}
			return ms, nil
		}
		if errors.Is(err, pubsub.ErrNotFound) || ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	one, gerr := log.Get(ctx, seq)
	switch {
	case gerr == nil:
		return []pubsub.Message{one}, nil
	case !errors.Is(gerr, pubsub.ErrNotFound):
		return nil, gerr
	}
	if moved := p.siblingGone(ctx, m); moved != nil {
		return nil, moved
	}
	p.mu.Lock()
	start := p.start
	p.mu.Unlock()
	if t, err := p.tileAt(ctx, m, start); err == nil && t.seq > seq {
		return nil, errMoved // trimmed
	}
	err = fmt.Errorf("message %d of the compacted records in %s is missing: %w", seq, m.Stream, pubsub.ErrUnavailable)
	p.host.alarm(p, "compacted records are lost; see `stream repair`", err)
	return nil, err
}

// walkSibling calls fn with the messages of a sibling from the one that stands for
// offset from on, as long as it returns true. They are checked to be what the
// index says. What is read at a time is bounded by limit bytes (and one message).
func (p *Partition) walkSibling(ctx context.Context, m *manifest, from types.Offset, limit int, fn func(h *siblingHead, data []byte) bool) error {
	return p.walkTiles(ctx, m, from, limit, func(h *siblingHead, msg *pubsub.Message) bool {
		more := fn(h, msg.Data)
		if msg.Release != nil {
			msg.Release()
		}
		return more
	})
}

func (p *Partition) walkTiles(ctx context.Context, m *manifest, from types.Offset, limit int, fn func(h *siblingHead, msg *pubsub.Message) bool) error {
	t, err := p.tileAt(ctx, m, from)
	if err != nil {
		return err
	}
	for seq, base := t.seq, t.base; seq <= m.Last; {
		ms, err := p.siblingMessages(ctx, m, seq, pubsub.Limit{MaxBytes: max(limit, 1)})
		if err != nil {
			return fmt.Errorf("read %s: %w", p, own(err))
		}
		for i := range ms {
			h, err := decodeSibling(p.idTxt, &ms[i])
			if err == nil && h.base != base {
				err = fmt.Errorf("message %d of %s begins at offset %d instead of %d", seq, m.Stream, h.base, base)
			}
			if err != nil {
				return fmt.Errorf("read %s: %w (%w)", p, err, pubsub.ErrUnavailable)
			}
			if !fn(&h, &ms[i]) {
				return nil
			}
			seq, base = seq+1, h.last+1
		}
	}
	return nil
}

// readSibling gathers batches from a sibling, from c.offset on. None: there are
// none up to X, or the budget does not allow the first.
func (p *Partition) readSibling(ctx context.Context, m *manifest, c *collector) error {
	bound, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c.holes = true
	// The store sends the message that crosses the limit too.
	limit := min(max(c.budget-p.host.sibling.target, 1), readBytes)
	err := p.walkTiles(bound, m, c.offset, limit, func(h *siblingHead, msg *pubsub.Message) bool {
		before := c.res.Bytes
		c.known, c.first, c.last = true, h.base, h.last
		more := c.message(h.seq, msg.Data)
		if c.res.Bytes > before && msg.Release != nil {
			c.res.Release = append(c.res.Release, msg.Release)
		}
		return more
	})
	switch {
	case c.bad && c.res.Bytes == 0:
		return fmt.Errorf("read %s: message %d of %s is not what its header says: %w", p, c.seq, m.Stream, pubsub.ErrUnavailable)
	case err != nil && c.res.Bytes > 0:
		return nil // the next read begins there and finds out
	case err != nil && ctx.Err() == nil:
		return own(err)
	}
	return err
}

// siblingBytes estimates what a read at an offset below X finds in a sibling.
func (p *Partition) siblingBytes(ctx context.Context, m *manifest, offset types.Offset) (int, error) {
	i := m.part(offset)
	ts, err := p.tiles(ctx, m, i)
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for _, t := range ts[tileIndex(ts, offset):] {
		n += int64(t.size)
	}
	for _, part := range m.Parts[i+1:] {
		n += part.Bytes
	}
	return int(min(n, aLot)), nil
}

// siblingRecordAt reads one message of a sibling and finds the first record within
// v that want accepts.
func (p *Partition) siblingRecordAt(ctx context.Context, v view, t tile, want func(int64) bool) (res LookupResult, found bool, err error) {
	limit := p.Config().MaxMessageBytes
	bad := false
	err = p.walkSibling(ctx, v.clean, t.base, 1, func(h *siblingHead, data []byte) bool {
		for len(data) > 0 && !found {
			b, rest, perr := serde.ParseBatch(data)
			if bad = perr != nil; bad {
				return false
			}
			data = rest
			if types.Offset(b.LastOffset()) >= v.start {
				res, found = batchRecordAt(b, v.start, limit, want)
			}
		}
		return false
	})
	if err == nil && bad {
		err = fmt.Errorf("read %s: message %d of %s is not what its header says: %w", p, t.seq, v.clean.Stream, pubsub.ErrUnavailable)
	}
	return res, found, err
}

// siblingFirstAt finds the first record of a sibling with a timestamp of at least
// t.
func (p *Partition) siblingFirstAt(ctx context.Context, v view, t int64) (LookupResult, bool, error) {
	for i := v.clean.part(v.start); i < len(v.clean.Parts); i++ {
		if v.clean.Parts[i].MaxTime < t {
			continue
		}
		ts, err := p.tiles(ctx, v.clean, i)
		if err != nil {
			return LookupResult{}, false, err
		}
		for _, x := range ts {
			if x.maxTime < t || x.last < v.start {
				continue
			}
			res, found, err := p.siblingRecordAt(ctx, v, x, func(ts int64) bool { return ts >= t })
			if err != nil || found {
				return res, found, err
			}
		}
	}
	return LookupResult{}, false, nil
}

// siblingNewest finds the first record of a sibling with the largest timestamp.
// What headers claim may be more than records have.
func (p *Partition) siblingNewest(ctx context.Context, v view, none LookupResult) (LookupResult, error) {
	best := none
	m := v.clean
	order := make([]int, 0, len(m.Parts))
	for i := m.part(v.start); i < len(m.Parts); i++ {
		order = append(order, i)
	}
	sort.SliceStable(order, func(a, b int) bool { return m.Parts[order[a]].MaxTime > m.Parts[order[b]].MaxTime })
	for _, i := range order {
		if m.Parts[i].MaxTime < best.Timestamp {
			break
		}
		all, err := p.tiles(ctx, m, i)
		if err != nil {
			return none, err
		}
		ts := append([]tile(nil), all...)
		sort.SliceStable(ts, func(a, b int) bool { return ts[a].maxTime > ts[b].maxTime })
		for _, x := range ts {
			if x.maxTime < best.Timestamp || x.maxTime < 0 {
				break
			}
			if x.last < v.start || x.maxTime == best.Timestamp && x.base > best.Offset {
				continue
			}
			// The largest in it first, then the record that has it.
			largest := int64(-1)
			if _, _, err := p.siblingRecordAt(ctx, v, x, func(ts int64) bool { largest = max(largest, ts); return false }); err != nil {
				return none, err
			}
			if largest < 0 || largest < best.Timestamp {
				continue
			}
			res, found, err := p.siblingRecordAt(ctx, v, x, func(ts int64) bool { return ts == largest })
			if err != nil {
				return none, err
			}
			if found && (res.Timestamp > best.Timestamp || res.Offset < best.Offset) {
				best = res
			}
		}
	}
	return best, nil
}
