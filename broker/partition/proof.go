package partition

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// That the log ends where its leader says, on which clients act (they take it for
// all there is), is absence like any other: a leader that woke from a freeze is
// deposed and does not know it for a moment. On several replicas it counts only
// if it is said twice, a second apart (design rule 7), or once by a server that
// is known to have been awake for that second: it has answered before, about any
// log, and has never since been silent for as long as an election takes.
const (
	// secondLook is how long a woken leader may be believed to be wrong.
	secondLook = time.Second
	// electionAfter is less than the shortest silence after which the replicas of
	// a log elect another leader: 4 s without the heartbeat that comes every
	// second.
	electionAfter = 2500 * time.Millisecond
	// witnessFor is how long servers are asked every second after someone wanted
	// to know the end of a log with several replicas.
	witnessFor = 10 * time.Minute
)

// witness knows since when each server of the store has answered without a pause.
type witness struct {
	mu      sync.Mutex // guards: all below
	servers map[string]awake
	wanted  time.Time
}

// awake is one server. A freeze between two answers was shorter than the time
// from the sending of the first question to the second answer.
type awake struct {
	since time.Time  // an answer came; none was late after it
	sent  time.Time  // of the last question that was answered
	via   *Partition // of which it is the leader
}

// longest is the time between two moments, or more: a suspended machine stops the
// monotonic clock, and the wall clock may be set.
func longest(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// note takes an answer of a log's leader.
func (w *witness) note(server string, via *Partition, sent, received time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := w.servers[server]
	switch {
	case !ok || longest(a.sent, received) >= electionAfter:
		a.since = received
	case !sent.After(a.sent):
		return
	}
	a.sent, a.via = sent, via
	if w.servers == nil {
		w.servers = map[string]awake{}
	}
	w.servers[server] = a
}

// awake reports how long a server had certainly been awake when it was asked at a
// time, and notes that somebody wants to know.
func (w *witness) awake(server string, sent, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = now
	a, ok := w.servers[server]
	if !ok {
		return 0
	}
	return min(sent.Sub(a.since), sent.Round(0).Sub(a.since.Round(0)))
}

// due lists a partition of each server that should be asked again.
func (w *witness) due(now time.Time) (ps []*Partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for server, a := range w.servers {
		switch {
		case longest(w.wanted, now) > witnessFor || longest(a.sent, now) > time.Minute:
			delete(w.servers, server)
		case longest(a.sent, now) > secondLook/2:
			ps = append(ps, a.via)
		}
	}
	return ps
}

// watch asks, in the background, whose silence would be noticed too late.
func (h *Host) watch(now time.Time) {
	for _, p := range h.witness.due(now) {
		h.spawn(func() {
			// What it does not answer is what we want to know.
			_, _ = p.bounds(h.ctx)
		})
	}
}

// proof is how far the leader's answers to one question may be believed where they
// deny something on which someone acts. All such questions come here: where the log
// ends, an offset beyond it, a batch out of sequence, a message that is missing.
type proof struct {
	first time.Time // when the first answer came
}

// weigh adds an answer to a question that was sent after the one who wants to know
// had come. 0: what it denies was not there at some moment since. Else the leader is
// to be asked again after a while. An error: nothing that a leader denies may be
// believed here now.
func (p *Partition) weigh(pr *proof, a answer) (wait time.Duration, err error) {
	if a.Replicas == 1 {
		return 0, nil
	}
	if err := p.cutOff(a.Replicas); err != nil {
		return 0, err
	}
	if pr.first.IsZero() {
		pr.first = a.heard
	}
	// Only what was applied counts: others may have asked since, another server.
	known := a.sent.Sub(pr.first)
	if a.Leader != "" {
		known = max(known, p.host.witness.awake(a.Leader, a.sent, p.host.clock()))
	}
	if known >= secondLook {
		return 0, nil
	}
	return max(secondLook-known, time.Millisecond), nil
}

// cutOff is an error while our membership is not renewed: we may be cut off with a
// minority of the store, whose leader was deposed and cannot learn of it, so that
// it denies the same for as long as it likes. One replica has no minority.
func (p *Partition) cutOff(replicas int) error {
	if f := p.host.fresh; replicas == 1 || f == nil || f() {
		return nil
	}
	return fmt.Errorf("%s: this gateway may be cut off with a minority of the store: %w", p, pubsub.ErrUnavailable)
}

// settle is sync, after which the end of the log as we know it was the end at
// some moment since settle was called.
func (p *Partition) settle(ctx context.Context) error {
	var pr proof
	for {
		a, err := p.synced(ctx)
		if err != nil {
			return err
		}
		wait, err := p.weigh(&pr, a)
		if err != nil || wait == 0 {
			return err
		}
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}
