package group

import (
	"context"
	"strconv"
	"time"

	"github.com/hanzoai/stream/types"
)

// expireOffsets plans the end of offsets whose time is over, and reports whether
// nothing is left of the group then. As in Kafka they live while the group has
// members, and for the retention after it lost the last one, or after their
// commit in a group that never had any. Where a transaction is open nothing expires.
func (s *State) expireOffsets(now time.Time) (gone bool) {
	if !s.exists || s.phase != Empty || len(s.pending) > 0 {
		return false
	}
	if s.forgetEndings(now) {
		s.dirty = true
	}
	left := len(s.ended.list) > 0 // soon forgotten
	for tp, en := range s.offsets.m {
		if en.err != nil || s.offsets.ops[tp] != nil {
			left = true
			continue
		}
		v := en.value
		if v == nil {
			continue
		}
		if s.unstable(en, types.TopicID{}) {
			left = true
			continue
		}
		if c := s.visible(en); c != nil {
			base := time.UnixMilli(c.Timestamp)
			if s.protocolType != "" {
				base = s.since
			}
			if now.Sub(base) < s.c.OffsetsRetention {
				left = true
				continue
			}
		} else if v.Birth == s.env.Birth {
			continue // a placeholder: goes with the group
		}
		s.offsets.ops[tp] = &op{remove: true}
	}
	// A group that was made a moment ago may be about to get its first commit.
	return !left && now.Sub(s.since) >= s.c.RetentionInterval
}

// dropTopic plans the end of the offsets of one incarnation of a topic.
func (s *State) dropTopic(id types.TopicID) {
	for tp, en := range s.offsets.m {
		v := s.visible(en)
		switch {
		case s.offsets.ops[tp] != nil:
		case s.unstable(en, id), v != nil && v.TopicID == id && len(v.Pending) > 0:
			s.offsets.plan(tp, change{topic: id}) // the rest may be of the next one
		case v != nil && v.TopicID == id:
			s.offsets.ops[tp] = &op{remove: true}
		}
	}
}

// expire looks through the groups that this gateway owns, and takes those over
// that nobody alive does and that may have something to expire.
func (co *Coordinator) expire(ctx context.Context) {
	pass := func(t *turn) {
		s := t.State
		if s.deleting {
			t.Remove()
			return
		}
		if len(s.overdue(t.Now)) > 0 {
			co.inquire(s.name)
		}
		if s.expireOffsets(t.Now) && s.removeGroup() == nil {
			t.Remove()
		}
	}
	_ = co.rt.Each(ctx, pass)
	held := co.rt.Held()
	for _, e := range co.rt.List() {
		if ctx.Err() != nil {
			return
		}
		since, err := strconv.ParseInt(e.Header.Get(sinceHeader), 10, 64)
		if _, ours := held[e.Key]; ours || err != nil || !co.rt.Adoptable(e) ||
			e.Header.Get(stateHeader) != Empty || time.Since(time.UnixMilli(since)) < co.c.OffsetsRetention {
			continue
		}
		_ = co.rt.Do(ctx, e.Key, pass) // what fails is tried at the next pass
	}
}

// DropTopic removes, in the background, the offsets that groups of this gateway
// have for a topic that was deleted. Elsewhere they read as absent, and expire.
func (co *Coordinator) DropTopic(id types.TopicID) {
	co.mu.Lock()
	defer co.mu.Unlock()
	co.drops = append(co.drops, id)
	select {
	case co.dropping <- struct{}{}:
	default:
	}
}

func (co *Coordinator) dropTopics(ctx context.Context) {
	co.mu.Lock()
	ids := co.drops
	co.drops = nil
	co.mu.Unlock()
	_ = co.rt.Each(ctx, func(t *turn) {
		for _, id := range ids {
			t.State.dropTopic(id)
		}
	})
}
