package topic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/logging"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// PartitionSpec is one partition to make or to remove: everything about it that
// never changes.
type PartitionSpec struct {
	Topic     string
	ID        types.TopicID
	N         int32 // partition number
	LogConfig pubsub.LogConfig
}

// Partitions makes and removes partitions; package partition has the real one.
// Both are idempotent, name one incarnation, and may run on several gateways at
// once.
type Partitions interface {
	// Create makes the stream and the partition record. A repetition succeeds;
	// pubsub.ErrExists if name or subject is taken by something else.
	Create(ctx context.Context, s PartitionSpec) error
	// Destroy removes stream, record, snapshots: whatever there is of them. The
	// record's key gets a delete marker even if it was never written, so that a
	// Create that arrives late cannot write it any more.
	Destroy(ctx context.Context, s PartitionSpec) error
}

// Deps are what Topics works with.
type Deps struct {
	Table pubsub.Table // kafka-topics
	// Settings is kafka-meta, whose key "configs" holds broker configs that were
	// changed while brokers ran. nil: there are none.
	Settings   pubsub.Table
	Store      pubsub.Store
	Partitions Partitions
	// Cluster is the cluster id, kept in every stream's metadata.
	Cluster string
	// Incarnation is this gateway's present life.
	Incarnation func() string
	// MayAdopt reports that another life's unfinished work may be taken over.
	MayAdopt func(incarnation string) bool
	// Fresh reports that our own membership is acknowledged, so that an absence
	// may be believed (design rule 7). nil: always.
	Fresh func() bool
	// Unbroken is as cluster.Cluster's. nil: this gateway never stands still.
	Unbroken func() func(ctx context.Context) bool
	// Maintains reports that this gateway is the one that finishes what dead ones
	// have left. nil: it is.
	Maintains func() bool
	// Broker reports whether clients know a broker of that id; it checks manual
	// assignments. nil: not checked.
	Broker func(id int32) bool
	// Self is the id that clients know this gateway by now: what was set of that
	// broker stands above what was set of all. nil: "1".
	Self   func() string
	Logger *slog.Logger
	Clock  func() time.Time // nil: time.Now
}

// Topics knows, makes and deletes topics. Its memory is a cache of the table,
// kept up by a watch; what it does not know it asks the store before it says
// no. Safe for concurrent use.
type Topics struct {
	config Config
	deps   Deps

	ready   chan struct{} // closed when the watches have caught up
	dynamic atomic.Pointer[settings]
	kick    chan struct{} // capacity 1: unfinished work of our own, sweep soon
	sweeps  chan struct{} // capacity 1: held while sweeping
	flights flights
	witness pubsub.Witness
	doubts  chan string // names of topics to ask about, see Recheck
	// confirmed is the life of this gateway in which all of memory was compared
	// with the store, see confirm.
	confirmed atomic.Pointer[string]

	// applying serialises apply, so that listeners see changes in order. It is
	// taken before mu.
	applying sync.Mutex
	mu       sync.RWMutex // guards: all below
	entries  map[string]*entry
	byName   map[string]*Topic
	byID     map[types.TopicID]*Topic
	gone     map[types.TopicID]bool   // ids that were and will never be again
	busy     map[string]chan struct{} // keys being worked on in this process; closed at the end
	onChange []func(old, new *Topic)
	upTo     pubsub.Rev // everything up to here is in memory
	unknown  []string   // streams that no record explains
	total    int        // partitions of all records
}

// entry is a key as last seen.
type entry struct {
	rev    pubsub.Rev
	record *record // nil: deleted, or unreadable
	err    error   // why it is unreadable
	topic  *Topic  // of an active record
}

// New makes Topics; call OnChange, then Run.
func New(c Config, d Deps) *Topics {
	c.fill()
	if d.Self == nil {
		d.Self = func() string { return "1" }
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	ts := &Topics{
		config:  c,
		deps:    d,
		ready:   make(chan struct{}),
		kick:    make(chan struct{}, 1),
		sweeps:  make(chan struct{}, 1),
		doubts:  make(chan string, 64),
		entries: map[string]*entry{},
		byName:  map[string]*Topic{},
		byID:    map[types.TopicID]*Topic{},
		gone:    map[types.TopicID]bool{},
		busy:    map[string]chan struct{}{},
	}
	ts.dynamic.Store(&settings{})
	return ts
}

// AutoCreate reports auto.create.topics.enable.
func (ts *Topics) AutoCreate() bool { return ts.config.AutoCreate }

// OnChange registers fn for every change of what clients can see: old is nil for
// a new topic, new is nil for a deleted one; where the broker's configs change,
// which every topic inherits, old and new are one. Calls come one at a time and in
// order; fn must not block, nor call what asks the store. Register
// before Run.
func (ts *Topics) OnChange(fn func(old, new *Topic)) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.onChange = append(ts.onChange, fn)
}

