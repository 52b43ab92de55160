package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
	"github.com/hanzoai/stream/utils/killpoint"
)

const (
	// ackTimeout is how long an append waits for its acknowledgement before its
	// outcome counts as unknown.
	ackTimeout = 5 * time.Second
	// giveUp is how long a request is tried before it gets an error; clients
	// give up after 30 s or more.
	giveUp = 20 * time.Second
	// groupBytes is the size from which batches do not share a message. Large
	// ones gain nothing by it and are copied for it; and a reader that asks for
	// one megabyte at a time, as most clients do, would have the whole message
	// read again for each.
	groupBytes = 1 << 20
)

// pending is one submitted batch.
type pending struct {
	checked
	done    func(AppendResult)
	at      time.Time // when it was submitted
	acksAll bool
	taken   *taken  // by another gateway; nil: a client's
	verdict verdict // of the decision that is being carried out
	// unsure: an attempt may have stored it, or may still. The log tells a batch that
	// comes twice while it remembers the producer's last ones; the end of its
	// transaction makes it forget them.
	unsure bool

	// verify asks the coordinator which transaction the batch belongs to, told is
	// what it said last or, of a marker, the number that it ends; see verify.go.
	verify func(context.Context) (int64, error)
	told   int64
	asked  int8 // answers of the coordinator
}

// marker reports whether it ends a transaction.
func (m *pending) marker() bool { return m.entry.flags&flagControl != 0 }

func (m *pending) fail(err error, message string) { m.failLater(err, message, 0) }

func (m *pending) failLater(err error, message string, delay time.Duration) {
	if m.unsure {
		err = kerr.RequestTimedOut // not a refusal: that would say that it is not stored
	}
	m.done(AppendResult{Err: err, Message: message, BaseOffset: types.NoOffset, LogStart: types.NoOffset, AppendTime: -1, Delay: delay})
}

// Submit queues one batch; calls are appended in the order made. done is called
// exactly once, from any goroutine, perhaps before Submit returns, and must not
// block. r.Records belongs to the partition until then.
func (p *Partition) Submit(r AppendRequest, done func(AppendResult)) {
	m := &pending{done: done, at: p.host.clock(), acksAll: r.AcksAll, verify: r.Verify}
	m.check(p, &r, p.Config(), p.host.largest, m.at.UnixMilli())
	if m.err == nil && m.entry.flags&flagTransactional != 0 && !p.host.transactions() {
		m.refuse(errEarlierFormat, "gateways of an earlier version do not know transactions")
	}
	if m.err != nil {
		m.done(AppendResult{Err: m.err, Message: m.message, BaseOffset: types.NoOffset, LogStart: types.NoOffset, AppendTime: -1, Records: m.records})
		return
	}
	p.mu.Lock()
	if r.Missed != nil {
		p.brokenLocked(&entry{pid: m.entry.pid, epoch: r.Missed.Epoch, first: r.Missed.First})
	}
	p.submitLocked(m)
}

// submitLocked queues a batch that was checked, or answers it. It gives p.mu back.
func (p *Partition) submitLocked(m *pending) {
	if err := p.refusedLocked(); err != nil {
		message := p.stopMessageLocked()
		p.mu.Unlock()
		m.fail(err, message)
		return
	}
	if !m.marker() && p.overShareLocked(len(m.batch)) {
		p.brokenLocked(&m.entry)
		p.mu.Unlock()
		p.refuseSlow([]*pending{m})
		return
	}
	p.queue = append(p.queue, m)
	p.queueBytes += len(m.batch)
	ok := p.wakeAppenderLocked()
	p.mu.Unlock()
	if !ok {
		m.fail(errClosed, "")
	}
}

// wakeAppenderLocked is called when something was queued. It returns false, and
// empties the queue, if nothing is appended any more.
func (p *Partition) wakeAppenderLocked() bool {
	select {
	case p.queued <- struct{}{}:
	default:
	}
	if !p.appending {
		p.appending = p.host.spawn(p.appendAll)
	}
	if !p.appending {
		p.queue, p.queueBytes = p.queue[:0], 0
	}
	return p.appending
}

