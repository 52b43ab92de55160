package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hanzoai/stream/broker/compact"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
	"github.com/hanzoai/stream/utils/killpoint"
)

const (
	// rewriteRead is how much a rewrite reads at a time, and one message.
	rewriteRead = 1 << 20
	// rewriteBudget is how much of decompressed records a rewrite has in memory.
	rewriteBudget = 64 << 20
)

// errAbandoned: what the run was to replace is not there any more.
var errAbandoned = errors.New("the run of compaction was overtaken")

// errPassed ends a walk that goes on elsewhere.
var errPassed = errors.New("messages are passed over")

// rewriting is one rewrite: it reads the log from its start up to a bound, the old
// sibling first, and leaves the new one in its place.
type rewriting struct {
	p    *Partition
	o    *CompactOptions
	t    tenure
	plan plan
	res  *CompactResult
	done int64

	keys *compact.Keys
	env  compact.Env
	// main tells what of the main stream need not be read again; empty: nothing.
	main stretches
	// aborted are the aborted transactions that overlap the message at hand.
	aborted []abortedTxn

	x       types.Offset // where the main stream begins afterwards, and its message
	seq     pubsub.Seq
	dirty   types.Offset
	horizon int64
	records int64
}

// part is one stored message of the log, of either stream.
type part struct {
	base, last types.Offset
	seq        pubsub.Seq // of the main stream; 0: of the sibling
	// where the main stream goes on behind it
	next     types.Offset
	nextSeq  pubsub.Seq
	data     []byte
	fromMain bool
}

// batches calls fn with the batches of a message.
func (m *part) batches(fn func(b serde.Batch) error) error {
	for data := m.data; len(data) > 0; {
		b, rest, err := serde.ParseBatch(data)
		if err != nil {
			return fmt.Errorf("message at offset %d: %w (%w)", m.base, err, pubsub.ErrUnavailable)
		}
		if err := fn(b); err != nil {
			return err
		}
		data = rest
	}
	return nil
}

// rewrite makes one sibling and switches to it. It returns where it ends.
func (p *Partition) rewrite(ctx context.Context, o *CompactOptions, t tenure, pl plan, res *CompactResult) (types.Offset, error) {
	w := &rewriting{p: p, o: o, t: t, plan: pl, res: res}
	w.env = compact.Env{
		Now: o.Now.UnixMilli(), DeleteRetention: o.DeleteRetention.Milliseconds(), From: pl.dirty,
		MaxBatch: p.host.largest, Budget: rewriteBudget,
		Aborted: func(pid int64, o types.Offset) bool {
			return slices.ContainsFunc(w.aborted, func(a abortedTxn) bool { return a.pid == pid && a.first <= o && o <= a.last })
		},
		LastOf: pl.lastOf,
	}
	if pl.clean != nil {
		w.env.Late = pl.clean.Late
	}
	w.keys = compact.NewKeys(o.Memory)
	w.main.size = max(p.host.stretch, pl.work/mostStretches)
	if err := w.index(ctx); err != nil {
		return 0, err
	}
	stream := siblingName(p.log.Name())
	if err := w.begin(ctx, stream); err != nil {
		return 0, err
	}
	killpoint.At("compact.begun")
	old, err := w.fill(ctx, stream)
	if err != nil {
		p.abandon(stream)
		return 0, err
	}
	killpoint.At("compact.switched")
	// Whoever comes next finishes what fails here.
	if err := p.cleared(ctx, old); err != nil && ctx.Err() == nil {
		res.Left = true
		p.host.warn(p, "what compaction replaced is not removed yet; it will be tried again", err)
	}
	return w.x, nil
}

// index reads the keys of what was not compacted yet, and finds out how far this
// rewrite goes.
func (w *rewriting) index(ctx context.Context) error {
	pl := &w.plan
	w.x, w.seq, w.dirty = pl.goal, pl.goalSeq, pl.goal
	full := false
	if err := w.follow(ctx, pl.dirty, pl.goal, nil, func(m *part) error {
		err := m.batches(func(b serde.Batch) (err error) {
			if full, err = compact.Index(w.keys, &w.env, b); err == nil && full {
				err = errEnough
			}
			return err
		})
		if !full {
			if err == nil && m.fromMain {
				err = w.main.note(m, &w.env)
			}
			return err
		}
		switch {
		case !m.fromMain: // the keys of the sibling alone are too many
			w.x, w.seq, w.dirty = pl.x, pl.seq, w.keys.Upto()
		case m.base > max(pl.x, pl.dirty):
			w.x, w.seq, w.dirty = m.base, m.seq, m.base
		default: // those of one message
			w.x, w.seq, w.dirty = m.next, m.nextSeq, min(w.keys.Upto(), m.next)
		}
		return err
	}); err != nil && !(full && errors.Is(err, errEnough)) {
		return err
	}
	if full && w.dirty <= pl.dirty {
		return fmt.Errorf("the memory for keys does not last for one record: %d bytes", w.o.Memory)
	}
	w.env.Upto, w.env.End = w.dirty, w.x
	w.main.mark(w.keys, pl.start, w.dirty)
	return nil
}

