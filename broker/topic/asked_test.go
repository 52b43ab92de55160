package topic

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// A request that names a hundred thousand topics, ids and partitions that do not
// exist costs the store a few questions; what exists is found, and nothing that was
// learnt serves the next request.
func TestRow11ManyUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(memory.Config{})
		var gets, scans atomic.Int32
		var away, slow atomic.Bool
		fault := func(n *atomic.Int32) func(memory.Op) memory.ReadFault {
			return func(memory.Op) memory.ReadFault {
				n.Add(1)
				if away.Load() {
					return memory.ReadFault{Err: pubsub.ErrUnavailable}
				}
				if slow.Load() {
					return memory.ReadFault{Delay: 3 * time.Second}
				}
				return memory.ReadFault{}
			}
		}
		b := c.gateway(t, "b", memory.Faults{TableGet: fault(&gets), Scan: fault(&scans)}, noNews)
		a := c.gateway(t, "a", memory.Faults{}, nil)
		defer b.stop()
		defer a.stop()
		top := mustCreate(t, a, spec("there"))
		counted := func() string { return fmt.Sprintf("%d, %d", gets.Swap(0), scans.Swap(0)) }
		counted()

		ctx := ForMany(t.Context())
		for i := range 100_000 {
			if _, err := b.Get(ctx, fmt.Sprint("x", i)); !errors.Is(err, kerr.UnknownTopicOrPartition) {
				t.Fatal(err)
			}
			if i == 10 { // before the table is taken in
				if _, err := b.Get(ctx, "there"); err != nil {
					t.Error(err)
				}
			}
		}
		if got := counted(); got != "16, 1" {
			t.Errorf("names cost %s questions", got)
		}
		ctx = ForMany(t.Context())
		for range 1000 {
			if _, err := b.GetByID(ctx, types.NewTopicID()); !errors.Is(err, kerr.UnknownTopicID) {
				t.Fatal(err)
			}
			if now, err := b.Newest(ctx, top); err != nil || now.ID != top.ID {
				t.Fatal(err)
			}
		}
		if got := counted(); got != "0, 1" {
			t.Errorf("ids cost %s questions", got)
		}
		// The next request asks anew.
		ctx = ForMany(t.Context())
		if _, err := b.Get(ctx, "new"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Error(err)
		}
		mustCreate(t, a, spec("new"))
		if _, err := b.Get(ForMany(t.Context()), "new"); err != nil {
			t.Error(err)
		}
		counted()
		// A caller that gives up a question early does not answer for the rest.
		ctx = ForMany(t.Context())
		slow.Store(true)
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		if err := b.Refresh(bounded, []string{"there", "new"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		if _, err := b.Get(ctx, "z"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Error(err)
		}
		slow.Store(false)
		counted()
		// A store that is away is asked once.
		away.Store(true)
		ctx = ForMany(t.Context())
		for i := range 1000 {
			if _, err := b.Get(ctx, fmt.Sprint("y", i)); !errors.Is(err, pubsub.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if got := counted(); got != "1, 0" {
			t.Errorf("a store that is away was asked %s times", got)
		}
	})
}
