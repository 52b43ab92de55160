package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Rule names what a Problem violates.
type Rule string

// Rules, by what they protect.
const (
	OneValue       Rule = "one value"       // per log and offset, whoever tells
	OneOffset      Rule = "one offset"      // of an idempotent value; of others as many as attempts
	Invented       Rule = "invented"        // what is read was sent before, and not refused
	Order          Rule = "order"           // a producer's records keep theirs; later sends lie higher
	Complete       Rule = "complete"        // the last read has everything, to the highest offset
	Unread         Rule = "unread"          // nothing acknowledged is passed over by all readers
	Skipped        Rule = "skipped"         // a consumer reads on without leaving anything out
	Repeated       Rule = "repeated"        // nor going back
	EndBack        Rule = "end back"        // an end is not below what was known, nor above the log
	CommitBack     Rule = "commit back"     // a committed offset does not go back
	Fenced         Rule = "fenced"          // nobody commits in a generation that is over
	OneOwner       Rule = "one owner"       // of a partition in a generation
	GenerationBack Rule = "generation back" // a group's generations only rise
	LogSteps       Rule = "log steps"       // a log is linearizable
	OffsetSteps    Rule = "offset steps"    // a committed offset is linearizable
	Undecided      Rule = "undecided"       // nobody knows in the time given
)

// Problem is one violation.
type Problem struct {
	Rule Rule
	Text string
}

// String is rule and text.
func (p Problem) String() string { return string(p.Rule) + ": " + p.Text }

// most is how many problems of one rule are told; the rest is counted.
const most = 8

// DecideWithin is how long Check looks for an order of one log's or one offset's
// operations; a history that needs longer is Undecided, which is a problem.
const DecideWithin = 20 * time.Second

// Check returns what is wrong with a history: nothing, if all is well. It must
// not run inside a testing/synctest bubble, whose clock would not bound it.
func Check(h *History) []Problem { return check(h, DecideWithin) }

func check(h *History, within time.Duration) []Problem {
	c := &checker{h: h, within: within, logs: map[Log]*logFacts{}, told: map[Rule]int{}}
	c.index()
	for _, l := range c.sortedLogs() {
		f := c.logs[l]
		c.values(f)
		c.orders(f)
		c.finals(f)
		c.ends(f)
		c.unread(f)
		c.linearLog(f)
	}
	c.consumers()
	c.commits()
	c.fenced()
	c.owners()
	for _, r := range slices.Sorted(maps.Keys(c.told)) {
		if n := c.told[r]; n > most {
			c.problems = append(c.problems, Problem{r, fmt.Sprintf("and %d more", n-most)})
		}
	}
	return c.problems
}

// checker is one run of Check.
type checker struct {
	h        *History
	within   time.Duration
	logs     map[Log]*logFacts
	told     map[Rule]int
	problems []Problem
}

func (c *checker) bad(r Rule, format string, a ...any) {
	if c.told[r]++; c.told[r] <= most {
		c.problems = append(c.problems, Problem{r, fmt.Sprintf(format, a...)})
	}
}

// logFacts is what a history says of one log.
type logFacts struct {
	log       Log
	sends     []*Send
	polls     []*Poll
	ends      []*End
	deletions []*Deletion
	finals    []*Final

	values  map[int64]string   // by offset, the first that was told
	offsets []int64            // of values, sorted
	places  map[string][]int64 // by value: where it is, sorted
	sent    map[string]*Send   // by value
}

func (c *checker) log(l Log) *logFacts {
	f := c.logs[l]
	if f == nil {
		f = &logFacts{log: l, values: map[int64]string{}, places: map[string][]int64{}, sent: map[string]*Send{}}
		c.logs[l] = f
	}
	return f
}

func (c *checker) sortedLogs() []Log {
	return slices.SortedFunc(maps.Keys(c.logs), func(a, b Log) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Partition, b.Partition))
	})
}

func (c *checker) index() {
	h := c.h
	for i := range h.Sends {
		s := &h.Sends[i]
		f := c.log(s.Log)
		f.sends = append(f.sends, s)
		if f.sent[s.Value] != nil {
			c.bad(OneValue, "%s: the value %q is recorded as sent twice: no history of ours", s.Log, s.Value)
		}
		f.sent[s.Value] = s
		if s.Outcome == OK && s.Offset >= 0 {
			c.fact(f, s.Offset, s.Value, "acknowledged to "+s.Producer)
		}
	}
	for i := range h.Polls {
		p := &h.Polls[i]
		f := c.log(p.Log)
		f.polls = append(f.polls, p)
		for _, r := range p.Records {
			c.fact(f, r.Offset, r.Value, "read by "+p.Consumer)
		}
	}
	for i := range h.Finals {
		p := &h.Finals[i]
		f := c.log(p.Log)
		f.finals = append(f.finals, p)
		for _, r := range p.Records {
			c.fact(f, r.Offset, r.Value, "read at the end by "+p.Reader)
		}
	}
	for i := range h.Ends {
		c.log(h.Ends[i].Log).ends = append(c.log(h.Ends[i].Log).ends, &h.Ends[i])
	}
	for i := range h.Deletions {
		c.log(h.Deletions[i].Log).deletions = append(c.log(h.Deletions[i].Log).deletions, &h.Deletions[i])
	}
	for _, f := range c.logs {
		f.offsets = slices.Sorted(maps.Keys(f.values))
		for _, o := range f.offsets {
			f.places[f.values[o]] = append(f.places[f.values[o]], o)
		}
	}
}

// fact notes that a value was told to be at an offset.
func (c *checker) fact(f *logFacts, o int64, v, who string) {
	if old, ok := f.values[o]; ok && old != v {
		c.bad(OneValue, "%s: offset %d is %q and %q (%s)", f.log, o, old, v, who)
		return
	}
	f.values[o] = v
}

// deletedBy is up to where records may have been deleted by a tick.
func (f *logFacts) deletedBy(tick int64) int64 {
	to := int64(0)
	for _, d := range f.deletions {
		if d.Call < tick && d.Outcome != Failed {
			to = max(to, d.Offset)
		}
	}
	return to
}

// knownBetween returns the first offset known to hold a record in [from, to).
func (f *logFacts) knownBetween(from, to int64) (int64, bool) {
	if i, _ := slices.BinarySearch(f.offsets, from); i < len(f.offsets) && f.offsets[i] < to {
		return f.offsets[i], true
	}
	return 0, false
}

// never is later than every tick.
const never = math.MaxInt64