// begin writes into the record that the rewrite is under way, and makes its sibling.
func (w *rewriting) begin(ctx context.Context, stream string) error {
	p := w.p
	var refused error
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := p.updateRecord(ctx, func(r *record) bool {
		switch refused = w.t.check(r.Term); {
		case refused != nil:
			return false
		case r.Stop != nil || r.Repaired != w.plan.repaired || r.Run != nil || r.Start >= w.x,
			r.Clean != nil && !sameSibling(r.Clean, w.plan.clean): // nil: the log start is beyond it
			refused = errAbandoned
			return false
		}
		r.Run = &cleanRun{Term: w.t.term, Stream: stream, At: w.o.Now.UnixMilli()}
		r.Runs++
		r.Term = max(r.Term, w.t.term)
		return true
	}); err != nil {
		p.abandon(stream) // it may be there
		return own(err)
	}
	if refused != nil {
		return refused
	}
	if err := p.createSibling(ctx, stream); err != nil {
		p.abandon(stream)
		return fmt.Errorf("make a sibling of %s: %w", p, own(err))
	}
	return nil
}

// fill writes the sibling and switches to it. It returns the one before, nil if
// there was none.
func (w *rewriting) fill(ctx context.Context, stream string) (*manifest, error) {
	p, pl := w.p, &w.plan
	out := newSiblingWriter(p, stream, pl.start)
	m := &manifest{At: w.o.Now.UnixMilli()}
	m.follows(pl.clean)
	out.cut = m.Before
	out.pace = func(ctx context.Context, n int) error { return w.pace(ctx, n, false) }
	if err := w.follow(ctx, pl.start, w.x, w.pass, func(m *part) error {
		if err := m.batches(func(b serde.Batch) error {
			if types.Offset(b.LastOffset()) < pl.start {
				return nil
			}
			left, stats, horizon, err := compact.Filter(w.keys, &w.env, b)
			if err != nil {
				return err
			}
			w.res.RecordsIn += stats.In
			w.res.RecordsOut += stats.Out
			w.res.BytesIn += stats.BytesIn
			w.res.BytesOut += stats.BytesOut
			w.records += stats.Out
			if horizon > 0 && (w.horizon == 0 || horizon < w.horizon) {
				w.horizon = horizon
			}
			return out.add(ctx, left, types.Offset(b.LastOffset()))
		}); err != nil {
			if large := (*tooLarge)(nil); errors.As(err, &large) {
				large.seq, large.base = m.seq, m.base
			}
			return err
		}
		return out.add(ctx, nil, m.last)
	}); err != nil {
		return nil, err
	}
	if err := out.end(ctx, w.x); err != nil {
		return nil, err
	}
	b, err := out.log.Bounds(ctx)
	if err != nil {
		return nil, own(err)
	}
	if b.Last != out.head.seq-1 {
		return nil, fmt.Errorf("%s ends at %d instead of %d: %w", stream, b.Last, out.head.seq-1, pubsub.ErrUnavailable)
	}
	m.Stream, m.Last, m.Records, m.Bytes, m.First = stream, b.Last, w.records, int64(b.Bytes), out.parts[0].First
	m.X, m.Seq, m.Dirty, m.Horizon = w.x, w.seq, w.dirty, w.horizon
	m.Parts, m.Span = out.parts, p.host.sibling.span
	m.ended(p.host.clock().Sub(w.o.began).Milliseconds(), w.env.DeleteRetention, pl.clean)
	if err := m.check(); err != nil {
		return nil, err
	}
	killpoint.At("compact.written")
	return pl.clean, w.switchTo(ctx, m)
}

