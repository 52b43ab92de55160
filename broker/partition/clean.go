package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// Compaction (DESIGN.md, Compaction): when it is worth it and how far it goes.
// rewrite.go does it.

// errOlder: a gateway lives that does not know siblings.
var errOlder = fmt.Errorf("not all gateways know compacted logs: %w", pubsub.ErrUnavailable)

// compacts reports whether logs may be compacted.
func (h *Host) compacts() bool { return h.format == nil || h.format() >= FormatCompaction }

// errRunning: Compact is under way here.
var errRunning = errors.New("a run of compaction is under way")

// plan is what one rewrite goes by.
type plan struct {
	repaired int64
	clean    *manifest // nil: the log was never compacted
	// The rewrite begins at start, the main stream at x with message seq; from
	// dirty on keys may be there more than once.
	start, x, dirty types.Offset
	seq             pubsub.Seq
	// It ends before goal, where the main stream's message goalSeq begins.
	goal    types.Offset
	goalSeq pubsub.Seq
	// work are the bytes to read, estimated.
	work   int64
	lastOf func(pid int64, epoch int16) (types.Offset, bool)
}

// Compact rewrites what may be compacted of the log: of each key the last record
// is left, with its offset. It makes one run, or as many as the memory for keys
// needs; ErrNothing if there is nothing worth doing. Wherever it ends, the log is
// the one before or the one after. Only the holder of the maintenance lease does it
// (Env.Maintains): else ErrNotMaintainer or a *TermError. Errors: also failures of
// the store, compact.ErrUnreadable, what Pace returns.
func (p *Partition) Compact(ctx context.Context, o CompactOptions) (CompactResult, error) {
	if !p.host.compacts() {
		return CompactResult{}, errOlder
	}
	began := p.host.clock()
	o.began = began
	p.mu.Lock()
	refused, known, busy := p.refusedLocked(), p.recordRev > 0, p.rewrites
	if refused == nil && !busy {
		p.rewrites = true
	}
	p.mu.Unlock()
	if refused != nil {
		return CompactResult{}, refused
	}
	if busy {
		return CompactResult{}, errRunning
	}
	defer func() {
		p.mu.Lock()
		p.rewrites = false
		p.mu.Unlock()
	}()
	if !known {
		if _, _, err := p.fetchRecord(ctx); err != nil {
			return CompactResult{}, err
		}
	}
	t := p.host.tenure()
	if err := p.begin(ctx, t); err != nil {
		return CompactResult{}, err
	}
	var res CompactResult
	var large *tooLarge // the run goes up to it
	for tries := 0; ; {
		var pl plan
		err := p.steady(ctx, func() (err error) {
			pl, err = p.planned(ctx, &o, large)
			return err
		})
		if err == nil {
			if err = p.sweepRuns(ctx, t); err == nil {
				res.Upto, err = p.rewrite(ctx, &o, t, pl, &res)
			}
		}
		if errors.Is(err, ErrNothing) && large != nil && res.Passes == 0 {
			err = large
		}
		if large == nil && errors.As(err, &large) && large.seq > 0 {
			continue
		}
		if errors.Is(err, ErrNothing) {
			if res.Passes == 0 {
				return CompactResult{}, errors.Join(p.unwanted(ctx, t, o.Force), err)
			}
			err = nil
		}
		if errors.Is(err, errAbandoned) && tries < 3 && ctx.Err() == nil {
			tries++ // the log start moved, say: what is left may be worth it
			continue
		}
		if err != nil {
			return CompactResult{}, fmt.Errorf("compact %s: %w", p, err)
		}
		res.Passes++
		res.Took = p.host.clock().Sub(began)
		p.mu.Lock()
		rest := p.clean != nil && p.clean.Dirty < pl.goal
		within := rest && p.clean.Dirty < p.clean.X // nobody else would know of the rest
		p.mu.Unlock()
		if !rest {
			return res, nil
		}
		if res.More = !within && o.Enough != nil && o.Enough(); res.More {
			return res, nil
		}
		o.Force = true
	}
}

// unwanted takes the wish of an operator away that nothing can fulfil.
func (p *Partition) unwanted(ctx context.Context, t tenure, forced bool) error {
	p.mu.Lock()
	want := p.want
	p.mu.Unlock()
	if want == 0 || !forced {
		return nil
	}
	var refused error
	err := p.updateRecord(ctx, func(r *record) bool {
		if refused = t.check(r.Term); refused != nil || r.Want == 0 || r.Want > want {
			return false
		}
		r.Want = 0
		return true
	})
	return errors.Join(err, refused)
}

