package cluster

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/hanzoai/stream/test/history"
)

// copied is a record of the output: which record of the input it stands for, in
// the partition of the same number, and in which transaction it was written.
type copied struct {
	Offset  int64  `json:"offset"`
	Input   int64  `json:"input"`
	Attempt string `json:"attempt"`
}

// attempt is one transaction of a worker.
type attempt struct {
	// Wrote has what it asked to be written, by partition; Acked what of it was
	// acknowledged, with its offset.
	Wrote map[int32][]int64  `json:"wrote"`
	Acked map[int32][]copied `json:"acked"`
	// Outcome is what the worker was told: OK committed, Failed aborted.
	Outcome history.Outcome `json:"outcome"`
}

// ledger is all that workers did and verifiers saw of the carrying of one topic
// into another.
type ledger struct {
	Inputs   []int64             `json:"inputs"` // records of each partition of the input
	Attempts map[string]*attempt `json:"attempts"`
	// Committed is what a reader of committed records saw from the start of each
	// partition on, Uncommitted what one saw that reads everything.
	Committed   [][]copied `json:"committed"`
	Uncommitted [][]copied `json:"uncommitted"`
}

// problems says what is wrong: every record of the input is in the output once,
// in order; of a transaction all is seen or nothing, and nothing if it was
// aborted; who reads everything sees what was acknowledged, at the same offsets.
func (l *ledger) problems() (ps []string) {
	wrong := func(format string, a ...any) { ps = append(ps, fmt.Sprintf(format, a...)) }
	seen := map[string]int{}
	for p, all := range l.Committed {
		next := int64(0)
		for i, c := range all {
			if i > 0 && c.Offset <= all[i-1].Offset {
				wrong("partition %d: offset %d was read after %d", p, c.Offset, all[i-1].Offset)
			}
			seen[c.Attempt]++
			switch a := l.Attempts[c.Attempt]; {
			case a == nil:
				wrong("partition %d, offset %d: transaction %s was never begun", p, c.Offset, c.Attempt)
			case a.Outcome == history.Failed:
				wrong("partition %d, offset %d: record %d of the aborted transaction %s is seen", p, c.Offset, c.Input, c.Attempt)
			}
			if c.Input != next {
				wrong("partition %d, offset %d: record %d of the input, want %d (transaction %s)", p, c.Offset, c.Input, next, c.Attempt)
			}
			next = c.Input + 1
		}
		if next != l.Inputs[p] {
			wrong("partition %d: %d records of the input are in the output, want %d", p, next, l.Inputs[p])
		}
	}
	for id, a := range l.Attempts {
		n := 0
		for _, w := range a.Wrote {
			n += len(w)
		}
		switch {
		case seen[id] != 0 && seen[id] != n:
			wrong("transaction %s: %d of %d records are seen", id, seen[id], n)
		case seen[id] == 0 && n > 0 && a.Outcome == history.OK:
			wrong("transaction %s was committed and is not seen", id)
		}
	}
	for p, all := range l.Uncommitted {
		at := map[int64]copied{}
		for i, c := range all {
			if i > 0 && c.Offset <= all[i-1].Offset {
				wrong("partition %d: offset %d was read after %d, uncommitted", p, c.Offset, all[i-1].Offset)
			}
			at[c.Offset] = c
		}
		for _, c := range l.Committed[p] {
			if at[c.Offset] != c {
				wrong("partition %d, offset %d: committed %v, uncommitted %v", p, c.Offset, c, at[c.Offset])
			}
		}
		for id, a := range l.Attempts {
			for _, c := range a.Acked[int32(p)] {
				if at[c.Offset] != c {
					wrong("partition %d, offset %d: transaction %s was acknowledged %v, there is %v", p, c.Offset, id, c, at[c.Offset])
				}
			}
		}
	}
	return ps
}

// save writes the ledger, for whoever looks at what went wrong.
func (l *ledger) save(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	return errors.Join(json.NewEncoder(z).Encode(l), z.Close(), f.Close())
}

// TestLedger: every kind of mistake is found, and no other.
func TestLedger(t *testing.T) {
	t.Parallel()
	// Two records are carried by "a"; "b" is aborted with one written; "c" carries
	// the third, and nobody knows how it ended.
	fine := func() *ledger {
		a := []copied{{0, 0, "a"}, {1, 1, "a"}}
		b := []copied{{3, 2, "b"}}
		c := []copied{{5, 2, "c"}}
		return &ledger{
			Inputs: []int64{3},
			Attempts: map[string]*attempt{
				"a": {map[int32][]int64{0: {0, 1}}, map[int32][]copied{0: a}, history.OK},
				"b": {map[int32][]int64{0: {2}}, map[int32][]copied{0: b}, history.Failed},
				"c": {map[int32][]int64{0: {2}}, map[int32][]copied{0: c}, history.Unknown},
				"d": {map[int32][]int64{0: {2}}, nil, history.Unknown},
			},
			Committed:   [][]copied{{a[0], a[1], c[0]}},
			Uncommitted: [][]copied{{a[0], a[1], b[0], c[0]}},
		}
	}
	if ps := fine().problems(); len(ps) > 0 {
		t.Errorf("nothing is wrong: %v", ps)
	}
	for name, spoil := range map[string]func(l *ledger){
		"an aborted record is seen":        func(l *ledger) { l.Committed[0][2] = l.Uncommitted[0][2] },
		"one is missing":                   func(l *ledger) { l.Committed[0] = l.Committed[0][:2] },
		"one is there twice":               func(l *ledger) { l.Committed[0] = append(l.Committed[0], copied{7, 2, "d"}) },
		"one is out of order":              func(l *ledger) { l.Committed[0][0].Input, l.Committed[0][1].Input = 1, 0 },
		"an offset goes back":              func(l *ledger) { l.Committed[0][1].Offset = 0 },
		"half a transaction is seen":       func(l *ledger) { l.Attempts["c"].Wrote[0] = []int64{2, 3} },
		"a committed transaction is lost":  func(l *ledger) { l.Attempts["d"].Outcome = history.OK },
		"nobody wrote it":                  func(l *ledger) { delete(l.Attempts, "c") },
		"an acknowledged record is lost":   func(l *ledger) { l.Uncommitted[0] = append(l.Uncommitted[0][:2], l.Uncommitted[0][3]) },
		"readers see different records":    func(l *ledger) { l.Uncommitted[0][3].Input = 1 },
		"everything is read out of order":  func(l *ledger) { l.Uncommitted[0][1], l.Uncommitted[0][2] = l.Uncommitted[0][2], l.Uncommitted[0][1] },
		"acknowledged at another's offset": func(l *ledger) { l.Attempts["b"].Acked[0][0].Offset = 1 },
	} {
		l := fine()
		spoil(l)
		if len(l.problems()) == 0 {
			t.Errorf("not found: %s", name)
		}
	}
}
