package writers

import (
	"slices"
	"testing"
	"time"

	"github.com/hanzoai/stream/broker/partition"
)

// TestNews: a reader that waits at the end of a partition on one gateway is woken
// by an append through another within milliseconds, and can read it then.
func TestNews(t *testing.T) {
	bs := newBrokers(t, 2)
	ps := open(t, bs, "news")
	woken := make(chan struct{}, 1)
	defer ps[1].Notify(woken)()
	rounds := 200
	if full {
		rounds = 2000
	}
	var waits, acks []time.Duration
	for n := range rounds {
		// The end is known before, so that a wake-up is that of the append.
		end := int64(n)
		if got, err := ps[1].Available(t.Context(), offset(end), false); err != nil || got != 0 {
			t.Fatalf("%d bytes at %d: %v", got, end, err)
		}
		acked := make(chan partition.AppendResult, 1)
		began := time.Now()
		ps[0].Submit(partition.AppendRequest{Records: batchOf(100)}, func(a partition.AppendResult) { acked <- a })
		deadline := time.NewTimer(20 * time.Second)
		for {
			select {
			case <-woken:
			case <-deadline.C:
				t.Fatalf("append %d woke nobody", n)
			}
			got, err := ps[1].Available(t.Context(), offset(end), false)
			if err != nil {
				t.Fatal(err)
			}
			if got > 0 {
				break
			}
		}
		waits = append(waits, time.Since(began))
		deadline.Stop()
		if a := <-acked; a.Err != nil || int64(a.BaseOffset) != end {
			t.Fatalf("%+v, want offset %d", a, end)
		}
		acks = append(acks, time.Since(began))
	}
	slices.Sort(waits)
	slices.Sort(acks)
	t.Logf("from the append's begin to the other gateway's reader: p50 %v, p99 %v, max %v; to the acknowledgement: p50 %v, p99 %v",
		waits[rounds/2], waits[rounds*99/100], waits[rounds-1], acks[rounds/2], acks[rounds*99/100])
	// Far below the five seconds after which the leader is asked in any case.
	if waits[rounds/2] > 500*time.Millisecond {
		t.Errorf("half of the readers waited %v", waits[rounds/2])
	}
}
