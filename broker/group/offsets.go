package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// offsetVersion is the format of stored offsets, field v.
const offsetVersion = 1

// stored is one committed offset as kept under {group}.{topic}.{partition}.
type stored struct {
	V int `json:"v"`
	commit
	// Term and Birth are those of the group's record when this was written: they
	// tell writes of its present owner from those of frozen ones, and this life of
	// the group from an earlier one of the same name.
	Term  uint64     `json:"term"`
	Birth pubsub.Rev `json:"birth"`
	// Topic is the topic's name where the key has only a hash of it.
	Topic string `json:"topic,omitempty"`
	// Placeholder marks a value without a commit: it only takes the key away from
	// an earlier owner.
	Placeholder bool `json:"placeholder,omitempty"`
	// Erased says of a placeholder that there was a commit, which a client deleted.
	Erased bool `json:"erased,omitempty"`
	// Pending are commits of transactions, in the order in which they were written.
	// What those are worth that have ended, the group's record tells.
	Pending []pendingCommit `json:"pending,omitempty"`

	extra rawFields
}

// entry is what is known of one key. The zero entry is a key never written.
type entry struct {
	rev   pubsub.Rev
	value *stored // nil: no value
	// unsure: a write of ours has an unknown outcome.
	unsure bool
	// err: a value in a format not known here; it is never overwritten.
	err error
}

// op is what a turn does to one key. Whatever it is, the key becomes ours by it,
// and what transactions that have ended left in it is carried out.
type op struct {
	changes []change // in order
	remove  bool     // delete it instead, unless it was committed anew
	err     error    // outcome
}

// change is one thing to do to a key's value; exactly one field is set.
type change struct {
	commit  *commit
	pending *pendingCommit
	erase   bool          // a client wants nothing committed there, whatever there is
	topic   types.TopicID // what was committed for this incarnation of the topic goes
}

// offsets is a group's commits in memory, complete since it was loaded.
type offsets struct {
	table pubsub.Table // used by Flush alone
	m     map[types.TopicPartition]*entry
	ops   map[types.TopicPartition]*op // of this turn
	// loose are the keys in which something is pending, as far as is known.
	loose map[types.TopicPartition]struct{}
}

func makeOffsets() offsets {
	return offsets{
		m:     make(map[types.TopicPartition]*entry),
		ops:   make(map[types.TopicPartition]*op),
		loose: make(map[types.TopicPartition]struct{}),
	}
}

func (o *offsets) entry(tp types.TopicPartition) *entry {
	e := o.m[tp]
	if e == nil {
		e = &entry{}
		o.m[tp] = e
	}
	return e
}

// know takes what is known of a key.
func (o *offsets) know(tp types.TopicPartition, e entry) {
	*o.entry(tp) = e
	if e.value != nil && len(e.value.Pending) > 0 {
		o.loose[tp] = struct{}{}
	} else {
		delete(o.loose, tp)
	}
}

// touch plans to make a key ours.
func (o *offsets) touch(tp types.TopicPartition) *op {
	p := o.ops[tp]
	if p == nil {
		p = &op{}
		o.ops[tp] = p
	}
	return p
}

// plan plans a change. Several of one key in a turn become one write.
func (o *offsets) plan(tp types.TopicPartition, c change) *op {
	p := o.touch(tp)
	p.remove = false
	if n := len(p.changes); n > 0 && p.changes[n-1].commit != nil && c.commit != nil {
		p.changes = p.changes[:n-1] // nothing would be seen of it
	}
	p.changes = append(p.changes, c)
	return p
}

// offsetKey is where a partition's offset is kept.
func offsetKey(group string, tp types.TopicPartition) string {
	return pubsub.Token(group) + "." + pubsub.Token(tp.Topic) + "." + strconv.Itoa(int(tp.Partition))
}

