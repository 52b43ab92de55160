package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/offsets"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/types"
)

// ClusterID is the 22 characters that Metadata and DescribeCluster tell.
func (b *Broker) ClusterID() string { return b.meta.ClusterID }

// Node is this gateway's own node id and its living peers, itself included.
func (b *Broker) Node() (int32, []cluster.Peer) {
	if b.cluster == nil {
		return 0, nil
	}
	return b.cluster.Self().Node, b.cluster.Peers()
}

// Topic finds an active topic by name: UNKNOWN_TOPIC_OR_PARTITION, or
// INVALID_TOPIC_EXCEPTION for what can never be one.
func (b *Broker) Topic(ctx context.Context, name string) (*topic.Topic, error) {
	if name == offsets.Name {
		return b.offsets.Topic(ctx)
	}
	return b.topics.Get(ctx, name)
}

// TopicByID finds an active topic by id: UNKNOWN_TOPIC_ID.
func (b *Broker) TopicByID(ctx context.Context, id types.TopicID) (*topic.Topic, error) {
	if b.offsets.Is(id) {
		t, err := b.offsets.Topic(ctx)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = kerr.UnknownTopicID
		}
		return t, err
	}
	return b.topics.GetByID(ctx, id)
}

// Topics lists all active topics by name, the internal one among them. While
// the store is away it answers from memory.
func (b *Broker) Topics(ctx context.Context) ([]*topic.Topic, error) {
	ts, err := b.topics.All(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	t, _ := b.offsets.Topic(bounded)
	if t == nil {
		return ts, ctx.Err()
	}
	at, _ := slices.BinarySearchFunc(ts, t.Name, func(t *topic.Topic, name string) int { return strings.Compare(t.Name, name) })
	return slices.Insert(ts, at, t), nil
}

// CreateTopic makes a topic, or only checks it.
func (b *Broker) CreateTopic(ctx context.Context, s topic.Spec) (*topic.Topic, error) {
	if s.Name == offsets.Name {
		if _, err := b.offsets.Topic(ctx); err == nil {
			return nil, kerr.TopicAlreadyExists
		} else if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil, err
		}
	}
	return b.topics.Create(ctx, s)
}

// DeleteTopic deletes this very incarnation. The internal topic is
// INVALID_TOPIC_EXCEPTION: it is what the store knows of groups.
func (b *Broker) DeleteTopic(ctx context.Context, t *topic.Topic) error {
	if b.offsets.Is(t.ID) {
		return kerr.InvalidTopicException
	}
	return b.topics.Delete(ctx, t)
}

// AutoCreate reports auto.create.topics.enable.
func (b *Broker) AutoCreate() bool { return b.cfg.Topic.AutoCreate }

// TopicConfigs lists all configs of a topic, by name.
func (b *Broker) TopicConfigs(t *topic.Topic) []topic.ConfigValue { return b.topics.TopicConfigs(t) }

// ClusterConfigs lists what was set for all brokers while they ran, by name.
func (b *Broker) ClusterConfigs() []topic.ConfigValue { return b.topics.ClusterConfigs() }

// AlterTopic changes the configs of this very incarnation. The internal topic is
// INVALID_REQUEST: nothing would obey them.
func (b *Broker) AlterTopic(ctx context.Context, t *topic.Topic, a topic.Alteration) error {
	if b.offsets.Is(t.ID) {
		return internal(t)
	}
	return b.topics.Alter(ctx, t, a)
}

// AlterBroker changes the configs of one broker, or with "" of all.
func (b *Broker) AlterBroker(ctx context.Context, id string, a topic.Alteration) error {
	return b.topics.AlterBroker(ctx, id, a)
}

// AlterGroup changes the configs of a group, which need not exist.
func (b *Broker) AlterGroup(ctx context.Context, name string, a topic.Alteration) error {
	return b.topics.AlterGroup(ctx, name, a)
}

// AlterMetrics changes a subscription of client metrics.
func (b *Broker) AlterMetrics(ctx context.Context, name string, a topic.Alteration) error {
	return b.topics.AlterMetrics(ctx, name, a)
}

// GroupConfigs lists all configs of a group, by name.
func (b *Broker) GroupConfigs(name string) []topic.ConfigValue { return b.topics.GroupConfigs(name) }

// MetricsConfigs lists all configs of a subscription of client metrics, by name.
func (b *Broker) MetricsConfigs(name string) []topic.ConfigValue {
	return b.topics.MetricsConfigs(name)
}

// Configured names the groups and the subscriptions that configs were set for.
func (b *Broker) Configured() (groups, metrics []string) { return b.topics.Configured() }

// Unbroken marks a moment in the life of this gateway; see cluster.Cluster's.
func (b *Broker) Unbroken() func(ctx context.Context) bool { return b.cluster.Unbroken() }

// GrowTopic gives this very incarnation more partitions. The internal topic is
// INVALID_REQUEST.
func (b *Broker) GrowTopic(ctx context.Context, t *topic.Topic, g topic.Growth) error {
	if b.offsets.Is(t.ID) {
		return internal(t)
	}
	return b.topics.Grow(ctx, t, g)
}

func internal(t *topic.Topic) error {
	k := *kerr.InvalidRequest
	k.Description = "Topic " + t.Name + " is a view of the groups' table and cannot be changed."
	return &k
}

// RefreshConfigs takes in what the store has now of some topics' configs and of
// the brokers'. It is bounded, and what cannot be asked stays as it is known.
func (b *Broker) RefreshConfigs(ctx context.Context, topics []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := b.topics.Refresh(ctx, topics); err != nil {
		b.logger.Debug("configs are answered from memory", logging.Error, err)
	}
}

