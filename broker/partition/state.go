package partition

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

const (
	// keptBatches is how many batches per producer are known again when they
	// come twice (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
	keptBatches = 5
	// producerExpiry is producer.id.expiration.ms in ms, by append time.
	producerExpiry = 24 * 60 * 60 * 1000
)

// state is what a partition knows as of sequence seq of its log. It is pure:
// no clock, no I/O, no locks; its owner serialises access.
type state struct {
	seq  pubsub.Seq   // last message applied, 0 before the first
	id   string       // that message's append id, "" if not known or none
	next types.Offset // offset of the next record: the high watermark
	// now is the largest append time applied (ms): the clock by which
	// producers expire, the same on every gateway.
	now       int64
	producers map[int64]*producer
	// oldest bounds the append times of producers from below: no sweep for
	// expired ones is needed before it is a producerExpiry old.
	oldest int64
	cuts   cuts // breaks of the log, obeyed after each message
	// open are the open transactions, by their first offset.
	open    []openTxn
	aborted aborts
}

// producer is what is known of one producer id.
type producer struct {
	epoch int16
	kept  int8 // batches[:kept], oldest first
	// at is the append time of the last batch, ms.
	at int64
	// time is the largest timestamp of the last batch, ms; only shown.
	time    int64
	batches [keptBatches]appended

	// txn is the number of the open transaction, 0 if none is; it began at offset
	// start, appended at time began (ms).
	txn   int64
	start types.Offset
	began int64
	// ended is the largest number of a transaction that has ended, 0 if none is
	// known of.
	ended int64
	// coordinator is the coordinator's epoch in the last marker, -1 without one.
	coordinator int32
}

// unheard is a producer of which nothing is known but its epoch.
func unheard(epoch int16) producer { return producer{epoch: epoch, coordinator: -1} }

// appended is one stored batch of a producer.
type appended struct {
	first, last int32 // sequences
	base        types.Offset
	at          int64 // append time, ms
}

func newState() *state {
	return &state{producers: map[int64]*producer{}, oldest: math.MaxInt64}
}

// verify checks that m directly continues the log. It fills in what a plain
// message cannot know of itself.
func (s *state) verify(m *meta) *corruption {
	if m.plain {
		m.base, m.last = s.next, s.next
		return nil
	}
	if s.id != "" && m.prev != s.id || s.seq == 0 && m.prev != "" {
		return &corruption{kind: "order", seq: m.seq, why: "its predecessor is " + quote(m.prev) + ", in the log it is " + quote(s.id)}
	}
	if m.base != s.next {
		return &corruption{kind: "order", seq: m.seq, why: "its base offset does not continue the log"}
	}
	return nil
}

func quote(id string) string {
	if id == "" {
		return "none"
	}
	return id
}

// apply takes m, which verify passed, into the state. It never rejects.
func (s *state) apply(m *meta) {
	s.seq, s.id, s.next = m.seq, m.id, m.last+1
	base, before := m.base, 0
	for i := range m.entries {
		e := &m.entries[i]
		if e.pid >= 0 {
			p := s.producers[e.pid]
			if p == nil || expired(p, e.appendTime) {
				p = new(producer)
				*p = unheard(e.epoch)
				s.producers[e.pid] = p
			}
			if e.flags&(flagTransactional|flagControl) != 0 {
				s.transact(p, e, base, before)
			}
			if e.flags&flagControl == 0 {
				p.add(e, base)
			}
			s.oldest = min(s.oldest, p.at)
		}
		base += types.Offset(e.count)
		before += int(e.length)
	}
	s.now = max(s.now, m.appendTime)
	s.expire()
	s.skip()
}

// expire drops producers that every verdict would treat as unknown anyway.
func (s *state) expire() {
	if len(s.producers) == 0 || s.now-s.oldest <= producerExpiry+producerExpiry/24 {
		return
	}
	s.oldest = math.MaxInt64
	for id, p := range s.producers {
		if expired(p, s.now) {
			delete(s.producers, id)
		} else if p.txn == 0 { // an open one counts when it ends
			s.oldest = min(s.oldest, p.at)
		}
	}
}

// expired: a producer with an open transaction never is.
func expired(p *producer, now int64) bool { return now-p.at > producerExpiry && p.txn == 0 }

func (p *producer) add(e *entry, base types.Offset) {
	if e.epoch != p.epoch {
		p.epoch, p.kept = e.epoch, 0
	}
	if p.kept == keptBatches {
		copy(p.batches[:], p.batches[1:])
		p.kept--
	}
	p.batches[p.kept] = appended{first: e.first, last: e.lastSequence(), base: base, at: e.appendTime}
	p.kept++
	p.at, p.time = max(p.at, e.appendTime), e.maxTime
}

