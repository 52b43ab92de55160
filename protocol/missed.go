package protocol

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/serde"
)

// missed remembers the batches of idempotent producers that never reached their
// partition, because it could not be told which one that is (the store did not
// say what it knows of a topic). A producer has several batches in flight: one
// that comes next may find its way, and as the first of its producer it would be
// taken, whatever its sequence. Then the missed one could never be stored any
// more. So the partition is told of it (partition.AppendRequest.Missed).
type missed struct {
	some atomic.Bool // there is something in batches
	mu   sync.Mutex  // guards: batches
	// batches has the earliest missed one of each producer and partition.
	batches map[missedKey]missedBatch
}

type missedKey struct {
	produceKey
	pid int64
}

type missedBatch struct {
	partition.Missed
	at time.Time
}

// missedFor is longer than clients wait for the answer to one request; mostMissed
// bounds what is remembered.
const (
	missedFor  = 2 * time.Minute
	mostMissed = 10_000
)

// note remembers the batch of a request that failed before it had a partition.
func (m *missed) note(k produceKey, records []byte, now time.Time) {
	b, _, err := serde.ParseBatch(records)
	if err != nil || b.ProducerID() < 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.batches == nil {
		m.batches = map[missedKey]missedBatch{}
	}
	if len(m.batches) >= mostMissed {
		for k, b := range m.batches {
			if now.Sub(b.at) > missedFor {
				delete(m.batches, k)
			}
		}
		if len(m.batches) >= mostMissed {
			return
		}
	}
	m.some.Store(true)
	key := missedKey{k, b.ProducerID()}
	if old, ok := m.batches[key]; !ok || old.Epoch != b.ProducerEpoch() || now.Sub(old.at) > missedFor {
		m.batches[key] = missedBatch{partition.Missed{Epoch: b.ProducerEpoch(), First: b.BaseSequence()}, now}
	}
}

// take returns what was missed before this batch, and forgets it: from now on its
// partition knows. nil: nothing.
func (m *missed) take(k produceKey, records []byte, now time.Time) *partition.Missed {
	if !m.some.Load() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, _, err := serde.ParseBatch(records)
	if err != nil {
		return nil
	}
	key := missedKey{k, b.ProducerID()}
	old, ok := m.batches[key]
	if !ok {
		return nil
	}
	delete(m.batches, key)
	m.some.Store(len(m.batches) > 0)
	if now.Sub(old.at) > missedFor {
		return nil
	}
	return &old.Missed
}
