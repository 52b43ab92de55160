package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/admin"
	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/clean"
	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/protocol"
	"github.com/hanzoai/stream/pubsub"
)

// kafka is the gateway: the broker and the wire that speaks for it.
type kafka struct {
	broker *broker.Broker
	wire   *protocol.Server
	logger *slog.Logger
}

// openGateway starts the broker on an open store. Nothing is served yet. waitsFor
// is told what it waits for, compacting when it begins to compact a partition and when
// that has ended.
func openGateway(ctx context.Context, l *loaded, store pubsub.Store, a advertised, logger *slog.Logger, reg prometheus.Registerer, waitsFor func(string), compacting func(bool)) (gateway, error) {
	c := l.brokerConfig(a)
	c.Waiting, c.Clean.Busy = waitsFor, compacting
	if l.clustered() {
		c.Patience = math.MaxInt64 // the other nodes come when they come
	}
	b := broker.New(c, store, logger, reg)
	if err := b.Start(ctx); err != nil {
		b.Close(context.WithoutCancel(ctx))
		e := brokerError(err)
		e.err = fmt.Errorf("start: %w", e.err)
		return nil, e
	}
	return &kafka{broker: b, wire: protocol.New(l.protocolConfig(), backend{b}, logger, reg), logger: logger}, nil
}

// checkParts adds what the packages have against their sections, as it will be
// in force.
func (l *loaded) checkParts() {
	c := *l
	c.resolve(readMemory())
	b := c.brokerConfig(c.advertise(c.Port))
	for _, err := range []error{c.protocolConfig().Validate(), b.Topic.Validate(), b.Group.Validate(), b.Txn.Validate(), b.Cluster.Validate()} {
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				l.problem("%s", strings.TrimSpace(line))
			}
		}
	}
}

// brokerError gives the exit code and the remedy of a broker that cannot start, or
// go on.
func brokerError(err error) *exitError {
	e := &exitError{code: exitFailed, err: err}
	format, mode := (*broker.FormatError)(nil), (*cluster.ModeError)(nil)
	switch {
	case errors.As(err, &mode):
		e.code = exitStore
		e.hint = fmt.Sprintf("start it with --address-mode %s, or stop all gateways of this cluster and start them with %s", mode.Peer.Mode, mode.Mode)
	case errors.Is(err, cluster.ErrNodeTaken):
		e.hint = "give each gateway a --node-id of its own, or leave it out to have a free one chosen"
	case errors.As(err, &format):
		e.code, e.hint = exitStore, format.Hint
	case errors.Is(err, pubsub.ErrUnavailable), errors.Is(err, pubsub.ErrOutcomeUnknown):
		e.code, e.hint = exitStore, "NATS is connected, but JetStream does not do what is asked: look at its log, its disk and its limits"
	}
	return e
}

func (l *loaded) protocolConfig() protocol.Config {
	c := protocol.DefaultConfig()
	c.MaxRequestBytes = int(l.MaxRequest)
	c.QueuedMaxRequestBytes = int64(l.QueuedRequests)
	c.MaxElements = l.MaxElements
	c.MaxConnections, c.MaxConnectionsPerIP, c.MaxConnectionRate = l.MaxConns, l.MaxConnsIP, l.ConnRate
	c.FrameTimeout, c.WriteTimeout, c.IdleTimeout = l.FrameTimeout, l.WriteTimeout, l.IdleTimeout
	c.MaxInflight = l.MaxInflight
	c.FetchMaxBytes, c.FetchHeldBytes, c.FetchMaxWait = int(l.FetchMax), int64(l.FetchHeld), l.FetchWait
	c.FetchSessions = l.FetchSessions
	return c
}

