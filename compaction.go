package main

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/admin"
	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/clean"
	"github.com/hanzoai/stream/broker/topic"
)

// compaction is what status says of it; ts are the topics.
func (k *kafka) compaction(ts []*topic.Topic) admin.Compaction {
	s := k.broker.Cleaner()
	c := admin.Compaction{State: s.State, Running: compactionRun(s.Running)}
	for _, t := range ts {
		if k.broker.Compacted(t) {
			c.Topics++
		}
	}
	if l := s.Last; l != nil {
		c.Last = &admin.CompactionResult{
			Partition: l.Partition, Ended: l.Ended.UTC(), Seconds: l.Took.Seconds(), CompactedTo: int64(l.Result.Upto),
			RecordsIn: l.Result.RecordsIn, RecordsOut: l.Result.RecordsOut, BytesIn: l.Result.BytesIn, BytesOut: l.Result.BytesOut, Passes: l.Result.Passes,
		}
	}
	for _, p := range slices.Sorted(maps.Keys(s.Failing)) {
		c.Failing = append(c.Failing, admin.CompactionFailure{Partition: p, Error: s.Failing[p]})
	}
	return c
}

func compactionRun(r *clean.Running) *admin.CompactionRun {
	if r == nil {
		return nil
	}
	return &admin.CompactionRun{Partition: r.Partition, Since: r.Since.UTC(), DoneBytes: r.Done, OfBytes: r.Of}
}

// Compaction implements gateway.
func (k *kafka) Compaction(ctx context.Context, name string) (admin.TopicCompaction, error) {
	t, err := k.compactedTopic(ctx, name)
	if err != nil {
		return admin.TopicCompaction{}, err
	}
	return k.topicCompaction(ctx, t)
}

// Compact implements gateway.
func (k *kafka) Compact(ctx context.Context, name string) (admin.TopicCompaction, error) {
	t, err := k.compactedTopic(ctx, name)
	if err != nil {
		return admin.TopicCompaction{}, err
	}
	upto, err := k.broker.WantCompacted(ctx, t)
	if err != nil {
		return admin.TopicCompaction{}, refusedCompaction(err)
	}
	c, err := k.topicCompaction(ctx, t)
	for i, x := range upto {
		if i < len(c.Partitions) {
			c.Partitions[i].Wanted = int64(x)
		}
	}
	return c, err
}

func (k *kafka) topicCompaction(ctx context.Context, t *topic.Topic) (admin.TopicCompaction, error) {
	c := admin.TopicCompaction{Topic: t.Name, Compacted: k.broker.Compacted(t)}
	ps, err := k.broker.Compaction(ctx, t)
	if err != nil {
		return c, err
	}
	for _, p := range ps {
		x := admin.PartitionCompaction{Partition: p.Partition, CompactedTo: int64(p.X), Records: p.Records, Bytes: p.Bytes, Running: compactionRun(p.Running), Error: p.Failure}
		if p.Want > p.X {
			x.Wanted = int64(p.Want)
		}
		if !p.Last.IsZero() {
			last := p.Last.UTC().Truncate(time.Millisecond)
			x.LastRun = &last
		}
		c.Partitions = append(c.Partitions, x)
	}
	return c, nil
}

// compactedTopic finds a topic that can be asked about.
func (k *kafka) compactedTopic(ctx context.Context, name string) (*topic.Topic, error) {
	t, err := k.broker.Topic(ctx, name)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InvalidTopicException):
		return nil, &admin.Refusal{Status: http.StatusNotFound, Code: "unknown_topic", KafkaError: kerr.UnknownTopicOrPartition.Message, Detail: "there is no topic of this name", Hint: "GET /v1/stream/topics lists them"}
	case err != nil:
		return nil, err
	case topic.Internal(name):
		return nil, refusedCompaction(broker.ErrNotCompacted)
	}
	return t, nil
}

// refusedCompaction tells what an asker can do about it.
func refusedCompaction(err error) error {
	r := &admin.Refusal{Status: http.StatusConflict, Detail: err.Error()}
	switch {
	case errors.Is(err, broker.ErrNotCompacted):
		r.Code, r.Hint = "not_compacted", "set cleanup.policy to compact, or to compact,delete"
	case errors.Is(err, broker.ErrCleanerOff):
		r.Code, r.Hint = "compaction_off", "start the gateways with --log-cleaner-enable true"
	case errors.Is(err, broker.ErrOlderGateways):
		r.Code, r.Hint = "older_gateways", "it begins when all gateways have run this version, or a later one, for a minute"
	default:
		return err
	}
	return r
}
