package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hanzoai/stream/broker/clean"
	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/offsets"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/utils/killpoint"
)

// Config is the broker's section of the configuration.
type Config struct {
	// Prefix of all streams, subjects and buckets: [A-Za-z0-9_]+.
	Prefix string
	// Replicas of new streams and buckets.
	Replicas int
	// Memory keeps new streams in memory instead of files.
	Memory bool
	// Host and Port are advertised to clients; Rack may be nil.
	Host string
	Port int32
	Rack *string
	// CacheBytes bounds the tail caches of all partitions together.
	CacheBytes int
	// QueueBytes bounds what waits for partitions whose store is slow.
	QueueBytes int
	// Shown are values that DescribeConfigs of the broker shows and that are
	// decided elsewhere, under Kafka's names.
	Shown map[string]string
	// Listener writes an address as advertised.listeners shows it.
	Listener func(host string, port int32) string
	// Patience is how long a start puts up with a store that does not answer; 0
	// is 20 s. Waiting, unless nil, is told now and then what it waits for, "" at the end.
	Patience time.Duration
	Waiting  func(what string)

	// FormatHold is how long all gateways must have known a newer format before it
	// comes in force; 0: a minute.
	FormatHold time.Duration

	// Clock is this machine's clock, wall and monotonic; nil: time.Now.
	Clock func() time.Time

	Clean CleanConfig

	// Cluster.Formats are this build's unless they are given, Txn Kafka's defaults.
	Cluster cluster.Config
	Topic   topic.Config
	Group   group.Config
	Txn     txn.Config
}

// Broker is one gateway's Kafka. Make it with New, then Start; Drain and Close
// end it.
type Broker struct {
	cfg    Config
	store  pubsub.Store
	logger *slog.Logger
	reg    prometheus.Registerer

	meta      meta
	metaTable pubsub.Table
	format    atomic.Int64 // in force
	announced atomic.Int64 // the next one; 0: none
	ids       *producerIDs
	cluster   *cluster.Cluster
	host      *partition.Host
	topics    *topic.Topics
	groups    *group.Forwarder
	txns      *txn.Forwarder
	offsets   *offsets.View

	// unhand ends answering other gateways, for whom this one appends or compacts;
	// nil before it began.
	unhand  func()
	stop    context.CancelFunc
	member  context.CancelFunc // ends the membership, after all else
	running sync.WaitGroup
	renewal sync.WaitGroup
	// What only the holder of the lease does, and the lease itself.
	lease       *cluster.Lease
	idle        context.CancelFunc // ends maintaining
	compactor   *clean.Compactor
	maintaining sync.WaitGroup
	failed      chan error

	// configuring is held while a partition gets its configuration.
	configuring sync.Mutex
	// mu guards ready and draining.
	mu       sync.Mutex
	ready    bool
	draining bool
}

// New makes a Broker; nothing is read or written yet.
func New(cfg Config, store pubsub.Store, logger *slog.Logger, reg prometheus.Registerer) *Broker {
	return &Broker{cfg: cfg, store: store, logger: logger, reg: reg, failed: make(chan error, 1)}
}

