package partition

import (
	"slices"

	"github.com/hanzoai/stream/broker/compact"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// A rewrite reads the log twice: for its keys, and for what stays. Between the two it
// is known at which offsets records stay. Where most keys were written again and
// again that is a small part of the main stream, mostly its end, so the second time
// messages in a row of which nothing stays are passed over.

// mostStretches bounds how many stretches are told apart: those of a larger log are
// larger.
const mostStretches = 1 << 14

// stretch is some messages of the main stream that follow each other.
type stretch struct {
	base, next types.Offset // from the first offset to where the log goes on
	seq        pubsub.Seq   // of the first message
	bytes      int64
	records    int64
	read       bool // something of it stays, or has to be seen by the filter
}

// stretches are what the first reading noticed, in the order of offsets.
type stretches struct {
	all  []stretch
	size int64 // bytes, from which on another one is begun
}

// note adds a message whose keys are in the map, if all of it are.
func (s *stretches) note(m *part, env *compact.Env) error {
	if n := len(s.all); n == 0 || s.all[n-1].bytes >= s.size || s.all[n-1].next != m.base {
		s.all = append(s.all, stretch{base: m.base, seq: m.seq})
	}
	x := &s.all[len(s.all)-1]
	x.next, x.bytes = m.next, x.bytes+int64(len(m.data))
	return m.batches(func(b serde.Batch) error {
		x.records += int64(b.Count())
		// The filter counts the batches of transactions, and keeps the place of some
		// without records.
		x.read = x.read || b.Control() || b.Transactional() || env.StaysEmpty(b)
		return nil
	})
}

// mark finds out which ones have to be read, now that the keys are known up to an
// offset: those with the last record of a key, what is not covered, the log start and
// the end.
func (s *stretches) mark(keys *compact.Keys, start, upto types.Offset) {
	for o := range keys.Offsets() {
		if x := s.at(o); x != nil {
			x.read = true
		}
	}
	for i := range s.all {
		if x := &s.all[i]; x.base < start || x.next > upto || i == len(s.all)-1 {
			x.read = true
		}
	}
}

// at is the stretch that an offset lies in; nil if none was noticed there.
func (s *stretches) at(o types.Offset) *stretch {
	i, ok := slices.BinarySearchFunc(s.all, o, func(x stretch, o types.Offset) int {
		switch {
		case x.next <= o:
			return -1
		case x.base > o:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &s.all[i]
}
