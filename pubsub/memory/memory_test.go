package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/contract"
	"github.com/hanzoai/stream/pubsub/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	t.Parallel()
	srv := memory.NewServer(memory.Config{})
	contract.Run(t, func(t *testing.T) pubsub.Store {
		c := srv.Client(memory.Faults{})
		t.Cleanup(c.Close)
		return c
	})
}
