package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
)

const (
	// backAfter is how long the leader's last sequence must stay below one that
	// we know before the log counts as gone back. A leader that woke from a
	// freeze denies acknowledged data for a moment.
	backAfter = 20 * time.Second
	// askTimeout bounds one question to the leader.
	askTimeout = 5 * time.Second
	// smallGap is how many missing messages are read with their payload, which
	// readers at the tail want next; longer gaps are read as headers.
	smallGap = 64
	// replicaTimeout is how long a read that any replica answers is waited for where
	// there are several: one that is frozen may be asked for as long as the others
	// have not noticed. The leader is next.
	replicaTimeout = time.Second
)

// answer is what the leader said to one question, and when: only together do
// they tell how far it is to be believed (proof.go).
type answer struct {
	pubsub.Bounds
	sent, heard time.Time
}

// bounds asks the leader and watches that the log does not go back.
func (p *Partition) bounds(ctx context.Context) (pubsub.Bounds, error) {
	a, err := p.question(ctx)
	return a.Bounds, err
}

// question is bounds with its times.
func (p *Partition) question(ctx context.Context) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	known, loaded := p.seq()
	sent := p.host.clock()
	b, err := p.leaderBounds(ctx)
	if err != nil {
		return answer{}, p.missingLog(err)
	}
	a := answer{b, sent, p.host.clock()}
	if b.Replicas > 1 && b.Leader != "" {
		p.host.witness.Note(b.Leader, a.sent, a.heard, func(ctx context.Context) {
			_, _ = p.bounds(ctx) // what is not answered is what one wants to know
		})
	}
	p.mu.Lock()
	p.replicas = b.Replicas
	p.mu.Unlock()
	if loaded && b.Last < known {
		_ = p.behind(b, known)
	} else if loaded {
		p.mu.Lock()
		p.wentBack = time.Time{}
		p.mu.Unlock()
	}
	return a, nil
}

// behind notes that the leader's last sequence is below one that is known to be
// stored. After backAfter of this, during which we were not cut off with it, the
// partition stops.
func (p *Partition) behind(b pubsub.Bounds, known pubsub.Seq) error {
	now := p.host.clock()
	if err := p.cutOff(b.Replicas); err != nil {
		p.mu.Lock()
		p.wentBack = time.Time{}
		p.mu.Unlock()
		return err
	}
	p.mu.Lock()
	if p.wentBack.IsZero() {
		p.wentBack = now
	}
	since := now.Sub(p.wentBack)
	p.mu.Unlock()
	if since >= backAfter {
		c := &corruption{kind: "back", seq: known, why: fmt.Sprintf("the stream ends at %d, before what was stored: was it restored from an older copy?", b.Last)}
		p.stopFor(c)
		return kerr.KafkaStorageError
	}
	return fmt.Errorf("%s: the leader knows of sequence %d only, %d is stored: %w", p, b.Last, known, pubsub.ErrUnavailable)
}

// sync makes sure that everything is applied that was stored when sync was
// called, and that the partition record is as new: it asks the leader. Callers
// that come while a question is under way share the next one.
func (p *Partition) sync(ctx context.Context) error {
	_, err := p.synced(ctx)
	return err
}

// synced is sync; it returns the answer that was applied. Meanwhile others may
// have asked, who heard something else.
func (p *Partition) synced(ctx context.Context) (answer, error) {
	p.mu.Lock()
	if err := p.refusedLocked(); err != nil {
		p.mu.Unlock()
		return answer{}, err
	}
	f := p.syncNext
	if p.syncing == nil {
		f = &asking{flight: newFlight()}
		p.syncing = f
		p.startSyncLocked(f)
	} else if f == nil {
		f = &asking{flight: newFlight()}
		p.syncNext = f
	}
	p.mu.Unlock()
	if err := f.wait(ctx); err != nil {
		return answer{}, err
	}
	return f.said, nil
}

// asking is a question to the leader that several wait for.
type asking struct {
	*flight
	said answer // valid once done is closed without an error
}

func (p *Partition) startSyncLocked(f *asking) {
	if p.host.spawn(func() {
		said, err := p.ask()
		f.said = said
		p.mu.Lock()
		p.syncing, p.syncNext = p.syncNext, nil
		if p.syncing != nil {
			p.startSyncLocked(p.syncing)
		}
		p.mu.Unlock()
		f.end(own(err))
	}) {
		return
	}
	p.syncing = nil
	f.end(errClosed)
}

