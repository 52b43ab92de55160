package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// readBytes bounds one read of the store; it runs in the store's own loops.
const readBytes = 4 << 20

// view is what a reader may see of the log at a moment.
type view struct {
	offset         types.Offset // where to read: not in a break of the log
	hw, lso, start types.Offset
	limit          types.Offset // hw or lso
	over           int          // bytes beyond lso of the message that contains it
	first          pubsub.Seq   // nothing before it is read
	clean          *manifest    // where offsets below its X are; nil: there are none
}

// inSibling reports whether an offset is to be read from the sibling.
func (v *view) inSibling(offset types.Offset) bool { return v.clean != nil && offset < v.clean.X }

// main is the view of the main stream alone.
func (v view) main() view {
	if v.clean != nil {
		v.start, v.offset, v.clean = max(v.start, v.clean.X), max(v.offset, v.clean.X), nil
	}
	return v
}

func (p *Partition) viewLocked(committed bool) view {
	v := view{hw: p.st.next, start: p.start, first: p.first}
	// What is open below the log start is not waited for (UnifiedLog.maybeIncrementFirstUnstableOffset).
	v.lso = min(max(p.st.lastStable(), p.start), v.hw)
	v.limit = v.hw
	if committed {
		v.limit = v.lso
	}
	if p.clean != nil && p.start < p.clean.X {
		v.clean = p.clean
	}
	return v
}

// look checks an offset against the log as it is now and returns the view. An
// offset beyond the known end is out of range only if the leader says so, asked
// after the request came, and may be believed (weigh); the end is the end only if
// we follow the news.
func (p *Partition) look(ctx context.Context, offset types.Offset, committed bool) (view, error) {
	var pr proof
	var said answer
	for asked := false; ; asked = true {
		if err := p.ready(ctx); err != nil {
			return view{}, err
		}
		p.mu.Lock()
		if p.st == nil {
			p.mu.Unlock()
			continue
		}
		v := p.viewLocked(committed)
		offset = p.cuts.forward(offset)
		v.offset = offset
		if committed {
			// What a break cut off as aborted is not in a sibling: there it may be passed.
			v.limit = p.cuts.stop(v.main().offset, v.limit)
			v.over = p.overLocked(v.limit)
		}
		p.mu.Unlock()
		switch {
		case offset < v.start:
			return v, kerr.OffsetOutOfRange
		case v.inSibling(offset) && v.limit < v.clean.X:
			if asked {
				return v, errBehind
			}
		case offset < v.limit:
			return v, nil
		case offset <= v.hw:
			if p.interested() || asked {
				return v, nil
			}
		case asked:
			switch wait, err := p.weigh(&pr, said); {
			case err != nil:
				return v, err
			case wait == 0:
				return v, kerr.OffsetOutOfRange
			case !sleep(ctx, wait):
				return v, ctx.Err()
			}
		}
		var err error
		if said, err = p.synced(ctx); err != nil {
			return v, err
		}
	}
}

// replicated reports whether the log has several replicas, so that a leader's
// "no" needs a second one. Not knowing counts as yes.
func (p *Partition) replicated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replicas != 1
}

// Read returns whole batches from the one that contains r.Offset. Nothing is
// returned only at the end of what the isolation level shows, or when the
// budget does not allow it; a read that fails is an error. Errors:
// OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR (stopped), failures of the store.
func (p *Partition) Read(ctx context.Context, r ReadRequest) (res ReadResult, err error) {
	err = p.steady(ctx, func() error {
		res, err = p.read(ctx, r)
		return err
	})
	return res, err
}

