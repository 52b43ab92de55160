package compact

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"math/bits"

	"github.com/hanzoai/stream/types"
)

// entrySize is the memory of one slot.
const entrySize = 24

// entry is a slot: 16 bytes of the key's hash, and its last offset plus one (0:
// the slot is free).
type entry struct {
	a, b uint64
	next int64
}

const (
	// growth: a table that is full is replaced by one this many times larger, so
	// that the memory of both together stays within the budget.
	growth = 8
	// smallest is the number of slots a table begins with, if it may grow.
	smallest = 1024
)

// Keys maps keys to their last offset within a memory budget. Keys are told
// apart by 16 bytes of their SHA-256: Kafka takes MD5, whose collisions can be
// made on purpose, and a collision loses a key. Not safe for concurrent use.
type Keys struct {
	slots []entry
	used  int
	most  int // slots that the budget allows
	upto  types.Offset
}

// NewKeys makes a map that takes at most budget bytes, and memory for one key
// whatever the budget. It grows as keys come.
func NewKeys(budget int) *Keys {
	first, times := max(2, budget/entrySize), 1
	if first > growth*smallest {
		first = first / (growth + 1) * growth // beside the last table stands the one before while entries move
	}
	for first > growth*smallest {
		first, times = first/growth, times*growth
	}
	return &Keys{slots: make([]entry, first), most: first * times}
}

// Reset forgets all keys and keeps the memory.
func (k *Keys) Reset() {
	clear(k.slots)
	k.used, k.upto = 0, 0
}

// Offsets are the last offsets of all keys, in no order.
func (k *Keys) Offsets() iter.Seq[types.Offset] {
	return func(yield func(types.Offset) bool) {
		for _, e := range k.slots {
			if e.next > 0 && !yield(types.Offset(e.next-1)) {
				return
			}
		}
	}
}

// Len is the number of keys.
func (k *Keys) Len() int { return k.used }

// Upto is the offset below which everything that Index read is in the map.
func (k *Keys) Upto() types.Offset { return k.upto }

// cover notes that all below o is in the map.
func (k *Keys) cover(o types.Offset) { k.upto = max(k.upto, o) }

// limit is how many of n slots may be in use.
func limit(n int) int { return n - max(1, n/8) }

// Add notes that key was seen at o, which is not negative; the largest offset
// counts. It reports false, and does nothing, when the key is new and there is no
// memory for it.
func (k *Keys) Add(key []byte, o types.Offset) bool {
	a, b := hash(key)
	e := find(k.slots, a, b)
	if e.next == 0 {
		if k.used >= limit(len(k.slots)) {
			if !k.grow() {
				return false
			}
			e = find(k.slots, a, b)
		}
		k.used++
		e.a, e.b = a, b
	}
	e.next = max(e.next, int64(o)+1)
	k.cover(o + 1)
	return true
}

// Last is the last offset at which key was added.
func (k *Keys) Last(key []byte) (types.Offset, bool) {
	a, b := hash(key)
	e := find(k.slots, a, b)
	return types.Offset(e.next - 1), e.next > 0
}

func (k *Keys) grow() bool {
	if len(k.slots) >= k.most {
		return false
	}
	slots := make([]entry, len(k.slots)*growth)
	for _, e := range k.slots {
		if e.next > 0 {
			*find(slots, e.a, e.b) = e
		}
	}
	k.slots = slots
	return true
}

// find gives the slot of a hash, or the free one where it belongs: there is
// always a free one.
func find(slots []entry, a, b uint64) *entry {
	at, _ := bits.Mul64(a, uint64(len(slots)))
	for i := int(at); ; i++ {
		if i == len(slots) {
			i = 0
		}
		e := &slots[i]
		if e.next == 0 || e.a == a && e.b == b {
			return e
		}
	}
}

func hash(key []byte) (a, b uint64) {
	h := sha256.Sum256(key)
	return binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[8:])
}