// NewestTopic is the topic as the store has it now, perhaps with more
// partitions.
func (b *Broker) NewestTopic(ctx context.Context, t *topic.Topic) (*topic.Topic, error) {
	if b.offsets.Is(t.ID) {
		return t, nil
	}
	return b.topics.Newest(ctx, t)
}

// Partition opens a partition: UNKNOWN_TOPIC_OR_PARTITION for a number that the
// topic lacks, LEADER_NOT_AVAILABLE while that is not proven. Only such a number is
// asked of the store: another gateway may have made the partition a moment ago.
func (b *Broker) Partition(ctx context.Context, t *topic.Topic, n int32) (*partition.Partition, error) {
	if n >= t.Partitions {
		var err error
		if t, err = b.topics.Reaching(ctx, t, n); err != nil {
			return nil, err
		}
	}
	if n < 0 {
		return nil, kerr.UnknownTopicOrPartition
	}
	return b.open(t, n), nil
}

func (b *Broker) open(t *topic.Topic, n int32) *partition.Partition {
	if p := b.host.Find(t.ID, n); p != nil {
		return p
	}
	s := b.topics.Partition(t, n).LogConfig
	log := b.store.Log(s.Name, s.Subject)
	b.configuring.Lock()
	defer b.configuring.Unlock()
	return b.host.Open(partition.OpenSpec{Topic: t.Name, ID: t.ID, Partition: n, Log: log, Config: b.topics.Effective(b.topics.Current(t))})
}

// CommittedOffsets is the partition of the internal topic if t is that topic,
// else nil.
func (b *Broker) CommittedOffsets(t *topic.Topic, n int32) (*offsets.View, error) {
	switch {
	case !b.offsets.Is(t.ID):
		return nil, nil
	case n != 0:
		return nil, kerr.UnknownTopicOrPartition
	}
	return b.offsets, nil
}

// Groups are the consumer groups.
func (b *Broker) Groups() *group.Forwarder { return b.groups }

// Transactions are the transactional ids.
func (b *Broker) Transactions() *txn.Forwarder { return b.txns }

// topicChanged follows the life of a topic in what hangs on it.
func (b *Broker) topicChanged(old, now *topic.Topic) {
	if old != nil && (now == nil || now.ID != old.ID) {
		for n := range old.Partitions {
			b.host.Close(old.ID, n)
		}
		b.groups.DropTopic(old.ID)
		b.logger.Info("topic is gone", logging.Topic, old.Name, "id", old.ID)
	}
	if now != nil {
		// Under the lock a partition is either opened before, and found here, or
		// after, with what is in force now.
		b.configuring.Lock()
		defer b.configuring.Unlock()
		c := b.topics.Effective(now)
		for n := range now.Partitions {
			if p := b.host.Find(now.ID, n); p != nil {
				p.Configure(c)
			}
		}
	}
}

// Known lists the active topics as this gateway remembers them, by name, without
// asking the store, and without the internal one.
func (b *Broker) Known() []*topic.Topic { return b.topics.Known() }

// Offsets lists the committed offsets of all groups on topics that exist, by
// group, topic and partition.
func (b *Broker) Offsets(ctx context.Context) ([]group.GroupOffset, error) {
	all, err := b.groups.Offsets(ctx)
	if err != nil {
		return nil, err
	}
	ids := map[string]types.TopicID{}
	for _, t := range b.Known() {
		ids[t.Name] = t.ID
	}
	if t := b.offsets.Known(); t != nil {
		ids[t.Name] = t.ID
	}
	return slices.DeleteFunc(all, func(o group.GroupOffset) bool { return ids[o.Topic] != o.TopicID }), nil
}

// PartitionStatus describes one partition to operators, with the names that an
// operator of NATS looks for.
type PartitionStatus struct {
	partition.Status
	Partition       int32
	Stream, Subject string
	// Err is why the store could not be asked about it.
	Err error
}

// LateTransactions lists the partitions in use here whose committed readers wait
// for a transaction that should have ended, from memory.
func (b *Broker) LateTransactions() []partition.LateTransaction { return b.host.Late() }

// Describe asks the store about every partition of a topic.
func (b *Broker) Describe(ctx context.Context, t *topic.Topic) []PartitionStatus {
	ps := make([]PartitionStatus, t.Partitions)
	for n := range t.Partitions {
		s := &ps[n]
		log := b.topics.Partition(t, n).LogConfig
		s.Partition, s.Stream, s.Subject = n, log.Name, log.Subject
		s.Status, s.Err = b.open(t, n).Status(ctx)
	}
	return ps
}

// Ready reports whether everything can be served at this moment, or why not.
func (b *Broker) Ready() (ok bool, reasons []string) {
	b.mu.Lock()
	ready, draining := b.ready, b.draining
	b.mu.Unlock()
	switch {
	case !ready:
		reasons = append(reasons, "state is being loaded")
	case draining:
		reasons = append(reasons, "draining")
	case !b.store.Connected():
		reasons = append(reasons, "no connection to NATS")
	case !b.cluster.Fresh():
		reasons = append(reasons, "membership is not renewed: JetStream does not answer in time")
	}
	return len(reasons) == 0, reasons
}

// partitions makes and removes partitions for package topic.
type partitions struct{ host *partition.Host }

// Create implements topic.Partitions.
func (p partitions) Create(ctx context.Context, s topic.PartitionSpec) error {
	return p.host.Create(ctx, partition.CreateSpec{ID: s.ID, Partition: s.N, Log: s.LogConfig})
}

// Destroy implements topic.Partitions.
func (p partitions) Destroy(ctx context.Context, s topic.PartitionSpec) error {
	return p.host.Destroy(ctx, partition.DestroySpec{ID: s.ID, Partition: s.N, Log: s.LogConfig.Name})
}
