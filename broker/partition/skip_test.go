package partition

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/hanzoai/stream/pubsub/memory"
)

// TestRewritePassesOver: what has nothing that stays is read for its keys only, and
// everything else as if all had been read.
func TestRewritePassesOver(t *testing.T) {
	for name, c := range map[string]struct {
		stretch int64
		most    float64 // of the log's bytes, read in a run
	}{"everything is read twice": {1 << 30, 2.1}, "a tenth is": {1000, 1.2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := compacted(t).gateway(memory.Faults{})
				g.host.stretch = c.stretch
				g.put(0, "first=1", "again=1")
				for i := range 400 {
					g.put(0, fmt.Sprintf("k%d=%d", i%8, i))
					if i == 200 {
						g.put(0, "middle=1")
					}
				}
				g.put(0, "end=1")
				read := 0
				res := g.mustCompact(CompactOptions{Memory: 1 << 16, Pace: func(_ context.Context, n int) error {
					read += n
					return nil
				}})
				if res.RecordsIn != 403 || res.RecordsOut != 11 {
					t.Errorf("%+v", res)
				}
				if share := float64(read) / float64(res.BytesIn); share > c.most || share < c.most-0.3 {
					t.Errorf("%.2f of the log was read", share)
				}
				want := []string{"0:first=1", "1:again=1", "203:middle=1"}
				for i := 392; i < 400; i++ {
					want = append(want, fmt.Sprintf("%d:k%d=%d", i+3, i%8, i))
				}
				if got := g.shows(); !slices.Equal(got, append(want, "403:end=1")) {
					t.Errorf("%v", got)
				}
			})
		})
	}
}