// switchTo makes the record name a sibling that is whole.
func (w *rewriting) switchTo(ctx context.Context, m *manifest) error {
	var refused error
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	err := w.p.updateRecord(ctx, func(r *record) bool {
		switch refused = w.t.check(r.Term); {
		case refused != nil:
			return false
		case r.Run == nil || r.Run.Stream != m.Stream, r.Clean != nil && !sameSibling(r.Clean, w.plan.clean):
			refused = errAbandoned
		case r.Stop != nil, r.Repaired != w.plan.repaired, r.First > m.Seq, r.Start >= m.X:
			refused = errAbandoned
		case r.Snapshot == nil || r.Snapshot.Seq < m.Seq:
			// Nothing but a snapshot tells what the purged messages did to the state.
			refused = fmt.Errorf("no snapshot reaches sequence %d: %w", m.Seq, errAbandoned)
		}
		if refused != nil {
			return false
		}
		r.Clean, r.Run, r.First, r.Base = m, nil, m.Seq, m.X
		if r.Want <= m.Dirty {
			r.Want = 0
		}
		return true
	})
	if err != nil {
		err = own(err)
	}
	return errors.Join(err, refused)
}

// abandon takes a run away that has failed, and then its sibling. What fails here
// is done by the next run or sweep.
func (p *Partition) abandon(stream string) {
	ctx, cancel := context.WithTimeout(p.host.ctx, askTimeout)
	defer cancel()
	if err := p.dropRun(ctx, stream, true); err != nil && p.host.ctx.Err() == nil && !p.tidyDestroyed() {
		p.host.warn(p, "what a run of compaction wrote is not removed yet; it will be tried again", err)
	}
}

// dropRun takes the entry of a run away and deletes its sibling. Nothing is deleted
// unless it was us who took it away: then nobody can switch to it any more. Of our own
// run the sibling goes too if another has done that, before the store had made it,
// say: that the record names it nowhere is told by a write (see sweepSiblings).
func (p *Partition) dropRun(ctx context.Context, stream string, ours bool) error {
	drop := false
	err := p.updateRecord(ctx, func(r *record) bool {
		if drop = r.Run != nil && r.Run.Stream == stream; drop {
			r.Run = nil
			return true
		}
		drop = ours && r.Stop == nil && !slices.Contains(r.siblings(), stream)
		return drop
	})
	if err != nil || !drop {
		return err
	}
	return p.host.deleteSibling(ctx, p.key, stream)
}