// addSequence adds to a sequence number; after 2147483647 comes 0.
func addSequence(seq, n int32) int32 {
	if seq > math.MaxInt32-n {
		return n - (math.MaxInt32 - seq) - 1
	}
	return seq + n
}

// verdict is what admit says about a batch.
type verdict struct {
	// duplicate: stored already, at base, appended at `at` (ms).
	duplicate bool
	base      types.Offset
	at        int64
	refuse    *kerr.Error // nil unless refused
	why       string
	// verify: nothing is decided, the coordinator must tell the transaction first.
	verify bool
}

func refuse(err *kerr.Error, why string) verdict { return verdict{refuse: err, why: why} }

// draft is a state with batches on top that are about to be appended together.
type draft struct {
	s    *state
	next types.Offset
	now  int64
	seen map[int64]*producer // copies of the producers touched
	free []*producer         // for reuse: no allocation per batch
	// waits are the producers of which a batch could not be decided.
	waits map[int64]bool
}

// wait notes that a producer's later batches are not decided either.
func (d *draft) wait(pid int64) {
	if d.waits == nil {
		d.waits = map[int64]bool{}
	}
	d.waits[pid] = true
}

func (d *draft) reset(s *state, now int64) {
	for _, p := range d.seen {
		d.free = append(d.free, p)
	}
	clear(d.seen)
	clear(d.waits)
	d.s, d.next, d.now = s, s.next, max(now, s.now)
}

func (d *draft) producer(id int64) *producer {
	if p := d.seen[id]; p != nil {
		return p
	}
	p := d.s.producers[id]
	if p == nil || expired(p, d.now) {
		return nil
	}
	return p
}

// admit decides about one batch and, if it is accepted, puts it on top.
//
// The rules are those of ProducerAppendInfo and ProducerStateManager: the same
// epoch and the same first and last sequence as one of the last five batches is
// a duplicate; a lower epoch is fenced; a new epoch starts at 0; an unknown
// producer may start anywhere (its state may have expired), but for a transaction
// of version 2 at 0; else the batch must follow the last one. A transactional batch belongs to the transaction that is
// open here, else to number e.txn, which the coordinator has told; 0 if it was not
// asked. e.txn is the number of its transaction if it is accepted.
func (d *draft) admit(e *entry) verdict {
	e.appendTime = d.now
	base := d.next
	if e.flags&flagControl != 0 {
		return d.admitMarker(e)
	}
	if e.pid < 0 {
		d.next += types.Offset(e.count)
		return verdict{base: base}
	}
	p := d.producer(e.pid)
	if p != nil {
		last := e.lastSequence()
		if e.epoch == p.epoch {
			for _, b := range p.batches[:p.kept] {
				if b.first == e.first && b.last == last {
					return verdict{duplicate: true, base: b.base, at: b.at}
				}
			}
		}
		if e.epoch < p.epoch {
			return refuse(kerr.InvalidProducerEpoch, "a newer epoch of this producer has written, or its transaction was ended")
		}
	}
	if e.flags&flagTransactional != 0 {
		if v := p.belongs(e); v.verify || v.refuse != nil {
			return v
		}
	}
	if p == nil && e.fromZero && e.first != 0 {
		return refuse(kerr.OutOfOrderSequenceNumber, "nothing is known of the producer: its first batch in a transaction of version 2 must start at sequence 0")
	}
	if p != nil {
		switch {
		case e.epoch > p.epoch && e.first != 0:
			return refuse(kerr.OutOfOrderSequenceNumber, "a new producer epoch must start at sequence 0")
		case e.epoch == p.epoch && p.kept > 0 && e.first != addSequence(p.batches[p.kept-1].last, 1):
			return refuse(kerr.OutOfOrderSequenceNumber, "the sequence does not follow the producer's last one")
		case e.epoch == p.epoch && p.kept == 0 && e.first != 0:
			return refuse(kerr.OutOfOrderSequenceNumber, "the producer's first batch since its last transaction ended must start at sequence 0")
		case p.txn != 0 && e.flags&flagTransactional == 0:
			return refuse(kerr.InvalidTxnState, "a transaction of this producer is open here")
		}
	}
	mine := d.touch(e, p)
	mine.begin(e, base)
	mine.add(e, base)
	d.next += types.Offset(e.count)
	return verdict{base: base}
}

// touch is the draft's copy of an entry's producer, of which p is known.
func (d *draft) touch(e *entry, p *producer) *producer {
	mine := d.seen[e.pid]
	if mine == nil {
		if n := len(d.free); n > 0 {
			mine, d.free = d.free[n-1], d.free[:n-1]
		} else {
			mine = new(producer)
		}
		if p != nil {
			*mine = *p
		} else {
			*mine = unheard(e.epoch)
		}
		if d.seen == nil {
			d.seen = map[int64]*producer{}
		}
		d.seen[e.pid] = mine
	}
	return mine
}
