package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/admin"
	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/protocol"
	"github.com/hanzoai/stream/pubsub"
)

// kafka is the gateway: the wire in front of the rules. It is the one place
// where both are known.
type kafka struct {
	broker *broker.Broker
	wire   *protocol.Server
}

// openGateway starts the broker and puts the wire in front of it.
func openGateway(ctx context.Context, l *loaded, store pubsub.Store, at advertised, logger *slog.Logger, reg prometheus.Registerer) (gateway, error) {
	b := broker.New(brokerConfig(l, at), store, logger, reg)
	if err := b.Start(ctx); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		b.Close(closing)
		return nil, startError(err)
	}
	return &kafka{broker: b, wire: protocol.New(wireConfig(l), backend{b}, logger.With(logging.Component, "protocol"), reg)}, nil
}

// startError tells what the operator can do.
func startError(err error) error {
	var format *broker.FormatError
	switch {
	case errors.As(err, &format):
		return &exitError{code: exitStore, err: err, hint: format.Hint}
	case errors.Is(err, cluster.ErrNodeTaken):
		return &exitError{code: exitFailed, err: err, hint: "stop that gateway, choose another --node-id, or leave it out"}
	case errors.Is(err, pubsub.ErrUnavailable), errors.Is(err, pubsub.ErrOutcomeUnknown):
		return &exitError{code: exitStore, err: err, hint: "see the NATS server's log: JetStream refuses or does not answer (storage limits, replicas, quorum)"}
	}
	return err
}

func brokerConfig(l *loaded, at advertised) broker.Config {
	gc := group.DefaultConfig()
	gc.MaxSize, gc.MaxProtocols = l.GroupMaxSize, l.GroupProtocols
	gc.MinSessionTimeout, gc.MaxSessionTimeout = l.GroupMinSess, l.GroupMaxSess
	gc.InitialRebalanceDelay = l.GroupDelay
	gc.MaxMetadataBytes, gc.OffsetsRetention = l.OffsetMeta, l.OffsetKeep
	memory := l.Storage == "memory"
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return broker.Config{
		Prefix: l.Prefix, Replicas: l.Replicas, Memory: memory,
		Host: at.Host, Port: at.Port,
		CacheBytes: int(l.FetchCache),
		Cluster:    cluster.Config{Node: max(int32(l.NodeID), 0), Alone: !l.external() && l.NATSListen == ""},
		Topic: topic.Config{
			Prefix: l.Prefix, Partitions: int32(l.NumPartitions), Replicas: l.Replicas, Memory: memory,
			ClampReplication: l.ClampReplicas, AutoCreate: l.AutoCreate, MaxMessageBytes: int(l.MaxMessage), MaxPartitions: l.MaxPartitions,
		},
		Group: gc,
		Shown: map[string]string{
			"advertised.listeners":             "PLAINTEXT://" + net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))),
			"connections.max.idle.ms":          millis(l.IdleTimeout),
			"fetch.max.bytes":                  strconv.FormatInt(int64(l.FetchMax), 10),
			"group.initial.rebalance.delay.ms": millis(l.GroupDelay),
			"group.max.session.timeout.ms":     millis(l.GroupMaxSess),
			"group.max.size":                   strconv.Itoa(l.GroupMaxSize),
			"group.min.session.timeout.ms":     millis(l.GroupMinSess),
			"max.connections":                  strconv.Itoa(l.MaxConns),
			"offset.metadata.max.bytes":        strconv.Itoa(l.OffsetMeta),
			"offsets.retention.minutes":        strconv.FormatInt(int64(l.OffsetKeep/time.Minute), 10),
			"socket.request.max.bytes":         strconv.FormatInt(int64(l.MaxRequest), 10),
		},
	}
}

func wireConfig(l *loaded) protocol.Config {
	c := protocol.DefaultConfig()
	c.MaxRequestBytes = int(l.MaxRequest)
	if l.QueuedRequests > 0 {
		c.QueuedMaxRequestBytes = int64(l.QueuedRequests)
	}
	c.MaxElements = l.MaxElements
	c.MaxConnections, c.MaxConnectionsPerIP, c.MaxConnectionRate = l.MaxConns, l.MaxConnsIP, l.ConnRate
	c.FrameTimeout, c.WriteTimeout, c.IdleTimeout = l.FrameTimeout, l.WriteTimeout, l.IdleTimeout
	c.MaxInflight = l.MaxInflight
	c.FetchMaxBytes, c.FetchMaxWait = int(l.FetchMax), l.FetchWait
	if l.FetchHeld > 0 {
		c.FetchHeldBytes = int64(l.FetchHeld)
	}
	return c
}

