package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// survey is one walk over a partition's log that does not stop where a
// partition would: it finds everything that does not continue the log and how
// it could go on after each.
type survey struct {
	spec   RepairSpec
	log    pubsub.Log
	idText string

	r      *record // nil: missing
	rev    pubsub.Rev
	stream bool // the stream exists
	b      pubsub.Bounds
	snap   snapshotFact

	// The walk: what is expected next.
	want pubsub.Seq
	id   string
	next types.Offset
	// pending is open damage: from its first sequence nothing was found yet that
	// says where the log goes on.
	pending *cut // From, Next; To is the last sequence that is missing or bad
	before  cuts // of the record as it was read
	found   cuts // damage after which the log goes on by itself
	bad     []badMessage
	leftOut uint64 // messages that exist within damage
	// compacted says what is wrong with the sibling, "" if nothing is; from
	// compactedFrom on it is whole.
	compacted     string
	compactedFrom types.Offset

	// certain is the last message that was stored before the log can have gone
	// back; certainNext is the offset after it.
	certain     pubsub.Seq
	certainNext types.Offset
	mixed       bool // a plain message comes after it

	firstBase types.Offset // of a log without record, where the first message tells

	highest     types.Offset
	highestFrom string
}

// snapshotFact is what a survey finds out about the snapshot of the record.
type snapshotFact struct {
	there bool
	fits  bool // it is of this log
	last  bool // the stream ends before it
	why   string
	next  types.Offset // offset after it, where its content can be read
	now   int64        // ms, the largest append time in it
}

type badMessage struct {
	seq pubsub.Seq
	why string
}

// farthest is how far a message's base may lie beyond what came before to be
// believed: repairs leave gaps, nothing else does.
const farthest = 1_000_000_000_000

// believable bounds offsets that no log has told.
const believable = 1 << 52

func (s *survey) know(o types.Offset, from string) {
	if o > s.highest {
		s.highest, s.highestFrom = o, from
	}
}

// run reads record, snapshot and log.
func (s *survey) run(ctx context.Context, e *RepairEnv) error {
	key := recordKey(s.spec.ID, s.spec.Partition)
	v, err := e.Records.Get(ctx, key)
	switch {
	case err == nil:
		if s.r, err = parseRecord(v.Data); err != nil {
			return fmt.Errorf("record %s: %w", key, err)
		}
		if s.r.Stream != s.spec.Log.Name {
			return fmt.Errorf("record %s names stream %s, the topic's is %s", key, s.r.Stream, s.spec.Log.Name)
		}
	case !errors.Is(err, pubsub.ErrNotFound):
		return fmt.Errorf("read record %s: %w", key, err)
	default:
		if err := s.really(ctx, func() error { _, err := e.Records.Get(ctx, key); return err }); err != nil {
			return fmt.Errorf("read record %s: %w", key, err)
		}
	}
	s.rev = v.Rev
	if s.r != nil {
		s.before = s.r.Resume
	}
	s.log = e.Store.Log(s.spec.Log.Name, s.spec.Log.Subject)
	s.b, err = s.log.Bounds(ctx)
	switch {
	case err == nil:
		s.stream = true
	case !errors.Is(err, pubsub.ErrNotFound):
		return fmt.Errorf("ask for stream %s: %w", s.spec.Log.Name, err)
	default:
		if err := s.really(ctx, func() error { _, err := s.log.Bounds(ctx); return err }); err != nil {
			return fmt.Errorf("ask for stream %s: %w", s.spec.Log.Name, err)
		}
	}
	if s.spec.Known < believable { // clients may commit any offset
		s.know(s.spec.Known, s.spec.KnownFrom)
	}
	if r := s.r; r != nil {
		s.know(max(r.Base, r.Start), "the partition record")
		for _, c := range r.Resume {
			s.know(c.Base, "an earlier repair")
		}
		if err := s.snapshot(ctx, e, key); err != nil {
			return err
		}
		if err := s.sibling(ctx, e); err != nil {
			return err
		}
	}
	if !s.stream {
		return nil
	}
	return s.walk(ctx)
}

// really asks again, a second later, for what was said not to exist: a leader
// that woke from a freeze denies things.
func (s *survey) really(ctx context.Context, ask func() error) error {
	if s.spec.Log.Replicas <= 1 {
		return nil
	}
	if !sleep(ctx, time.Second) {
		return ctx.Err()
	}
	switch err := ask(); {
	case err == nil:
		return fmt.Errorf("the store denied it and then had it, try again: %w", pubsub.ErrUnavailable)
	case errors.Is(err, pubsub.ErrNotFound):
		return nil
	default:
		return err
	}
}

