package compact

import (
	"fmt"
	"math"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// Stats counts what Filter did.
type Stats struct {
	In, Out           int64 // records
	BytesIn, BytesOut int64 // of batches
	Superseded        int64 // dropped: a later record has the key
	Tombstones        int64 // dropped: tombstones past their horizon
	Aborted           int64 // dropped: of aborted transactions
	Keyless           int64 // dropped: without a key
	Markers           int64 // dropped: transaction markers past their horizon
}

// Add adds o to s.
func (s *Stats) Add(o Stats) {
	s.In += o.In
	s.Out += o.Out
	s.BytesIn += o.BytesIn
	s.BytesOut += o.BytesOut
	s.Superseded += o.Superseded
	s.Tombstones += o.Tombstones
	s.Aborted += o.Aborted
	s.Keyless += o.Keyless
	s.Markers += o.Markers
}

// Filter returns what remains of one batch: batch itself if nothing goes, a new
// one in new memory with fewer records, or none, or a delete horizon, or nil. A
// batch that is split (Env.MaxBatch) gives several, one behind the other, that
// cover the same offsets. horizon is when its tombstones or its marker may go, ms;
// 0 if there is nothing that will. Every error is ErrUnreadable.
func Filter(k *Keys, e *Env, batch []byte) (out []byte, s Stats, horizon int64, err error) {
	b, err := parse(batch)
	if err != nil {
		return nil, s, 0, err
	}
	s.In, s.BytesIn = int64(b.Count()), int64(len(batch))
	done, err := e.meet(b)
	if err != nil {
		return nil, s, 0, err
	}
	var r remains
	switch horizon, set := b.DeleteHorizon(); {
	case b.Control() && done && set && e.due(horizon):
		s.Markers += s.In
	case b.Control() && b.Count() > 0:
		r = remains{records: b.Records(), count: b.Count(), latest: b.MaxTimestamp(), whole: true, expires: done}
	case b.Control():
	case done:
		s.Aborted += s.In
	case b.Count() > 0:
		if r, err = e.sift(k, b, &s); err != nil {
			return nil, s, 0, err
		}
	}
	if out, horizon, err = e.write(b, r); err != nil {
		return nil, s, 0, err
	}
	s.Out, s.BytesOut = int64(r.count), int64(len(out))
	return out, s, horizon, nil
}

// remains is what stays of a batch.
type remains struct {
	records []byte // not compressed; of the batch or of Env
	count   int32
	latest  int64 // the largest timestamp
	whole   bool  // nothing was dropped
	expires bool  // there are tombstones, or it is a marker that nobody needs
}

// meet notes a batch's transaction and reports whether the batch has done its
// work (CleanedTransactionMetadata.onBatchRead, onControlBatchRead): data of an
// aborted transaction, a marker without batches before it.
func (e *Env) meet(b serde.Batch) (done bool, err error) {
	pid := b.ProducerID()
	if !b.Control() {
		if b.Transactional() {
			if e.open == nil {
				e.open = map[int64]struct{}{}
			}
			e.open[pid] = struct{}{}
		}
		return e.aborted(b), nil
	}
	if b.Count() == 0 {
		return true, nil
	}
	t, _, err := serde.ParseControl(b)
	if err != nil {
		return false, fmt.Errorf("%w: at offset %d: %w", ErrUnreadable, b.BaseOffset(), err)
	}
	if t != serde.ControlAbort && t != serde.ControlCommit {
		return false, nil
	}
	_, met := e.open[pid]
	delete(e.open, pid)
	return !met, nil
}

// sift walks a data batch and drops records.
func (e *Env) sift(k *Keys, b serde.Batch, s *Stats) (r remains, err error) {
	body, err := e.records(b)
	if err != nil {
		return r, err
	}
	horizon, set := b.DeleteHorizon()
	expired := set && e.due(horizon)
	// A tombstone that the map does not cover is not met: what it deletes is still
	// there after this pass. A batch has one horizon for all of its tombstones.
	covered := b.LastOffset() < int64(e.Upto)
	r = remains{records: body, latest: math.MinInt64, whole: true}
	w, at := newWalk(b, body), 0
	var kept []byte
	for w.next() {
		rec := &w.Record
		var dropped *int64
		if o := w.offset(); o < e.Upto {
			if rec.Key == nil {
				dropped = &s.Keyless
			} else if last, ok := k.Last(rec.Key); ok && last > o {
				dropped = &s.Superseded
			} else if rec.Value == nil && expired {
				dropped = &s.Tombstones
			}
		}
		switch {
		case dropped != nil:
			*dropped++
			if r.whole {
				r.whole = false
				if kept = body[:at]; b.Codec() == 0 { // not ours, else what stays moves up in place
					e.kept = append(e.kept[:0], kept...)
					kept = e.kept
				}
			}
		default:
			r.count++
			r.expires = r.expires || covered && rec.Value == nil
			r.latest = max(r.latest, b.BaseTimestamp()+rec.TimestampDelta)
			if !r.whole {
				kept = append(kept, w.Raw...)
			}
		}
		at += len(w.Raw)
	}
	if !r.whole {
		r.records = kept
	}
	if b.Codec() == 0 && kept != nil {
		e.kept = kept
	}
	return r, w.err
}

// StaysEmpty reports a batch whose place must be seen even if no record of it is
// left: the last one before End, and a live producer's newest.
func (e *Env) StaysEmpty(b serde.Batch) bool {
	if e.End > 0 && b.LastOffset()+1 == int64(e.End) {
		return true
	}
	if b.ProducerID() < 0 || e.LastOf == nil {
		return false
	}
	o, ok := e.LastOf(b.ProducerID(), b.ProducerEpoch())
	return ok && o == types.Offset(b.BaseOffset())
}
