package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hanzoai/stream/broker/clean"
	"github.com/hanzoai/stream/broker/cluster"
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
	// Busy is told when this gateway begins to compact a partition, true, and when it
	// has ended, false; nil: nobody.
	Busy func(bool)
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

// compactionMethod is the call by which gateways ask the one that compacts what it
// does.
const compactionMethod = "compaction"

// compactionAsk is its request; the answer is a clean.State.
type compactionAsk struct {
	// Retry names partitions that an operator wants compacted now, whatever became
	// of their last run.
	Retry []string `json:"retry,omitempty"`
}

// cleanerWait bounds how long the gateway that compacts is asked.
const cleanerWait = 2 * time.Second

// Cleaning is what compaction does, on whichever gateway.
type Cleaning struct {
	clean.State       // clean.Unknown if the one that compacts cannot be asked
	Gateway     int32 // its node id; 0: none does at this moment
	Detail      string
}

// Cleaning asks the gateway that compacts what it does; with names of partitions, it
// is asked to try those again whose last run failed. It takes cleanerWait at most, and
// what is not known is said to be.
func (b *Broker) Cleaning(ctx context.Context, retry ...string) Cleaning {
	ctx, cancel := context.WithTimeout(ctx, cleanerWait)
	defer cancel()
	request, err := json.Marshal(compactionAsk{Retry: retry})
	unknown := func(node int32, format string, args ...any) Cleaning {
		return Cleaning{State: clean.State{State: clean.Unknown}, Gateway: node, Detail: fmt.Sprintf(format, args...)}
	}
	if err != nil {
		return unknown(0, "%v", err)
	}
	for {
		moved, self := b.lease.Changed(), b.cluster.Self()
		holder, ok := b.lease.Holder()
		var c Cleaning
		switch {
		case !ok:
			c = unknown(0, "no gateway holds the maintenance lease at this moment; one takes it within a time-to-live")
		case holder == self:
			b.compactor.Retry(retry)
			if s := b.compactor.State(); s.State != clean.Elsewhere {
				return Cleaning{State: s, Gateway: self.Node}
			}
			c = unknown(self.Node, "gateway %d compacts, and its membership is not renewed", self.Node)
		default:
			answer, err := b.cluster.Call(ctx, holder, compactionMethod, request)
			var s clean.State
			if err == nil {
				err = json.Unmarshal(answer, &s)
			}
			switch {
			case err == nil && s.State != clean.Elsewhere:
				return Cleaning{State: s, Gateway: holder.Node}
			case err == nil:
				c = unknown(holder.Node, "gateway %d does not compact any more, and it is not known yet who does", holder.Node)
			case errors.Is(err, context.DeadlineExceeded):
				c = unknown(holder.Node, "gateway %d compacts, and does not answer", holder.Node)
			default:
				c = unknown(holder.Node, "gateway %d compacts, and cannot be asked: %v", holder.Node, err)
			}
		}
		select {
		case <-moved: // while it was asked: another one knows
		case <-ctx.Done():
			return c
		default:
			return c
		}
	}
}

// tellCleaning answers compactionMethod.
func (b *Broker) tellCleaning(_ context.Context, _ cluster.Identity, request []byte) ([]byte, error) {
	var ask compactionAsk
	if err := json.Unmarshal(request, &ask); err != nil {
		return nil, fmt.Errorf("unreadable question about compaction: %w", err)
	}
	b.compactor.Retry(ask.Retry)
	return json.Marshal(b.compactor.State())
}

// PartitionCompaction is the state of one partition's compaction.
type PartitionCompaction struct {
	Partition int32
	partition.CleanState
	// Running is the run under way, Failure why the last one failed; nil: none is,
	// or did.
	Running *clean.Running
	Failure *clean.Failure
}

// Compaction asks the store how far a topic is compacted, and the gateway that
// compacts what it does; again says that it is to try at once what failed.
func (b *Broker) Compaction(ctx context.Context, t *topic.Topic, again bool) ([]PartitionCompaction, Cleaning, error) {
	ps, names := make([]PartitionCompaction, t.Partitions), make([]string, t.Partitions)
	for n := range t.Partitions {
		p := b.open(t, n)
		if _, err := p.Status(ctx); err != nil { // reads what there is of it
			return nil, Cleaning{}, fmt.Errorf("ask about %s-%d: %w", t.Name, n, err)
		}
		ps[n], names[n] = PartitionCompaction{Partition: n, CleanState: p.Clean()}, p.String()
	}
	var retry []string
	if again {
		retry = names
	}
	c := b.Cleaning(ctx, retry...)
	for n := range ps {
		if f, failed := c.Failing[names[n]]; failed {
			ps[n].Failure = &f
		}
		if c.Running != nil && c.Running.Partition == names[n] {
			ps[n].Running = c.Running
		}
	}
	return ps, c, nil
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
