package partition

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// What is shown of producers is the same on the gateway that wrote, on one that
// reads the log and on one that opens a snapshot: the last timestamp is the largest
// of the last batch, whenever it was appended and whatever came before.
func TestProducers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		g.mustProduce(batchSpec{pid: 7, seq: 0, times: []int64{900_000, 1_000, 2_000}}.bytes())
		g.mustProduce(batchSpec{pid: 9, epoch: 2, seq: 0, times: []int64{5}}.bytes())
		g.mustProduce(batchSpec{pid: 7, seq: 3, times: []int64{3_000, 2_000}}.bytes())
		g.configure(func(c *Config) { c.LogAppendTime = true })
		now := time.Now().UnixMilli()
		g.mustProduce(batchSpec{pid: 11, seq: 0, times: []int64{5}}.bytes())
		want := []ProducerState{{ID: 7, LastSequence: 4, LastTime: 3_000}, {ID: 9, Epoch: 2, LastSequence: 0, LastTime: 5}, {ID: 11, LastSequence: 0, LastTime: now}}
		for i := range want {
			want[i].CoordinatorEpoch, want[i].TxnStart = -1, types.NoOffset
		}
		check := func(what string, g *gateway) {
			t.Helper()
			if got, err := g.p.Producers(t.Context()); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v, want %v", what, got, err, want)
			}
		}
		check("the writer", g)
		check("a reader of the log", w.gateway(memory.Faults{}))
		if err := g.p.writeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("a reader of the snapshot", w.gateway(memory.Faults{}))
	})
}

// A snapshot of an earlier version has no timestamps: the time of the append
// stands in.
func TestProducersOfOldSnapshots(t *testing.T) {
	t.Parallel()
	img := image{Producers: [][]int64{{7, 0, 500, 0, 2, 0, 400}, {9, 0, 600, 0, 2, 0, 600}}}
	for i, want := range [][]int64{{500, 600}, {5, 600}, {5, 6}} {
		img.Times = []int64{5, 6}[:i]
		st, err := img.state()
		if err != nil || st.producers[7].time != want[0] || st.producers[9].time != want[1] {
			t.Errorf("%d times: %+v, %v", i, st, err)
		}
	}
}
