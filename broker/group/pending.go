package group

import (
	"slices"
	"time"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/types"
)

// commit is an offset that somebody committed, as stored.
type commit struct {
	TopicID   types.TopicID `json:"topic_id"`
	Offset    types.Offset  `json:"offset"`
	Epoch     int32         `json:"epoch"`
	Metadata  string        `json:"metadata"`
	Timestamp int64         `json:"timestamp"` // ms; when committed, by the owner's clock
}

// pendingCommit is one that counts when its transaction, the N-th of a
// transactional id, commits. A value lists them in the order in which they were
// written.
type pendingCommit struct {
	ProducerID int64 `json:"producer_id"`
	N          int64 `json:"n"`
	// Transactional is the transactional id, so that its coordinator can be asked
	// what became of the transaction.
	Transactional string `json:"transactional_id,omitempty"`
	commit
	// Passed: an offset that was committed later counts already, so this one never
	// will. It is kept because the partition is unstable until the transaction ends.
	Passed bool `json:"passed,omitempty"`

	extra rawFields
}

// MarshalJSON implements json.Marshaler.
func (p pendingCommit) MarshalJSON() ([]byte, error) {
	type plain pendingCommit
	return coord.Marshal(plain(p), p.extra)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *pendingCommit) UnmarshalJSON(b []byte) (err error) {
	type plain pendingCommit
	p.extra, err = coord.Unmarshal(b, (*plain)(p))
	return err
}

// ending is how the last ended transaction of a producer id ended.
type ending struct {
	ProducerID int64 `json:"producer_id"`
	N          int64 `json:"n"`
	Commit     bool  `json:"commit,omitempty"`
	At         int64 `json:"at"` // ms; when the group heard of it, by its owner's clock
}

// endings is what a group remembers of transactions that have ended. It decides
// what a pending commit is worth, wherever one is found: of a transaction that was
// committed it counts, of an older or an aborted one it is void.
type endings struct {
	list []*ending // in the order in which they were heard of
	of   map[int64]*ending
}

// last is the number of a producer id's last ended transaction, 0 if none is known.
func (e *endings) last(producer int64) int64 {
	if d := e.of[producer]; d != nil {
		return d.N
	}
	return 0
}

// note remembers an end, the latest of its producer id.
func (e *endings) note(d ending) {
	if old := e.of[d.ProducerID]; old != nil {
		e.list = slices.Delete(e.list, slices.Index(e.list, old), slices.Index(e.list, old)+1)
	}
	if e.of == nil {
		e.of = map[int64]*ending{}
	}
	e.of[d.ProducerID] = &d
	e.list = append(e.list, &d)
}

// forget drops what is older than age, and the oldest beyond limit, but for those
// that needed says. It reports whether anything was dropped.
func (e *endings) forget(now time.Time, age time.Duration, limit int, needed func(producer int64) bool) bool {
	before := len(e.list)
	over := before - limit
	e.list = slices.DeleteFunc(e.list, func(d *ending) bool {
		if over <= 0 && now.Sub(time.UnixMilli(d.At)) < age || needed(d.ProducerID) {
			return false
		}
		over--
		delete(e.of, d.ProducerID)
		return true
	})
	return len(e.list) != before
}

// settled reports that no pending commit of v belongs to a transaction that has
// ended.
func (e *endings) settled(v *stored) bool {
	return len(e.list) == 0 || !slices.ContainsFunc(v.Pending, func(p pendingCommit) bool { return p.N <= e.last(p.ProducerID) })
}

// settle is v as the ends of transactions have made it: v itself if none concerns
// it. The order in which commits were written decides, not that in which their
// transactions ended: what comes later in the list counts more, and all of it more
// than what was committed when it was written. As in Kafka's
// OffsetMetadataManager.replayEndTransactionMarker.
func (e *endings) settle(v *stored) *stored {
	if e.settled(v) {
		return v
	}
	out := *v
	out.Pending = nil
	for _, p := range v.Pending {
		d := e.of[p.ProducerID]
		switch {
		case d == nil || p.N > d.N:
			out.Pending = append(out.Pending, p)
		case p.N == d.N && d.Commit && !p.Passed:
			out.put(p.commit)
		}
	}
	return &out
}

// put makes c the commit that counts: it is the latest of all.
func (v *stored) put(c commit) {
	v.commit = c
	v.Placeholder, v.Erased = false, false
	v.Pending = slices.Clone(v.Pending)
	for i := range v.Pending {
		v.Pending[i].Passed = true
	}
}

// add puts p behind all that is pending. Its producer has one transaction open:
// what is there of an earlier one is void.
func (v *stored) add(p pendingCommit) {
	v.Pending = append(slices.DeleteFunc(slices.Clone(v.Pending), func(o pendingCommit) bool {
		return o.ProducerID == p.ProducerID
	}), p)
}

// clear takes the commit out: what is left is a placeholder, with what is pending.
func (v *stored) clear() {
	v.Erased = v.Erased || !v.Placeholder
	v.commit = commit{Offset: types.NoOffset, Epoch: -1}
	v.Placeholder = true
}

// drop takes out whatever was committed for one incarnation of the topic.
func (v *stored) drop(id types.TopicID) {
	if !v.Placeholder && v.TopicID == id {
		v.clear()
	}
	v.Pending = slices.DeleteFunc(slices.Clone(v.Pending), func(p pendingCommit) bool { return p.TopicID == id })
}

// empty reports that nothing is committed, nor may be.
func (v *stored) empty() bool { return v.Placeholder && len(v.Pending) == 0 }

// commits are all that a value has, pending ones too.
func (v *stored) commits() []commit {
	l := []commit{v.commit}
	for _, p := range v.Pending {
		l = append(l, p.commit)
	}
	return l
}
