package protocol

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

func idempotent(pid int64, epoch int16, seq int32) []byte {
	return serde.Build(serde.BatchFields{ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq}, []serde.NewRecord{{Value: []byte("v")}})
}

// deaf is a backend whose store does not say what topics there are.
type deaf struct {
	*world
	on atomic.Bool
}

func (d *deaf) Topic(ctx context.Context, name string) (*topic.Topic, error) {
	if d.on.Load() {
		return nil, fmt.Errorf("look: %w", pubsub.ErrUnavailable)
	}
	return d.world.Topic(ctx, name)
}

// TestMissedBatch: a batch that fails because its topic could not be looked up is
// told of to the partition with the producer's next one (simulation of gateways,
// seed 699).
func TestMissedBatch(t *testing.T) {
	t.Parallel()
	d := &deaf{world: newWorld()}
	var got []*partition.Missed
	d.log("t1", 0).onSubmit = func(r partition.AppendRequest, _ func(partition.AppendResult)) bool {
		got = append(got, r.Missed)
		return false
	}
	p := startServer(t, d, nil).dial(t)
	send := func(records []byte) int16 {
		return ask[*kmsg.ProduceResponse](p, 9, produceOf(d.world, "t1", -1, records)).Topics[0].Partitions[0].ErrorCode
	}
	d.on.Store(true)
	for _, b := range [][]byte{idempotent(7, 1, 0), idempotent(7, 1, 1), idempotent(8, 0, 5), batch(1, 1), []byte("garbage")} {
		if code := send(b); code == 0 {
			t.Errorf("stored in a topic that nobody knows")
		}
	}
	d.on.Store(false)
	for _, b := range [][]byte{idempotent(7, 1, 1), idempotent(7, 1, 0), batch(1, 1), idempotent(9, 0, 0), idempotent(8, 0, 6)} {
		if code := send(b); code != 0 {
			t.Errorf("code %d", code)
		}
	}
	want := []*partition.Missed{{Epoch: 1, First: 0}, nil, nil, nil, {Epoch: 0, First: 5}}
	same(t, "missed", got, want)
	if code := send([]byte("garbage")); code != kerr.InvalidRecord.Code {
		t.Errorf("code %d", code)
	}
}

// TestMissedBounds: what nobody sends again is forgotten.
func TestMissedBounds(t *testing.T) {
	t.Parallel()
	var m missed
	now := time.Now()
	key := produceKey{"t", types.TopicID{}, 0}
	for pid := range int64(mostMissed + 1) {
		m.note(key, idempotent(pid, 0, 3), now)
	}
	if len(m.batches) != mostMissed || m.take(key, idempotent(mostMissed, 0, 3), now) != nil {
		t.Errorf("%d are remembered", len(m.batches))
	}
	later := now.Add(missedFor + time.Second)
	if m.take(key, idempotent(1, 0, 3), later) != nil {
		t.Error("remembered for ever")
	}
	m.note(key, idempotent(2, 0, 9), later)
	m.note(key, idempotent(2, 0, 10), later)
	m.note(key, idempotent(3, 1, 4), now)
	if x := m.take(key, idempotent(2, 0, 9), later); x == nil || x.First != 9 {
		t.Errorf("%+v", x)
	}
	if x := m.take(key, idempotent(3, 1, 9), now); x == nil || x.Epoch != 1 || x.First != 4 {
		t.Errorf("another epoch: %+v", x)
	}
	for len(m.batches) < mostMissed {
		m.note(key, idempotent(int64(mostMissed+len(m.batches)), 0, 0), now)
	}
	m.note(key, idempotent(9*mostMissed, 0, 0), later)
	if len(m.batches) > 2 || m.take(key, idempotent(9*mostMissed, 0, 1), later) == nil || !(len(m.batches) > 0) == m.some.Load() {
		t.Errorf("%d are remembered", len(m.batches))
	}
}
