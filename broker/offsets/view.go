package offsets

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// Name is the topic's name.
const Name = "__consumer_offsets"

const (
	// askTimeout bounds one question to the store.
	askTimeout = 5 * time.Second
	// checkEvery is how long the end of the log counts as known without a sign of
	// life of the store.
	checkEvery = 5 * time.Second
	// followFor is how long changes are followed after the last one who waited.
	followFor = time.Minute
	// backAfter is how long the leader must insist that the table ends before
	// what we have seen; one that woke from a freeze may say so for a moment.
	backAfter = 20 * time.Second
)

// Deps are what a View works with.
type Deps struct {
	Table pubsub.Table // kafka-consumer-offsets
	// Cluster is the cluster id, of which the topic's id is made.
	Cluster string
	// Replicas of the table, as configured.
	Replicas int
	Logger   *slog.Logger     // nil: silent
	Clock    func() time.Time // nil: time.Now
}

// View is the topic and its one partition. It implements protocol.Partition.
// Make it with New, keep it going with Run. Safe for concurrent use.
type View struct {
	d     Deps
	topic *topic.Topic

	want   chan struct{} // capacity 1: somebody waits for changes
	create chan struct{} // capacity 1: the topic is to appear
	asking chan struct{} // capacity 1: held while the leader is asked

	mu        sync.Mutex   // guards: all below
	end       types.Offset // as known: of what is stored, below the real one at most
	began     int          // questions begun
	answered  int          // the last of them that was answered
	confirmed time.Time    // last sign that end is up to date
	back      time.Time    // since when the table seems to have gone back
	following bool
	synced    bool // all up to now was followed
	interest  time.Time
	waiters   map[int]chan<- struct{}
	waiter    int
}

// New makes a View; nothing is read yet.
func New(d Deps) *View {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	return &View{
		d: d,
		topic: &topic.Topic{Name: Name, ID: id(d.Cluster), Partitions: 1, Replicas: d.Replicas, Configs: map[string]string{
			// As Kafka makes it (GroupCoordinatorService.groupMetadataTopicConfigs).
			"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": strconv.Itoa(100 << 20),
		}},
		want: make(chan struct{}, 1), create: make(chan struct{}, 1), asking: make(chan struct{}, 1),
		waiters: map[int]chan<- struct{}{},
	}
}

// id is the topic's id: the same on every gateway, another in every cluster.
func id(cluster string) (id types.TopicID) {
	sum := sha256.Sum256([]byte(Name + "\x00" + cluster))
	copy(id[:], sum[:])
	id[0] &= 0x7f // so that its text never begins like an option
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// Is reports whether a topic is this one.
func (v *View) Is(id types.TopicID) bool { return id == v.topic.ID }

// Topic is the topic, or UNKNOWN_TOPIC_OR_PARTITION, of which the store is
// asked, before any group was used. Once there, it stays.
func (v *View) Topic(ctx context.Context) (*topic.Topic, error) {
	if t := v.Known(); t != nil {
		return t, nil
	}
	if err := v.ask(ctx); err != nil {
		return nil, err
	}
	if t := v.Known(); t != nil {
		return t, nil
	}
	return nil, kerr.UnknownTopicOrPartition
}

// Size is how many bytes the table takes.
func (v *View) Size(ctx context.Context) (bytes int64, err error) {
	err = v.within(ctx, func(ctx context.Context) error {
		b, err := v.d.Table.Bounds(ctx)
		bytes = int64(b.Bytes)
		return err
	})
	return bytes, err
}

// Known is the topic as far as is known without asking, nil if it is not there.
func (v *View) Known() *topic.Topic {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.end == 0 {
		return nil
	}
	return v.topic
}

// Use notes that somebody looks for a coordinator, whereupon Kafka creates the
// topic: soon it is there. It does not block.
func (v *View) Use() {
	if v.Known() == nil {
		signal(v.create)
	}
}

func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// createdKey gets a delete marker when the topic is to appear before a group is
// stored. It is no group's key and no offset's: nothing else looks at it.
const createdKey = "_.created"

func (v *View) appear(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := v.Topic(ctx)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		_, err = pubsub.Put(ctx, v.d.Table, pubsub.Write{Key: createdKey, Delete: true})
		if err == nil || errors.Is(err, pubsub.ErrConflict) { // another gateway was first
			err = v.ask(ctx)
		}
	}
	if err != nil && ctx.Err() == nil {
		v.d.Logger.Warn("the topic of committed offsets is not there yet; it will be when a group is stored", logging.Error, err)
	}
}

