package compact

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/hanzoai/stream/types"
)

// TestKeys: the map says what an ordinary one says, grows, and stays within its
// budget.
func TestKeys(t *testing.T) {
	t.Parallel()
	for _, budget := range []int{0, 24, 100, 1 << 10, 1 << 16, 1<<18 - 1, 1 << 20, 2 << 20} {
		k := NewKeys(budget)
		for round := range 2 {
			rnd := rand.New(rand.NewPCG(uint64(budget), uint64(round)))
			want := map[uint64]types.Offset{}
			key := make([]byte, 8)
			for o := types.Offset(0); ; o++ {
				n := rnd.Uint64N(uint64(budget)/8 + 100)
				binary.BigEndian.PutUint64(key, n)
				if !k.Add(key, o) {
					if _, known := want[n]; known {
						t.Fatalf("budget %d: no room for a key that is there", budget)
					}
					break
				}
				want[n] = o
				if k.Upto() != o+1 || k.Len() != len(want) {
					t.Fatalf("budget %d: up to %d, %d keys, want %d, %d", budget, k.Upto(), k.Len(), o+1, len(want))
				}
				if size := len(k.slots) * entrySize; size > max(budget, 2*entrySize) {
					t.Fatalf("budget %d: %d bytes", budget, size)
				}
			}
			if len(want) == 0 || len(want) < budget/entrySize*3/4-1 {
				t.Errorf("budget %d: full with %d keys", budget, len(want))
			}
			for n := range uint64(budget)/8 + 100 {
				binary.BigEndian.PutUint64(key, n)
				o, ok := k.Last(key)
				if w, known := want[n]; ok != known || ok && o != w {
					t.Fatalf("budget %d: key %d at %d, %v; want %d, %v", budget, n, o, ok, w, known)
				}
			}
			// Offsets never go back.
			for n, o := range want {
				binary.BigEndian.PutUint64(key, n)
				if !k.Add(key, 0) {
					t.Fatal("a key that is there has no room")
				}
				if got, _ := k.Last(key); got != o {
					t.Fatalf("went back from %d to %d", o, got)
				}
				break
			}
			k.Reset()
			if _, ok := k.Last(key); ok || k.Len() != 0 || k.Upto() != 0 {
				t.Error("reset keeps keys")
			}
		}
	}
}

// TestKeysGrowth: the table before and the one after fit into the budget
// together.
func TestKeysGrowth(t *testing.T) {
	t.Parallel()
	for budget := 1; budget < 1<<31; budget = budget*3/2 + 7 {
		k := NewKeys(budget)
		n := len(k.slots)
		for n < k.most {
			n *= growth
			if both := (n + n/growth) * entrySize; both > max(budget, 2*entrySize) {
				t.Errorf("budget %d: %d bytes while growing to %d slots", budget, both, n)
			}
		}
		if n != k.most || n*entrySize < budget*3/4-entrySize {
			t.Errorf("budget %d: ends with %d slots of %d", budget, n, k.most)
		}
	}
}

func TestKeysDoNotAllocate(t *testing.T) {
	k := NewKeys(1 << 16)
	key := []byte("some key")
	if n := testing.AllocsPerRun(100, func() { k.Add(key, 5); k.Last(key) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