// planned decides whether a rewrite is worth it, at first without the
// state of the log, and how far it goes: not beyond what is too large, if that is
// known.
func (p *Partition) planned(ctx context.Context, o *CompactOptions, large *tooLarge) (plan, error) {
	now := o.Now.UnixMilli()
	told, err := p.bounds(ctx)
	if err != nil {
		return plan{}, err
	}
	ok, err := p.worth(ctx, o, told, math.MaxInt64)
	if err != nil || !ok {
		return plan{}, errors.Join(err, nothing(err))
	}
	if err := p.sync(ctx); err != nil {
		return plan{}, err
	}
	goalSeq, goal, err := p.compactable(ctx, now, o.MinLag)
	if err != nil {
		return plan{}, err
	}
	if large != nil && large.seq < goalSeq {
		goalSeq, goal = large.seq, large.base
	}
	b, err := p.bounds(ctx)
	if err != nil {
		return plan{}, err
	}
	if ok, err := p.worth(ctx, o, b, goalSeq); err != nil || !ok {
		return plan{}, errors.Join(err, nothing(err))
	}
	// What is purged afterwards can be rebuilt from a snapshot only.
	r, _, err := p.fetchRecord(ctx)
	if err != nil {
		return plan{}, err
	}
	if r.Snapshot == nil || r.Snapshot.Seq < goalSeq {
		if err := p.snapshotNow(ctx); err != nil {
			return plan{}, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.snapshot < goalSeq { // the rewrite would be for nothing
		return plan{}, fmt.Errorf("no snapshot reaches sequence %d: %w", goalSeq, pubsub.ErrUnavailable)
	}
	if p.st == nil {
		return plan{}, p.unloaded()
	}
	pl := plan{repaired: p.repaired, clean: p.clean, start: p.start, x: p.base, dirty: max(p.base, p.start), seq: p.first, goal: max(goal, p.base), goalSeq: max(goalSeq, p.first)}
	if m := p.clean; m != nil {
		pl.dirty = max(min(m.Dirty, p.base), p.start)
		pl.work = m.Bytes
	}
	if pl.start >= pl.goal {
		return plan{}, ErrNothing
	}
	if n := b.Last + 1 - b.First; b.First <= b.Last && pl.goalSeq > p.first {
		pl.work += 2 * int64(float64(b.Bytes)*float64(pl.goalSeq-p.first)/float64(n))
	}
	pl.lastOf = p.st.newest()
	return pl, nil
}

// nothing is ErrNothing unless there is an error.
func nothing(err error) error {
	if err != nil {
		return nil
	}
	return ErrNothing
}

// newest tells where the newest batch of each live producer is, as of now.
func (st *state) newest() func(pid int64, epoch int16) (types.Offset, bool) {
	type last struct {
		epoch int16
		base  types.Offset
	}
	all := map[int64]last{}
	for id, p := range st.producers {
		if p.kept > 0 && !expired(p, st.now) {
			all[id] = last{p.epoch, p.batches[p.kept-1].base}
		}
	}
	return func(pid int64, epoch int16) (types.Offset, bool) {
		l, ok := all[pid]
		return l.base, ok && l.epoch == epoch
	}
}

// worth decides as Kafka does (LogCleanerManager.grabFilthiestCompactedLog), of the
// messages before goal, which the store's bounds count: by the share of what was not
// compacted, and by its age. Beyond Kafka, also when something in the sibling may go
// at last.
func (p *Partition) worth(ctx context.Context, o *CompactOptions, b pubsub.Bounds, goal pubsub.Seq) (bool, error) {
	now := o.Now.UnixMilli()
	p.mu.Lock()
	m, first := p.clean, p.first
	p.mu.Unlock()
	clean := int64(0)
	if m != nil {
		if !o.Later && m.Horizon > 0 && m.Horizon <= now || m.Dirty < m.X {
			return true, nil
		}
		clean = m.Bytes
	}
	dirty := dirtyBytes(b, first, min(goal, b.Last))
	switch {
	case dirty <= 0:
		return false, nil
	case o.Force, float64(dirty)/float64(clean+dirty) > o.Ratio:
		return true, nil
	case o.MaxLag.Milliseconds() >= now:
		return false, nil
	}
	at, err := p.dirtySince(ctx, first)
	return err == nil && now-at > o.MaxLag.Milliseconds(), err
}

// dirtyBytes estimates the bytes of the messages from first to before goal.
func dirtyBytes(b pubsub.Bounds, first, goal pubsub.Seq) int64 {
	first = max(first, b.First)
	if b.First > b.Last || goal <= first {
		return 0
	}
	return max(1, int64(float64(b.Bytes)*float64(goal-first)/float64(b.Last+1-b.First)))
}

// dirtySince is the time, ms, of the first message of the main stream. It is asked
// for once.
func (p *Partition) dirtySince(ctx context.Context, first pubsub.Seq) (int64, error) {
	p.mu.Lock()
	d, cuts := p.since, p.cuts
	p.mu.Unlock()
	if d.seq == first && first > 0 {
		return d.at, nil
	}
	m, err := p.log.Get(ctx, cuts.member(first))
	if err != nil {
		return 0, own(p.missingLog(err))
	}
	h, err := decodeHeader(p.idTxt, &m)
	if err != nil {
		return 0, err
	}
	at := h.maxTime
	if at < 0 {
		at = h.appendTime
	}
	p.mu.Lock()
	p.since = since{first, at}
	p.mu.Unlock()
	return at, nil
}

// since is the time of the first message of the main stream.
type since struct {
	seq pubsub.Seq // 0: not known
	at  int64      // ms
}

// compactable finds out how far the log may be compacted: not the last stored
// message, not beyond the last stable offset, nothing that is too young. The
// message that begins there and its base; those of the main stream's first message if
// there is nothing.
func (p *Partition) compactable(ctx context.Context, now int64, lag time.Duration) (pubsub.Seq, types.Offset, error) {
	p.mu.Lock()
	if p.st == nil {
		p.mu.Unlock()
		return 0, 0, p.unloaded()
	}
	first, base, stable := p.first, p.base, p.st.lastStable()
	end := p.st.next
	p.mu.Unlock()
	seq, goal, err := p.kept(ctx, end) // the last message
	if err != nil {
		return 0, 0, err
	}
	if seq <= first { // it is the only one, or the end is a break
		return first, base, nil
	}
	if stable < goal {
		if stable <= base {
			return first, base, nil
		}
		if seq, goal, err = p.locate(ctx, stable); err != nil {
			return 0, 0, err
		}
	}
	if lag > 0 {
		for k := intervalOf(first); ; {
			iv, at, ok, err := p.intervalReaching(ctx, k, max(now-lag.Milliseconds(), 0)+1)
			if err != nil {
				return 0, 0, err
			}
			if !ok || iv.base >= goal {
				break
			}
			places, err := p.places(ctx, at, iv.base)
			if err != nil {
				return 0, 0, err
			}
			for _, x := range places {
				if x.seq >= first && x.base < goal && x.maxTime > now-lag.Milliseconds() {
					seq, goal = x.seq, x.base
				}
			}
			k = at + 1
		}
	}
	if seq < first {
		seq, goal = first, base
	}
	return seq, goal, nil
}

// Clean is what is known of compaction, without the store.
func (p *Partition) Clean() CleanState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := CleanState{Known: p.recordRev > 0, Dirty: -1, Want: p.want}
	if p.told.Last > 0 {
		s.Dirty = dirtyBytes(p.told, p.first, p.told.Last+1)
	}
	if p.run != nil {
		s.Running = p.run.Stream
	}
	if m := p.clean; m != nil {
		s.X, s.Seq, s.Stream, s.Records, s.Bytes, s.Last = m.X, p.first, m.Stream, m.Records, m.Bytes, time.UnixMilli(m.At)
		if m.Horizon > 0 {
			s.Horizon = time.UnixMilli(m.Horizon)
		}
	}
	return s
}

// WantCompacted asks that everything that may be compacted by now is. It returns
// the offset to wait for, 0 if there is nothing: it is done when Clean's X is there,
// or when its Want is gone. Any gateway may ask. Errors: POLICY_VIOLATION
// (cleanup.policy without compact), failures of the store.
func (p *Partition) WantCompacted(ctx context.Context) (types.Offset, error) {
	c := p.Config()
	if !c.Compacted {
		return types.NoOffset, kerr.PolicyViolation
	}
	if !p.host.compacts() {
		return types.NoOffset, errOlder
	}
	if err := p.sync(ctx); err != nil {
		return types.NoOffset, err
	}
	_, to, err := p.compactable(ctx, p.host.clock().UnixMilli(), time.Duration(min(c.MinLagMillis, math.MaxInt64/int64(time.Millisecond)))*time.Millisecond)
	if err != nil {
		return types.NoOffset, err
	}
	stopped := false
	err = p.updateRecord(ctx, func(r *record) bool {
		stopped = r.Stop != nil
		done := r.Base
		if r.Clean != nil {
			done = r.Clean.Dirty
		}
		if to <= max(done, r.Start) {
			to = 0
		}
		if stopped || to <= r.Want {
			return false
		}
		r.Want = to
		return true
	})
	if err == nil && stopped {
		err = kerr.KafkaStorageError
	}
	if err != nil {
		return types.NoOffset, err
	}
	return to, nil
}

// SweepClean removes what crashed runs have left: the entry of a run with its
// sibling, and siblings and parts of indexes that nobody names any more. Only the
// holder of the maintenance lease does it, as Compact.
func (p *Partition) SweepClean(ctx context.Context) error {
	p.mu.Lock()
	refused, busy := p.refusedLocked(), p.rewrites
	if refused == nil && !busy {
		p.rewrites = true // no run begins meanwhile
	}
	p.mu.Unlock()
	if refused != nil || busy {
		return nil // a stopped partition is left as it is; a run sees to itself
	}
	defer func() {
		p.mu.Lock()
		p.rewrites = false
		p.mu.Unlock()
	}()
	if _, _, err := p.fetchRecord(ctx); err != nil {
		return err
	}
	t := p.host.tenure()
	if err := p.begin(ctx, t); err != nil {
		return err
	}
	if err := p.sweepRuns(ctx, t); err != nil {
		return err
	}
	p.mu.Lock()
	none := p.runs == 0
	over := p.clean != nil && p.start >= p.clean.X
	p.mu.Unlock()
	if none {
		return nil
	}
	if over {
		if err := p.purgeNow(ctx); err != nil {
			return err
		}
	}
	return p.sweepSiblings(ctx, t)
}

// sweepRuns takes away the run that the record names: it is not ours.
func (p *Partition) sweepRuns(ctx context.Context, t tenure) error {
	p.mu.Lock()
	run := p.run
	p.mu.Unlock()
	if run == nil {
		return nil
	}
	if err := t.check(0); err != nil {
		return err
	}
	return p.dropRun(ctx, run.Stream, false)
}

// sweepSiblings deletes siblings and parts of their indexes that the record does not
// name. A record that is read might be old; that none names them any more says a
// write of it, which succeeds only upon the newest. A name that was taken away is
// never written again.
func (p *Partition) sweepSiblings(ctx context.Context, t tenure) error {
	logs, _, err := p.host.store.Logs(ctx, siblingSubjects(p.log.Name()))
	if err != nil {
		return fmt.Errorf("list the siblings of %s: %w", p, err)
	}
	left := map[string]bool{} // by stream
	for _, l := range logs {
		if strings.HasPrefix(l.Name, p.log.Name()+siblingMark) && l.Metadata[siblingMeta] == p.log.Name() {
			left[l.Name] = true
		}
	}
	keys := map[string]bool{} // tokens of streams of which there are parts
	err = p.host.records.Scan(ctx, pubsub.WatchOptions{Patterns: []string{p.siblingPrefix() + ">"}, HeadersOnly: true}, 0, func(v pubsub.Value) error {
		if token, _, ok := strings.Cut(strings.TrimPrefix(v.Key, p.siblingPrefix()), "."); ok && !v.Deleted {
			keys[token] = true
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the index of siblings of %s: %w", p, err)
	}
	named := func(r *record) {
		for _, name := range r.siblings() {
			delete(left, name)
			delete(keys, pubsub.Token(name))
		}
	}
	r, _, err := p.fetchRecord(ctx)
	if err != nil {
		return err
	}
	if named(r); len(left)+len(keys) == 0 {
		return nil
	}
	var refused error
	err = p.updateRecord(ctx, func(r *record) bool {
		refused = t.check(r.Term)
		named(r)
		return refused == nil && r.Stop == nil && len(left)+len(keys) > 0
	})
	if err = errors.Join(err, refused); err != nil {
		return err
	}
	p.mu.Lock()
	stopped := p.stop != nil
	p.mu.Unlock()
	if stopped {
		return nil
	}
	for name := range left {
		if err := p.host.deleteSibling(ctx, p.key, name); err != nil {
			return err
		}
	}
	for token := range keys {
		if err := p.host.deleteKeys(ctx, []string{p.siblingPrefix() + token + ".>"}, nil); err != nil {
			return err
		}
	}
	return nil
}