// parseOffset reads a stored offset's key and value. A nil value without an
// error is a delete marker.
func parseOffset(v pubsub.Value) (tp types.TopicPartition, val *stored, err error) {
	f := strings.Split(v.Key, ".")
	if len(f) != 3 {
		return tp, nil, fmt.Errorf("offset key %q: not three tokens", v.Key)
	}
	n, err := strconv.ParseInt(f[2], 10, 32)
	if err != nil {
		return tp, nil, fmt.Errorf("offset key %q: %w", v.Key, err)
	}
	tp.Partition = int32(n)
	name, ok := pubsub.Name(f[1])
	if v.Deleted {
		if !ok {
			// A marker has no value that could tell the name; it is found again by
			// its token when the topic is named.
			return tp, nil, errHashed
		}
		tp.Topic = name
		return tp, nil, nil
	}
	val = new(stored)
	if val.extra, err = coord.Unmarshal(v.Data, val); err != nil {
		return tp, nil, fmt.Errorf("offset %s at revision %d: %w", v.Key, v.Rev, err)
	}
	if !ok {
		name = val.Topic
	}
	tp.Topic = name
	if val.V != offsetVersion {
		return tp, nil, fmt.Errorf("offset %s at revision %d: version %d: %w", v.Key, v.Rev, val.V, coord.ErrVersion)
	}
	return tp, val, nil
}

var errHashed = errors.New("the key is a hash of a name that is not stored")

// Value implements coord.State.
func (s *State) Value(v pubsub.Value) {
	tp, val, err := parseOffset(v)
	if tp.Topic == "" && err != nil {
		return // no offset of ours
	}
	s.offsets.know(tp, entry{rev: v.Rev, value: val, err: err})
}

// current is a key's value in this life of the group, as transactions that have
// ended made it; nil if there is none.
func (s *State) current(e *entry) *stored {
	if e == nil || e.value == nil || e.value.Birth != s.env.Birth {
		return nil
	}
	return s.ended.settle(e.value)
}

// visible is the commit that counts for this life of the group, nil if none.
func (s *State) visible(e *entry) *stored {
	if v := s.current(e); v != nil && !v.Placeholder {
		return v
	}
	return nil
}

// unstable reports that an open transaction has committed to the key: for one
// incarnation of the topic, or with the zero id for any.
func (s *State) unstable(e *entry, id types.TopicID) bool {
	v := s.current(e)
	return v != nil && slices.ContainsFunc(v.Pending, func(p pendingCommit) bool { return id.IsZero() || p.TopicID == id })
}

// fenced reports that no earlier owner can move the key any more.
func (s *State) fenced(e *entry) bool {
	if e != nil && (e.unsure || e.err != nil) {
		return false
	}
	if s.env.Fence == 0 {
		return true
	}
	return e != nil && e.value != nil && e.value.Birth == s.env.Birth && e.value.Term >= s.env.Fence
}

// fence plans to make a key ours before the first answer about it: it is
// written again with our term, or as a placeholder if it is absent, so that the
// late write of an owner that was frozen fails.
func (s *State) fence(tp types.TopicPartition) {
	if !s.exists || s.fenced(s.offsets.m[tp]) || s.offsets.ops[tp] != nil {
		return
	}
	s.offsets.touch(tp)
}

// Flush implements coord.State: all keys of the turn are written at once, each
// by compare-and-set; what lost is read and decided again.
func (s *State) Flush(ctx context.Context, e coord.Envelope) error {
	s.env = e
	if s.deleting {
		s.removeAll()
	}
	o := &s.offsets
	if len(o.ops) == 0 {
		return nil
	}
	todo := make([]types.TopicPartition, 0, len(o.ops))
	for tp, p := range o.ops {
		if en := o.m[tp]; en != nil && en.err != nil {
			p.err = en.err
			continue
		}
		todo = append(todo, tp)
	}
	for try := 0; len(todo) > 0; try++ {
		if try == 5 {
			for _, tp := range todo {
				o.ops[tp].err = fmt.Errorf("commit %s of group %s: it keeps changing: %w", tp, s.name, pubsub.ErrUnavailable)
			}
			break
		}
		var err error
		if todo, err = s.writeKeys(ctx, todo); err != nil {
			return err
		}
	}
	var failed error
	if s.deleting {
		for _, p := range o.ops {
			failed = errors.Join(failed, p.err)
		}
	}
	clear(o.ops)
	return failed
}

