package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// Several gateways may append to one partition. Each is right, since an append
// expects the sequence it follows, but they are not fair to each other: whoever
// was stored sends the next at once, whoever lost has to read first. So one
// gateway, on which all agree without talking (the hinted appender), appends
// for those that lose: see hand.go for what a gateway does that hands over, and
// taken.go for what the hinted one does. This file is about when.
const (
	// calm is how long no other gateway may have appended for one that hands over
	// to append itself again, and for lost rounds to be forgotten.
	calm = time.Second
	// lostRounds is after how many a gateway hands over.
	lostRounds = 2
	// handPause is how long a gateway appends itself after a hand-over that was
	// not taken, handSilence after one that was not answered.
	handPause, handSilence = 200 * time.Millisecond, 2 * time.Second
	// tellEvery is the least time between two calls on others to hand over.
	tellEvery = 100 * time.Millisecond
)

// rivals is what a partition knows of other gateways that append to it.
// Partition.mu guards it.
type rivals struct {
	last   pubsub.Seq // newest applied message of another gateway
	plain  pubsub.Seq // newest applied message of a plain publisher
	lost   int        // rounds lost since all was calm
	seen   time.Time  // last sign of another gateway's appends
	handed bool       // hand-over mode
	// busy: a hand-over of ours is under way.
	busy  bool
	pause time.Time // nothing is handed over before it
	told  time.Time // when others were last told that we lose
	// newest is the largest end of the log that a hand-over's answer told; our
	// state may not have come that far.
	newest types.Offset
	// short is since when the log, asked for, ends before that.
	short time.Time
	// sources is when somebody last appended through us, by gateway: "" are our
	// own clients, others what appended elsewhere. nil while nobody hands over.
	sources map[string]time.Time
	// took is how long our last append took, until the acknowledgement, and when
	// that was.
	took   time.Duration
	tookAt time.Time
	// txns are the transactions of what was stored by hand-over, by producer: our
	// state may not show them open yet. One that has ended is found out where it is
	// appended.
	txns map[int64]handedTxn
}

type handedTxn struct {
	epoch int16
	n     int64
}

// maxHandedTxns bounds them; who is forgotten is asked for again.
const maxHandedTxns = 1000

// elsewhere is the source of what other gateways append themselves.
const elsewhere = "*"

// handsOver reports whether the next group is to be handed over.
func (r *rivals) handsOver(now time.Time) bool {
	if !r.handed {
		return false
	}
	if now.Sub(r.seen) >= calm {
		r.handed, r.lost, r.txns = false, 0, nil
		return false
	}
	return !now.Before(r.pause)
}

// foreignLocked notes a message that somebody else appended.
func (p *Partition) foreignLocked(d *meta) {
	if d.plain {
		p.rivals.plain = d.seq
		p.host.metrics.plain.Inc()
		return
	}
	if p.host.wrote(d.id) {
		return
	}
	p.rivals.last = d.seq
	if p.rivals.sources != nil {
		p.rivals.sources[elsewhere] = p.host.clock()
	}
}

// errPublisher explains a warning.
var errPublisher = errors.New("a plain NATS publisher appends to the same subject; it needs no expectation and always wins")

// lostRound counts an append that conflicted, after what won was applied. It
// reports whether the group is to be handed over now.
func (p *Partition) lostRound(g *group) (hand bool) {
	now := p.host.clock()
	p.mu.Lock()
	r := &p.rivals
	if r.last < g.meta.seq {
		plain := r.plain >= g.meta.seq
		p.mu.Unlock()
		if !plain {
			return false // our own, come late; or the state is being loaded anew
		}
		p.host.metrics.lost.WithLabelValues("publisher").Inc()
		p.host.warn(p, "an append lost to a plain NATS publisher", errPublisher)
		return false
	}
	p.host.metrics.lost.WithLabelValues("gateway").Inc()
	if p.host.others == nil {
		p.mu.Unlock()
		return false
	}
	if now.Sub(r.seen) >= calm {
		r.lost = 0
	}
	r.seen = now
	r.lost++
	enough := r.lost >= lostRounds
	p.mu.Unlock()
	if !enough {
		return false
	}
	if p.host.others.Appender(p.id, p.n) == nil {
		p.tell(now)
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.handed = true
	return !g.taken && !now.Before(r.pause)
}

// tell calls on the other gateways to hand over to us: we are the hinted
// appender and lose. Who always wins would never learn of it otherwise.
func (p *Partition) tell(now time.Time) {
	p.mu.Lock()
	r := &p.rivals
	due := now.Sub(r.told) >= tellEvery
	if due {
		r.told = now
	}
	p.mu.Unlock()
	if !due {
		return
	}
	request := encodeHandOver(handOver{kind: handTell, id: p.id, n: p.n})
	for _, send := range p.host.others.All() {
		p.host.spawn(func() {
			ctx, cancel := p.handContext()
			defer cancel()
			// Lost, it is told again.
			_, _ = send(ctx, request)
		})
	}
}

// toldToHand is called when the hinted appender loses to us.
func (p *Partition) toldToHand() {
	if p.host.others.Appender(p.id, p.n) == nil {
		return // not by our view of who lives
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rivals.handed, p.rivals.seen = true, p.host.clock()
}

// appended notes on whose behalf a group was stored.
func (r *rivals) appended(g *group, now time.Time) {
	r.took, r.tookAt = now.Sub(g.cut), now
	if r.sources == nil {
		return
	}
	for _, m := range g.members {
		if m.verdict.refuse == nil && !m.verdict.duplicate {
			from := ""
			if m.taken != nil {
				from = m.taken.from
			}
			r.sources[from] = now
		}
	}
}

// quiet is for how long nothing was appended but for one gateway's
// clients.
func (r *rivals) quiet(from string, now time.Time) time.Duration {
	var last time.Time
	for source, at := range r.sources {
		if source != from && at.After(last) {
			last = at
		}
	}
	return now.Sub(last)
}

// forget lets go of sources once nobody has handed over for a while.
func (r *rivals) forget(now time.Time) {
	for source, at := range r.sources {
		if now.Sub(at) > time.Minute {
			delete(r.sources, source)
		}
	}
	if len(r.sources) == 0 || len(r.sources) == 1 && !r.sources[""].IsZero() {
		r.sources = nil
	}
}

// shortOf is an error while the leader does not tell of all that had been appended
// for us elsewhere, and acknowledged, when it was asked: newest is that end of the
// log. What came meanwhile it may not have known of yet.
func (p *Partition) shortOf(b pubsub.Bounds, newest types.Offset) error {
	now := p.host.clock()
	p.mu.Lock()
	r := &p.rivals
	newest = min(newest, r.newest) // a repair may have taken it back
	if p.st == nil || p.st.next >= newest {
		r.short = time.Time{}
		p.mu.Unlock()
		return nil
	}
	if r.short.IsZero() {
		r.short = now
	}
	since := now.Sub(r.short)
	p.mu.Unlock()
	if since >= backAfter {
		p.stopFor(&corruption{kind: "back", seq: b.Last + 1, why: fmt.Sprintf("the stream ends before offset %d, which was acknowledged", newest)})
		return kerr.KafkaStorageError
	}
	return fmt.Errorf("%s: the leader does not tell of offset %d, which was acknowledged: %w", p, newest-1, pubsub.ErrUnavailable)
}