func (l *loaded) brokerConfig(a advertised) broker.Config {
	inMemory := l.Storage == "memory"
	g := group.DefaultConfig()
	g.MinSessionTimeout, g.MaxSessionTimeout, g.InitialRebalanceDelay = l.GroupMinSess, l.GroupMaxSess, l.GroupDelay
	g.MaxSize, g.MaxProtocols, g.MaxMetadataBytes, g.OffsetsRetention = l.GroupMaxSize, l.GroupProtocols, l.OffsetMeta, l.OffsetKeep
	t := txn.DefaultConfig()
	t.MaxTimeout, t.IDExpiration = l.TxnMaxTimeout, l.TxnIDKeep
	return broker.Config{
		Prefix: l.Prefix, Replicas: l.Replicas, Memory: inMemory, Host: a.Host, Port: a.Port, CacheBytes: int(l.FetchCache),
		// Half stays for partitions that are not slow.
		QueueBytes: int(l.QueuedRequests / 2),
		Shown:      l.shownToClients(a),
		Listener:   plaintext,
		Cluster: cluster.Config{Prefix: l.Prefix, Node: int32(max(l.NodeID, 0)), Host: a.Host, Port: a.Port, Mode: cluster.Mode(l.AddressMode),
			// The folder lock proves that no predecessor lives; others can where
			// they reach the store.
			Alone: !l.external() && !l.clustered() && l.NATSListen == ""},
		Topic: topic.Config{Prefix: l.Prefix, Partitions: int32(l.NumPartitions), Replicas: l.Replicas, Memory: inMemory,
			ClampReplication: l.ClampReplicas, AutoCreate: l.AutoCreate, MaxMessageBytes: int(l.MaxMessage), MaxPartitions: l.MaxPartitions, Static: l.topicDefaults()},
		Group: g,
		Txn:   t,
		Clean: broker.CleanConfig{MostMemory: int(l.CleanerMemory), Share: float64(l.CleanerCPU) / 100},
	}
}