// group is what goes into one message: the members in order, of which those
// accepted are stored together.
type group struct {
	members  []*pending
	accepted int
	refused  int
	bytes    int // of the accepted batches
	meta     meta
	began    time.Time
	cut      time.Time // when it was taken from the queue
	hand     bool      // it is to be handed over
	taken    bool      // another gateway has handed over some of it
	size     int       // bytes of all members
	room     int       // bytes that headers may take
}

// appendAll is the appender: it runs while there is something to append.
func (p *Partition) appendAll() {
	var g group
	for {
		if !p.cut(&g) {
			return
		}
		ended := p.watchSlow()
		if err := p.ready(p.host.ctx); err != nil {
			p.fail(&g, err, p.stopMessage())
		} else {
			p.commit(&g)
		}
		ended()
	}
}

// cut moves what fits into one message from the queue to g. It returns false,
// and the appender ends, when there is nothing.
func (p *Partition) cut(g *group) bool {
	now := p.host.clock()
	p.mu.Lock()
	aged := p.agedLocked(now)
	clear(g.members)
	*g = group{members: g.members[:0], meta: meta{entries: g.meta.entries[:0]}, began: now, cut: now, room: headerRoom}
	p.joinParkedLocked()
	some := len(p.queue) > 0
	if some {
		p.joinLocked(g)
		if latest := g.members[0].at.Add(inAll - giveUp); latest.Before(now) {
			g.began = latest // it waited: its client does so no longer than others
		}
		g.hand = p.rivals.handsOver(now) && !g.taken
	} else {
		p.appending = false
		p.queue = nil
		p.setSlowLocked(false)
	}
	p.mu.Unlock()
	for _, m := range aged {
		m.fail(fmt.Errorf("append to %s: it waited %v for those before it: %w", p, queueLimit, pubsub.ErrUnavailable), "the store is slow")
	}
	return some
}

// joinLocked moves what fits from the queue to g.
func (p *Partition) joinLocked(g *group) {
	p.joinParkedLocked()
	n := 0
	for _, m := range p.queue {
		size, room := g.size+len(m.batch), g.room+entrySize(&m.entry)
		if len(g.members)+n > 0 && (len(g.members)+n == maxBatches || room > maxHeaderBytes || size > groupBytes || size+room > p.host.payload) {
			break
		}
		g.size, g.room = size, room
		g.taken = g.taken || m.taken != nil
		p.queueBytes -= len(m.batch)
		n++
	}
	g.members = append(g.members, p.queue[:n]...)
	rest := copy(p.queue, p.queue[n:])
	clear(p.queue[rest:])
	p.queue = p.queue[:rest]
}

// joined waits, at most d, for something to join the group.
func (p *Partition) joined(g *group, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		p.mu.Lock()
		n := len(g.members)
		p.joinLocked(g)
		p.mu.Unlock()
		if len(g.members) > n {
			return true
		}
		select {
		case <-p.queued:
		case <-t.C:
			return false
		case <-p.host.ctx.Done():
			return false
		}
	}
}

// putBack returns all but the first member to the head of the queue.
func (p *Partition) putBack(g *group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range g.members[1:] {
		p.queueBytes += len(m.batch)
	}
	p.queue = append(append([]*pending{}, g.members[1:]...), p.queue...)
	g.members = g.members[:1]
}

// broken remembers the first batch of a producer that failed here: until it
// comes again, none of the producer's later batches may become the first one
// stored. Kafka accepts any first sequence of a producer it does not know, but
// there a failed append takes the later ones with it; here the store may refuse
// one message and take the next.
type broken struct {
	epoch int16
	first int32
	at    time.Time
}

// brokenFor is longer than clients wait for the answer to one request.
const brokenFor = 2 * time.Minute

// failAcksAll answers the members that want more replicas than there are, and
// reports whether there were any.
func (p *Partition) failAcksAll(g *group) bool {
	short := &group{}
	kept := g.members[:0]
	for _, m := range g.members {
		if m.acksAll {
			short.members = append(short.members, m)
		} else {
			kept = append(kept, m)
		}
	}
	g.members = kept
	if len(short.members) == 0 {
		return false
	}
	p.fail(short, kerr.NotEnoughReplicas, "")
	return true
}

