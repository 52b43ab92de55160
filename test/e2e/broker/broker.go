package broker

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/testkit"
)

// Kinds of brokers, as in STREAM_E2E_BROKERS.
const (
	Embedded = "embedded"     // stream with its own NATS server
	NATS210  = "nats-2.10.29" // stream on an external NATS server
	NATS211  = "nats-2.11.x"  // the newest of that line
	NATS     = "nats-2.x"     // the newest
	Kafka    = "kafka"        // Apache Kafka
)

// Broker is a running broker. Its address stays the same over restarts.
type Broker struct {
	Kind string
	Addr string
	server
}

type server interface {
	Kill(t testing.TB)    // SIGKILL
	Stop(t testing.TB)    // SIGTERM, waits for the end
	Restart(t testing.TB) // after Kill or Stop; waits until it serves
	Log() string
}

// Kinds is what STREAM_E2E_BROKERS (comma separated) names, else kinds.
func Kinds(kinds []string) []string {
	if env := os.Getenv("STREAM_E2E_BROKERS"); env != "" {
		return strings.Split(env, ",")
	}
	return kinds
}

// Each runs f as a subtest per kind, one after another, each on a broker of its
// own; see [Kinds].
func Each(t *testing.T, kinds []string, f func(t *testing.T, b *Broker)) {
	t.Helper()
	for _, kind := range Kinds(kinds) {
		t.Run(kind, func(t *testing.T) { f(t, Start(t, kind)) })
	}
}

// Start starts a broker, which ends with the test.
func Start(t testing.TB, kind string) *Broker {
	t.Helper()
	return StartAdvertised(t, kind, "")
}

// StartAdvertised is Start with a broker that tells clients another address
// than its own, if that is not empty.
func StartAdvertised(t testing.TB, kind, advertised string) *Broker {
	t.Helper()
	b := &Broker{Kind: kind}
	if kind == Kafka {
		k := startKafka(t, advertised)
		b.Addr, b.server = k.addr, k
	} else {
		// As Apache Kafka is set up here: no wait for more members.
		args := []string{"--group-initial-rebalance-delay-ms", "0"}
		if advertised != "" {
			args = append(args, "--advertised-address", advertised)
		}
		s := testkit.Start(t, testkit.Options{PubsubURL: pubsubURL(t, kind), Args: args})
		b.Addr, b.server = s.Addr, s
	}
	return b
}

// ping waits until a broker answers Metadata.
func ping(t testing.TB, addr string, limit time.Duration, stop <-chan struct{}) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatalf("client for %s: %v", addr, err)
	}
	defer cl.Close()
	testkit.Poll(t, limit, "answer of "+addr, func() error {
		select {
		case <-stop:
			t.Fatalf("the broker at %s has ended", addr)
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return cl.Ping(ctx)
	})
}
