package partition

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub/memory"
)

// The worst of replicas: those that answer reads lag, and the leader,
// which woke from a freeze, denies for a moment what is stored. That is an
// error that clients retry, never "empty", "out of range" or a partition that
// stops; and afterwards everything is there.
func TestC41LeaderThatDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		g := w.gateway(memory.Faults{})
		for range 100 {
			g.mustProduce(batch(1))
		}
		var lagging atomic.Bool
		bad := w.gateway(memory.Faults{
			Read: func(memory.Op) (f memory.ReadFault) {
				if lagging.Load() {
					f.Behind = 1000
				}
				return f
			},
			Get: func(op memory.Op) (f memory.ReadFault) {
				f.Deny = lagging.Load() && op.Name == testLog
				return f
			},
		})
		bad.read(99) // loaded
		lagging.Store(true)
		time.AfterFunc(700*time.Millisecond, func() { lagging.Store(false) })
		for i := 0; lagging.Load(); i++ {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			r, err := bad.p.Read(ctx, ReadRequest{Offset: 50, MaxBytes: 1 << 20, Whole: true})
			cancel()
			k := (*kerr.Error)(nil)
			switch {
			case err == nil && r.Bytes == 0:
				t.Fatalf("try %d: nothing and no error", i)
			case errors.As(err, &k) && !k.Retriable || errors.Is(err, kerr.OffsetOutOfRange):
				t.Fatalf("try %d: %v", i, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if s := bad.p.stopMessage(); s != "" {
			t.Fatalf("stopped: %s", s)
		}
		if bs := bad.read(50); bs[0].BaseOffset() != 50 {
			t.Fatalf("read at %d", bs[0].BaseOffset())
		}
		g.kill()
		bad.kill()
	})
}
