package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// world is a log and its committed offset that work, and clients that overlap:
// each operation takes effect at a moment between its call and its return.
type world struct {
	r    *rand.Rand
	tick int64
	log  []string
	mark int64
	h    History
}

// op is an operation under way.
type op struct {
	Span
	effect func()
	record func(Span)
	done   bool
}

func (w *world) next() int64 { w.tick++; return w.tick }

// run starts operations, lets them take effect and return in any order.
func (w *world) run(ops int) {
	free := []int{0, 1, 2, 3, 4, 5}
	under := map[int]*op{}
	made := make([]int, 3)
	position := []int64{0, 0}
	for ops > 0 || len(under) > 0 {
		if ops > 0 && len(free) > 0 && w.r.IntN(2) == 0 {
			i := w.r.IntN(len(free))
			c := free[i]
			free = slices.Delete(free, i, i+1)
			under[c] = w.start(c, made, position)
			ops--
			continue
		}
		for c, o := range under {
			if !o.done {
				o.effect()
				o.done = true
				break
			}
			o.Return = w.next()
			o.record(o.Span)
			delete(under, c)
			free = append(free, c)
			break
		}
	}
	f := Final{Span: at(w.next(), w.next()), Reader: "last", Log: l0, End: int64(len(w.log))}
	for o, v := range w.log {
		f.Records = append(f.Records, Record{int64(o), v})
	}
	w.h.Finals = append(w.h.Finals, f)
}

func (w *world) start(c int, made []int, position []int64) *op {
	o := &op{Span: Span{Call: w.next()}}
	switch c {
	case 0, 1, 2: // producers
		s := Send{Log: l0, Producer: fmt.Sprint("p", c), Idempotent: true, Value: fmt.Sprintf("%d-%d", c, made[c]), Outcome: OK}
		made[c]++
		silent := w.r.IntN(10) == 0
		o.effect = func() {
			s.Offset = int64(len(w.log))
			if !silent || w.r.IntN(2) == 0 {
				w.log = append(w.log, s.Value)
			}
		}
		o.record = func(span Span) {
			s.Span = span
			if silent {
				s.Outcome, s.Offset = Unknown, -1
			}
			w.h.Sends = append(w.h.Sends, s)
		}
	case 3, 4: // consumers
		i := c - 3
		p := Poll{Consumer: fmt.Sprint("c", i), Log: l0}
		o.effect = func() {
			to := position[i] + int64(w.r.IntN(5))
			for n := position[i]; n < min(to, int64(len(w.log))); n++ {
				p.Records = append(p.Records, Record{n, w.log[n]})
			}
			position[i] += int64(len(p.Records))
			p.HighWatermark = int64(len(w.log))
		}
		o.record = func(span Span) { p.Span = span; w.h.Polls = append(w.h.Polls, p) }
	default: // ends and commits
		switch w.r.IntN(3) {
		case 0:
			e := End{Log: l0}
			o.effect = func() { e.Offset = int64(len(w.log)) }
			o.record = func(span Span) { e.Span = span; w.h.Ends = append(w.h.Ends, e) }
		case 1:
			k := committed(0, 0, 1, w.mark+1+w.r.Int64N(3))
			o.effect = func() { w.mark = k.Offset }
			o.record = func(span Span) { k.Span = span; w.h.Commits = append(w.h.Commits, k) }
		default:
			k := fetched(0, 0, 0)
			o.effect = func() {
				if k.Offset = w.mark; w.mark == 0 {
					k.Offset = -1
				}
			}
			o.record = func(span Span) { k.Span = span; w.h.Committed = append(w.h.Committed, k) }
		}
	}
	return o
}

// TestRandom checks histories of a store that works, and the same with one
// answer changed, which must be noticed whatever it is.
func TestRandom(t *testing.T) {
	for seed := range uint64(200) {
		w := &world{r: rand.New(rand.NewPCG(seed, 0))}
		w.run(20 + w.r.IntN(400))
		if ps := Check(&w.h); len(ps) > 0 {
			t.Fatalf("seed %d: %v", seed, ps)
		}
		what := ""
		switch n := w.r.IntN(4); {
		case n == 0:
			i := slices.IndexFunc(w.h.Sends, func(s Send) bool { return s.Outcome == OK })
			what, w.h.Sends[i].Offset = "an acknowledged offset", w.h.Sends[i].Offset+1
		case n == 1 && len(w.h.Ends) > 0:
			what, w.h.Ends[0].Offset = "an end", w.h.Ends[0].Offset+1000
		case n == 2 && len(w.h.Committed) > 0:
			what, w.h.Committed[0].Offset = "a committed offset", w.h.Committed[0].Offset+1000
		default:
			f := &w.h.Finals[0]
			what, f.Records = "the last record", f.Records[:len(f.Records)-1]
		}
		if ps := Check(&w.h); len(ps) == 0 {
			t.Errorf("seed %d: %s was changed, and nobody noticed", seed, what)
		}
	}
}

// TestLong shows that a long history is checked in parts, in a bounded time.
func TestLong(t *testing.T) {
	w := &world{r: rand.New(rand.NewPCG(1, 0))}
	w.run(20_000)
	began := time.Now()
	if ps := Check(&w.h); len(ps) > 0 {
		t.Fatal(ps)
	}
	t.Logf("%d sends, %d polls: %v", len(w.h.Sends), len(w.h.Polls), time.Since(began))
}

// TestUndecided shows that a history nobody can decide in time is a problem.
func TestUndecided(t *testing.T) {
	var h History
	tick := int64(0)
	for range 24 { // all at the same time, told in an order that cannot be
		tick++
		h.Commits = append(h.Commits, committed(tick, 10_000+tick, 1, tick))
	}
	for _, o := range []int64{24, 23, 22, 21, 20, 24} {
		tick += 2
		h.Committed = append(h.Committed, fetched(1000+tick, 1001+tick, o))
	}
	ps := check(&h, 100*time.Millisecond)
	if len(ps) != 1 || ps[0].Rule != Undecided || !strings.Contains(ps[0].Text, "30 operations") {
		t.Error(ps)
	}
}
