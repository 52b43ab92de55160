package partition

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/types"
)

// Transactions in the state of a partition. A transaction is named by its
// producer's id and its number n, which the coordinator counts and every batch and
// marker carries: whatever comes late, twice or through another gateway, n tells
// what it belongs to.

// openTxn is a transaction of which batches are stored and no marker.
type openTxn struct {
	start types.Offset // of its first batch
	pid   int64
	// before are the bytes of that batch's message that come before the batch.
	before int32
}

// abortedTxn is a transaction that a marker has ended by abort.
type abortedTxn struct {
	pid         int64
	first, last types.Offset // of its first batch, of its marker
	// stable is the last stable offset behind the marker: whatever is aborted later
	// begins there or later.
	stable types.Offset
}

// lastStable is the first offset that a read_committed reader may not see: that of
// the oldest open transaction, else the high watermark.
func (s *state) lastStable() types.Offset {
	if len(s.open) > 0 {
		return s.open[0].start
	}
	return s.next
}

// oldestOpen is the producer of the oldest open transaction, and for how long that
// has been open; nil and 0 if none is.
func (s *state) oldestOpen(now time.Time) (*producer, time.Duration) {
	if len(s.open) == 0 {
		return nil, 0
	}
	x := s.producers[s.open[0].pid]
	if x == nil {
		return nil, 0
	}
	return x, max(1, now.Sub(time.UnixMilli(x.began)))
}

// belongs decides in which transaction a batch of an epoch that is not too old
// lies, and sets e.txn. p may be nil.
func (p *producer) belongs(e *entry) verdict {
	switch {
	case p == nil:
		return verdict{verify: e.txn == 0}
	case p.txn != 0 && p.epoch == e.epoch:
		e.txn = p.txn
	case e.txn <= p.ended:
		return verdict{verify: true} // not asked, or what was told has ended
	case p.txn != 0 && p.txn != e.txn:
		// The coordinator does not begin the next one before the marker is stored.
		return refuse(kerr.InvalidTxnState, "an earlier transaction of this producer is open here")
	}
	return verdict{}
}

// begin opens the transaction of an entry unless it is open. It reports whether
// it was not.
func (p *producer) begin(e *entry, base types.Offset) bool {
	if e.flags&flagTransactional == 0 {
		return false
	}
	n := max(e.txn, 1)
	again := p.txn != 0
	if !again {
		p.start, p.began = base, e.appendTime
	}
	p.txn = max(p.txn, n)
	// Those before have ended. It has not, whatever a break of the log made of it.
	p.ended = p.txn - 1
	return !again
}

// end takes a marker. It reports whether an open transaction ended by it.
func (p *producer) end(e *entry) (ended bool) {
	if e.epoch > p.epoch {
		p.epoch, p.kept = e.epoch, 0
	}
	p.coordinator = e.coordinator
	p.at, p.time = max(p.at, e.appendTime), e.maxTime
	if ended = p.txn != 0 && (e.txn == 0 || e.txn >= p.txn); ended {
		p.ended = max(p.ended, p.txn)
		p.txn, p.began = 0, 0
	}
	p.ended = max(p.ended, e.txn)
	return ended
}

// transact applies what an entry does to its producer's transaction. before are
// the bytes of the message before it.
func (s *state) transact(p *producer, e *entry, base types.Offset, before int) {
	if e.flags&flagControl == 0 {
		if p.begin(e, base) {
			s.open = append(s.open, openTxn{start: base, pid: e.pid, before: int32(before)})
		}
		return
	}
	if !p.end(e) {
		return
	}
	i := slices.IndexFunc(s.open, func(o openTxn) bool { return o.pid == e.pid })
	if i < 0 {
		return
	}
	first := s.open[i].start
	s.open = slices.Delete(s.open, i, i+1)
	if e.marker != markerAbort {
		return
	}
	stable := base + 1
	if len(s.open) > 0 {
		stable = s.open[0].start
	}
	s.aborted.tail = append(s.aborted.tail, abortedTxn{e.pid, first, base, stable})
}

// breakOff ends the transactions that are open where the log breaks: what they
// wrote is aborted. Their markers may be among what was lost, and then none ever
// comes; a marker that comes later finds that its number has ended.
func (s *state) breakOff(c cut) {
	for i, o := range s.open {
		if p := s.producers[o.pid]; p != nil {
			p.ended = max(p.ended, p.txn)
			p.txn, p.began = 0, 0
			s.oldest = min(s.oldest, p.at)
		}
		stable := c.Base
		if i+1 < len(s.open) {
			stable = s.open[i+1].start
		}
		s.aborted.tail = append(s.aborted.tail, abortedTxn{o.pid, o.start, c.Base - 1, stable})
	}
	s.open = nil
}

// admitMarker decides about a marker. e.txn is its number, 0 for what is open: then
// it is set to that. A number that has ended is a duplicate.
func (d *draft) admitMarker(e *entry) verdict {
	p := d.producer(e.pid)
	switch {
	case e.txn != 0:
		if p != nil && e.txn <= p.ended {
			return verdict{duplicate: true, base: types.NoOffset, at: p.at}
		}
	case p != nil && e.epoch < p.epoch:
		return refuse(kerr.InvalidProducerEpoch, "a newer epoch of this producer has written, or its transaction was ended")
	case p != nil && e.coordinator < p.coordinator:
		return refuse(kerr.TransactionCoordinatorFenced, "a later coordinator has ended a transaction of this producer")
	case p != nil:
		e.txn = p.txn
	}
	base := d.next
	d.touch(e, p).end(e)
	d.next += types.Offset(e.count)
	return verdict{base: base}
}