// topicDefaults are what topic.defaults says.
func (l *loaded) topicDefaults() map[string]string {
	m := map[string]string{}
	for _, kv := range words(l.TopicDefaults, ";") {
		name, value, _ := strings.Cut(kv, "=")
		m[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return m
}

// plaintext is a listener in Kafka's form.
func plaintext(host string, port int32) string {
	return "PLAINTEXT://" + net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// shownToClients are the broker configs that DescribeConfigs tells, by Kafka's
// names; durations in Kafka's unit.
func (l *loaded) shownToClients(a advertised) map[string]string {
	m := map[string]string{
		"advertised.listeners": plaintext(a.Host, a.Port),
		"broker.id":            strconv.Itoa(int(broker.SharedNode)),
		"node.id":              strconv.Itoa(int(broker.SharedNode)),
		// Retention is not Kafka's, and has a rhythm of its own.
		"log.retention.check.interval.ms": strconv.FormatInt(clean.Every.Milliseconds(), 10),
	}
	for _, f := range fields {
		for _, name := range f.kafka {
			if _, ok := m[name]; !ok {
				m[name] = f.plain(&l.config)
			}
		}
	}
	if l.CleanerRate == 0 {
		delete(m, "log.cleaner.io.max.bytes.per.second") // Kafka's default is no limit
	}
	if l.MaxConnsIP == 0 {
		m["max.connections.per.ip"] = "2147483647" // as Kafka writes "no cap"
	}
	return m
}

// backend is the broker as the wire sees it: the same with types of its own.
type backend struct{ *broker.Broker }

var _ protocol.Backend = backend{}

// Brokers implements protocol.Cluster.
func (b backend) Brokers() protocol.Brokers {
	v := b.Broker.Brokers()
	p := protocol.Brokers{Self: v.Self, Controller: v.Controller(), Replicas: v.Replicas}
	for _, n := range v.Nodes {
		p.Nodes = append(p.Nodes, protocol.Node(n))
	}
	return p
}

// Partition implements protocol.Partitions.
func (b backend) Partition(ctx context.Context, t *topic.Topic, n int32) (protocol.Partition, error) {
	if v, err := b.CommittedOffsets(t, n); err != nil {
		return nil, err
	} else if v != nil {
		return v, nil
	}
	p, err := b.Broker.Partition(ctx, t, n)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Space implements protocol.Storage.
func (b backend) Space(ctx context.Context) (protocol.Space, error) {
	s, err := b.Broker.Space(ctx)
	return protocol.Space{Dir: s.Dir, Total: s.Total, Usable: s.Free}, err
}

// Groups implements protocol.Backend.
func (b backend) Groups() protocol.Groups { return b.Broker.Groups() }

// Transactions implements protocol.Backend.
func (b backend) Transactions() protocol.Transactions { return b.Broker.Transactions() }

// Serve implements gateway.
func (k *kafka) Serve(ctx context.Context, l net.Listener) error { return k.wire.Serve(ctx, l) }

// Leaving implements gateway.
func (k *kafka) Leaving(ctx context.Context) { k.broker.Leave(ctx) }

// Shutdown implements gateway. The wire takes nothing new from the first
// moment; handing over the groups answers those who wait in JoinGroup, without
// which the wire would wait for them.
func (k *kafka) Shutdown(ctx context.Context) {
	wire := make(chan error, 1)
	go func() { wire <- k.wire.Shutdown(ctx) }()
	k.broker.HandOver(ctx)
	if err := <-wire; err != nil {
		k.logger.Warn("connections were cut at the end of the grace period", logging.Error, err)
	}
	k.broker.Drain(ctx)
}

// goodbye bounds what Close may still write.
const goodbye = time.Second

// Close implements gateway.
func (k *kafka) Close(ctx context.Context) {
	// Leaving in order spares the others a time-to-live, also after the grace.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	k.broker.Close(ctx)
}

// Failed implements gateway.
func (k *kafka) Failed() <-chan error { return k.broker.Failed() }

// Ready implements gateway.
func (k *kafka) Ready() (bool, []string) { return k.broker.Ready() }

// Facts implements gateway.
func (k *kafka) Facts() facts {
	f := facts{ClusterID: k.broker.ClusterID()}
	var peers []cluster.Peer
	f.NodeID, peers = k.broker.Node()
	for _, p := range peers {
		if p.State == cluster.Alive {
			f.Gateways = append(f.Gateways, admin.Gateway{NodeID: p.Node, Host: p.Host, Port: int(p.Port)})
		}
	}
	for _, l := range k.broker.LateTransactions() {
		f.Late = append(f.Late, admin.LateTransaction{Topic: l.Topic, Partition: l.Partition, ProducerID: l.ProducerID,
			FirstOffset: int64(l.First), OpenSeconds: int64(l.OpenFor / time.Second)})
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
		if name != "" && name != t.Name || topic.Internal(t.Name) { // it has no stream of its own
			continue
		}
		at := admin.Topic{Name: t.Name}
		brokers := k.broker.Brokers()
		for _, p := range k.broker.Describe(ctx, t) {
			if p.Err != nil {
				return nil, fmt.Errorf("ask about %s-%d: %w", t.Name, p.Partition, p.Err)
			}
			at.Partitions = append(at.Partitions, admin.Partition{
				Partition: p.Partition, Messages: p.Messages, FirstSeq: p.FirstSeq, LastSeq: p.LastSeq, Bytes: p.Bytes,
				Stream: p.Stream, Subject: p.Subject, StartOffset: int64(p.Start), EndOffset: int64(p.End),
				LastStableOffset: int64(p.LastStable), OpenTransactionSeconds: int64(p.OpenFor / time.Second),
				Leader: brokers.Replicas(t.ID, p.Partition, 1)[0], Replicas: p.Replicas, InSync: p.InSync, StreamLeader: p.StoreLeader, Error: p.Stopped,
			})
		}
		out = append(out, at)
	}
	return out, nil
}

// Offsets implements gateway. Offsets of a topic that was deleted since read as
// absent, also if there is a new one of its name.
func (k *kafka) Offsets(ctx context.Context, groupName, topicName string) ([]admin.Offset, error) {
	ts, err := k.broker.Topics(ctx)
	if err != nil {
		return nil, err
	}
	ids := make(map[string]*topic.Topic, len(ts))
	for _, t := range ts {
		ids[t.Name] = t
	}
	all, err := k.broker.Groups().Offsets(ctx)
	if err != nil {
		return nil, err
	}
	out := []admin.Offset{}
	for _, o := range all {
		t := ids[o.Topic]
		if t == nil || t.ID != o.TopicID || groupName != "" && o.Group != groupName || topicName != "" && o.Topic != topicName {
			continue
		}
		out = append(out, admin.Offset{Group: o.Group, Topic: o.Topic, Partition: o.Partition, Offset: int64(o.Offset)})
	}
	return out, nil
}
