package compact

import "github.com/hanzoai/stream/types"

// Index adds a batch's keys at Env.From and above to k; those of aborted
// transactions and of markers are left out. full: the map has no room for all of
// them, and k.Upto says how far it got. Batches come in order; none after one
// that was too many. A batch whose keys alone fill the map is indexed in part:
// then k.Upto lies within it, the pass ends there, and the next one has that as
// its From.
//
// A pass may end before the batch that did not fit as well. What that left in the
// map does no harm: it makes older records go for younger ones that stay.
func Index(k *Keys, e *Env, batch []byte) (full bool, err error) {
	b, err := parse(batch)
	if err != nil {
		return false, err
	}
	if !b.Control() && b.Count() > 0 && b.LastOffset() >= int64(e.From) && !e.aborted(b) {
		body, err := e.records(b)
		if err != nil {
			return false, err
		}
		w := newWalk(b, body)
		for w.next() {
			if o := w.offset(); w.Record.Key != nil && o >= e.From && !k.Add(w.Record.Key, o) {
				return true, nil
			}
		}
		if w.err != nil {
			return false, w.err
		}
	}
	k.cover(e.From)
	k.cover(types.Offset(b.LastOffset() + 1))
	return false, nil
}
