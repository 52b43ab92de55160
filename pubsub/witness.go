package pubsub

import (
	"context"
	"sync"
	"time"
)

// SecondLook is how long a leader that woke from a freeze may be believed to be
// wrong: what it denies counts if it denies it again so much later, or if it is
// known to have been awake for so long.
const SecondLook = time.Second

const (
	// electionAfter is less than the shortest silence after which the replicas of
	// a log elect another leader: 4 s without the heartbeat that comes every
	// second.
	electionAfter = 2500 * time.Millisecond
	// witnessFor is how long servers are asked every second after someone wanted
	// to know how long they have been awake.
	witnessFor = 10 * time.Minute
)

// Witness knows since when each server of a store has answered without a pause,
// about any log or table. A leader that froze and woke up is deposed and does not
// know it for a moment; one that has never been silent for as long as an election
// takes is the leader. Its zero value is ready. Safe for concurrent use.
type Witness struct {
	mu      sync.Mutex // guards: all below
	servers map[string]awake
	wanted  time.Time
}

// awake is one server. A freeze between two answers was shorter than the time
// from the sending of the first question to the second answer.
type awake struct {
	since time.Time // an answer came; none was late after it
	sent  time.Time // of the last question that was answered
	// ask asks something that it leads, and notes the answer.
	ask func(context.Context)
}

// longest is the time between two moments, or more: a suspended machine stops the
// monotonic clock, and the wall clock may be set.
func longest(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Note takes an answer (of a leader's Bounds) to a question that was sent and
// answered at these times. ask repeats the question; it may block.
func (w *Witness) Note(server string, sent, received time.Time, ask func(context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := w.servers[server]
	switch {
	case !ok || longest(a.sent, received) >= electionAfter, received.Round(0).Before(a.sent.Round(0)): // the clock was set back
		a.since = received
	case !sent.After(a.sent):
		return
	}
	a.sent, a.ask = sent, ask
	if w.servers == nil {
		w.servers = map[string]awake{}
	}
	w.servers[server] = a
}

// Awake reports how long a server had certainly been awake when it was asked at a
// time, and notes that somebody wants to know.
func (w *Witness) Awake(server string, sent, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = now
	a, ok := w.servers[server]
	if !ok {
		return 0
	}
	return min(sent.Sub(a.since), sent.Round(0).Sub(a.since.Round(0)))
}

// Due lists what is to be called, in the background, because the silence of a
// server would be noticed too late. It is to be asked for every second.
func (w *Witness) Due(now time.Time) (ask []func(context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for server, a := range w.servers {
		switch {
		case longest(w.wanted, now) > witnessFor || longest(a.sent, now) > time.Minute:
			delete(w.servers, server)
		case longest(a.sent, now) > SecondLook/2:
			ask = append(ask, a.ask)
		}
	}
	return ask
}

// Vouch asks a table's leader where the table ends. sure: the server that answered
// is not one that woke from a freeze, so everything up to Last is stored that was
// stored when Vouch was called.
func (w *Witness) Vouch(ctx context.Context, t Table, clock func() time.Time) (b Bounds, sure bool, err error) {
	b, sent, err := w.ask(ctx, t, clock)
	if err != nil || b.Leader == "" {
		return b, false, err
	}
	return b, w.Awake(b.Leader, sent, clock()) >= SecondLook, nil
}

// ask asks and notes who answered.
func (w *Witness) ask(ctx context.Context, t Table, clock func() time.Time) (b Bounds, sent time.Time, err error) {
	sent = clock()
	if b, err = t.Bounds(ctx); err != nil || b.Leader == "" {
		return b, sent, err
	}
	w.Note(b.Leader, sent, clock(), func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, electionAfter)
		defer cancel()
		_, _, _ = w.ask(ctx, t, clock) // what is not answered is what one wants to know
	})
	return b, sent, nil
}