// Start opens what is stored, joins the cluster and returns when everything can
// be served. The work goes on in the background until Close; ctx bounds only
// the start. A *FormatError means that the store must not be served.
func (b *Broker) Start(ctx context.Context) error {
	if b.cfg.Cluster.Formats == (cluster.Formats{}) {
		b.cfg.Cluster.Formats = builtFormats
	}
	if b.cfg.Txn == (txn.Config{}) {
		b.cfg.Txn = txn.DefaultConfig()
	}
	names := []string{"meta", "topics", "partitions", "consumer-offsets", "txns", "ids", "gateways", "leases"}
	tables := make(map[string]pubsub.Table, len(names))
	// The identity comes first: nothing is made beside data without one.
	for _, name := range names {
		var t pubsub.Table
		err := b.patiently(ctx, func() (err error) {
			t, err = b.store.Table(ctx, pubsub.TableConfig{Name: b.cfg.Prefix + "-" + name, Replicas: b.cfg.Replicas, Memory: b.cfg.Memory})
			return err
		})
		if err != nil {
			return fmt.Errorf("open bucket %s-%s: %w", b.cfg.Prefix, name, err)
		}
		tables[name] = t
		if name == "meta" {
			err := b.patiently(ctx, func() (err error) {
				b.meta, err = openMeta(ctx, b.store, t, b.cfg.Prefix, b.cfg.Cluster.Formats)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	b.ids, b.metaTable = newProducerIDs(tables["ids"]), tables["meta"]

	b.cfg.Cluster.Prefix, b.cfg.Cluster.Host, b.cfg.Cluster.Port = b.cfg.Prefix, b.cfg.Host, b.cfg.Port
	b.cluster = cluster.New(b.cfg.Cluster, cluster.Deps{
		Table: tables["gateways"], Store: b.store, Clock: b.cfg.Clock, Logger: b.component("cluster")})
	if err := b.patiently(ctx, func() error { return b.cluster.Join(ctx) }); err != nil {
		return err
	}
	membership, member := context.WithCancel(context.WithoutCancel(ctx))
	b.member = member
	b.renewal.Go(func() { b.check("membership", membership, b.cluster.Run(membership)) })
	if err := b.patiently(ctx, func() error { return b.admitted(ctx) }); err != nil {
		return err
	}

	b.lease = b.cluster.Lease(tables["leases"], "maintenance")
	background, stop := context.WithCancel(membership)
	b.stop = stop
	b.host = partition.NewHost(partition.Env{
		Store: b.store, Records: tables["partitions"], Gateway: b.cluster.Self().Incarnation,
		Clock: b.cfg.Clock, CacheBytes: b.cfg.CacheBytes, QueueBytes: b.cfg.QueueBytes, Ahead: b.cluster.Ahead, Maintains: b.lease.Holds,
		Missing: func(name string) { b.topics.Recheck(name) },
		Others:  appenders{b.cluster}, Fresh: b.cluster.Fresh, Format: b.Format, Subjects: b.cfg.Prefix + ".>", Logger: b.component("partition"), Registerer: b.reg})
	b.topics = topic.New(b.cfg.Topic, topic.Deps{
		Table: tables["topics"], Settings: tables["meta"], Store: b.store, Partitions: partitions{b.host}, Clock: b.cfg.Clock,
		Cluster: b.meta.ClusterID, Incarnation: func() string { return b.cluster.Self().Incarnation },
		MayAdopt: b.cluster.Ended, Fresh: b.cluster.Fresh, Unbroken: b.cluster.Unbroken, Maintains: b.maintains,
		Broker: b.isBroker, Self: func() string { return strconv.Itoa(int(b.self())) }, Logger: b.component("topic")})
	// With an address per gateway clients find the owner themselves.
	b.cfg.Group.Forward = b.cfg.Group.Forward && !b.perGateway()
	b.groups = group.NewForwarder(group.New(b.cfg.Group, group.Deps{
		Table: tables["consumer-offsets"], Members: b.cluster, Calls: b.cluster, Replicated: b.cfg.Replicas > 1,
		Code:   func(err error) int16 { return b.Code(err, true) },
		Open:   b.openTransaction,
		Logger: b.component("group"), Registerer: b.reg}))
	b.txns = txn.NewForwarder(txn.New(b.cfg.Txn, txn.Deps{
		Table: tables["txns"], Members: b.cluster, Calls: b.cluster, Replicated: b.cfg.Replicas > 1,
		Code:    func(err error) int16 { return b.Code(err, true) },
		Markers: markers{b}, Groups: b.groups, NewProducerID: b.ids.take, Ahead: b.ahead,
		Known:  func() bool { return b.Format() >= partition.FormatTransactions },
		Logger: b.component("txn"), Registerer: b.reg}))
	b.offsets = offsets.New(offsets.Deps{
		Table: tables["consumer-offsets"], Cluster: b.meta.ClusterID, Replicas: b.cfg.Replicas, Clock: b.cfg.Clock, Logger: b.component("offsets")})
	b.compactor = clean.NewCompactor(clean.CompactDeps{
		Store: b.host, Subjects: b.cfg.Prefix + ".>", Siblings: b.cfg.Prefix + "-clean.>", Partitions: b.compactions, Lease: b.lease,
		Known: b.compactable, Settings: b.cleaning, Ahead: b.cluster.Ahead, Busy: b.cfg.Clean.Busy, Clock: b.cfg.Clock, Logger: b.component("compaction"), Registerer: b.reg})
	b.topics.OnChange(b.topicChanged)
	b.running.Go(func() { b.check("partitions", background, b.host.Run(background)) })
	b.running.Go(func() { b.check("topics", background, b.topics.Run(background)) })
	b.running.Go(func() { b.check("groups", background, b.groups.Run(background)) })
	b.running.Go(func() { b.check("transactions", background, b.txns.Run(background)) })
	b.running.Go(func() { b.check("offsets", background, b.offsets.Run(background)) })
	for _, ready := range []<-chan struct{}{b.topics.Ready(), b.groups.Ready(), b.txns.Ready()} {
		select {
		case <-ready:
		case err := <-b.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("load state: %w", ctx.Err())
		}
	}
	unappend, untell := b.cluster.Handle(appendMethod, b.takeOver), b.cluster.Handle(compactionMethod, b.tellCleaning)
	b.unhand = func() { unappend(); untell() }
	b.maintain(background)
	b.running.Go(func() { b.check("stored format", background, b.guardFormat(background)) })
	b.mu.Lock()
	b.ready = true
	b.mu.Unlock()
	if b.reg != nil {
		b.reg.MustRegister(newCopiesMetrics(b))
	}
	return nil
}

func (b *Broker) component(name string) *slog.Logger { return b.logger.With(logging.Component, name) }

// check reports a background part that ended although nobody asked it to.
func (b *Broker) check(what string, ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("ended by itself")
	}
	select {
	case b.failed <- fmt.Errorf("%s: %w", what, err):
	default:
	}
}

// Failed delivers the error of a part that cannot go on. The process should
// then end: a restart rebuilds everything.
func (b *Broker) Failed() <-chan error { return b.failed }

// Leave tells the other gateways that this one is about to go: nothing new is
// sent to it, and with an address per gateway clients are not told of it any more.
// It is not ready from here on, and serves as before.
func (b *Broker) Leave(ctx context.Context) {
	b.mu.Lock()
	b.draining = true
	b.mu.Unlock()
	// Without the store nobody can be told, and nobody need be.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := b.cluster.Drain(ctx); err != nil {
		b.logger.Warn("others were not told that this gateway leaves", logging.Error, err)
	}
}

// HandOver gives up what this gateway owns, so that others adopt it at once;
// members that wait are told to look elsewhere. From here on it is not ready.
func (b *Broker) HandOver(ctx context.Context) {
	b.mu.Lock()
	b.draining = true
	b.mu.Unlock()
	killpoint.At("drain.begun")
	if err := b.txns.Drain(ctx); err != nil {
		b.logger.Warn("transactions were not handed over in order; others wait a time-to-live", logging.Error, err)
	}
	if err := b.groups.Drain(ctx); err != nil {
		b.logger.Warn("groups were not handed over in order; others wait a time-to-live", logging.Error, err)
	}
	b.release(ctx)
}

// Drain finishes the appends that were submitted and saves what spares the next
// start work. Nothing may be submitted after it.
func (b *Broker) Drain(ctx context.Context) {
	killpoint.At("drain.handed.over")
	if b.unhand != nil {
		b.unhand()
	}
	if err := b.host.Drain(ctx); err != nil {
		b.logger.Warn("partitions were not drained; the next start reads more of their tails", logging.Error, err)
	}
}

// Close ends everything that Start began and leaves the cluster. The store
// stays open.
func (b *Broker) Close(ctx context.Context) {
	b.mu.Lock()
	b.ready = false
	b.mu.Unlock()
	if b.unhand != nil {
		b.unhand()
	}
	if b.stop != nil {
		b.stop()
		b.running.Wait()
		b.maintaining.Wait()
	}
	if b.member != nil {
		b.member()
		b.renewal.Wait()
		if err := b.cluster.Leave(ctx); err != nil {
			b.logger.Warn("could not say goodbye; others wait a time-to-live", logging.Error, err)
		}
	}
}
