package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hanzoai/stream/broker/clean"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// CleanConfig is what this process's configuration says of compaction beyond what
// has a name in Kafka's broker configs.
type CleanConfig struct {
	// MostMemory bounds log.cleaner.dedupe.buffer.size, whatever is set of it while
	// this gateway runs; 0: nothing does.
	MostMemory int
	// Share is the share of one core that compaction takes at most; 0 is 1.
	Share float64
}

// Why a topic cannot be compacted at an operator's word.
var (
	ErrNotCompacted  = errors.New("the topic's cleanup.policy does not have compact")
	ErrCleanerOff    = errors.New("log.cleaner.enable is false")
	ErrOlderGateways = errors.New("a gateway that is running does not know compacted topics")
)

// cleaning are the settings of compaction that are in force.
func (b *Broker) cleaning() clean.Settings {
	text := func(name string) string { return b.topics.BrokerValue(name, b.cfg.Shown) }
	number := func(name string) float64 {
		f, _ := strconv.ParseFloat(text(name), 64)
		return f
	}
	memory := number("log.cleaner.dedupe.buffer.size")
	if most := b.cfg.Clean.MostMemory; most > 0 {
		memory = min(memory, float64(most))
	}
	load := number("log.cleaner.io.buffer.load.factor")
	if load <= 0 || load > 1 {
		load = 1
	}
	s := clean.Settings{
		Enabled: text("log.cleaner.enable") == "true",
		Memory:  int(min(max(memory, 1<<20)*load, 1<<40)),
		Share:   b.cfg.Clean.Share,
		Backoff: time.Duration(min(number("log.cleaner.backoff.ms"), 1e9)) * time.Millisecond,
	}
	if rate := number("log.cleaner.io.max.bytes.per.second"); rate > 0 && rate < 1e18 {
		s.Rate = rate
	}
	return s
}

// compactable reports whether all gateways that live know compacted logs.
func (b *Broker) compactable() bool { return b.Format() >= partition.FormatCompaction }

// compactions opens all partitions.
func (b *Broker) compactions() []clean.Compacted {
	var ps []clean.Compacted
	for _, t := range b.Known() {
		for n := range t.Partitions {
			ps = append(ps, b.open(t, n))
		}
	}
	return ps
}

// Compacted reports whether a topic's settings ask for compaction.
func (b *Broker) Compacted(t *topic.Topic) bool {
	return !topic.Internal(t.Name) && b.topics.Effective(t).Compacted
}

// Cleaner tells what this gateway's compaction does.
func (b *Broker) Cleaner() clean.State { return b.compactor.State() }

// PartitionCompaction is the state of one partition's compaction.
type PartitionCompaction struct {
	Partition int32
	partition.CleanState
	// Running is the run under way, if this gateway makes it; Failure is why the
	// last one failed here.
	Running *clean.Running
	Failure string
}

// Compaction asks the store how far a topic is compacted.
func (b *Broker) Compaction(ctx context.Context, t *topic.Topic) ([]PartitionCompaction, error) {
	ps := make([]PartitionCompaction, t.Partitions)
	st := b.compactor.State()
	for n := range t.Partitions {
		p := b.open(t, n)
		if _, err := p.Status(ctx); err != nil { // reads what there is of it
			return nil, fmt.Errorf("ask about %s-%d: %w", t.Name, n, err)
		}
		ps[n] = PartitionCompaction{Partition: n, CleanState: p.Clean(), Failure: st.Failing[p.String()]}
		if st.Running != nil && st.Running.Partition == p.String() {
			ps[n].Running = st.Running
		}
	}
	return ps, nil
}

// WantCompacted asks that all that may be compacted of a topic is, whatever its
// ratio; the offsets, by partition, are where it will be compacted to. It is done by
// whichever gateway compacts. Errors: ErrNotCompacted, ErrCleanerOff (on this
// gateway; all should be set alike), ErrOlderGateways, else the store's.
func (b *Broker) WantCompacted(ctx context.Context, t *topic.Topic) ([]types.Offset, error) {
	switch {
	case !b.Compacted(t):
		return nil, ErrNotCompacted
	case !b.cleaning().Enabled:
		return nil, ErrCleanerOff
	case !b.compactable():
		return nil, ErrOlderGateways
	}
	upto := make([]types.Offset, t.Partitions)
	for n := range t.Partitions {
		var err error
		if upto[n], err = b.open(t, n).WantCompacted(ctx); err != nil {
			return nil, fmt.Errorf("ask for compaction of %s-%d: %w", t.Name, n, err)
		}
	}
	return upto, nil
}