// fail answers all members that their batches were not stored, or that nobody
// knows.
func (p *Partition) fail(g *group, err error, message string) {
	now := p.host.clock()
	p.mu.Lock()
	p.inflight = inflight{} // the callers get their bytes back
	p.forgetBrokenLocked(now)
	for _, m := range g.members {
		p.brokenLocked(&m.entry)
	}
	p.mu.Unlock()
	for _, m := range g.members {
		m.fail(err, message)
	}
	g.members = g.members[:0]
}

func (p *Partition) forgetBrokenLocked(now time.Time) {
	for id, b := range p.broken {
		if now.Sub(b.at) > brokenFor {
			delete(p.broken, id)
		}
	}
}

// brokenLocked notes that a batch was not stored, or that nobody knows.
func (p *Partition) brokenLocked(e *entry) {
	if e.pid < 0 || e.flags&flagControl != 0 {
		return
	}
	if b, ok := p.broken[e.pid]; !ok || b.epoch != e.epoch {
		if p.broken == nil {
			p.broken = map[int64]broken{}
		}
		p.broken[e.pid] = broken{e.epoch, e.first, p.host.clock()}
	}
}

// heldBackLocked refuses a batch of an unknown producer while an earlier one
// that failed has not come again.
func (p *Partition) heldBackLocked(e *entry) bool {
	b, ok := p.broken[e.pid]
	if !ok || e.flags&flagControl != 0 {
		return false
	}
	if b.epoch == e.epoch && b.first != e.first && p.host.clock().Sub(b.at) <= brokenFor && p.draft.producer(e.pid) == nil {
		return true
	}
	return false
}

// commit carries a group through: decide, append, apply, answer. It returns
// when every member was answered.
func (p *Partition) commit(g *group) {
	ctx := p.host.ctx
	// That the state which refuses is the newest the leader must have confirmed,
	// asked after the group came, so that it can be believed (weigh): a producer that
	// moved here from another gateway is out of order only in our eyes until we have
	// read what it wrote there. An append that succeeds proves it at once, so whatever
	// comes meanwhile joins the group.
	var pr proof
	var said answer
	asked := false
	if g.hand && p.settled(g) && p.handOver(g) {
		return
	}
	for {
		if g.taken && p.dropLate(g) {
			return
		}
		err := ctx.Err()
		if err == nil {
			err = p.ready(ctx)
		} else {
			err = errClosed
		}
		if err != nil {
			p.fail(g, err, p.stopMessage())
			return
		}
		if !p.decide(g) {
			continue // unloaded meanwhile
		}
		if len(g.members) == 0 {
			return // all wait for a coordinator
		}
		if err := p.host.clockOff(); err != nil && g.accepted > 0 {
			p.fail(g, fmt.Errorf("append to %s: %w", p, err), "")
			return
		}
		if g.accepted == 0 {
			var wait time.Duration
			if asked && g.refused > 0 {
				wait, err = p.weigh(&pr, said)
			}
			if err == nil && (g.refused == 0 || asked && wait == 0) {
				p.answer(g)
				return
			}
			if wait > 0 && p.joined(g, wait) {
				asked, pr = false, proof{}
				continue
			}
			if err == nil {
				said, err = p.synced(ctx)
				asked = true
			}
			if err != nil {
				p.fail(g, err, p.stopMessage())
				return
			}
			continue
		}
		if !p.insync() && p.failAcksAll(g) {
			continue // without them
		}
		killpoint.At("batch.admitted")
		e := p.encode(g)
		killpoint.At("batch.stamped")
		err = p.appendOnce(ctx, g, e)
		switch {
		case err == nil:
			killpoint.At("append.acknowledged")
			p.stored(g)
			return
		case errors.Is(err, pubsub.ErrOutcomeUnknown):
			switch p.resolve(g, e) {
			case outcomeStored:
				p.stored(g)
				return
			case outcomeAgain:
				continue
			case outcomeRebuilt:
				p.mu.Lock()
				p.inflight = inflight{}
				p.mu.Unlock()
				g.failPlain()
				if len(g.members) == 0 {
					return
				}
				continue
			default:
				p.fail(g, kerr.RequestTimedOut, "the store did not say whether the append was stored")
				return
			}
		case errors.Is(err, pubsub.ErrConflict):
			p.host.metrics.conflicts.Inc()
			err := p.conflict(ctx, g)
			if err == nil && p.host.clock().Sub(g.began) > giveUp {
				err = fmt.Errorf("append to %s: other writers win every round: %w", p, pubsub.ErrUnavailable)
			}
			if err != nil {
				p.fail(g, err, p.stopMessage())
				return
			}
			if p.lostRound(g) && p.settled(g) && p.handOver(g) {
				return
			}
		case errors.Is(err, pubsub.ErrTooLarge):
			if len(g.members) > 1 {
				p.putBack(g)
				continue
			}
			p.fail(g, kerr.MessageTooLarge, "the store takes no message of this size")
			return
		case errors.Is(err, pubsub.ErrNotFound):
			p.host.missing(p)
			p.fail(g, fmt.Errorf("append to %s: the stream is missing: %v (%w)", p, err, pubsub.ErrUnavailable), "")
			return
		default:
			p.fail(g, fmt.Errorf("append to %s: %w", p, err), "")
			return
		}
	}
}

