package topic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
	"github.com/hanzoai/stream/utils/killpoint"
)

// cleanup bounds the tidying after a call whose own context may be over.
const cleanup = 10 * time.Second

// Create makes a topic: record `creating`, partitions, record `active`. When it
// has succeeded, the topic is usable through every gateway; when it has failed,
// what it made is removed, now or by a later sweep.
//
// Checks come in the order of Kafka's ReplicationControlManager: name and
// collision 17, existing 36, configs 40, assignment 39, replication factor 38,
// partitions 37. With ValidateOnly nothing is made and the topic has no id.
func (ts *Topics) Create(ctx context.Context, s Spec) (*Topic, error) {
	if err := CheckName(s.Name); err != nil {
		return nil, err
	}
	if Internal(s.Name) {
		return nil, refuse(kerr.InvalidTopicException, "Topic %s is reserved.", s.Name)
	}
	// Kafka refuses these once it has made the internal topic, and until then
	// would never be able to make it.
	for _, own := range internal {
		if collides(own, s.Name) {
			return nil, collision(s.Name, own)
		}
	}
	key := pubsub.Token(s.Name)
	// Memory may still hold what another gateway has deleted: the store is asked
	// before anything is held against the new topic.
	if other := ts.colliding(s.Name); other != "" {
		if _, _, err := ts.load(ctx, pubsub.Token(other)); err != nil {
			return nil, err
		}
		if other = ts.colliding(s.Name); other != "" {
			return nil, collision(s.Name, other)
		}
	}
	r, _, err := ts.load(ctx, key)
	if err != nil {
		return nil, err
	}
	if r != nil && (r.State == active || s.ValidateOnly && !ts.leftover(r)) {
		return nil, exists(s.Name)
	}
	lives := ts.unbroken()
	t, err := ts.plan(s)
	if err != nil || s.ValidateOnly {
		return t, err
	}
	if err := ts.claim(ctx, key); err != nil {
		return nil, err
	}
	defer ts.end(key)
	// Another gateway may win one of these rounds; then the topic exists or
	// goes, which ends it.
	for range 10 {
		t, err = ts.create(ctx, key, *t)
		if !errors.Is(err, errAgain) {
			return t, err
		}
		if err := lives(ctx); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("create topic %s: %w", s.Name, pubsub.ErrConflict)
}

func exists(name string) error {
	return refuse(kerr.TopicAlreadyExists, "Topic '%s' already exists.", name)
}

func collision(name, other string) error {
	return refuse(kerr.InvalidTopicException, "Topic '%s' collides with existing topic: %s", name, other)
}

// colliding names a known topic that collides with name, or "".
func (ts *Topics) colliding(name string) string {
	if !strings.ContainsAny(name, "._") {
		return ""
	}
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	for _, e := range ts.entries {
		if r := e.record; r != nil && r.State != deleting && collides(r.Name, name) {
			return r.Name
		}
	}
	return ""
}

// leftover reports that a record is unfinished and its maker will not finish it.
// A deletion may be finished by anybody.
func (ts *Topics) leftover(r *record) bool {
	switch r.State {
	case deleting:
		return true
	case creating:
		if r.Creator == ts.deps.Incarnation() {
			ts.mu.RLock()
			defer ts.mu.RUnlock()
			return ts.busy[pubsub.Token(r.Name)] == nil
		}
		return ts.deps.MayAdopt(r.Creator)
	}
	return false
}

// plan checks all of a spec but its name and decides what it leaves open.
func (ts *Topics) plan(s Spec) (*Topic, error) {
	t := &Topic{Name: s.Name, Configs: make(map[string]string, len(s.Configs))}
	var null []string
	for name, v := range s.Configs {
		if v == nil {
			null = append(null, name)
			continue
		}
		t.Configs[name] = *v
	}
	if len(null) > 0 {
		return nil, refuse(kerr.InvalidConfig, "Null value not supported for topic configs: %s", strings.Join(null, ","))
	}
	if err := checkConfigs(t.Configs); err != nil {
		return nil, err
	}
	partitions, replicas := s.Partitions, int(s.Replicas)
	switch {
	case len(s.Assignments) > 0:
		var err error
		if replicas, err = ts.checkAssignments(s.Assignments); err != nil {
			return nil, err
		}
		partitions = int32(len(s.Assignments))
	case replicas < -1 || replicas == 0:
		return nil, refuse(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case partitions < -1 || partitions == 0:
		return nil, refuse(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	if replicas == -1 {
		replicas = ts.config.Replicas
	}
	if most := ts.deps.Store.Info().MaxReplicas; replicas > most {
		if !ts.config.ClampReplication {
			return nil, refuse(kerr.InvalidReplicationFactor,
				"Unable to replicate the partition %d time(s): the target replication factor of %d cannot be reached because the store has only %d server(s).", replicas, replicas, most)
		}
		replicas = most
	}
	if partitions == -1 {
		partitions = ts.config.Partitions
	}
	ts.mu.RLock()
	total := ts.total
	ts.mu.RUnlock()
	if int(partitions) > ts.config.MaxPartitions-total {
		return nil, refuse(kerr.InvalidPartitions, "%d partitions are too many: %d exist, the limit of this cluster is %d.", partitions, total, ts.config.MaxPartitions)
	}
	if err := checkLimits(t.Configs, func(string) bool { return true }, largest(ts.deps.Store), replicas); err != nil {
		return nil, err
	}
	t.Partitions, t.Replicas = partitions, replicas
	return t, nil
}

// checkAssignments checks a manual assignment and returns its replication
// factor. Streams are placed by the store: the brokers named are only checked.
func (ts *Topics) checkAssignments(a map[int32][]int32) (replicas int, err error) {
	for i := range int32(len(a)) {
		brokers, ok := a[i]
		if !ok {
			return 0, refuse(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
		if len(brokers) == 0 {
			return 0, refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
		}
		seen := make(map[int32]bool, len(brokers))
		for _, b := range brokers {
			if seen[b] {
				return 0, refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", b)
			}
			if ts.deps.Broker != nil && !ts.deps.Broker(b) {
				return 0, refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", b)
			}
			seen[b] = true
		}
		if i == 0 {
			replicas = len(brokers)
		} else if len(brokers) != replicas {
			return 0, refuse(kerr.InvalidReplicaAssignment,
				"The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).", len(brokers), replicas)
		}
	}
	return replicas, nil
}

// errAgain: somebody else wrote the topic's key; look at it anew.
var errAgain = errors.New("written by somebody else")

// create makes one attempt; the key is begun.
func (ts *Topics) create(ctx context.Context, key string, t Topic) (*Topic, error) {
	r, rev, err := ts.load(ctx, key)
	switch {
	case err != nil:
		return &t, err
	case r != nil && r.State == creating && r.Creator == ts.deps.Incarnation(), r != nil && ts.leftover(r):
		// Ours and not running: this call holds the key.
		if _, err := ts.finish(ctx, key, r); err != nil {
			return nil, fmt.Errorf("finish the deletion of an earlier topic %s: %w", t.Name, err)
		}
		return &t, errAgain
	case r != nil && r.State == creating:
		// Who is told that a topic exists goes on to use it, and this one may
		// come to nothing yet.
		if err := ts.outcome(ctx, key, r); err != nil {
			return nil, fmt.Errorf("wait for the creation of %s by another gateway: %w", t.Name, err)
		}
		return &t, errAgain
	case r != nil:
		return nil, exists(t.Name)
	}

	r = &record{
		V: recordVersion, Name: t.Name, ID: types.NewTopicID(), Bare: rev == 0, State: creating,
		Creator: ts.deps.Incarnation(), Partitions: t.Partitions, Replicas: t.Replicas, Configs: t.Configs,
	}
	if r.rev, err = ts.put(ctx, key, r, rev); err != nil {
		if errors.Is(err, pubsub.ErrConflict) {
			return &t, errAgain
		}
		ts.kickSweep() // it may be stored, now or later
		return nil, fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	made, err := ts.build(ctx, key, r)
	if err != nil {
		ts.undo(ctx, key, r)
		return nil, err
	}
	return made, nil
}

// outcome waits until another gateway's creation has succeeded or is given up, or
// its creator has ended.
func (ts *Topics) outcome(ctx context.Context, key string, r *record) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		now, _, err := ts.load(ctx, key)
		if err != nil {
			return err
		}
		if now == nil || now.number() != r.number() || now.State != creating || ts.leftover(now) {
			return nil
		}
	}
}

// build makes the partitions of a creating record and makes it active.
func (ts *Topics) build(ctx context.Context, key string, r *record) (*Topic, error) {
	if err := ts.checkCollisions(ctx, r); err != nil {
		return nil, err
	}
	t := r.with(active).topic()
	if err := parallel(ctx, t.Partitions, func(ctx context.Context, p int32) error {
		return ts.createPartition(ctx, key, r, ts.Partition(t, p))
	}); err != nil {
		return nil, fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	next := r.with(active)
	if _, err := ts.put(ctx, key, next, r.rev); err != nil {
		// A conflict: others hold us for dead and have begun to remove it.
		return nil, fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	killpoint.At("topic.active")
	return t, nil
}

// checkCollisions settles a race: of two topics whose names collide, created at
// once on two gateways, the one with the earlier number stays.
func (ts *Topics) checkCollisions(ctx context.Context, r *record) error {
	if !strings.ContainsAny(r.Name, "._") {
		return nil
	}
	return ts.deps.Table.Scan(ctx, pubsub.WatchOptions{}, 0, func(v pubsub.Value) error {
		ts.apply(v)
		if v.Deleted {
			return nil
		}
		o, err := parseRecord(v)
		if err == nil && o.State != deleting && collides(o.Name, r.Name) && o.number() < r.number() {
			return collision(r.Name, o.Name)
		}
		return nil
	})
}

// createPartition makes one partition. What stands in its way is removed if it
// belongs to an incarnation that is over (a late request of a gateway that was
// thought dead), and left alone if nobody can explain it.
func (ts *Topics) createPartition(ctx context.Context, key string, r *record, s PartitionSpec) error {
	for attempt := 0; ; attempt++ {
		err := ts.deps.Partitions.Create(ctx, s)
		killpoint.At("partition.made")
		if !errors.Is(err, pubsub.ErrExists) || attempt == 2 {
			return err
		}
		now, rev, lerr := ts.load(ctx, key)
		switch {
		case lerr != nil:
			return lerr
		case now == nil || now.number() != r.number():
			// We were taken for dead, and another topic of the name lives.
			return fmt.Errorf("topic %s was removed while it was made: %w", r.Name, pubsub.ErrConflict)
		case r.Bare:
			// There never was an earlier topic, says the table: whose is it?
			return ts.inTheWay(s, err)
		}
		var there []pubsub.LogInfo
		logs, missing, err := ts.deps.Store.Logs(ctx, s.LogConfig.Subject)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			return fmt.Errorf("stream %s has no leader: %w", missing[0], pubsub.ErrUnavailable)
		}
		there = append(there, logs...)
		if same, err := ts.deps.Store.FindLog(ctx, s.LogConfig.Name); err == nil && same.Subject != s.LogConfig.Subject {
			there = append(there, same)
		} else if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
			return err
		}
		for _, l := range there {
			i, ok := identify(ts.deps.Cluster, l.LogConfig)
			if !ok || i.topic != r.Name || !ended(i.n, now, rev) {
				return ts.inTheWay(s, fmt.Errorf("stream %s: %w", l.Name, pubsub.ErrExists))
			}
			ts.deps.Logger.Warn("removing the stream of a topic that has ended", logging.Topic, i.topic, logging.Partition, i.partition, "stream", l.Name)
			if err := ts.deps.Partitions.Destroy(ctx, PartitionSpec{Topic: i.topic, ID: i.id, N: i.partition, LogConfig: l.LogConfig}); err != nil {
				return err
			}
		}
	}
}

// inTheWay refuses a creation that unexplained data blocks.
func (ts *Topics) inTheWay(s PartitionSpec, err error) error {
	ts.deps.Logger.Error("a stream that no topic explains stands in the way of a new one; look at it, and delete it with the nats tool if it is not needed",
		logging.Topic, s.Topic, logging.Partition, s.N, "stream", s.LogConfig.Name, "subject", s.LogConfig.Subject, logging.Error, err)
	return refuse(kerr.KafkaStorageError, "A stream that belongs to no topic has the name %s or the subject %s; an administrator must remove it.", s.LogConfig.Name, s.LogConfig.Subject)
}

// undo removes what a failed creation has made, or leaves it to the sweep.
func (ts *Topics) undo(ctx context.Context, key string, r *record) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	now, rev, err := ts.load(ctx, key)
	switch {
	case err != nil:
	case ended(r.number(), now, rev):
		// Others have removed it; what we made after them has nobody else.
		err = ts.destroy(ctx, r)
	case now != nil && now.State != active:
		_, err = ts.finish(ctx, key, now)
	}
	if err != nil {
		ts.deps.Logger.Warn("a creation that failed is not undone yet", logging.Topic, r.Name, logging.Error, err)
		ts.kickSweep()
	}
}

// put writes a record at a revision and takes it in.
func (ts *Topics) put(ctx context.Context, key string, r *record, expect pubsub.Rev) (pubsub.Rev, error) {
	data, err := r.encode()
	if err != nil {
		return 0, err
	}
	rev, err := pubsub.Put(ctx, ts.deps.Table, pubsub.Write{Key: key, Data: data, Expect: expect})
	if err != nil {
		return 0, err
	}
	ts.apply(pubsub.Value{Key: key, Data: data, Rev: rev})
	return rev, nil
}