// Ready is closed when every topic that existed at the start is known.
func (ts *Topics) Ready() <-chan struct{} { return ts.ready }

// Run follows the table and finishes this gateway's own unfinished work, until
// ctx ends (nil) or the table cannot be followed.
func (ts *Topics) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var janitor sync.WaitGroup
	janitor.Go(func() { ts.tidy(ctx) })
	janitor.Go(func() { ts.recheck(ctx) })
	if ts.config.Replicas > 1 {
		janitor.Go(func() { ts.watchLeader(ctx) })
	}
	defer janitor.Wait()
	defer cancel()
	// Whichever of the two catches up last makes it ready.
	var behind atomic.Int32
	behind.Store(2)
	synced := func() {
		if behind.Add(-1) == 0 {
			self := ts.deps.Incarnation()
			ts.confirmed.Store(&self)
			close(ts.ready)
		}
	}
	ended := make(chan error, 1)
	janitor.Go(func() {
		err := ts.follow(ctx, synced)
		ended <- err
		cancel()
	})
	err := ts.deps.Table.Watch(ctx, pubsub.WatchOptions{Synced: synced}, func(v pubsub.Value) error {
		ts.apply(v)
		ts.reached(v.Rev)
		return nil
	})
	if err != nil {
		return fmt.Errorf("follow %s: %w", ts.deps.Table.Name(), err)
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("follow broker configs: %w", err)
	}
	return nil
}

// apply takes in a value, from wherever it came; older ones than known change
// nothing.
func (ts *Topics) apply(v pubsub.Value) {
	ts.applying.Lock()
	defer ts.applying.Unlock()
	ts.mu.RLock()
	prev := ts.entries[v.Key]
	ts.mu.RUnlock()
	if prev == nil {
		prev = &entry{}
	}
	if v.Rev <= prev.rev {
		return
	}
	next := &entry{rev: v.Rev}
	if !v.Deleted {
		if next.record, next.err = parseRecord(v); next.err != nil {
			ts.deps.Logger.Error("topic record is unreadable; the topic is not served", logging.Error, next.err)
		} else if next.record.State == active {
			next.topic = next.record.topic()
		}
	}

	self := ts.deps.Incarnation()

	ts.mu.Lock()
	ts.entries[v.Key] = next
	ts.total += next.count() - prev.count()
	if old := prev.topic; old != nil {
		delete(ts.byName, old.Name)
		delete(ts.byID, old.ID)
	}
	if now := next.topic; now != nil {
		ts.byName[now.Name], ts.byID[now.ID] = now, now
	}
	if r := prev.record; r != nil && (next.record == nil || next.record.ID != r.ID || next.record.State == deleting) {
		if len(ts.gone) >= 10_000 {
			clear(ts.gone) // forgetting costs a question to the store
		}
		ts.gone[r.ID] = true
	}
	r := next.record
	unfinished := r != nil && (r.State == creating || r.State == active && r.Growing > r.Partitions)
	orphan := unfinished && r.Creator == self && ts.busy[v.Key] == nil
	listeners := ts.onChange
	ts.mu.Unlock()

	if orphan { // the late copy of a write that we had given up
		ts.kickSweep()
	}
	if prev.topic != nil || next.topic != nil {
		for _, fn := range listeners {
			fn(prev.topic, next.topic)
		}
	}
}

func (e *entry) count() int {
	if e.record == nil {
		return 0
	}
	return int(max(e.record.Partitions, e.record.Growing))
}