// appendOnce sends the message once.
func (p *Partition) appendOnce(ctx context.Context, g *group, e pubsub.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	defer p.unlessMoved(ctx, cancel)()
	seq, err := p.log.Append(ctx, g.meta.seq-1, e)
	if err == nil && seq != g.meta.seq {
		return fmt.Errorf("append to %s: acknowledged at %d, expected %d: %w", p, seq, g.meta.seq, pubsub.ErrOutcomeUnknown)
	}
	return err
}

// decide admits the members against the state as it is and fills g.meta with
// what would be stored. Members of which a coordinator must be asked first leave
// the group. It returns false if the state is not loaded.
func (p *Partition) decide(g *group) bool {
	p.mu.Lock()
	if p.st == nil {
		p.mu.Unlock()
		return false
	}
	verify := p.decideLocked(g)
	var declined []*pending
	if verify {
		declined = p.parkLocked(g)
	}
	p.mu.Unlock()
	for _, m := range declined {
		m.fail(errNotVerified, "")
	}
	return true
}

// decideLocked does it. It reports whether a coordinator must be asked of some.
func (p *Partition) decideLocked(g *group) (verify bool) {
	d := &p.draft
	d.reset(p.st, p.host.clock().UnixMilli())
	g.accepted, g.refused, g.bytes = 0, 0, 0
	g.meta = meta{
		seq: p.st.seq + 1, prev: p.st.id, base: p.st.next, maxTime: -1, appendTime: d.now,
		entries: g.meta.entries[:0],
	}
	for _, m := range g.members {
		m.entry.txn = m.told
		if h, ok := p.rivals.txns[m.entry.pid]; ok && m.told == 0 && h.epoch == m.entry.epoch && m.entry.flags&flagTransactional != 0 && !m.marker() {
			m.entry.txn = h.n
		}
		if verify && d.waits[m.entry.pid] && !m.marker() {
			m.verdict = verdict{verify: true}
			continue
		}
		if len(p.broken) > 0 && p.heldBackLocked(&m.entry) {
			m.verdict = verdict{refuse: kerr.OutOfOrderSequenceNumber, why: "an earlier batch of this producer failed and has not come again"}
		} else {
			m.verdict = d.admit(&m.entry)
		}
		if m.verdict.verify {
			if m.verify != nil && m.asked > 1 {
				m.verdict = refuse(kerr.InvalidTxnState, "the batch's transaction has ended")
			} else {
				verify = true
				d.wait(m.entry.pid)
				continue
			}
		}
		switch {
		case m.verdict.refuse != nil:
			g.refused++
		case !m.verdict.duplicate:
			g.accepted++
			g.bytes += len(m.batch)
			if m.entry.flags&flagLogAppendTime != 0 {
				m.entry.maxTime = d.now
			}
			g.meta.maxTime = max(g.meta.maxTime, m.entry.maxTime)
			g.meta.entries = append(g.meta.entries, m.entry)
		}
	}
	g.meta.last = d.next - 1
	g.meta.size = g.bytes
	return verify
}