// writeKeys does one round and returns the keys to do again.
func (s *State) writeKeys(ctx context.Context, todo []types.TopicPartition) (again []types.TopicPartition, err error) {
	o := &s.offsets
	writes := make([]pubsub.Write, len(todo))
	values := make([]*stored, len(todo))
	for i, tp := range todo {
		en, p := o.entry(tp), o.ops[tp]
		v := s.compose(tp, en, p)
		// After a takeover a key whose commit is erased stays as a placeholder: behind
		// a delete marker an earlier owner, frozen before its write, would not see that
		// the key was taken from it.
		drop := p.remove || p.erases() && v.empty() && s.env.Fence == 0
		w := pubsub.Write{Key: offsetKey(s.name, tp), Header: namesBeyond(s.name, tp.Topic, drop), Expect: en.rev, Delete: drop}
		if !drop {
			values[i] = v
			if w.Data, err = coord.Marshal(values[i], values[i].extra); err != nil {
				return nil, fmt.Errorf("encode offset %s: %w", w.Key, err)
			}
		}
		writes[i] = w
	}
	results := pubsub.PutAll(ctx, s.offsets.table, writes)
	for i, tp := range todo {
		p, res := o.ops[tp], results[i]
		switch {
		case res.Err == nil:
			o.know(tp, entry{rev: res.Rev, value: values[i]})
		case errors.Is(res.Err, pubsub.ErrConflict):
			redo, err := s.reread(ctx, tp, p)
			if err != nil {
				return nil, err
			}
			if redo {
				again = append(again, tp)
			}
		default:
			if errors.Is(res.Err, pubsub.ErrOutcomeUnknown) {
				o.m[tp].unsure = true
			}
			p.err = fmt.Errorf("commit %s of group %s: %w", tp, s.name, res.Err)
		}
	}
	return again, nil
}

// erases reports that a key may go if nothing is left in it.
func (p *op) erases() bool {
	return slices.ContainsFunc(p.changes, func(c change) bool { return c.erase || !c.topic.IsZero() })
}

// compose is the value to write for a plan.
func (s *State) compose(tp types.TopicPartition, en *entry, p *op) *stored {
	v := stored{commit: commit{Offset: types.NoOffset, Epoch: -1}, Placeholder: true}
	if en.value != nil && en.value.Birth == s.env.Birth {
		v = *en.value
	}
	for _, c := range p.changes {
		switch {
		case c.commit != nil:
			v.put(*c.commit)
		case c.pending != nil:
			v.add(*c.pending)
		case c.erase:
			v.clear()
			v.Pending = nil
		default:
			v.drop(c.topic)
		}
	}
	v = *s.ended.settle(&v)
	v.V, v.Term, v.Birth, v.Topic = offsetVersion, s.env.Owner.Term, s.env.Birth, ""
	if _, ok := pubsub.Name(pubsub.Token(tp.Topic)); !ok {
		v.Topic = tp.Topic
	}
	return &v
}

// reread takes what is found after a conflict, and says whether the plan is
// still to be done. A value of a later owner, or of a later life of the group,
// ends ours.
func (s *State) reread(ctx context.Context, tp types.TopicPartition, p *op) (redo bool, err error) {
	key, o := offsetKey(s.name, tp), &s.offsets
	v, err := o.table.Get(ctx, key)
	switch {
	case errors.Is(err, pubsub.ErrNotFound):
		o.know(tp, entry{rev: v.Rev})
		return true, nil
	case err != nil:
		o.entry(tp).unsure = true
		p.err = fmt.Errorf("read offset %s after a conflict: %w", key, err)
		return false, nil
	}
	_, val, err := parseOffset(v)
	if err != nil {
		o.know(tp, entry{rev: v.Rev, err: err})
		p.err = err
		return false, nil
	}
	if val.Birth > s.env.Birth || val.Birth == s.env.Birth && val.Term > s.env.Owner.Term {
		return false, coord.ErrNotOwner
	}
	o.know(tp, entry{rev: v.Rev, value: val})
	if p.remove && !s.deleting {
		return false, nil // it was committed anew: not old any more
	}
	return len(p.changes) > 0 || p.remove || !s.ended.settled(val) || !s.fenced(o.m[tp]), nil
}

// removeAll plans the end of every key, those too of which it is not known whether
// they were written.
func (s *State) removeAll() {
	clear(s.offsets.ops)
	for tp, en := range s.offsets.m {
		if en.value != nil || en.unsure {
			s.offsets.ops[tp] = &op{remove: true}
		}
	}
}

// committed lists the partitions with a commit, sorted.
func (s *State) committed() []types.TopicPartition {
	var l []types.TopicPartition
	for tp, en := range s.offsets.m {
		if s.visible(en) != nil || en.err != nil {
			l = append(l, tp)
		}
	}
	slices.SortFunc(l, comparePartitions)
	return l
}

func comparePartitions(a, b types.TopicPartition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return int(a.Partition) - int(b.Partition)
}
