package partition

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/types"
)

// purges chooses what lets go of records in this run: nothing, DeleteRecords,
// retention by size or by time.
func (s *run) purges(kind int) {
	switch kind {
	case 1:
		s.asked = 0
	case 2:
		s.config.RetentionBytes = int64(1000 * s.rng.IntN(50))
	case 3:
		s.config.RetentionMillis = int64(s.rng.IntN(5000))
	}
	s.kind = kind
}

// deleters starts the actors that let go of records.
func (s *run) deleters(actor func(n uint64, fn func(r *rand.Rand))) {
	for i := range s.rng.IntN(3) {
		switch s.kind {
		case 1:
			actor(uint64(700+i), s.deleter)
		case 2, 3:
			actor(uint64(710+i), s.retainer)
		}
	}
}

// deleter deletes records, up to what was shown or to the end.
func (s *run) deleter(r *rand.Rand) {
	for !sim.Over(s.ended) {
		s.mu.Lock()
		to := types.Offset(r.Int64N(int64(s.acked) + 1))
		if r.IntN(4) > 0 { // mostly near the present start
			to = min(s.acked, s.deleted+types.Offset(r.IntN(20)))
		}
		before := s.deleted
		s.asked = max(s.asked, to)
		s.mu.Unlock()
		all := r.IntN(6) == 0
		want := to
		p, _ := s.seat(r).now()
		if all {
			want = partition.HighWatermark
			s.mu.Lock()
			s.asked = 1 << 62 // to whatever the end is
			s.mu.Unlock()
		}
		ctx, stop := context.WithTimeout(context.Background(), sim.Millis(r, 10_000))
		start, err := p.DeleteRecords(ctx, want)
		stop()
		s.trace("delete up to %d: log start %d, %v", want, start, err)
		switch {
		case errors.Is(err, kerr.OffsetOutOfRange):
			s.t.Errorf("delete up to %d, which was shown: %v", want, err)
		case err == nil && (start < to && !all || start < before):
			s.t.Errorf("delete up to %d: the log starts at %d (before at %d)", want, start, before)
		case err == nil:
			s.mu.Lock()
			s.deleted = max(s.deleted, start)
			s.mu.Unlock()
		}
		sim.Pause(s.ended, sim.Millis(r, 1500))
	}
}

// retainer is the cleaner's pass; there may be two of them.
func (s *run) retainer(r *rand.Rand) {
	for !sim.Over(s.ended) {
		p, c := s.seat(r).now()
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		if b, err := c.Log(logName, subject).Bounds(ctx); err == nil {
			err := p.Retain(ctx, time.Now(), b)
			s.trace("retention: %v", err)
		}
		stop()
		sim.Pause(s.ended, sim.Millis(r, 2000))
	}
}

// earliest asks for the log start until it is told, -1 once done is closed. It
// never goes back behind what was answered before the question.
func (s *run) earliest(p *partition.Partition, done chan struct{}) types.Offset {
	for deadline := time.Now().Add(time.Minute); ; {
		s.mu.Lock()
		least := s.deleted
		s.mu.Unlock()
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		a, err := p.Lookup(ctx, partition.LookupRequest{Timestamp: partition.Earliest})
		stop()
		if err == nil {
			if a.Offset < least {
				s.t.Errorf("the log starts at %d, at %d it was before the question", a.Offset, least)
			}
			s.mu.Lock()
			s.deleted = max(s.deleted, a.Offset)
			s.mu.Unlock()
			return a.Offset
		}
		if done != nil && sim.Over(done) {
			return types.NoOffset
		}
		if time.Now().After(deadline) {
			s.t.Errorf("the log start cannot be had: %v", err)
			return types.NoOffset
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// verifyStart checks where the log starts at the end of a run.
func (s *run) verifyStart(start, end types.Offset) {
	s.mu.Lock()
	deleted, asked := s.deleted, s.asked
	s.mu.Unlock()
	ms, all := s.server.Messages(logName), s.server.History(logName, 0)
	if len(ms) == 0 && len(all) > 0 {
		s.t.Error("the stream is empty")
	}
	if start < deleted || start > end {
		s.t.Errorf("the log starts at %d, was shown to start at %d, ends at %d", start, deleted, end)
	}
	switch s.kind {
	case 0:
		if start > 0 || len(ms) < len(all) {
			s.t.Errorf("nobody deleted, and the log starts at %d, with %d of %d messages", start, len(ms), len(all))
		}
	case 1:
		if start > asked {
			s.t.Errorf("the log starts at %d, nobody asked for more than %d", start, asked)
		}
	case 2:
		held, ever := 0, 0
		for _, m := range all {
			ever += m.Size
		}
		for _, m := range ms {
			held += m.Size + 1000 // headers
		}
		if limit := int(s.config.RetentionBytes); held < limit && held < ever {
			s.t.Errorf("%d bytes are left of %d, %d are to be kept", held, ever, limit)
		}
	}
	if len(ms) > 0 {
		// What is shown is there.
		if base := endOf(0, all[:len(all)-len(ms)]); base > start {
			s.t.Errorf("the log starts at %d, the stream at %d", start, base)
		}
	}
}