// Get finds a topic by name. Refusals: UNKNOWN_TOPIC_OR_PARTITION, which the
// store has confirmed after the call began; INVALID_TOPIC_EXCEPTION for what is
// no name; LEADER_NOT_AVAILABLE while an absence is not proven yet.
func (ts *Topics) Get(ctx context.Context, name string) (*Topic, error) {
	if err := ts.confirm(ctx); err != nil {
		return nil, err
	}
	if t := ts.cached(name); t != nil {
		return t, nil
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if Internal(name) {
		return nil, kerr.UnknownTopicOrPartition
	}
	key := pubsub.Token(name)
	if err := ts.ask(ctx, key); err != nil {
		return nil, err
	}
	if t := ts.cached(name); t != nil {
		return t, nil
	}
	if !ts.complete(ctx) {
		return nil, refuse(kerr.LeaderNotAvailable, "It is not certain yet that there is no topic %s.", name)
	}
	if t := ts.cached(name); t != nil {
		return t, nil
	}
	return nil, kerr.UnknownTopicOrPartition
}

func (ts *Topics) cached(name string) *Topic {
	ts.mu.RLock()
	defer ts.mu.RUnlock()
	return ts.byName[name]
}

// load asks the store's leader for a key and takes the answer in. A key without
// a value gives a nil record and the revision of its marker, or 0. An unreadable
// value is an error, and so is an older one than is known: a leader that woke from
// a freeze denies what it has not seen.
func (ts *Topics) load(ctx context.Context, key string) (*record, pubsub.Rev, error) {
	v, err := ts.deps.Table.Get(ctx, key)
	if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
		return nil, 0, fmt.Errorf("look for topic: %w", err)
	}
	ts.mu.RLock()
	known := ts.entries[key]
	ts.mu.RUnlock()
	if known != nil && v.Rev < known.rev {
		return nil, 0, fmt.Errorf("look for topic: %w: the leader knows of revision %d only, %d is stored", pubsub.ErrUnavailable, v.Rev, known.rev)
	}
	if v.Rev == 0 {
		return nil, 0, nil
	}
	v.Key = key
	v.Deleted = err != nil
	ts.apply(v)
	if v.Deleted {
		return nil, v.Rev, nil
	}
	r, err := parseRecord(v)
	if err != nil {
		return nil, v.Rev, fmt.Errorf("%w: %w", pubsub.ErrUnavailable, err)
	}
	return r, v.Rev, nil
}

// GetByID finds a topic by id: else UNKNOWN_TOPIC_ID. An id that is gone never
// comes back, so it is refused from memory; one never seen is looked for in the
// store.
func (ts *Topics) GetByID(ctx context.Context, id types.TopicID) (*Topic, error) {
	find := func() (*Topic, bool) {
		ts.mu.RLock()
		defer ts.mu.RUnlock()
		return ts.byID[id], ts.gone[id]
	}
	if err := ts.confirm(ctx); err != nil {
		return nil, err
	}
	t, gone := find()
	switch {
	case t != nil:
		return t, nil
	case gone || id.IsZero():
		return nil, kerr.UnknownTopicID
	}
	if err := ts.askAll(ctx); err != nil {
		return nil, err
	}
	if t, gone = find(); t != nil {
		return t, nil
	}
	if !gone && !ts.complete(ctx) {
		return nil, refuse(kerr.LeaderNotAvailable, "It is not certain yet that there is no topic with id %s.", id)
	}
	if t, _ = find(); t != nil {
		return t, nil
	}
	return nil, kerr.UnknownTopicID
}

// All lists all topics by name, those included that another gateway said a
// moment ago that they exist. While the store is away it answers from memory,
// as a Kafka broker does.
func (ts *Topics) All(ctx context.Context) ([]*Topic, error) {
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := ts.askAll(bounded); err != nil {
		select {
		case <-ts.ready:
		default:
			return nil, fmt.Errorf("list topics: %w", err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return ts.Known(), nil
}

// Known lists, by name, the topics in memory.
func (ts *Topics) Known() []*Topic {
	ts.mu.RLock()
	all := make([]*Topic, 0, len(ts.byName))
	for _, t := range ts.byName {
		all = append(all, t)
	}
	ts.mu.RUnlock()
	slices.SortFunc(all, func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Partition is the spec of one partition of a topic.
func (ts *Topics) Partition(t *Topic, n int32) PartitionSpec {
	return PartitionSpec{
		Topic: t.Name,
		ID:    t.ID,
		N:     n,
		LogConfig: pubsub.LogConfig{
			Name:     LogName(ts.config.Prefix, t.Name, n, t.N, t.Bare),
			Subject:  Subject(ts.config.Prefix, t.Name, n),
			Replicas: t.Replicas,
			Memory:   ts.config.Memory,
			Metadata: metadata(ts.deps.Cluster, t, n),
		},
	}
}

// begin claims a key for work in this process until end. If it is claimed
// already, it returns what is closed when that has ended. (Between processes
// compare-and-set decides.)
func (ts *Topics) begin(key string) (wait <-chan struct{}, ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ch := ts.busy[key]; ch != nil {
		return ch, false
	}
	ts.busy[key] = make(chan struct{})
	return nil, true
}

func (ts *Topics) end(key string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	close(ts.busy[key])
	delete(ts.busy, key)
}

// claim waits until it can begin.
func (ts *Topics) claim(ctx context.Context, key string) error {
	for {
		wait, ok := ts.begin(key)
		if ok {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// parallel calls fn for 0..n-1, at most 8 at a time, and returns the first
// error, after which no further call begins.
func parallel(ctx context.Context, n int32, fn func(context.Context, int32) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for i := range n {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := fn(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
