package writers

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/testkit"
	"github.com/hanzoai/stream/types"
)

// newBrokers starts n gateways without their wire, in this process, each with
// connections of its own to one NATS server.
func newBrokers(t testing.TB, n int) []*broker.Broker {
	t.Helper()
	nats := testkit.StartNATS(t, testkit.NATSOptions{})
	urls := make([]string, n)
	for i := range urls {
		urls[i] = nats.URL
	}
	return brokersAt(t, 1, urls...)
}

// brokersAt starts a gateway at each server.
func brokersAt(t testing.TB, replicas int, urls ...string) []*broker.Broker {
	t.Helper()
	var bs []*broker.Broker
	for _, url := range urls {
		store, err := jetstream.Connect(t.Context(), jetstream.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		topicConfig := topic.Defaults()
		topicConfig.Replicas = replicas
		b := broker.New(broker.Config{
			Prefix: "kafka", Replicas: replicas, Host: "127.0.0.1", Port: 9092,
			Cluster: cluster.Config{Prefix: "kafka"}, Topic: topicConfig, Group: group.DefaultConfig(),
		}, store, logging.Discard(), prometheus.NewRegistry())
		t.Cleanup(func() { b.Close(context.Background()) })
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		bs = append(bs, b)
	}
	return bs
}

// open makes a topic with one partition, and opens it on each.
func open(t testing.TB, bs []*broker.Broker, name string) []*partition.Partition {
	t.Helper()
	if _, err := bs[0].CreateTopic(t.Context(), topic.Spec{Name: name, Partitions: 1, Replicas: -1}); err != nil {
		t.Fatal(err)
	}
	var ps []*partition.Partition
	for _, b := range bs {
		x, err := b.Topic(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := b.Partition(t.Context(), x, 0)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

// batchOf is a record batch of one record.
func batchOf(size int) []byte {
	return serde.Build(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]serde.NewRecord{{TimestampMillis: time.Now().UnixMilli(), Value: make([]byte, size)}})
}

func offset(n int64) types.Offset { return types.Offset(n) }
