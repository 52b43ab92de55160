package txn

import "time"

// state brings a fresh transactional id somewhere.
type state struct {
	name string
	make func(c *cell)
	// late says that all cells are made before the first is asked, as waiting is
	// part of the state; ready tells when it is over.
	ready func(c *cell) bool
	// prepared is the state that must still hold after the request, or the cell is
	// tried again; "": none.
	prepared string
	a, b     string // topics of this state: written to by it, and not
}

// long is a transaction timeout that never ends, short one that does.
const (
	long  = time.Minute * 10
	short = 2 * time.Second
)

// empty makes the client's epoch 2, so that there are older ones.
func empty(c *cell) {
	for range 3 {
		c.init(long)
	}
}

func ongoing(c *cell) {
	empty(c)
	c.openClassic()
}

// openClassic begins a transaction as clients before transaction.version 2 do.
func (c *cell) openClassic() {
	c.add(c.state.a, 0)
	c.produce(11)
	c.addGroup()
}

// open2 begins one as those with it do.
func (c *cell) open2() {
	c.produce(12)
	c.commitOffset()
}

func ongoing2(c *cell) {
	empty(c)
	c.open2()
}

// ended is a transaction that has begun and was ended.
func ended(begin func(*cell), version int16, commit bool) func(*cell) {
	return func(c *cell) {
		begin(c)
		c.end(version, commit)
		c.settled()
	}
}

// prepared is one whose markers are being written: so many that a request comes
// before the last.
func prepared(version int16, commit bool) func(*cell) {
	return func(c *cell) {
		ongoing(c)
		c.add(many, c.bench.many...)
		c.end(version, commit)
	}
}

// timedOut is one that the coordinator has aborted.
func timedOut(begin func(*cell)) func(*cell) {
	return func(c *cell) {
		empty(c)
		c.init(short)
		begin(c)
	}
}

// fenced is one whose client was followed by another with its id.
func fenced(begin func(*cell)) func(*cell) {
	return func(c *cell) {
		begin(c)
		old := *c
		c.init(long)
		c.settled()
		c.pid, c.epoch = old.pid, old.epoch
	}
}

var aborted = func(c *cell) bool { return c.describe().State == "CompleteAbort" }

var states = []*state{
	{name: "no id", make: func(c *cell) { c.plain(); c.epoch = 2 }},
	{name: "Empty", make: empty},
	{name: "Ongoing, nothing written", make: func(c *cell) { empty(c); c.add(c.state.a, 0) }},
	{name: "Ongoing", make: ongoing},
	{name: "Ongoing, version 2", make: ongoing2},
	{name: "PrepareCommit", make: prepared(3, true), prepared: "PrepareCommit"},
	{name: "PrepareAbort", make: prepared(3, false), prepared: "PrepareAbort"},
	{name: "PrepareCommit, version 2", make: prepared(5, true), prepared: "PrepareCommit"},
	{name: "PrepareAbort, version 2", make: prepared(5, false), prepared: "PrepareAbort"},
	{name: "CompleteCommit", make: ended(ongoing, 3, true)},
	{name: "CompleteAbort", make: ended(ongoing, 3, false)},
	{name: "CompleteCommit, version 2", make: ended(ongoing2, 5, true)},
	{name: "CompleteAbort, version 2", make: ended(ongoing2, 5, false)},
	{name: "second transaction, version 2", make: func(c *cell) {
		ended(ongoing2, 5, true)(c)
		c.open2()
	}},
	{name: "fenced when Empty", make: fenced(empty)},
	{name: "fenced when Ongoing", make: fenced(ongoing)},
	{name: "fenced when Ongoing, version 2", make: fenced(ongoing2)},
	{name: "timed out", make: timedOut((*cell).openClassic), ready: aborted},
	{name: "timed out, version 2", make: timedOut((*cell).open2), ready: aborted},
}
