package broker

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
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
	// Admin is the URL of stream's HTTP port, "" for Apache Kafka.
	Admin string
	// SASL is the address of a listener with users, "" if there is none.
	SASL string
	server
}

// Options of a broker. The zero value is what most suites want.
type Options struct {
	// Properties are name=value pairs of Kafka's server.properties, given to
	// either broker.
	Properties []string
	// SASL asks for a second listener and an authorizer that allows what no ACL
	// speaks about. Stream has neither yet and starts without.
	SASL bool
	// Addr is where it listens; "" means a free port.
	Addr string
	// Advertised is what clients are told to connect to, if not Addr: host:port,
	// or a host alone for the same port.
	Advertised string
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
	return StartWith(t, kind, Options{})
}

// StartWith is Start with options.
func StartWith(t testing.TB, kind string, o Options) *Broker {
	t.Helper()
	if o.Addr == "" {
		o.Addr = testkit.FreeAddr(t)
	}
	if o.Advertised == "" {
		o.Advertised = o.Addr
	} else if !strings.Contains(o.Advertised, ":") {
		o.Advertised += o.Addr[strings.LastIndexByte(o.Addr, ':'):]
	}
	b := &Broker{Kind: kind, Addr: o.Addr}
	if kind == Kafka {
		k := startKafka(t, o)
		b.SASL, b.server = k.sasl, k
	} else {
		// As Apache Kafka is set up here: no wait for more members.
		args := []string{"--group-initial-rebalance-delay-ms", "0", "--advertised-address", o.Advertised}
		for _, p := range o.Properties {
			args = append(args, "--kafka-property", p)
		}
		s := testkit.Start(t, testkit.Options{PubsubURL: pubsubURL(t, kind), Addr: o.Addr, Args: args})
		b.server, b.Admin = s, s.Admin
	}
	return b
}

// ping waits until a broker knows itself and its controller: before, a client
// that keeps metadata finds no broker for seconds.
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
		m, err := kadm.NewClient(cl).BrokerMetadata(ctx)
		if err == nil && (len(m.Brokers) == 0 || m.Controller < 0) {
			err = fmt.Errorf("%d brokers, controller %d", len(m.Brokers), m.Controller)
		}
		return err
	})
}
