package jetstream_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/contract"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startEmbedded(t *testing.T, c embedded.Config) *embedded.Server {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	s, err := embedded.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func connect(t *testing.T, c jetstream.Config) *jetstream.Store {
	t.Helper()
	s, err := jetstream.Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestContractEmbedded(t *testing.T) {
	srv := startEmbedded(t, embedded.Config{})
	t.Run("suite", func(t *testing.T) {
		contract.Run(t, func(t *testing.T) pubsub.Store { return connect(t, jetstream.Config{InProcess: srv}) })
	})
}
