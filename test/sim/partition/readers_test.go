package partition

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/types"
)

// stored follows what the server has stored.
type stored struct {
	mu   sync.Mutex   // guards: all below
	next types.Offset // one more than the last offset
	seq  pubsub.Seq   // of the last message
}

// end is one more than the last offset stored at this moment, by the server's
// own account.
func (s *run) end() types.Offset {
	s.stored.mu.Lock()
	defer s.stored.mu.Unlock()
	news := s.server.History(logName, s.stored.seq+1)
	s.stored.next = endOf(s.stored.next, news)
	if len(news) > 0 {
		s.stored.seq = news[len(news)-1].Seq
	}
	return s.stored.next
}

// endOf is one more than the last offset of messages, the first of which begins at
// next.
func endOf(next types.Offset, ms []pubsub.Message) types.Offset {
	for _, m := range ms {
		if m.Header.Get("Stream-Log") == "" {
			next++
			continue
		}
		b, rest, _ := serde.ParseBatch(m.Data)
		for len(rest) > 0 {
			b, rest, _ = serde.ParseBatch(rest)
		}
		next = types.Offset(b.LastOffset()) + 1
	}
	return next
}

// reader reads the log from its beginning through a gateway, until all is read.
func (s *run) reader(r *rand.Rand, done chan struct{}) {
	next := types.Offset(0)
	hw, lso := map[*partition.Partition]types.Offset{}, map[*partition.Partition]types.Offset{}
	for !sim.Over(done) && !s.t.Failed() {
		p, _ := s.seat(r).now()
		// One gateway for a while.
		ch := make(chan struct{}, 1)
		cancel := p.Notify(ch)
		for range 1 + r.IntN(8) {
			ctx, stop := context.WithTimeout(context.Background(), sim.Millis(r, 3000))
			committed := r.IntN(2) == 0
			got, err := p.Read(ctx, partition.ReadRequest{Offset: next, MaxBytes: 1 + r.IntN(8000), Whole: r.IntN(2) == 0, Committed: committed})
			stop()
			switch {
			case errors.Is(err, kerr.OffsetOutOfRange):
				start := s.earliest(p, done)
				if start >= 0 && start <= next {
					s.t.Errorf("offset %d, which was shown, is out of range; the log starts at %d", next, start)
				}
				next = max(next, start)
				continue
			case err != nil:
				sim.Pause(done, sim.Millis(r, 200))
				continue
			}
			if end := s.end(); got.HighWatermark > end {
				s.t.Errorf("high watermark %d, the log ends at %d", got.HighWatermark, end)
			}
			if got.LogStart > got.HighWatermark {
				s.t.Errorf("log start %d, high watermark %d", got.LogStart, got.HighWatermark)
			}
			if got.HighWatermark < hw[p] {
				s.t.Errorf("high watermark fell from %d to %d", hw[p], got.HighWatermark)
			}
			hw[p] = got.HighWatermark
			if got.LastStable > got.HighWatermark || got.LastStable < lso[p] {
				s.t.Errorf("last stable offset %d, high watermark %d, before it was %d", got.LastStable, got.HighWatermark, lso[p])
			}
			lso[p] = got.LastStable
			if committed && len(got.Batches) > 0 && next >= got.LastStable {
				s.t.Errorf("a committed read at %d, stable is %d", next, got.LastStable)
			}
			s.shown(got.HighWatermark)
			for _, data := range got.Batches {
				for len(data) > 0 {
					b, rest, err := serde.ParseBatch(data)
					if err != nil || !b.ChecksumOK() {
						s.t.Errorf("batch at %d: unreadable (%v)", next, err)
						return
					}
					data = rest
					if b.BaseOffset() > int64(next) || b.LastOffset() < int64(next) {
						s.t.Errorf("read at %d: batch %d to %d", next, b.BaseOffset(), b.LastOffset())
						return
					}
					next = types.Offset(b.LastOffset()) + 1
				}
			}
			if len(got.Batches) == 0 && (next == got.HighWatermark || committed && next >= got.LastStable) {
				t := time.NewTimer(sim.Millis(r, 1000))
				select {
				case <-ch:
				case <-t.C:
				case <-done:
				}
				t.Stop()
			}
		}
		cancel()
	}
}

// asker asks for the end of the log: it never falls, never lies below what was
// shown before the question, and is there to be read.
func (s *run) asker(r *rand.Rand, done chan struct{}) {
	for !sim.Over(done) {
		s.mu.Lock()
		least := s.acked
		s.mu.Unlock()
		p, _ := s.seat(r).now()
		ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
		a, err := p.Lookup(ctx, partition.LookupRequest{Timestamp: partition.Latest})
		stop()
		if err == nil {
			if end := s.end(); a.Offset > end {
				s.t.Errorf("latest offset %d, the log ends at %d", a.Offset, end)
			}
			if a.Offset < least {
				s.t.Errorf("latest offset %d, %d was shown before the question", a.Offset, least)
			}
			s.shown(a.Offset)
		}
		sim.Pause(done, sim.Millis(r, 500))
	}
}

// readAll reads from the log start to the end, however often a read fails.
func (s *run) readAll(p *partition.Partition) (start types.Offset, all []serde.Batch) {
	start = s.earliest(p, nil)
	next := start
	for deadline := time.Now().Add(time.Minute); ; {
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		got, err := p.Read(ctx, partition.ReadRequest{Offset: next, MaxBytes: 1 << 20, Whole: true})
		stop()
		if err != nil {
			if time.Now().After(deadline) {
				s.t.Errorf("read at %d: %v", next, err)
				return start, all
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for _, data := range got.Batches {
			for len(data) > 0 {
				b, rest, err := serde.ParseBatch(data)
				if err != nil {
					s.t.Error(err)
					return start, all
				}
				all = append(all, b)
				next, data = types.Offset(b.LastOffset())+1, rest
			}
		}
		if len(got.Batches) == 0 {
			if next != got.HighWatermark {
				s.t.Errorf("an empty read at %d, high watermark %d", next, got.HighWatermark)
			}
			return start, all
		}
	}
}