// sibling looks whether everything is there that was compacted and not deleted.
func (s *survey) sibling(ctx context.Context, e *RepairEnv) error {
	m := s.r.Clean
	if m == nil || s.r.Start >= m.X {
		return nil
	}
	s.know(m.X, "the partition record")
	log := e.Store.Log(m.Stream, siblingSubject(m.Stream))
	if _, err := log.Bounds(ctx); errors.Is(err, pubsub.ErrNotFound) {
		if err := s.really(ctx, func() error { _, err := log.Bounds(ctx); return err }); err != nil {
			return fmt.Errorf("ask for stream %s: %w", m.Stream, err)
		}
		s.compacted, s.compactedFrom = fmt.Sprintf("the stream %s of compacted records is missing", m.Stream), m.X
		return nil
	} else if err != nil {
		return fmt.Errorf("ask for stream %s: %w", m.Stream, err)
	}
	// What lies below the log start may be gone. Tiles follow each other, so that the
	// end of what is missing is where the next one begins.
	next, base := pubsub.Seq(0), s.r.Start
	damage := func(seq pubsub.Seq, why string, from types.Offset) {
		if s.compacted == "" {
			s.compacted = fmt.Sprintf("the compacted records in %s, sequence %d: %s", m.Stream, seq, why)
		}
		s.compactedFrom = from
	}
	err := log.Headers(ctx, 1, m.Last, func(msg pubsub.Message) error {
		if msg.Seq > m.Last {
			return nil
		}
		h, err := decodeSibling(s.idText, &msg)
		switch {
		case errors.Is(err, errUnknownFormat):
			return err
		case err != nil:
			damage(msg.Seq, err.Error(), m.X)
			next, base = msg.Seq+1, -1
			return nil
		case h.last < s.r.Start:
			return nil
		case next == 0 && h.base > s.r.Start, next != 0 && msg.Seq != next, base >= 0 && next != 0 && h.base != base:
			damage(msg.Seq, "something is missing before it", h.base)
		case base < 0:
			s.compactedFrom = h.base
		}
		next, base = msg.Seq+1, h.last+1
		return nil
	})
	if err != nil {
		return fmt.Errorf("read headers of %s: %w", m.Stream, err)
	}
	if next != m.Last+1 || base != m.X {
		damage(max(next, 1), "something is missing from there on", m.X)
	}
	return nil
}

// snapshot looks whether the snapshot counts.
func (s *survey) snapshot(ctx context.Context, e *RepairEnv, key string) error {
	h := s.r.Snapshot
	if h == nil {
		return nil
	}
	f := &s.snap
	f.there = true
	img, err := readImage(ctx, e.Records, h)
	switch {
	case err == nil && (img.Partition != key || img.Stream != s.spec.Log.Name || img.Seq != h.Seq || img.ID != h.ID):
		f.why = "its content is of another log"
	case err == nil:
		f.next, f.now = img.Next, img.Now
		s.know(img.Next, "the snapshot")
	case errors.Is(err, errSnapshotLost):
		f.why = err.Error()
	default:
		return err
	}
	switch {
	case !s.stream:
		return nil
	case s.b.Last < h.Seq:
		f.last = true
		f.why = fmt.Sprintf("the stream ends at %d, before it", s.b.Last)
		return nil
	case f.why != "":
		return nil
	case h.Seq < max(s.b.First, s.r.First):
		f.fits = s.r.First > h.Seq
		if !f.fits {
			f.why = "its message is gone, and the record does not say that it was purged"
		}
		return nil
	}
	m, err := s.log.Get(ctx, h.Seq)
	if errors.Is(err, pubsub.ErrNotFound) {
		f.why = "its message is missing"
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s at sequence %d: %w", s.spec.Log.Name, h.Seq, err)
	}
	d, derr := decodeHeader(s.idText, &m)
	if f.fits = derr == nil && d.id == h.ID; !f.fits {
		f.why = "the message at its sequence is another one"
	}
	return nil
}