// ask asks the leader for the end of the log; a question that began after the
// call answers it too.
func (v *View) ask(ctx context.Context) error {
	v.mu.Lock()
	before := v.began
	v.mu.Unlock()
	select {
	case v.asking <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-v.asking }()
	v.mu.Lock()
	if v.answered > before {
		v.mu.Unlock()
		return nil
	}
	v.began++
	n := v.began
	v.mu.Unlock()

	var b pubsub.Bounds
	err := v.within(ctx, func(ctx context.Context) (err error) {
		b, err = v.d.Table.Bounds(ctx)
		return err
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.confirmed = time.Time{}
		return fmt.Errorf("ask for the end of %s: %w", Name, err)
	}
	now := v.d.Clock()
	v.answered, v.confirmed = n, now
	switch end := types.Offset(b.Last); {
	case end >= v.end:
		v.setEndLocked(end)
		v.back = time.Time{}
	case v.back.IsZero():
		v.back = now
	case now.Sub(v.back) >= backAfter:
		v.d.Logger.Warn("the table of committed offsets ends before what was read from it: was it restored from an older copy?", "from", v.end, "to", end)
		v.end, v.back = max(end, 1), time.Time{} // what was there is there
	}
	return nil
}

// setEndLocked moves the end on and wakes who waits for that.
func (v *View) setEndLocked(end types.Offset) {
	if end <= v.end {
		return
	}
	v.end = end
	v.wakeLocked()
}

func (v *View) wakeLocked() {
	for _, ch := range v.waiters {
		signal(ch)
	}
}

// within bounds what is asked of the store: one that hangs is a failure.
func (v *View) within(ctx context.Context, fn func(context.Context) error) error {
	bound, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := fn(bound)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case bound.Err() != nil, errors.Is(err, pubsub.ErrNotFound): // the table is always there
		return fmt.Errorf("%w: %v", pubsub.ErrUnavailable, err)
	}
	return err
}

// look returns the end of the log, which an offset is checked against. Beyond
// the end is out of range only if the leader says so, asked after the call came
// (on several replicas twice, a second apart); at the end it is asked unless
// changes are followed. The log begins at 0 for ever: compaction leaves gaps,
// and readers that fall into one must go on, not start anew.
func (v *View) look(ctx context.Context, offset types.Offset) (end types.Offset, err error) {
	if offset < 0 {
		return 0, kerr.OffsetOutOfRange
	}
	for asked := 0; ; asked++ {
		v.mu.Lock()
		end = v.end
		sure := v.synced && v.d.Clock().Sub(v.confirmed) < checkEvery
		v.mu.Unlock()
		switch {
		case offset < end, offset == end && (sure || asked > 0):
			return end, nil
		case offset > end && (asked > 1 || asked == 1 && v.d.Replicas <= 1):
			return end, kerr.OffsetOutOfRange
		case offset > end && asked == 1:
			if !sleep(ctx, time.Second) {
				return end, ctx.Err()
			}
		}
		if err := v.ask(ctx); err != nil {
			return end, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// DeleteRecords implements protocol.Partition: an internal topic is not deleted
// from.
func (v *View) DeleteRecords(context.Context, types.Offset) (types.Offset, error) {
	return types.NoOffset, kerr.InvalidTopicException
}

// Producers implements protocol.Partition: there are none.
func (v *View) Producers(context.Context) ([]partition.ProducerState, error) { return nil, nil }

// Submit implements protocol.Partition: nobody writes to an internal topic.
func (v *View) Submit(_ partition.AppendRequest, done func(partition.AppendResult)) {
	done(partition.AppendResult{Err: kerr.InvalidTopicException, BaseOffset: types.NoOffset, LogStart: types.NoOffset, AppendTime: -1})
}

// EndTransaction implements protocol.Partition: no transaction writes here.
func (v *View) EndTransaction(context.Context, partition.Marker) error {
	return kerr.InvalidTopicException
}
