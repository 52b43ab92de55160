package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fault is something that was done, and until when.
type fault struct {
	kind  string
	what  string // to whom
	began time.Time
	ended time.Time // zero while it lasts
}

// span is how long a fault lasted, or has lasted.
func (f *fault) span() span {
	if f.ended.IsZero() {
		return span{f.began, time.Now()}
	}
	return span{f.began, f.ended}
}

// stall is an operation that took long.
type stall struct {
	op    string
	began time.Time
	took  time.Duration
	about string
	waits []wait // of its client meanwhile
	said  []line // what its client logged meanwhile, if it does and the stall is to be explained
}

func (s stall) span() span { return span{s.began, s.began.Add(s.took)} }

// watch collects faults and long operations, and says in the end which fault
// made clients wait how long.
type watch struct {
	mu     sync.Mutex
	faults []*fault                 // guards: in the order they began
	stalls map[string][]stall       // guards: by operation, those above noticeable
	worst  map[string]time.Duration // guards: the longest of each operation
	counts map[string]int           // guards: faults by kind, operations by name
	names  map[string]string        // of gateways, by the address that clients know
}

// noticeable is from where on an operation is kept.
const noticeable = 300 * time.Millisecond

// explained is from where on the report says where a stall's client waited.
const explained = 3 * time.Second

// noFault is the cause of a stall around which nothing was done.
const noFault = "no fault"

// logged is from where on what the client logged is kept with a stall.
const logged = 2 * time.Second

// settle is how long after its end a fault may still be the cause of something
// that begins then: membership, leaders, back-off of clients.
const settle = 3 * time.Second

func newWatch(w *world) *watch {
	watch := &watch{stalls: map[string][]stall{}, worst: map[string]time.Duration{}, counts: map[string]int{}, names: map[string]string{}}
	if w.front == nil {
		for _, g := range w.gateways {
			watch.names[g.Addr] = g.name
		}
	} else {
		watch.names[w.front.Addr] = "the balancer"
	}
	return watch
}

func (w *watch) begin(kind, what string) *fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &fault{kind: kind, what: what, began: time.Now()}
	w.faults = append(w.faults, f)
	w.counts[kind]++
	return f
}

func (w *watch) end(f *fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.ended = time.Now()
}

// took notes an operation that began then and has just ended. at has the waits of
// its client; nil if nobody looked.
func (w *watch) took(op string, began time.Time, about string, at *waits) {
	w.note(op, began, time.Since(began), about, at)
}