// backend shows the broker to the wire as protocol states its needs.
type backend struct{ *broker.Broker }

// Nodes is one broker: all gateways stand behind one address.
func (b backend) Nodes() []protocol.Node {
	host, port, rack := b.Address()
	return []protocol.Node{{ID: broker.SharedNode, Host: host, Port: port, Rack: rack}}
}

// Partition gives broker.Broker's answer as the interface.
func (b backend) Partition(ctx context.Context, t *topic.Topic, n int32) (protocol.Partition, error) {
	p, err := b.Broker.Partition(ctx, t, n)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Groups gives broker.Broker's answer as the interface.
func (b backend) Groups() protocol.Groups { return b.Broker.Groups() }

// Serve implements gateway.
func (k *kafka) Serve(ctx context.Context, l net.Listener) error { return k.wire.Serve(ctx, l) }

// Shutdown implements gateway. Groups are handed over while the wire still
// answers, so that parked members hear that they should look elsewhere.
func (k *kafka) Shutdown(ctx context.Context) {
	handed := make(chan struct{})
	go func() {
		defer close(handed)
		k.broker.HandOver(ctx)
	}()
	k.wire.Shutdown(ctx)
	<-handed
	k.broker.Drain(ctx)
}

// Close implements gateway.
func (k *kafka) Close(ctx context.Context) { k.broker.Close(ctx) }

// Failed implements gateway.
func (k *kafka) Failed() <-chan error { return k.broker.Failed() }

// Ready implements gateway.
func (k *kafka) Ready() (bool, []string) { return k.broker.Ready() }

// Facts implements gateway.
func (k *kafka) Facts() facts {
	node, peers := k.broker.Node()
	f := facts{ClusterID: k.broker.ClusterID(), NodeID: node}
	for _, p := range peers {
		f.Gateways = append(f.Gateways, admin.Gateway{NodeID: p.Node, Host: p.Host, Port: int(p.Port)})
	}
	for _, t := range k.broker.Known() {
		if t.KeptWhole() {
			f.Compacted = append(f.Compacted, t.Name)
		}
	}
	return f
}

// Topics implements gateway.
func (k *kafka) Topics(ctx context.Context, name string) ([]admin.Topic, error) {
	ts, err := k.broker.Topics(ctx)
	if err != nil {
		return nil, err
	}
	out := []admin.Topic{}
	for _, t := range ts {
		if name != "" && t.Name != name {
			continue
		}
		at := admin.Topic{Name: t.Name}
		for _, p := range k.broker.Describe(ctx, t) {
			ap := admin.Partition{
				Partition: p.Partition, Stream: p.Stream, Subject: p.Subject,
				Messages: p.Messages, Bytes: p.Bytes, FirstSeq: uint64(p.FirstSeq), LastSeq: uint64(p.LastSeq),
				StartOffset: int64(p.Start), EndOffset: int64(p.End),
				Leader: k.broker.Leader(t.ID, p.Partition), Replicas: p.Replicas, InSync: p.InSync, Error: p.Stopped,
			}
			if p.Err != nil {
				// A store that does not answer is no empty topic.
				return nil, fmt.Errorf("ask about %s-%d: %w", t.Name, p.Partition, p.Err)
			}
			at.Partitions = append(at.Partitions, ap)
		}
		out = append(out, at)
	}
	return out, nil
}

// Offsets implements gateway.
func (k *kafka) Offsets(ctx context.Context, groupName, topicName string) ([]admin.Offset, error) {
	all, err := k.broker.Offsets(ctx)
	if err != nil {
		return nil, err
	}
	out := []admin.Offset{}
	for _, o := range all {
		if groupName != "" && o.Group != groupName || topicName != "" && o.Topic != topicName {
			continue
		}
		out = append(out, admin.Offset{Group: o.Group, Topic: o.Topic, Partition: o.Partition, Offset: int64(o.Offset)})
	}
	return out, nil
}
