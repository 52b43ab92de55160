package history

import (
	"cmp"
	"maps"
	"slices"
)

// key is one committed offset.
type key struct {
	group string
	log   Log
}

func (k key) String() string { return k.group + " on " + k.log.String() }

// offsetFacts is what a history says of one committed offset.
type offsetFacts struct {
	key     key
	commits []*Commit
	fetches []*Committed
}

func (c *checker) offsets() []*offsetFacts {
	m := map[key]*offsetFacts{}
	of := func(k key) *offsetFacts {
		if m[k] == nil {
			m[k] = &offsetFacts{key: k}
		}
		return m[k]
	}
	for i := range c.h.Commits {
		x := &c.h.Commits[i]
		if x.Outcome == Failed {
			continue
		}
		f := of(key{x.Group, x.Log})
		f.commits = append(f.commits, x)
	}
	for i := range c.h.Committed {
		x := &c.h.Committed[i]
		f := of(key{x.Group, x.Log})
		f.fetches = append(f.fetches, x)
	}
	return slices.SortedFunc(maps.Values(m), func(a, b *offsetFacts) int { return cmp.Compare(a.key.String(), b.key.String()) })
}

// latest is until when a commit may have taken effect. One whose outcome is
// unknown may be late, but not so late that its generation was over, before anyone
// commits in a later one, or that its member had gone on to the next. Of a zombie
// that is before its call.
func (f *offsetFacts) latest(x *Commit) int64 {
	if x.Outcome == OK {
		return x.Return
	}
	last := int64(never)
	for _, o := range f.commits {
		next := o.Generation > x.Generation || o.Generation == x.Generation && o.Member == x.Member && x.before(o.Span)
		if x.Generation >= 0 && next {
			last = min(last, o.Call-1)
		}
	}
	return last
}

// commits: an answer lower than what was acknowledged or told before is right
// only if a commit of that very offset may have come after it.
func (c *checker) commits() {
	for _, f := range c.offsets() {
		type proof struct {
			Span
			offset int64
			by     string
		}
		var known []proof
		until := map[int64]int64{} // offset -> until when a commit of it may have come
		for _, x := range f.commits {
			if t := f.latest(x); t >= x.Call {
				until[x.Offset] = max(until[x.Offset], t)
			}
			if x.Outcome == OK {
				known = append(known, proof{x.Span, x.Offset, "committed"})
			}
		}
		for _, x := range f.fetches {
			known = append(known, proof{x.Span, x.Offset, "told"})
		}
		slices.SortFunc(known, func(a, b proof) int { return cmp.Compare(a.Return, b.Return) })
		for _, x := range f.fetches {
			if _, ok := until[x.Offset]; !ok && x.Offset >= 0 {
				c.bad(CommitBack, "%s: %d is told, which nobody committed", f.key, x.Offset)
			}
			for _, k := range known {
				if k.Return >= x.Call {
					break
				}
				if k.offset > x.Offset && until[x.Offset] < k.Call {
					c.bad(CommitBack, "%s: %d is told after %d was %s", f.key, x.Offset, k.offset, k.by)
					break
				}
			}
		}
		c.linearOffset(f)
	}
}

// fenced: who commits in a generation belongs to the group's present one.
func (c *checker) fenced() {
	groups := map[string][]*Assignment{}
	for i := range c.h.Assignments {
		a := &c.h.Assignments[i]
		groups[a.Group] = append(groups[a.Group], a)
	}
	for _, as := range groups {
		slices.SortFunc(as, func(a, b *Assignment) int { return cmp.Compare(a.Return, b.Return) })
	}
	calls := make([]*Commit, 0, len(c.h.Commits))
	for i := range c.h.Commits {
		if x := &c.h.Commits[i]; x.Outcome == OK && x.Generation >= 0 {
			calls = append(calls, x)
		}
	}
	slices.SortFunc(calls, func(a, b *Commit) int { return cmp.Compare(a.Call, b.Call) })
	top := map[string]*Assignment{}
	for _, x := range calls {
		for as := groups[x.Group]; len(as) > 0 && as[0].before(x.Span); as = groups[x.Group] {
			if t := top[x.Group]; t == nil || as[0].Generation > t.Generation {
				top[x.Group] = as[0]
			}
			groups[x.Group] = as[1:]
		}
		if t := top[x.Group]; t != nil && t.Generation > x.Generation {
			c.bad(Fenced, "%s on %s: %s committed %d in generation %d after %s had joined %d", x.Group, x.Log, x.Member, x.Offset, x.Generation, t.Member, t.Generation)
		}
	}
}

// owners: one per partition and generation, and generations only rise.
func (c *checker) owners() {
	type share struct {
		group      string
		generation int32
		log        Log
	}
	type seat struct {
		group      string
		generation int32
		member     string
	}
	owner := map[share]string{}
	given := map[seat]*Assignment{}
	groups := map[string][]*Assignment{}
	for i := range c.h.Assignments {
		a := &c.h.Assignments[i]
		groups[a.Group] = append(groups[a.Group], a)
		for _, l := range a.Logs {
			k := share{a.Group, a.Generation, l}
			if o, ok := owner[k]; ok && o != a.Member {
				c.bad(OneOwner, "%s: %s belongs to %s and to %s in generation %d", a.Group, l, o, a.Member, a.Generation)
			}
			owner[k] = a.Member
		}
		k := seat{a.Group, a.Generation, a.Member}
		if o := given[k]; o != nil && !sameLogs(o.Logs, a.Logs) {
			c.bad(OneOwner, "%s: %s was given %v and %v in generation %d", a.Group, a.Member, o.Logs, a.Logs, a.Generation)
		}
		given[k] = a
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		over := groups[g]
		calls := slices.SortedFunc(slices.Values(over), func(a, b *Assignment) int { return cmp.Compare(a.Call, b.Call) })
		slices.SortFunc(over, func(a, b *Assignment) int { return cmp.Compare(a.Return, b.Return) })
		var top *Assignment
		for _, a := range calls {
			for len(over) > 0 && over[0].before(a.Span) {
				if top == nil || over[0].Generation > top.Generation {
					top = over[0]
				}
				over = over[1:]
			}
			if top != nil && a.Generation < top.Generation {
				c.bad(GenerationBack, "%s: %s joined generation %d after %s had joined %d", g, a.Member, a.Generation, top.Member, top.Generation)
			}
		}
	}
}

func sameLogs(a, b []Log) bool {
	in := map[Log]bool{}
	for _, l := range a {
		in[l] = true
	}
	for _, l := range b {
		if !in[l] {
			return false
		}
	}
	return len(a) == len(b)
}