// encode stamps the accepted batches and makes the message. With one batch its
// own bytes are the payload.
func (p *Partition) encode(g *group) pubsub.Entry {
	g.meta.id = p.host.appendID()
	e := pubsub.Entry{}
	if g.accepted > 1 {
		e.Data = make([]byte, 0, g.bytes)
	}
	for _, m := range g.members {
		if m.verdict.refuse != nil || m.verdict.duplicate {
			continue
		}
		m.batch.Stamp(int64(m.verdict.base), 0)
		if m.entry.flags&flagLogAppendTime != 0 {
			m.batch.SetTimes(m.entry.maxTime, true)
		}
		if g.accepted > 1 {
			e.Data = append(e.Data, m.batch...)
		} else {
			e.Data = m.batch
		}
	}
	e.Header = encodeHeader(p.idTxt, &g.meta)
	p.mu.Lock()
	p.inflight = inflight{id: g.meta.id, data: e.Data, shared: g.accepted == 1}
	p.mu.Unlock()
	return e
}

// inflight is the message that is being appended. Whoever applies it, the
// acknowledgement or the news that overtakes it, puts it into the cache before
// it wakes the readers.
type inflight struct {
	id     string
	data   []byte
	shared bool // data belongs to the caller and must be copied
}

// stored applies what was stored and answers.
func (p *Partition) stored(g *group) {
	now := p.host.clock()
	p.mu.Lock()
	// The news of it may have come before the acknowledgement.
	if p.st != nil && p.st.seq+1 == g.meta.seq {
		p.applyLocked(&g.meta)
	}
	p.snap.appended(now, g.bytes)
	p.rivals.appended(g, now)
	p.mu.Unlock()
	k := p.host.metrics
	k.batches.Add(float64(g.accepted))
	k.records.Add(float64(g.meta.last - g.meta.base + 1))
	k.bytes.Add(float64(g.bytes))
	k.group.Observe(float64(g.accepted))
	for i := range g.meta.entries {
		if e := &g.meta.entries[i]; e.flags&flagControl != 0 {
			k.markers.WithLabelValues([]string{"abort", "commit"}[e.marker&1]).Inc()
		}
	}
	killpoint.At("append.applied")
	p.answer(g)
}

// answer tells every member its verdict, in order.
func (p *Partition) answer(g *group) {
	p.mu.Lock()
	p.inflight = inflight{}
	start := p.start
	if len(p.broken) > 0 {
		for _, m := range g.members {
			if b, ok := p.broken[m.entry.pid]; ok && m.verdict.refuse == nil && b.first == m.entry.first {
				delete(p.broken, m.entry.pid)
			}
		}
	}
	p.mu.Unlock()
	for _, m := range g.members {
		v := &m.verdict
		if v.refuse != nil {
			m.fail(v.refuse, v.why)
			continue
		}
		r := AppendResult{BaseOffset: v.base, LogStart: start, AppendTime: -1}
		at := m.entry.appendTime
		if v.duplicate {
			at = v.at
			if !m.marker() {
				p.host.metrics.duplicates.Inc()
			}
		}
		if m.entry.flags&flagLogAppendTime != 0 {
			r.AppendTime = at
		}
		m.done(r)
	}
	g.members = g.members[:0]
}

// conflict waits until something new was applied after an append lost: someone
// else's message stands at our sequence, or is on its way there.
func (p *Partition) conflict(ctx context.Context, g *group) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		p.mu.Lock()
		if p.st == nil || p.st.seq >= g.meta.seq {
			p.mu.Unlock()
			return nil
		}
		changed := p.changeLocked()
		p.mu.Unlock()
		if err := p.fetchNews(ctx); err != nil {
			return err
		}
		if s, ok := p.seq(); ok && s+1 >= g.meta.seq+smallGap {
			// We have not followed the log, and may be far behind: not round by round.
			return p.sync(ctx)
		} else if !ok || s >= g.meta.seq {
			return nil
		}
		if p.host.clock().Sub(g.began) > giveUp {
			return fmt.Errorf("append to %s: what won at sequence %d cannot be read: %w", p, g.meta.seq, pubsub.ErrUnavailable)
		}
		t := time.NewTimer(wait)
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errClosed
		}
		t.Stop()
		if wait >= 40*time.Millisecond {
			// Nothing in flight takes that long: has the log gone back?
			if err := p.sync(ctx); err != nil {
				return err
			}
		}
	}
}
