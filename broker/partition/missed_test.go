package partition

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// TestMissedFirstBatch: a batch of an unknown producer whose earlier one never
// came here is not the first that is stored.
func TestMissedFirstBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newWorld(t, memory.Config{}).gateway(memory.Faults{})
		if r := g.produce(AppendRequest{Records: idempotent(6, 0, 2, 2), Missed: &Missed{First: 0}}); !errors.Is(r.Err, kerr.OutOfOrderSequenceNumber) {
			t.Errorf("second: %+v", r)
		}
		for i, seq := range []int32{0, 2, 4} {
			if r := g.produce(AppendRequest{Records: idempotent(6, 0, seq, 2)}); r.Err != nil || r.BaseOffset != types.Offset(2*i) {
				t.Errorf("sequence %d: %+v", seq, r)
			}
		}
		// Of a producer that is known the log says what comes next.
		if r := g.produce(AppendRequest{Records: idempotent(6, 0, 6, 2), Missed: &Missed{First: 4}}); r.Err != nil {
			t.Errorf("known: %+v", r)
		}
		// What was missed comes itself.
		if r := g.produce(AppendRequest{Records: idempotent(7, 0, 9, 2), Missed: &Missed{First: 9}}); r.Err != nil {
			t.Errorf("the missed one: %+v", r)
		}
	})
}
