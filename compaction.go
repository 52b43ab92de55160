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
	"github.com/hanzoai/stream/logging"
)

// Cleaner implements gateway.
func (k *kafka) Cleaner(ctx context.Context) admin.Compaction {
	s := k.broker.Cleaning(ctx)
	c := admin.Compaction{Cleaner: cleanerOf(s)}
	for _, t := range k.broker.Known() {
		if k.broker.Compacted(t) {
			c.Topics++
		}
	}
	if l := s.Last; l != nil {
		c.Last = &admin.CompactionResult{
			Partition: l.Partition, Ended: shown(l.Ended), Seconds: l.Took.Seconds(), CompactedTo: int64(l.Result.Upto),
			RecordsIn: l.Result.RecordsIn, RecordsOut: l.Result.RecordsOut, BytesIn: l.Result.BytesIn, BytesOut: l.Result.BytesOut, Passes: l.Result.Passes,
		}
	}
	for _, p := range slices.Sorted(maps.Keys(s.Failing)) {
		f := s.Failing[p]
		c.Failing = append(c.Failing, admin.CompactionFailure{Partition: p, Error: f.Error, At: shown(f.At), Again: shown(f.Again)})
	}
	return c
}

func cleanerOf(s broker.Cleaning) admin.Cleaner {
	return admin.Cleaner{State: s.State.State, Gateway: s.Gateway, Detail: logging.RedactURLs(s.Detail), Running: compactionRun(s.Running)}
}

// shown is a time as documents have it.
func shown(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func compactionRun(r *clean.Running) *admin.CompactionRun {
	if r == nil {
		return nil
	}
	return &admin.CompactionRun{Partition: r.Partition, Since: shown(r.Since), DoneBytes: r.Done, OfBytes: r.Of}
}

// Compaction implements gateway.
func (k *kafka) Compaction(ctx context.Context, name string) (admin.TopicCompaction, error) {
	t, err := k.compactedTopic(ctx, name)
	if err != nil {
		return admin.TopicCompaction{}, err
	}
	return k.topicCompaction(ctx, t, false)
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
	c, err := k.topicCompaction(ctx, t, true)
	for i, x := range upto {
		if i < len(c.Partitions) {
			c.Partitions[i].Wanted = int64(x)
		}
	}
	return c, err
}

// topicCompaction asks for all of it; again says that what failed is to be tried now.
func (k *kafka) topicCompaction(ctx context.Context, t *topic.Topic, again bool) (admin.TopicCompaction, error) {
	c := admin.TopicCompaction{Topic: t.Name, Compacted: k.broker.Compacted(t)}
	ps, cleaning, err := k.broker.Compaction(ctx, t, again)
	if err != nil {
		return c, err
	}
	c.Cleaner = cleanerOf(cleaning)
	for _, p := range ps {
		x := admin.PartitionCompaction{Partition: p.Partition, CompactedTo: int64(p.X), Records: p.Records, Bytes: p.Bytes, Running: compactionRun(p.Running)}
		if p.Want > p.X {
			x.Wanted = int64(p.Want)
		}
		if !p.Last.IsZero() {
			last := shown(p.Last)
			x.LastRun = &last
		}
		if f := p.Failure; f != nil {
			again := shown(f.Again)
			x.Error, x.Again = f.Error, &again
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