func (w *watch) note(op string, began time.Time, d time.Duration, about string, at *waits) {
	var during []wait
	var said []line
	if d >= noticeable {
		during = at.during(op, began, d)
	}
	if d >= logged {
		said = at.log(began)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.worst[op] = max(w.worst[op], d)
	w.counts[op]++
	if d >= noticeable {
		w.stalls[op] = append(w.stalls[op], stall{op, began, d, about, during, said})
	}
}

// overlapping are the faults that may be the cause of an operation's length.
func (w *watch) overlapping(s stall) (faults []*fault) {
	for _, f := range w.faults {
		if f.began.Before(s.began.Add(s.took)) && f.span().to.Add(settle).After(s.began) {
			faults = append(faults, f)
		}
	}
	return faults
}

// causes are the kinds of faults that overlap an operation.
func (w *watch) causes(s stall) (kinds []string) {
	for _, f := range w.overlapping(s) {
		if !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// course tells the faults around a stall, the waits of its client and what that
// logged, by when they began and ended after the stall's own beginning.
func (w *watch) course(s stall) string {
	parts := []string{"it began at " + s.began.UTC().Format(time.RFC3339Nano)}
	at := func(t time.Time) time.Duration { return t.Sub(s.began).Round(time.Millisecond) }
	for _, f := range w.overlapping(s) {
		parts = append(parts, fmt.Sprintf("%v to %v %s: %s", at(f.began), at(f.span().to), f.kind, f.what))
	}
	for _, x := range s.waits {
		parts = append(parts, fmt.Sprintf("%v to %v %s at %s: %v", at(x.began), at(x.began.Add(x.took)), kmsg.Key(x.key).Name(), cmp.Or(w.names[x.addr], x.addr), x.err))
	}
	for _, l := range s.said {
		parts = append(parts, fmt.Sprintf("%v %s", at(l.at), l.text))
	}
	return strings.Join(parts, "\n\t")
}

// limits are how long clients may wait for an operation, where one kind of fault
// alone is the cause.
var limits = map[string]map[string]time.Duration{
	killGateway:  {opProduce: 2 * time.Second, opFetch: 2 * time.Second, opCommit: 4 * time.Second},
	termGateway:  {opProduce: 2 * time.Second, opFetch: 2 * time.Second, opCommit: 4 * time.Second},
	killNATS:     {opProduce: 12 * time.Second, opFetch: 12 * time.Second, opCommit: 12 * time.Second},
	metaStepDown: {opProduce: 12 * time.Second, opFetch: 12 * time.Second, opCommit: 12 * time.Second},
	stepDown:     {opProduce: 12 * time.Second, opFetch: 12 * time.Second, opCommit: 12 * time.Second},
}

// report prints the longest stalls by operation and cause; with judge those above
// the limits fail the test.
func (w *watch) report(t *testing.T, judge bool) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	type row struct {
		op, cause string
		n         int
		worst     stall
	}
	rows := map[string]*row{}
	for _, ss := range w.stalls {
		for _, s := range ss {
			cause := cmp.Or(strings.Join(w.causes(s), " + "), noFault)
			r := rows[s.op+cause]
			if r == nil {
				r = &row{op: s.op, cause: cause}
				rows[s.op+cause] = r
			}
			r.n++
			if s.took > r.worst.took {
				r.worst = s
			}
		}
	}
	var lines []string
	mixed := map[string]int{}
	for _, r := range slices.SortedFunc(maps.Values(rows), func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.op, b.op), cmp.Compare(b.worst.took, a.worst.took))
	}) {
		// One cause is always told; of those that overlap the worst three.
		if strings.Contains(r.cause, " + ") {
			if mixed[r.op]++; mixed[r.op] > 3 {
				continue
			}
		}
		lines = append(lines, fmt.Sprintf("  %-21s longest %7v, %5d above %v: %s (%s)", r.op, r.worst.took.Round(time.Millisecond), r.n, noticeable, r.cause, r.worst.about))
		if why := w.why(r.worst); why != "" && r.worst.took >= explained {
			lines = append(lines, "      "+why)
		}
		if r.cause == noFault && r.worst.took >= explained {
			t.Logf("%s waited %v without a fault: %s\n\t%s", r.op, r.worst.took.Round(time.Millisecond), r.worst.about, w.course(r.worst))
		}
		if limit := limits[r.cause][r.op]; limit > 0 && r.worst.took > limit {
			say := t.Logf
			if judge {
				say = t.Errorf
			}
			say("%s waited %v after %s, %v are allowed: %s\n\t%s", r.op, r.worst.took.Round(time.Millisecond), r.cause, limit, r.worst.about, w.course(r.worst))
		}
	}
	var counts []string
	for _, k := range slices.Sorted(maps.Keys(w.counts)) {
		counts = append(counts, fmt.Sprintf("%s %d", k, w.counts[k]))
	}
	t.Logf("%s\nstalls:\n%s", strings.Join(counts, ", "), strings.Join(lines, "\n"))
}

// stands fails the test if the last stable offset stood for longer than limit.
func (w *watch) stands(t *testing.T, limit time.Duration) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.stalls[opLSO] {
		if s.took > limit {
			t.Errorf("the last stable offset stood for %v, %v are allowed: %s\n\t%s", s.took.Round(time.Millisecond), limit, s.about, w.course(s))
		}
	}
}

// within fails the test if an operation took longer than limit.
func (w *watch) within(t *testing.T, limit time.Duration) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for op, d := range w.worst {
		if d > limit {
			t.Errorf("%s took %v", op, d.Round(time.Millisecond))
		}
	}
}