// read is Read as of one moment.
func (p *Partition) read(ctx context.Context, r ReadRequest) (ReadResult, error) {
	v, err := p.look(ctx, r.Offset, r.Committed)
	if err != nil {
		return ReadResult{}, err
	}
	res := ReadResult{HighWatermark: v.hw, LastStable: v.lso, LogStart: v.start}
	if r.Committed {
		res.Aborted = []Aborted{}
	}
	if v.offset >= v.limit || r.MaxBytes <= 0 && !r.Whole {
		return res, nil
	}
	if v.inSibling(v.offset) {
		c := collector{offset: v.offset, limit: v.clean.X, budget: r.MaxBytes, whole: r.Whole, res: &res}
		if err := p.readSibling(ctx, v.clean, &c); err != nil {
			return ReadResult{}, err
		}
		p.host.metrics.reads.WithLabelValues("store").Inc()
		// Of aborted transactions it has no records. Their markers may be gone: a
		// client that is told of one would drop what its producer wrote later.
		if res.Bytes > 0 || c.full {
			return res, nil
		}
		// Nothing was left from there to X.
		if v = v.main(); v.offset >= v.limit {
			return res, nil
		}
	}
	c := collector{offset: v.offset, limit: v.limit, budget: r.MaxBytes, whole: r.Whole, res: &res}
	seq, base, err := p.locate(ctx, v.offset)
	if err != nil {
		return ReadResult{}, err
	}
	p.mu.Lock()
	if h, ok := p.hints.find(v.offset); ok {
		c.size = h.size
	}
	p.mu.Unlock()
	p.host.cache.from(p, seq, c.message)
	if c.seq != 0 || c.full {
		p.host.metrics.reads.WithLabelValues("cache").Inc()
	} else {
		p.host.metrics.reads.WithLabelValues("store").Inc()
		if err := p.readWithin(ctx, seq, base, &c); err != nil {
			return ReadResult{}, err
		}
	}
	if c.bad && res.Bytes == 0 {
		return ReadResult{}, p.unreadable(ctx, c.seq)
	}
	if r.Committed && c.next > v.offset {
		if res.Aborted, err = p.abortedWithin(ctx, v.offset, c.next); err != nil {
			return ReadResult{}, err
		}
	}
	if c.next > 0 {
		p.mu.Lock()
		p.hints.put(hint{c.next, c.nextSeq, c.nextBase, c.size})
		p.mu.Unlock()
	}
	return res, nil
}

// collector takes messages in order and gathers the batches asked for.
type collector struct {
	offset, limit types.Offset
	budget        int
	whole         bool
	res           *ReadResult

	seq  pubsub.Seq // last message taken
	size int        // of that message, or of the one before where we went on
	// where reading goes on: the offset, its message and that message's base
	next, nextBase types.Offset
	nextSeq        pubsub.Seq
	one            bool // take one message only
	holes          bool // of a sibling: batches need not follow each other closely
	full           bool
	bad            bool // the last message's bytes are not the batches they should be
	// known: the next message has the offsets from first to last.
	known       bool
	first, last types.Offset
}

// message takes one message's batches, or none if they are bad. It returns false
// when no more are wanted.
func (c *collector) message(seq pubsub.Seq, data []byte) bool {
	begin, at, got, base := -1, 0, 0, types.NoOffset
	next, nextBase, last := c.next, c.nextBase, types.NoOffset
	nextSeq, full := c.nextSeq, false
	c.seq, c.size = seq, len(data)
	for at < len(data) && !full {
		b, rest, err := serde.ParseBatch(data[at:])
		if err != nil || at > 0 && types.Offset(b.BaseOffset()) != last+1 && !(c.holes && types.Offset(b.BaseOffset()) > last) {
			c.bad = true
			return false
		}
		size := len(data) - at - len(rest)
		if at == 0 {
			base = types.Offset(b.BaseOffset())
		}
		last = types.Offset(b.LastOffset())
		switch {
		case last < c.offset:
		case types.Offset(b.BaseOffset()) >= c.limit:
			full = true
		case c.res.Bytes+got+size > c.budget && !(c.whole && c.res.Bytes+got == 0):
			full = true
		default:
			if begin < 0 {
				begin = at
			}
			got += size
			next, nextSeq, nextBase = last+1, seq, base
		}
		if !full {
			at += size
		}
	}
	switch {
	case !c.known || c.holes && len(data) == 0:
	case c.holes && base >= c.first && last <= c.last:
	case c.holes, base != c.first, !full && last != c.last:
		c.bad = true
		return false
	}
	c.res.Bytes += got
	c.full = full
	c.next, c.nextSeq, c.nextBase = next, nextSeq, nextBase
	if begin >= 0 {
		c.res.Batches = append(c.res.Batches, data[begin:at:at])
	}
	if at == len(data) && c.next > 0 {
		c.nextSeq, c.nextBase = seq+1, c.next
	}
	return !c.full && !c.one && c.res.Bytes < c.budget
}