// walk reads the headers of the log from the snapshot, or from the beginning if
// the snapshot does not count or the trouble may lie before it: the stop names
// an earlier message, or the stream has fewer messages than sequences.
func (s *survey) walk(ctx context.Context) error {
	switch r := s.r; {
	case r == nil:
		s.want = max(s.b.First, 1)
		if err := s.guessBase(ctx); err != nil {
			return err
		}
	case s.snap.fits && (r.Stop == nil || r.Stop.Seq > r.Snapshot.Seq) && s.b.Messages == uint64(s.b.Last+1-s.b.First):
		s.id = r.Snapshot.ID
		s.moveTo(r.Snapshot.Seq+1, s.snap.next)
	default:
		s.moveTo(r.First, r.Base)
	}
	s.certain, s.certainNext = s.want-1, s.next
	s.know(s.next, "the beginning of the log")
	if s.want <= s.b.Last {
		if err := s.log.Headers(ctx, s.want, s.b.Last, func(m pubsub.Message) error {
			if m.Seq > s.b.Last {
				return nil
			}
			return s.message(ctx, &m)
		}); err != nil {
			return fmt.Errorf("read headers of %s: %w", s.spec.Log.Name, err)
		}
	}
	if s.want <= s.b.Last {
		return s.missing(ctx, s.b.Last)
	}
	return nil
}

// guessBase finds the first offset of a log whose record is lost.
func (s *survey) guessBase(ctx context.Context) error {
	if s.b.First > s.b.Last {
		return nil
	}
	m, err := s.log.Get(ctx, s.b.First)
	if err != nil {
		return fmt.Errorf("read %s at sequence %d: %w", s.spec.Log.Name, s.b.First, err)
	}
	if d, err := decodeLog(s.idText, &m); err == nil && !d.plain {
		s.next, s.firstBase = d.base, d.base
	} else if s.b.First > 1 {
		// What was purged before it is not known: it has no offset.
		s.damage(s.b.First)
	}
	return nil
}

// moveTo expects seq next, or what comes after a break that was accepted there.
func (s *survey) moveTo(seq pubsub.Seq, next types.Offset) {
	s.want, s.next = seq, next
	if s.r == nil {
		return
	}
	s.want, s.next = s.r.Resume.after(seq, next)
	if s.r.Resume.begin(seq) {
		s.id = ""
	}
}

// damage notes that everything from the present place to seq is no part of the
// log as far as is known.
func (s *survey) damage(to pubsub.Seq) {
	if s.pending == nil {
		s.pending = &cut{From: s.want, Next: s.next}
	}
	s.pending.To = to
}

// missing notes that the sequences from the one expected to `to` do not exist.
func (s *survey) missing(ctx context.Context, to pubsub.Seq) error {
	for i := range max(1, min(2, s.b.Replicas)) {
		if i > 0 && !sleep(ctx, time.Second) {
			return ctx.Err()
		}
		_, err := s.log.Get(ctx, s.want)
		if err == nil {
			return fmt.Errorf("message %d was left out of an answer and is there, try again: %w", s.want, pubsub.ErrUnavailable)
		}
		if !errors.Is(err, pubsub.ErrNotFound) {
			return err
		}
	}
	why := "it is missing"
	if to > s.want {
		why = fmt.Sprintf("%d messages are missing from here", to-s.want+1)
	}
	s.bad = append(s.bad, badMessage{s.want, why})
	s.damage(to)
	s.want = to + 1
	return nil
}

// message takes the next message of the walk.
func (s *survey) message(ctx context.Context, m *pubsub.Message) error {
	if m.Seq < s.want {
		return nil // within a break that was accepted
	}
	if m.Seq > s.want {
		if err := s.missing(ctx, m.Seq-1); err != nil {
			return err
		}
	}
	d, err := decodeHeader(s.idText, m)
	if errors.Is(err, errUnknownFormat) {
		return err
	}
	var c *corruption
	if errors.As(err, &c) {
		s.reject(m.Seq, c.why)
		return nil
	}
	if d.plain {
		if s.pending != nil {
			s.leftOut++ // its offset is not known, unless one of ours comes later
			s.want = m.Seq + 1
			return nil
		}
		s.id = d.id
		s.moveTo(m.Seq+1, s.next+1)
		if d.appendTime < s.snap.now-maxClockOff.Milliseconds() && !s.mixed {
			s.certain, s.certainNext = m.Seq, s.next
		} else {
			s.mixed = true
		}
		s.know(s.next, "the log")
		return nil
	}
	suspect := s.r != nil && s.r.Stop != nil && s.r.Stop.Seq == m.Seq
	follows := s.pending == nil && d.base == s.next && (s.id == "" || s.id == d.prev)
	if !follows || suspect {
		why, err := s.unsound(ctx, &d)
		if err != nil {
			return err
		}
		switch {
		case why != "":
		case d.base < s.next:
			why = fmt.Sprintf("its base offset %d belongs to an earlier message", d.base)
		case d.base > s.next+farthest:
			why = fmt.Sprintf("its base offset %d is not believable after %d", d.base, s.next)
		}
		if why != "" {
			s.reject(m.Seq, why)
			return nil
		}
	}
	if !follows {
		if s.pending == nil {
			s.bad = append(s.bad, badMessage{m.Seq, "it does not name the message before it, or offsets are left out"})
			s.pending = &cut{From: m.Seq, Next: s.next}
		}
		s.pending.To, s.pending.Base = m.Seq-1, d.base
		s.found = append(s.found, *s.pending)
		s.pending = nil
	}
	s.id = d.id
	s.moveTo(m.Seq+1, d.last+1)
	s.certain, s.certainNext, s.mixed = m.Seq, s.next, false
	s.know(s.next, "the log")
	return nil
}

