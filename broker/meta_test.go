package broker

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/pubsub/memory"
)

// TestMetaDenied: that there is no identity beside data is believed only if the
// leader says so twice, a second apart (simulation of gateways, seed 5164).
func TestMetaDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		first, err := startBuilt(t, srv, 1, 1, memory.Faults{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := first.CreateTopic(t.Context(), topic.Spec{Name: "t", Partitions: 1, Replicas: -1}); err != nil {
			t.Fatal(err)
		}
		first.end()
		var lies atomic.Int32
		lie := memory.Faults{TableGet: func(op memory.Op) memory.ReadFault {
			return memory.ReadFault{Deny: op.Name == "kafka-meta" && op.Key == metaKey && lies.Add(-1) >= 0}
		}}
		lies.Store(1)
		again, err := startBuilt(t, srv, 1, 1, lie)
		if err != nil || again.ClusterID() != first.ClusterID() {
			t.Fatalf("denied once: %v", err)
		}
		again.end()
		lies.Store(1000)
		if _, err := startBuilt(t, srv, 1, 1, lie); !errors.As(err, new(*FormatError)) {
			t.Errorf("denied for good: %v", err)
		}
	})
}