// readWithin is readStore with a bound: a store that hangs is a failure, while
// the caller still has time to answer it.
func (p *Partition) readWithin(ctx context.Context, seq pubsub.Seq, base types.Offset, c *collector) error {
	bound, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := p.readStore(bound, seq, base, c)
	if err != nil && ctx.Err() == nil {
		return own(err)
	}
	return err
}

// readStore reads from the store, from the message seq with base offset base.
// What it returns was checked to be the log's next messages. A read that fails,
// comes short or is stale is tried again, then the leader is asked; nothing at
// all is an error, never an empty success.
func (p *Partition) readStore(ctx context.Context, seq pubsub.Seq, base types.Offset, c *collector) error {
	// The store sends the message that crosses the limit too. Where messages are
	// as large as the last one, none is sent that does not fit.
	limit := pubsub.Limit{MaxBytes: min(max(c.budget-c.size, 1), readBytes)}
	if c.one {
		limit = pubsub.Limit{MaxBytes: 1, MaxMessages: 1}
	}
	var ms []pubsub.Message
	var err error
	for try := range 4 {
		if try > 0 && !sleep(ctx, time.Millisecond<<try) {
			return ctx.Err()
		}
		ms, err = p.readReplica(ctx, seq, limit)
		if err == nil && len(ms) > 0 && ms[0].Seq == seq {
			return p.collect(ctx, ms, base, c)
		}
		if errors.Is(err, errSilent) {
			err = nil
			break
		}
		if err != nil && ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("read %s at sequence %d: %w", p, seq, p.missingLog(err))
	}
	m, err := p.log.Get(ctx, seq)
	switch {
	case err == nil:
		return p.collect(ctx, []pubsub.Message{m}, base, c)
	case !errors.Is(err, pubsub.ErrNotFound):
		return fmt.Errorf("read %s at sequence %d: %w", p, seq, err)
	}
	// The leader denies a message that is stored, unless it was purged.
	if _, _, err := p.fetchRecord(ctx); err != nil {
		return err
	}
	if err := p.movedFrom(c.offset); err != nil {
		return err
	}
	if err := p.absent(ctx, seq); err != nil {
		return err
	}
	return fmt.Errorf("read %s at sequence %d: not readable at the moment: %w", p, seq, pubsub.ErrUnavailable)
}

// collect checks that messages follow each other as the log does and gathers
// them up to the first that does not: that one is missing, not empty.
func (p *Partition) collect(ctx context.Context, ms []pubsub.Message, base types.Offset, c *collector) error {
	p.mu.Lock()
	cuts := p.cuts
	p.mu.Unlock()
	seq := ms[0].Seq
	for i := range ms {
		m := &ms[i]
		if m.Seq < seq {
			continue // left out by a repair
		}
		if m.Seq != seq || base >= c.limit {
			break
		}
		d, err := decodeLog(p.idTxt, m)
		if err == nil && !d.plain && d.base != base {
			err = &corruption{kind: "order", seq: m.Seq, why: "its base offset is not the one it was stored with"}
		}
		if err != nil {
			if c.res.Bytes > 0 {
				break // the next read starts here and finds out
			}
			return p.confirm(ctx, m.Seq, base, err)
		}
		data := m.Data
		if d.plain {
			data = plainBatch(base, m)
			d.last = base
		} else if m.Release != nil {
			c.res.Release = append(c.res.Release, m.Release)
		}
		c.known, c.first, c.last = true, base, d.last
		if !c.message(m.Seq, data) {
			break
		}
		seq, base = cuts.after(seq+1, d.last+1)
	}
	if c.bad {
		return nil
	}
	if c.seq == 0 {
		return fmt.Errorf("read %s at sequence %d: nothing readable: %w", p, seq, pubsub.ErrUnavailable)
	}
	return nil
}

