package history

import (
	"cmp"
	"maps"
	"slices"
)

// values: once, invented.
func (c *checker) values(f *logFacts) {
	for _, v := range slices.Sorted(maps.Keys(f.places)) {
		at := f.places[v]
		s := f.sent[v]
		switch {
		case s == nil:
			c.bad(Invented, "%s: offset %d is %q, which nobody sent there", f.log, at[0], v)
		case s.Outcome == Failed:
			c.bad(Invented, "%s: offset %d is %q, which was refused", f.log, at[0], v)
		case s.Idempotent && len(at) > 1:
			c.bad(OneOffset, "%s: %q is at the offsets %v", f.log, v, at)
		case !s.Idempotent && s.Attempts > 0 && len(at) > s.Attempts:
			c.bad(OneOffset, "%s: %q was sent %d times and is at the offsets %v", f.log, v, s.Attempts, at)
		}
	}
	early := func(s Span, who string, rs []Record) {
		for _, r := range rs {
			if sent := f.sent[r.Value]; sent != nil && s.before(sent.Span) {
				c.bad(Invented, "%s: %s read %q at %d before it was sent", f.log, who, r.Value, r.Offset)
			}
		}
	}
	for _, p := range f.polls {
		early(p.Span, p.Consumer, p.Records)
	}
	for _, p := range f.finals {
		early(p.Span, p.Reader, p.Records)
	}
}

// orders: of each idempotent producer, wherever its records were seen, and in
// time: what is sent after an acknowledgement lies above it.
func (c *checker) orders(f *logFacts) {
	byProducer := map[string][]*Send{}
	for _, s := range f.sends {
		if s.Idempotent {
			byProducer[s.Producer] = append(byProducer[s.Producer], s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byProducer)) {
		sends := byProducer[name]
		slices.SortStableFunc(sends, func(a, b *Send) int { return cmp.Compare(a.Call, b.Call) })
		last := (*Send)(nil)
		for _, s := range sends {
			at := f.places[s.Value]
			if len(at) == 0 {
				continue
			}
			if last != nil && at[0] <= f.places[last.Value][0] {
				c.bad(Order, "%s: %s sent %q before %q; they are at %d and %d", f.log, name, last.Value, s.Value, f.places[last.Value][0], at[0])
			}
			last = s
		}
	}
	acked := make([]*Send, 0, len(f.sends))
	for _, s := range f.sends {
		if s.Outcome == OK && s.Offset >= 0 {
			acked = append(acked, s)
		}
	}
	calls := slices.SortedFunc(slices.Values(acked), func(a, b *Send) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortFunc(acked, func(a, b *Send) int { return cmp.Compare(a.Return, b.Return) })
	var top *Send
	for _, s := range calls {
		for len(acked) > 0 && acked[0].Return < s.Call {
			if top == nil || acked[0].Offset > top.Offset {
				top = acked[0]
			}
			acked = acked[1:]
		}
		if top != nil && s.Offset <= top.Offset {
			c.bad(Order, "%s: %q was sent after %q was acknowledged at %d, and lies at %d", f.log, s.Value, top.Value, top.Offset, s.Offset)
		}
	}
}

// finals: complete, without holes, with everything that anybody was told.
func (c *checker) finals(f *logFacts) {
	for _, p := range f.finals {
		if asked := f.deletedBy(p.Return); p.Start > asked {
			c.bad(Complete, "%s: %s finds the log start at %d; nobody asked for more than %d", f.log, p.Reader, p.Start, asked)
		}
		next := p.Start
		have := make(map[int64]bool, len(p.Records))
		for _, r := range p.Records {
			if r.Offset < next || r.Offset > next && !p.Gaps {
				c.bad(Complete, "%s: %s reads offset %d where %d comes next", f.log, p.Reader, r.Offset, next)
			}
			next = r.Offset + 1
			have[r.Offset] = true
		}
		if next > p.End || next < p.End && !p.Gaps {
			c.bad(Complete, "%s: %s has read to %d; the log ends at %d", f.log, p.Reader, next, p.End)
		}
		for _, o := range f.offsets {
			if o >= p.Start && !have[o] {
				c.bad(Complete, "%s: offset %d (%q), which was told, is not there for %s (%d to %d)", f.log, o, f.values[o], p.Reader, p.Start, p.End)
			}
		}
		for _, s := range f.sends {
			if s.Outcome == OK && s.Offset < 0 && len(f.places[s.Value]) == 0 && p.Start == 0 {
				c.bad(Complete, "%s: %q was acknowledged and is not there for %s", f.log, s.Value, p.Reader)
			}
		}
	}
}

// shown is a moment from which on a log was known to reach an offset.
type shown struct {
	tick, end int64
	by        string
}

// ends: never below what was known before the question, never above the log.
func (c *checker) ends(f *logFacts) {
	var known []shown
	for _, s := range f.sends {
		if s.Outcome == OK && s.Offset >= 0 {
			known = append(known, shown{s.Return, s.Offset + 1, "acknowledged"})
		}
	}
	for _, p := range f.polls {
		if n := len(p.Records); n > 0 {
			known = append(known, shown{p.Return, p.Records[n-1].Offset + 1, "read by " + p.Consumer})
		}
		known = append(known, shown{p.Return, p.HighWatermark, "high watermark told to " + p.Consumer})
	}
	for _, e := range f.ends {
		known = append(known, shown{e.Return, e.Offset, "told as the end"})
	}
	slices.SortFunc(known, func(a, b shown) int { return cmp.Compare(a.tick, b.tick) })
	for _, p := range f.finals {
		for _, k := range known {
			if k.end > p.End {
				c.bad(EndBack, "%s: %d was %s; the log ends at %d", f.log, k.end, k.by, p.End)
				break
			}
		}
	}
	asked := slices.SortedFunc(slices.Values(f.ends), func(a, b *End) int { return cmp.Compare(a.Call, b.Call) })
	var top shown
	for _, e := range asked {
		for len(known) > 0 && known[0].tick < e.Call {
			if known[0].end > top.end {
				top = known[0]
			}
			known = known[1:]
		}
		if e.Offset < top.end {
			c.bad(EndBack, "%s: the end is told as %d; %d was %s before the question", f.log, e.Offset, top.end, top.by)
		}
	}
}