// reject leaves a message out.
func (s *survey) reject(seq pubsub.Seq, why string) {
	s.bad = append(s.bad, badMessage{seq, why})
	s.damage(seq)
	s.leftOut++
	s.want = seq + 1
}

// unsound says why a message's payload is not what its headers list; "" if it
// is.
func (s *survey) unsound(ctx context.Context, d *meta) (string, error) {
	m, err := s.log.Get(ctx, d.seq)
	if err != nil {
		return "", fmt.Errorf("read %s at sequence %d: %w", s.spec.Log.Name, d.seq, err)
	}
	sums := true
	if !d.lists(m.Data, func(b serde.Batch) { sums = sums && b.ChecksumOK() }) {
		return unlisted, nil
	}
	if !sums {
		return "a checksum in its payload is wrong", nil
	}
	return "", nil
}

// wentBack reports that the stream ends before what is known to have been
// stored.
func (s *survey) wentBack() bool {
	if !s.stream || s.r == nil {
		return false
	}
	return s.snap.last || s.r.Stop != nil && s.r.Stop.Kind == "back"
}

// sound reports that nothing is wrong with record, stream and snapshot.
func (s *survey) sound() bool {
	return s.r != nil && s.stream && s.pending == nil && len(s.found) == 0 && len(s.bad) == 0 && !s.wentBack() && (!s.snap.there || s.snap.fits)
}

// healed reports that a stop has no reason any more: everything that was known
// is there again and follows.
func (s *survey) healed() bool {
	switch st := s.stopped(); {
	case st == nil || !s.stream || s.pending != nil || len(s.found) > 0 || s.snap.there && !s.snap.fits:
		return false
	case st.Kind == kindLost:
		return false
	case st.Kind == "back":
		// Ours follow each other by id; a plain message may stand where another
		// one was.
		return s.b.Last >= st.Seq && s.certain >= st.Seq
	default:
		return s.b.Last >= st.Seq
	}
}

func (s *survey) stopped() *stopInfo {
	if s.r == nil {
		return nil
	}
	return s.r.Stop
}

// resume makes the breaks that explain everything, the last of which begins at
// base.
func (s *survey) resume(base types.Offset) cuts {
	if !s.stream {
		c := cut{From: 1, To: 0, Next: 0, Base: base}
		if s.r != nil && s.r.Clean != nil {
			c.Next = s.r.Clean.X // what lies below is not in it
		}
		return cuts{c}
	}
	last := cut{From: s.b.Last + 1, To: s.b.Last, Next: s.next, Base: base}
	switch {
	case s.pending != nil:
		last = cut{From: s.pending.From, To: s.pending.To, Next: s.pending.Next, Base: base}
	case s.wentBack():
		last = cut{From: s.certain + 1, To: s.certain, Next: s.certainNext, Base: base}
	}
	added := slices.Clone(s.found)
	added = slices.DeleteFunc(added, func(c cut) bool { return c.From > last.From })
	added = append(added, last)
	var all cuts
	if s.r != nil {
		for _, old := range s.r.Resume {
			if old.From > last.From || old.To > last.To && old.To >= last.From {
				continue // of a part of the log that is no more
			}
			if slices.ContainsFunc(added, func(c cut) bool { return old.From > c.From && old.From <= c.To+1 }) {
				continue
			}
			all = append(all, old)
		}
	}
	all = append(all, added...)
	slices.SortStableFunc(all, func(a, b cut) int {
		switch {
		case a.From != b.From:
			return int(int64(a.From) - int64(b.From))
		case a.Base < b.Base:
			return -1
		case a.Base > b.Base:
			return 1
		}
		return 0
	})
	return all
}
