package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/hanzoai/stream/pubsub"
)

// That the log ends where its leader says, on which clients act (they take it for
// all there is), is absence like any other: a leader that woke from a freeze is
// deposed and does not know it for a moment. On several replicas it counts only
// if it is said twice, a second apart (design rule 7), or once by a server that
// is known to have been awake for that second: it has answered before, about any
// log, and has never since been silent for as long as an election takes
// (pubsub.Witness).

// watch asks, in the background, whose silence would be noticed too late.
func (h *Host) watch(now time.Time) {
	for _, ask := range h.witness.Due(now) {
		h.spawn(func() { ask(h.ctx) })
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
		known = max(known, p.host.witness.Awake(a.Leader, a.sent, p.host.clock()))
	}
	if known >= pubsub.SecondLook {
		return 0, nil
	}
	return max(pubsub.SecondLook-known, time.Millisecond), nil
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