// ask is one question to the leader and what follows from the answer.
func (p *Partition) ask() (answer, error) {
	ctx, cancel := context.WithTimeout(p.host.ctx, 2*askTimeout)
	defer cancel()
	if err := p.ready(ctx); err != nil {
		return answer{}, err
	}
	record := make(chan error, 1)
	if !p.host.spawn(func() {
		_, _, err := p.fetchRecord(ctx)
		record <- err
	}) {
		return answer{}, errClosed
	}
	known, _ := p.seq()
	p.mu.Lock()
	begun, lost, newest := p.follow.begun, p.follow.lost, p.rivals.newest
	p.mu.Unlock()
	a, err := p.question(ctx)
	if err == nil && a.Last < known {
		err = fmt.Errorf("%s: the leader knows of sequence %d only, %d is stored: %w", p, a.Last, known, pubsub.ErrUnavailable)
	}
	if err == nil {
		err = p.catchUp(ctx, a.Last)
	}
	if rerr := <-record; err == nil {
		err = rerr
	}
	if err == nil {
		p.mu.Lock()
		p.checked = p.host.clock()
		if begun && p.follow.begun && p.follow.lost == lost {
			p.follow.sure = true
		}
		err = p.refusedLocked()
		p.mu.Unlock()
	}
	if err == nil {
		err = p.shortOf(a.Bounds, newest)
	}
	return a, err
}

// catchUp applies everything up to sequence `to`, which the leader has.
func (p *Partition) catchUp(ctx context.Context, to pubsub.Seq) error {
	for tries := 0; ; tries++ {
		s, ok := p.seq()
		if !ok {
			if err := p.ready(ctx); err != nil {
				return err
			}
			continue
		}
		if s >= to {
			return nil
		}
		if to-s <= smallGap && tries == 0 {
			if ms, err := p.readReplica(ctx, s+1, pubsub.Limit{MaxMessages: smallGap}); err == nil {
				_, _ = p.take(ms, false) // what is wrong shows again below
			}
			continue
		}
		var gap bool
		err := p.log.Headers(ctx, s+1, to, func(m pubsub.Message) (err error) {
			gap, err = p.take([]pubsub.Message{m}, true)
			if gap {
				return errGap
			}
			return err
		})
		if n, ok := p.seq(); ok && n >= to {
			return nil
		} else if ok && n > s && !gap && tries < 100 {
			continue // part of the way
		}
		if gap || err == nil && tries >= 3 {
			b, err := p.bounds(ctx)
			if err != nil {
				return err
			}
			n, _ := p.seq()
			if again, err := p.hole(ctx, n+1, b); err != nil {
				return err
			} else if again {
				// Purged under us: only the record and a snapshot lead on.
				p.mu.Lock()
				if p.first > n+1 {
					p.unloadLocked()
				}
				p.mu.Unlock()
			}
		} else if err != nil {
			var c *corruption
			if errors.As(err, &c) || errors.Is(err, errUnknownFormat) {
				return p.afterContradiction(err)
			}
			return p.missingLog(err)
		}
		if tries > 10 {
			return fmt.Errorf("%s: reading up to sequence %d makes no progress: %w", p, to, pubsub.ErrUnavailable)
		}
		if !sleep(ctx, time.Millisecond<<min(tries, 6)) {
			return ctx.Err()
		}
	}
}

var errGap = errors.New("a message is missing")

// fetchNews applies what comes directly after the last message applied, if it
// can be read already. Nothing new is no error.
func (p *Partition) fetchNews(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, ok := p.seq()
	if !ok {
		return p.ready(ctx)
	}
	ms, err := p.readReplica(ctx, s+1, pubsub.Limit{MaxMessages: smallGap})
	if err == nil {
		_, _ = p.take(ms, false)
	}
	if n, ok := p.seq(); !ok || n > s {
		return nil
	}
	m, err := p.log.Get(ctx, s+1)
	switch {
	case errors.Is(err, pubsub.ErrNotFound):
		return nil
	case err != nil:
		return p.missingLog(err)
	}
	if _, err = p.take([]pubsub.Message{m}, true); err != nil {
		return p.afterContradiction(err)
	}
	return nil
}

// errSilent: a replica did not answer in time.
var errSilent = errors.New("a replica does not answer")

// readReplica is Log.Read with a bound of its own.
func (p *Partition) readReplica(ctx context.Context, from pubsub.Seq, l pubsub.Limit) ([]pubsub.Message, error) {
	if !p.replicated() {
		return p.log.Read(ctx, from, l)
	}
	bound, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	ms, err := p.log.Read(bound, from, l)
	if err != nil && bound.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	return ms, err
}
