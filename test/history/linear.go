package history

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"
)

// window is how many operations of a log are checked at once. The model allows
// for records of which nothing is known, so what is true of a log is true of any
// part of its operations; windows overlap by half.
const window = 2000

type verb int8

const (
	doAppend verb = iota // a record was stored at offset: the log ended there
	doRead               // a record at offset was read: the log ended above it
	doEnd                // the log's end was told as offset
)

// logStep is one operation on a log. Its offset is part of the input: only the
// order in time is in question, the values were compared before.
type logStep struct {
	verb   verb
	offset int64
}

// logModel is a log as one thing that does one step at a time. Its state is
// where it ends. Offsets that are not in known hold records of others, who may
// append at any moment.
func logModel(known []int64) porcupine.Model {
	// free reports that nothing known lies in [from, to).
	free := func(from, to int64) bool {
		i, _ := slices.BinarySearch(known, from)
		return i == len(known) || known[i] >= to
	}
	return porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, _ any) (bool, any) {
			end, s := state.(int64), input.(logStep)
			switch s.verb {
			case doAppend:
				return end <= s.offset && free(end, s.offset), s.offset + 1
			case doRead:
				if end > s.offset {
					return true, end
				}
				return free(end, s.offset+1), s.offset + 1
			default:
				return end <= s.offset && free(end, s.offset), s.offset
			}
		},
	}
}

// linearLog asks whether appends, reads and ends of a log have an order in which
// each took place between its call and its return. A send without outcome counts
// if its value was read somewhere: it was stored before that read returned.
func (c *checker) linearLog(f *logFacts) {
	var ops []porcupine.Operation
	add := func(s Span, until int64, v verb, o int64) {
		ops = append(ops, porcupine.Operation{Input: logStep{v, o}, Call: s.Call, Return: until})
	}
	seen := map[int64]int64{} // offset -> the first return that told of it
	read := func(s Span, rs []Record) {
		for _, r := range rs {
			if t, ok := seen[r.Offset]; !ok || s.Return < t {
				seen[r.Offset] = s.Return
			}
		}
		if n := len(rs); n > 0 {
			add(s, s.Return, doRead, rs[n-1].Offset)
		}
	}
	for _, p := range f.polls {
		read(p.Span, p.Records)
		if p.HighWatermark > 0 {
			add(p.Span, p.Return, doRead, p.HighWatermark-1)
		}
	}
	for _, p := range f.finals {
		read(p.Span, p.Records)
		add(p.Span, p.Return, doEnd, p.End)
	}
	for _, e := range f.ends {
		add(e.Span, e.Return, doEnd, e.Offset)
	}
	for _, s := range f.sends {
		switch at := f.places[s.Value]; {
		case s.Outcome == OK && s.Offset >= 0:
			add(s.Span, s.Return, doAppend, s.Offset)
		case s.Outcome == Unknown && len(at) == 1:
			add(s.Span, seen[at[0]], doAppend, at[0])
		}
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Input.(logStep).offset, b.Input.(logStep).offset))
	})
	for from := 0; ; from += window / 2 {
		part := ops[from:min(from+window, len(ops))]
		var known []int64
		for _, o := range part {
			if s := o.Input.(logStep); s.verb == doAppend {
				known = append(known, s.offset)
			}
		}
		slices.Sort(known)
		c.linear(logModel(known), part, LogSteps, f.log.String())
		if from+window >= len(ops) {
			return
		}
	}
}

// offsetStep is one operation on a committed offset.
type offsetStep struct {
	commit bool
	maybe  bool // a commit that may never have taken effect
	offset int64
}

// offsetModel is a committed offset as one thing: what is told is what was
// committed last.
var offsetModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{int64(-1)} },
	Step: func(state, input, _ any) []any {
		s := input.(offsetStep)
		switch {
		case s.maybe:
			return []any{state, s.offset}
		case s.commit:
			return []any{s.offset}
		case s.offset == state.(int64):
			return []any{state}
		}
		return nil
	},
}).ToModel()

// linearOffset asks the same of one committed offset. A commit without outcome
// whose offset nobody was told may be left out.
func (c *checker) linearOffset(f *offsetFacts) {
	told := map[int64]bool{}
	var ops []porcupine.Operation
	for _, x := range f.fetches {
		told[x.Offset] = true
		ops = append(ops, porcupine.Operation{Input: offsetStep{offset: x.Offset}, Call: x.Call, Return: x.Return})
	}
	for _, x := range f.commits {
		maybe, until := x.Outcome == Unknown, f.latest(x)
		if until >= x.Call && (!maybe || told[x.Offset]) {
			ops = append(ops, porcupine.Operation{Input: offsetStep{true, maybe, x.Offset}, Call: x.Call, Return: until})
		}
	}
	c.linear(offsetModel, ops, OffsetSteps, f.key.String())
}

func (c *checker) linear(m porcupine.Model, ops []porcupine.Operation, r Rule, what string) {
	switch porcupine.CheckOperationsTimeout(m, ops, c.within) {
	case porcupine.Illegal:
		c.bad(r, "%s: its %d operations have no order in which each took place between its call and its return", what, len(ops))
	case porcupine.Unknown:
		c.bad(Undecided, "%s: no answer for %d operations in %v", what, len(ops), c.within)
	}
}
