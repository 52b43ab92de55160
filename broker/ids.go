package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/utils/killpoint"
)

// idBlock is how many producer ids a gateway takes at once, as Kafka does.
const idBlock = 1000

const idKey = "pid"

// producerIDs hands out producer ids that are unique in the cluster for ever:
// blocks are taken by compare-and-set. The first block after a start is
// skipped, so that a store restored from slightly older files does not hand out
// ids again that this cluster has seen.
type producerIDs struct {
	table pubsub.Table

	// turn, of capacity 1, is held by whoever uses the fields below, also while a
	// block is taken: who waits for it can still give up.
	turn    chan struct{}
	started bool
	next    int64
	end     int64
}

func newProducerIDs(table pubsub.Table) *producerIDs {
	return &producerIDs{table: table, turn: make(chan struct{}, 1)}
}

// idRecord is the value of kafka-ids/pid.
type idRecord struct {
	V    int   `json:"v"`
	Next int64 `json:"next"` // first id never handed to anyone
}

// ProducerID returns an id never given before.
func (b *Broker) ProducerID(ctx context.Context) (int64, error) { return b.ids.take(ctx) }

func (p *producerIDs) take(ctx context.Context) (int64, error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for a block of producer ids: %w", ctx.Err())
	}
	defer func() { <-p.turn }()
	for p.next == p.end {
		skip := int64(0)
		if !p.started {
			skip = idBlock
		}
		first, err := p.block(ctx, skip)
		if errors.Is(err, pubsub.ErrConflict) {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("take a block of producer ids: %w", err)
		}
		p.started, p.next, p.end = true, first, first+idBlock
	}
	id := p.next
	p.next++
	return id, nil
}

func (p *producerIDs) block(ctx context.Context, skip int64) (first int64, err error) {
	r := idRecord{V: 1}
	v, err := p.table.Get(ctx, idKey)
	switch {
	case err == nil:
		if err := json.Unmarshal(v.Data, &r); err != nil {
			return 0, err
		}
		if r.V != 1 {
			return 0, fmt.Errorf("format %d is newer than this build", r.V)
		}
	case !errors.Is(err, pubsub.ErrNotFound):
		return 0, err
	}
	first = r.Next + skip
	r.Next = first + idBlock
	data, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	_, err = pubsub.Put(ctx, p.table, pubsub.Write{Key: idKey, Data: data, Expect: v.Rev})
	killpoint.At("ids.stored")
	return first, err
}
