package partition

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/types"
)

// records makes a batch whose first value is its id.
func records(pid int64, seq int32, id string, n, pad int) []byte {
	f := serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	if pid > 0 {
		f.ProducerID, f.ProducerEpoch, f.BaseSequence = pid, 0, seq
	}
	return serde.Build(f, padded(id, n, pad))
}

// padded are n records with one value: an id, and zeros behind it.
func padded(id string, n, pad int) []serde.NewRecord {
	value := make([]byte, len(id)+pad)
	copy(value, id)
	r := serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Key: []byte("k"), Value: value}
	return slices.Repeat([]serde.NewRecord{r}, n)
}

// idempotent is a producer with up to five batches in flight, which resends
// what failed, in order, perhaps through another gateway.
func (s *run) idempotent(r *rand.Rand, pid int64) {
	type batch struct {
		f    fact
		pad  int
		done bool
	}
	var window []*batch
	seq := int32(0)
	if r.IntN(4) == 0 {
		seq = math.MaxInt32 - 20 // wraps
	}
	made, calm := 0, 0
	for !sim.Over(s.ended) || len(window) > 0 {
		for n := 1 + r.IntN(5); len(window) < n && !sim.Over(s.ended); {
			b := &batch{f: fact{id: fmt.Sprintf("i%d-%d.", pid, made), pid: pid, seq: seq, n: 1 + r.IntN(4), base: -1}, pad: r.IntN(2000)}
			made++
			seq = int32((int64(seq) + int64(b.f.n)) & math.MaxInt32)
			window = append(window, b)
		}
		p, _ := s.seat(r).now()
		results := make([]chan partition.AppendResult, len(window))
		for i, b := range window {
			results[i] = make(chan partition.AppendResult, 1)
			b.f.attempts++
			p.Submit(partition.AppendRequest{Records: records(pid, b.f.seq, b.f.id, b.f.n, b.pad)}, func(a partition.AppendResult) { results[i] <- a })
		}
		for i, b := range window {
			a := <-results[i]
			s.trace("%s seq %d of window %d, try %d: base %d, %v", b.f.id, b.f.seq, len(window), b.f.attempts, a.BaseOffset, a.Err)
			switch {
			case a.Err == nil && b.done && a.BaseOffset != b.f.base:
				s.t.Errorf("%s acknowledged at %d and at %d", b.f.id, b.f.base, a.BaseOffset)
			case a.Err == nil:
				b.f.base, b.done = a.BaseOffset, true
				s.shown(a.BaseOffset + types.Offset(b.f.n))
			case errors.Is(a.Err, kerr.OutOfOrderSequenceNumber) && i == 0:
				// The first of the window follows what was acknowledged.
				s.t.Errorf("%s (sequence %d): %v (%s)", b.f.id, b.f.seq, a.Err, a.Message)
				return
			case errors.Is(a.Err, kerr.InvalidProducerEpoch), errors.Is(a.Err, kerr.InvalidRecord), errors.Is(a.Err, kerr.MessageTooLarge), errors.Is(a.Err, kerr.CorruptMessage):
				s.t.Errorf("%s: %v (%s)", b.f.id, a.Err, a.Message)
				return
			default:
				b.f.unknown = b.f.unknown || !settled(a.Err)
			}
		}
		for len(window) > 0 && window[0].done {
			s.mu.Lock()
			s.log = append(s.log, window[0].f)
			s.mu.Unlock()
			window = window[1:]
		}
		if sim.Over(s.healed) {
			if s.t.Failed() {
				return
			}
			if calm++; calm > 500 && len(window) > 0 {
				s.t.Errorf("%s is not acknowledged although nothing fails any more", window[0].f.id)
				return
			}
		}
		switch {
		case len(window) > 0:
			time.Sleep(sim.Millis(r, 100))
		case r.IntN(30) == 0:
			sim.Pause(s.ended, 7*time.Second) // long enough for a snapshot
		default:
			sim.Pause(s.ended, sim.Millis(r, 300))
		}
	}
}

// plain is a producer without idempotence that does not resend.
func (s *run) plain(r *rand.Rand, who int) {
	for i := 0; !sim.Over(s.ended); i++ {
		f := fact{id: fmt.Sprintf("p%d-%d.", who, i), n: 1 + r.IntN(4), base: -1, attempts: 1}
		p, _ := s.seat(r).now()
		ch := make(chan partition.AppendResult, 1)
		p.Submit(partition.AppendRequest{Records: records(0, 0, f.id, f.n, r.IntN(3000))}, func(a partition.AppendResult) { ch <- a })
		a := <-ch
		if a.Err == nil {
			f.base = a.BaseOffset
			s.shown(a.BaseOffset + types.Offset(f.n))
		}
		f.unknown = a.Err != nil && !settled(a.Err)
		s.mu.Lock()
		s.log = append(s.log, f)
		s.mu.Unlock()
		sim.Pause(s.ended, sim.Millis(r, 300))
	}
}

// publisher is a plain NATS client: it always wins.
func (s *run) publisher(r *rand.Rand) {
	for i := 0; !sim.Over(s.ended); i++ {
		if _, err := s.server.Publish(subject, pubsub.Header{"X": {"y"}}, fmt.Appendf(nil, "n-%d.", i)); err != nil {
			s.t.Error(err)
		}
		sim.Pause(s.ended, sim.Millis(r, 1000))
	}
}
