package history

import (
	"cmp"
	"maps"
	"slices"
)

// unread: an acknowledged record between what readers have read that no reader
// was given. It takes readers that together read everything from where the first
// of them began: consumers that commit what they were given, or read from the
// start.
func (c *checker) unread(f *logFacts) {
	read := map[int64]bool{}
	low, high := int64(never), int64(-1)
	last := int64(0)
	for _, p := range f.polls {
		for _, r := range p.Records {
			read[r.Offset] = true
			low, high = min(low, r.Offset), max(high, r.Offset)
		}
		last = max(last, p.Return)
	}
	low = max(low, f.deletedBy(last))
	for _, s := range f.sends {
		if s.Outcome == OK && s.Offset >= low && s.Offset < high && !read[s.Offset] {
			c.bad(Unread, "%s: %q, acknowledged at %d, was given to nobody; readers have read up to %d", f.log, s.Value, s.Offset, high)
		}
	}
}

// place is one consumer's reading of one log.
type place struct {
	consumer string
	log      Log
}

// consumers: each goes on where it was, unless it was sent elsewhere.
func (c *checker) consumers() {
	type step struct {
		tick int64
		poll *Poll
		seek *Seek
	}
	steps := map[place][]step{}
	for i := range c.h.Polls {
		p := &c.h.Polls[i]
		k := place{p.Consumer, p.Log}
		steps[k] = append(steps[k], step{p.Return, p, nil})
	}
	for i := range c.h.Seeks {
		s := &c.h.Seeks[i]
		k := place{s.Consumer, s.Log}
		steps[k] = append(steps[k], step{s.Return, nil, s})
	}
	keys := slices.SortedFunc(maps.Keys(steps), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.consumer, b.consumer), cmp.Compare(a.log.String(), b.log.String()))
	})
	for _, k := range keys {
		f := c.log(k.log)
		slices.SortFunc(steps[k], func(a, b step) int { return cmp.Compare(a.tick, b.tick) })
		next := int64(-1) // not known
		for _, s := range steps[k] {
			if s.seek != nil {
				next = s.seek.Offset
				continue
			}
			for _, r := range s.poll.Records {
				switch {
				case next < 0:
				case r.Offset < next:
					c.bad(Repeated, "%s: %s was given %d where it wanted %d", k.log, k.consumer, r.Offset, next)
				case r.Offset > next:
					if o, ok := f.knownBetween(max(next, f.deletedBy(s.tick)), r.Offset); ok {
						c.bad(Skipped, "%s: %s wanted %d and was given %d; offset %d is %q", k.log, k.consumer, next, r.Offset, o, f.values[o])
					}
				}
				next = r.Offset + 1
			}
		}
	}
}
