package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/history"
)

// groupKinds are the groups of a load, two members each.
var groupKinds = []string{"eager", "cooperative", "static"}

func (l *load) group(kind string) string { return l.topic + "-" + kind }

// member is one consumer of a group. It commits what it was given before it asks
// for more, and lets partitions go in between only.
type member struct {
	l     *load
	place string // kind and number, which one that replaces it has as well
	name  string // of this one alone
	// instance is the name of a static member, who may come back under another id
	// within a generation.
	instance string
	group    string
	cl       *kgo.Client
	waits    waits
	stop     context.CancelFunc
	ended    bool // guarded by load.mu: another has its place

	mu    sync.Mutex
	lives map[int32]int // guards: how often it was given a partition
	has   map[int32]bool
}

// join starts member i of a group.
func (l *load) join(kind string, i int) {
	l.mu.Lock()
	nth := len(l.members)
	l.mu.Unlock()
	place := fmt.Sprintf("%s %d", kind, i)
	m := &member{l: l, place: place, name: fmt.Sprintf("%s (%d)", place, nth), group: l.group(kind), lives: map[int32]int{}, has: map[int32]bool{}}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(m.group), kgo.ConsumeTopics(l.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ClientID(fmt.Sprintf("%s-%d", kind, i)), kgo.SessionTimeout(45 * time.Second), kgo.RebalanceTimeout(20 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.FetchMaxWait(time.Second), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(m.given), kgo.OnPartitionsRevoked(m.taken), kgo.OnPartitionsLost(m.taken), kgo.WithHooks(&m.waits),
	}
	switch kind {
	case "eager":
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative":
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "static":
		m.instance = fmt.Sprintf("%s-%d", l.topic, i)
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()), kgo.InstanceID(m.instance))
	}
	m.cl = l.client(opts...)
	// Members outlive the producers: they have to get to the end.
	ctx, stop := context.WithCancel(context.WithoutCancel(l.ctx))
	m.stop = stop
	l.mu.Lock()
	l.members = append(l.members, m)
	l.mu.Unlock()
	l.reading.Go(func() { m.run(ctx) })
}

func (m *member) run(ctx context.Context) {
	for ctx.Err() == nil {
		span := m.l.rec.Begin()
		fetches := m.cl.PollFetches(ctx)
		m.l.errors(ctx, m.name, fetches)
		m.record(span, fetches)
		m.commit(ctx, fetches)
		m.cl.AllowRebalance()
	}
	m.cl.CloseAllowingRebalance()
}

// record notes what was read, under a name for each time that a partition was
// given: only within one it must go on without a break.
func (m *member) record(span history.Span, fetches kgo.Fetches) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		var one kgo.Fetches
		one = append(one, kgo.Fetch{Topics: []kgo.FetchTopic{{Topic: f.Topic, Partitions: []kgo.FetchPartition{f.FetchPartition}}}})
		m.l.polled(m.life(f.Partition), span, one)
	})
}

// life is the consumer's name in the history since it was last given a partition.
func (m *member) life(p int32) string {
	return fmt.Sprintf("%s of %s, %d", m.name, m.l.topic, m.lives[p])
}

// given starts another life. Its generation is that of the join that gave it.
func (m *member) given(_ context.Context, cl *kgo.Client, what map[string][]int32) {
	id, generation := cl.GroupMetadata()
	id = cmp.Or(m.instance, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range what[m.l.topic] {
		m.lives[p]++
		m.has[p] = true
	}
	a := history.Assignment{Group: m.group, Generation: generation, Member: id}
	for p := range m.has {
		a.Logs = append(a.Logs, m.l.log(p))
	}
	m.l.rec.Assignment(a)
}

func (m *member) taken(_ context.Context, _ *kgo.Client, what map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range what[m.l.topic] {
		delete(m.has, p)
	}
}

// commit commits what a poll has given, and tries again until it is accepted or
// the group says that this member may not any more.
func (m *member) commit(ctx context.Context, fetches kgo.Fetches) {
	offsets := map[int32]kgo.EpochOffset{}
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if n := len(f.Records); n > 0 {
			offsets[f.Partition] = kgo.EpochOffset{Epoch: f.Records[n-1].LeaderEpoch, Offset: f.Records[n-1].Offset + 1}
		}
	})
	if len(offsets) == 0 {
		return
	}
	id, generation := m.cl.GroupMetadata()
	id = cmp.Or(m.instance, id)
	began := time.Now()
	for until := time.Now().Add(lastWords); ; {
		span := m.l.rec.Begin()
		var again error
		note := func(p int32, outcome history.Outcome) {
			m.l.rec.Commit(history.Commit{Span: span, Group: m.group, Generation: generation, Member: id, Log: m.l.log(p), Offset: offsets[p].Offset, Outcome: outcome})
		}
		m.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{m.l.topic: offsets}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				again = err
				for p := range offsets {
					note(p, history.Unknown)
				}
				return
			}
			for _, rt := range resp.Topics {
				for _, rp := range rt.Partitions {
					err := kerr.ErrorForCode(rp.ErrorCode)
					switch {
					case err == nil:
						note(rp.Partition, history.OK)
						m.l.mu.Lock()
						m.l.at[m.group][rp.Partition] = offsets[rp.Partition].Offset
						m.l.mu.Unlock()
					case errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.FencedInstanceID):
						// An earlier attempt may have been accepted.
						note(rp.Partition, history.Unknown)
					case kerr.IsRetriable(err):
						again = err
						note(rp.Partition, history.Unknown)
					default:
						m.l.t.Errorf("%s: commit of partition %d: %v", m.name, rp.Partition, err)
					}
				}
			}
		})
		if again == nil || ctx.Err() != nil {
			break
		}
		if time.Now().After(until) {
			m.l.t.Errorf("%s: commit not accepted within %v: %v", m.name, lastWords, again)
			break
		}
	}
	m.l.watch.took(opCommit, began, m.name, &m.waits)
}

// askCommitted asks again and again what is committed.
func (l *load) askCommitted(ctx context.Context) {
	cl := l.client(kgo.RetryTimeout(10 * time.Second))
	defer cl.Close()
	admin := kadm.NewClient(cl)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, kind := range groupKinds {
			span := l.rec.Begin()
			got, err := admin.FetchOffsets(ctx, l.group(kind))
			if err != nil {
				continue // the answer is what counts, when there is one
			}
			got.Each(func(o kadm.OffsetResponse) {
				if o.Err == nil && o.Topic == l.topic {
					l.rec.Committed(history.Committed{Span: span, Group: l.group(kind), Log: l.log(o.Partition), Offset: o.At})
				}
			})
		}
	}
}
