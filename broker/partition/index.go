package partition

import (
	"sort"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// span is how many messages an interval of the index covers. Interval k covers
// the sequences k*span+1 to (k+1)*span: a function of the log alone, so that
// every gateway's index is the same.
const span = 256

// point is one message in the exact part of the index.
type point struct {
	base    types.Offset
	maxTime int64
	size    int32
}

// interval is one entry of the sparse index.
type interval struct {
	base    types.Offset // of its first message
	maxTime int64        // over all its messages
}

// index finds the sequence of a message by offset or time. The newest messages
// are known exactly, older ones by interval. Its owner serialises access.
type index struct {
	first pubsub.Seq // the first sequence it knows of

	recentFirst pubsub.Seq // of recent[0]
	recent      []point    // without gaps up to the last message

	tailFirst uint64 // number of tail[0]
	tail      []interval

	// chunks are stored parts of the index, each chunkSpan intervals, without
	// gaps up to tailFirst.
	chunks []chunkRef
}

// chunkRef describes one stored part of the index.
type chunkRef struct {
	First   uint64       // number of its first interval
	Base    types.Offset // of the first message in it
	MaxTime int64        // over all of it
	// Repaired is the partition record's when it was stored.
	Repaired int64 `json:",omitempty"`
}

// end is the number of the first interval after a part.
func (c *chunkRef) end() uint64 { return (c.First/chunkSpan + 1) * chunkSpan }

func intervalOf(seq pubsub.Seq) uint64 { return uint64(seq-1) / span }

// startOf is the first sequence of an interval.
func startOf(k uint64) pubsub.Seq { return pubsub.Seq(k*span + 1) }

// add takes the message after the last one.
func (x *index) add(m *meta) {
	if x.first == 0 {
		x.first = m.seq
	}
	k := intervalOf(m.seq)
	if n := uint64(len(x.tail)); n > 0 && x.tailFirst+n-1 == k {
		t := &x.tail[n-1]
		t.maxTime = max(t.maxTime, m.maxTime)
	} else {
		if n == 0 {
			x.tailFirst = k
		}
		for x.tailFirst+uint64(len(x.tail)) < k { // left out by a repair
			x.tail = append(x.tail, interval{m.base, -1})
		}
		x.tail = append(x.tail, interval{m.base, m.maxTime})
	}
	if n := len(x.recent); n > 0 && x.recentFirst+pubsub.Seq(n) != m.seq {
		x.recent = x.recent[:0] // a break; before it intervals must do
	}
	if len(x.recent) == 0 {
		x.recentFirst = m.seq
	}
	if len(x.recent) == 2*span {
		x.recent = x.recent[:copy(x.recent, x.recent[span:])]
		x.recentFirst += span
	}
	x.recent = append(x.recent, point{m.base, m.maxTime, int32(m.size)})
}

// find returns the sequence of the message that contains offset, if the exact
// part covers it.
func (x *index) find(offset types.Offset) (pubsub.Seq, bool) {
	if len(x.recent) == 0 || offset < x.recent[0].base {
		return 0, false
	}
	i := sort.Search(len(x.recent), func(i int) bool { return x.recent[i].base > offset })
	return x.recentFirst + pubsub.Seq(i-1), true
}

// point returns what is known exactly of a message.
func (x *index) point(seq pubsub.Seq) (point, bool) {
	if seq < x.recentFirst || seq >= x.recentFirst+pubsub.Seq(len(x.recent)) {
		return point{}, false
	}
	return x.recent[seq-x.recentFirst], true
}

// between sums the sizes of the messages from the one that contains offset to the
// last that begins before limit: exact within the recent ones, an estimate from
// below before them.
func (x *index) between(offset, limit types.Offset) int {
	n := 0
	for i := len(x.recent) - 1; i >= 0; i-- {
		if x.recent[i].base < limit {
			n += int(x.recent[i].size)
		}
		if x.recent[i].base <= offset {
			break
		}
	}
	return n
}

// search finds the interval that contains offset in a part of the index. It
// returns -1 if offset lies before it.
func search(part []interval, offset types.Offset) int {
	return sort.Search(len(part), func(i int) bool { return part[i].base > offset }) - 1
}
