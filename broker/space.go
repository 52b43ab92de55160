package broker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/pubsub"
)

// remoteDir is what the folder of a store on other machines is called.
const remoteDir = "jetstream"

// Space tells where records are kept, as an absolute path if that is on this
// machine, and how much fits there.
func (b *Broker) Space(ctx context.Context) (pubsub.Space, error) {
	s, err := b.store.Space(ctx, b.cfg.Memory)
	if err != nil {
		return s, fmt.Errorf("space: %w", err)
	}
	if s.Dir == "" {
		s.Dir = remoteDir
	} else if s.Dir, err = filepath.Abs(s.Dir); err != nil {
		return s, fmt.Errorf("space: %w", err)
	}
	return s, nil
}

// askAlone is up to how many partitions are asked one by one; for more, the
// streams are listed, some hundred at a time.
const askAlone = 16

// Sizes are the bytes that the store holds of every partition of the topics, in
// their order; nil for a topic that was deleted since. All are known, or there is
// an error: a stream that cannot answer is not empty.
func (b *Broker) Sizes(ctx context.Context, topics []*topic.Topic) ([][]int64, error) {
	n := 0
	for _, t := range topics {
		n += int(t.Partitions)
	}
	listed := map[string]int64{}
	if n > askAlone {
		logs, _, err := b.store.Logs(ctx, b.cfg.Prefix+".>")
		if err != nil {
			return nil, fmt.Errorf("sizes: %w", err)
		}
		for _, l := range logs {
			listed[l.Name] = int64(l.Bounds.Bytes)
		}
	}
	sizes := make([][]int64, len(topics))
	for i, t := range topics {
		sizes[i] = make([]int64, t.Partitions)
		for n := range t.Partitions {
			size, err := b.size(ctx, t, n, listed)
			if err != nil {
				if _, gone := b.TopicByID(ctx, t.ID); errors.Is(gone, kerr.UnknownTopicID) {
					sizes[i] = nil
					break
				}
				return nil, fmt.Errorf("size of %s-%d: %w", t.Name, n, err)
			}
			sizes[i][n] = size
		}
	}
	return sizes, nil
}

func (b *Broker) size(ctx context.Context, t *topic.Topic, n int32, listed map[string]int64) (int64, error) {
	if v, err := b.CommittedOffsets(t, n); v != nil || err != nil {
		if err != nil {
			return 0, err
		}
		return v.Size(ctx)
	}
	if size, ok := listed[b.topics.Partition(t, n).LogConfig.Name]; ok {
		return size, nil
	}
	return b.open(t, n).Size(ctx)
}