// confirm asks the leader about a message that a replica showed contradicting
// the log, and stops the partition if it shows the same.
func (p *Partition) confirm(ctx context.Context, seq pubsub.Seq, base types.Offset, cause error) error {
	m, err := p.log.Get(ctx, seq)
	if err != nil {
		return fmt.Errorf("read %s at sequence %d: %w (%v)", p, seq, p.missingLog(err), cause)
	}
	d, err := decodeLog(p.idTxt, &m)
	if err == nil && !d.plain && d.base != base {
		err = &corruption{kind: "order", seq: seq, why: "its base offset is not the one it was stored with"}
	}
	if err != nil {
		p.contradiction(err, true)
		return p.afterContradiction(err)
	}
	return fmt.Errorf("read %s at sequence %d: %w (%v)", p, seq, pubsub.ErrUnavailable, cause)
}

// unreadable stops a partition whose stored bytes are no batches.
func (p *Partition) unreadable(ctx context.Context, seq pubsub.Seq) error {
	m, err := p.log.Get(ctx, seq)
	if err != nil {
		return fmt.Errorf("read %s at sequence %d: %w", p, seq, p.missingLog(err))
	}
	d, err := decodeHeader(p.idTxt, &m)
	if err == nil && !d.plain && !d.lists(m.Data, nil) {
		err = &corruption{kind: "header", seq: seq, why: unlisted}
	}
	if err != nil {
		p.contradiction(err, true)
		return p.afterContradiction(err)
	}
	return fmt.Errorf("read %s at sequence %d: a replica returned other bytes than the leader: %w", p, seq, pubsub.ErrUnavailable)
}

// Available estimates the bytes that a Read at offset would find: message by
// message near the end, "a lot" further back. It asks the store only when the
// newest messages are not in memory yet. An offset out of range is an error, as
// in Read.
func (p *Partition) Available(ctx context.Context, offset types.Offset, committed bool) (n int, err error) {
	err = p.steady(ctx, func() error {
		n, err = p.available(ctx, offset, committed)
		return err
	})
	return n, err
}

// available is Available as of one moment.
func (p *Partition) available(ctx context.Context, offset types.Offset, committed bool) (int, error) {
	v, err := p.look(ctx, offset, committed)
	if err != nil {
		return 0, err
	}
	below := 0
	if v.inSibling(v.offset) {
		if below, err = p.siblingBytes(ctx, v.clean, v.offset); err != nil || below >= readBytes {
			return below, err
		}
		v = v.main()
	}
	if offset = v.offset; offset >= v.limit {
		return below, nil
	}
	n, err := p.mainBytes(ctx, v, offset)
	return below + n, err
}

// mainBytes is the main stream's part of Available.
func (p *Partition) mainBytes(ctx context.Context, v view, offset types.Offset) (int, error) {
	p.mu.Lock()
	if _, ok := p.ix.find(offset); ok {
		defer p.mu.Unlock()
		return max(p.ix.between(offset, v.limit)-v.over, 0), nil
	}
	n, until := p.ix.between(0, v.limit)-v.over, p.ix.recentFirst
	if p.st != nil && len(p.ix.recent) == 0 {
		until = p.st.seq + 1
	}
	p.mu.Unlock()
	k, iv, err := p.intervalAt(ctx, offset)
	if err != nil {
		return 0, err
	}
	if until == 0 || intervalOf(until-1) > k+1 {
		return aLot, nil
	}
	for startOf(k) < until {
		places, err := p.places(ctx, k, iv.base)
		if err != nil {
			return 0, err
		}
		for i, x := range places {
			if x.seq < until && x.base < v.limit && (i+1 == len(places) || places[i+1].base > offset) {
				n += x.size
			}
		}
		k++
		p.mu.Lock()
		known := k >= p.ix.tailFirst && k-p.ix.tailFirst < uint64(len(p.ix.tail))
		if known {
			iv = p.ix.tail[k-p.ix.tailFirst]
		}
		p.mu.Unlock()
		if !known {
			break
		}
	}
	return max(n, 0), nil
}

// overLocked are the bytes from limit on of the message that contains it, if an
// open transaction begins there.
func (p *Partition) overLocked(limit types.Offset) int {
	if len(p.st.open) == 0 || p.st.open[0].start != limit || p.st.open[0].before == 0 {
		return 0
	}
	seq, ok := p.ix.find(limit)
	if !ok {
		return 0
	}
	x, _ := p.ix.point(seq)
	return int(x.size - p.st.open[0].before)
}

// aLot stands for more bytes than any fetch asks for.
const aLot = 1 << 30