// cleared removes what a switch has left: the sibling before, and the main stream's
// messages below X.
func (p *Partition) cleared(ctx context.Context, old *manifest) error {
	if old != nil {
		if err := p.host.deleteSibling(ctx, p.key, old.Stream); err != nil {
			return err
		}
	}
	p.mu.Lock()
	stopped := p.stop != nil
	p.mu.Unlock()
	if stopped {
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return p.trim(bound)
}

// pace tells how far the run is and keeps to the rate limit.
func (w *rewriting) pace(ctx context.Context, n int, read bool) error {
	if read {
		w.done += int64(n)
		if w.o.Progress != nil {
			w.o.Progress(min(w.done, w.plan.work), w.plan.work)
		}
	}
	if err := w.t.check(0); err != nil {
		return err
	}
	if w.o.Pace != nil && n > 0 {
		return w.o.Pace(ctx, n)
	}
	return ctx.Err()
}

// pass says where the main stream is read on from an offset: there, or behind what
// has nothing that stays, which counts as read.
func (w *rewriting) pass(at types.Offset) types.Offset {
	for x := w.main.at(at); x != nil && !x.read && at == x.base; x = w.main.at(at) {
		w.res.RecordsIn += x.records
		w.res.BytesIn += x.bytes
		w.done += x.bytes
		at = x.next
	}
	return at
}

// follow calls fn with the messages of the log from the one that stands for offset
// at on, up to offset to, and keeps to the pace. pass, if there is one, says from
// which offset on to read the main stream instead of the one that comes next. The log
// start may move under it: then it goes on there.
func (w *rewriting) follow(ctx context.Context, at, to types.Offset, pass func(types.Offset) types.Offset, fn func(m *part) error) error {
	p := w.p
	var fatal error // of fn: it may have taken a part of a message
	for at < to {
		p.mu.Lock()
		m, start, first, base, moves := p.clean, p.start, p.first, p.base, p.moves
		p.mu.Unlock()
		if !sameSibling(m, w.plan.clean) && m != nil {
			return errAbandoned
		}
		if at = max(at, start); at >= to {
			return nil
		}
		each := func(m *part) error {
			if fatal = w.pace(ctx, len(m.data), true); fatal == nil {
				fatal = fn(m)
			}
			if fatal == nil {
				at = m.next
			}
			return fatal
		}
		if pass != nil && (m == nil || at >= m.X) && at >= base {
			if at = pass(at); at >= to {
				return nil
			}
		}
		var err error
		switch {
		case m != nil && at < m.X:
			w.aborted = nil // of which a sibling has no records
			err = p.walkSibling(ctx, m, at, rewriteRead, func(h *siblingHead, data []byte) bool {
				return each(&part{base: h.base, last: h.last, next: h.last + 1, data: data}) == nil && at < to
			})
		case at < base:
			return errAbandoned
		default:
			seq := first
			if x := w.main.at(at); x != nil && x.base == at {
				seq, base = x.seq, at
			} else if at > base {
				if seq, base, err = p.locate(ctx, at); err != nil {
					break
				}
			}
			err = p.walkMain(ctx, seq, base, to, func(m *part) (err error) {
				p.mu.Lock()
				from := max(m.base, p.start)
				p.mu.Unlock()
				if w.aborted, err = p.abortedTxns(ctx, from, m.last+1); err != nil {
					return err
				}
				if err = each(m); err == nil && pass != nil {
					if on := pass(at); on > at {
						at, err = on, errPassed
					}
				}
				return err
			})
			if errors.Is(err, errPassed) {
				err = nil
			}
		}
		if fatal != nil {
			return fatal
		}
		if err == nil {
			continue
		}
		p.mu.Lock()
		moved := p.moves != moves
		p.mu.Unlock()
		if !moved || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// walkMain calls fn with the messages of the main stream from seq on, whose base
// offset is base, up to the one that begins at offset to.
func (p *Partition) walkMain(ctx context.Context, seq pubsub.Seq, base, to types.Offset, fn func(m *part) error) error {
	p.mu.Lock()
	cuts := p.cuts
	p.mu.Unlock()
	seq, base = cuts.after(seq, base)
	for base < to {
		ms, err := p.mainMessages(ctx, seq, base)
		if err != nil {
			return fmt.Errorf("read %s at sequence %d: %w", p, seq, err)
		}
		for i := range ms {
			m := &ms[i]
			if m.Seq < seq {
				continue // left out by a repair
			}
			if m.Seq != seq || base >= to {
				break
			}
			d, err := decodeHeader(p.idTxt, m)
			if err == nil && !d.plain && d.base != base {
				err = &corruption{kind: "order", seq: m.Seq, why: "its base offset is not the one it was stored with"}
			}
			if err != nil {
				return p.confirm(ctx, m.Seq, base, err)
			}
			data := m.Data
			if d.plain {
				data, d.last = plainBatch(base, m), base
			} else if !d.lists(data, nil) {
				return p.unreadable(ctx, m.Seq)
			}
			next, nextBase := cuts.after(seq+1, d.last+1)
			err = fn(&part{base: base, last: d.last, seq: seq, nextSeq: next, next: nextBase, data: data, fromMain: true})
			if m.Release != nil {
				m.Release()
			}
			if err != nil {
				return err
			}
			seq, base = next, nextBase
		}
	}
	return nil
}

// mainMessages reads messages of the main stream from seq on, whose base offset is
// base: from any replica, else from the leader. Never none without an error.
func (p *Partition) mainMessages(ctx context.Context, seq pubsub.Seq, base types.Offset) ([]pubsub.Message, error) {
	var err error
	for try := range 4 {
		if try > 0 && !sleep(ctx, time.Millisecond<<try) {
			return nil, ctx.Err()
		}
		bound, cancel := context.WithTimeout(ctx, askTimeout)
		var ms []pubsub.Message
		ms, err = p.readReplica(bound, seq, pubsub.Limit{MaxBytes: rewriteRead})
		cancel()
		if err == nil && len(ms) > 0 && ms[0].Seq == seq {
			return ms, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	m, gerr := p.log.Get(ctx, seq)
	switch {
	case gerr == nil:
		return []pubsub.Message{m}, nil
	case !errors.Is(gerr, pubsub.ErrNotFound):
		return nil, own(errors.Join(gerr, err))
	}
	if _, _, err := p.fetchRecord(ctx); err != nil {
		return nil, err
	}
	if err := p.movedFrom(base); err != nil {
		return nil, err
	}
	if err := p.absent(ctx, seq); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("not readable at the moment: %w", pubsub.ErrUnavailable)
}
