package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/test/history"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/types"
)

// lives is what admin clients know of the incarnations of topics.
type lives struct {
	mu      sync.Mutex
	created map[types.TopicID]string // acknowledged, by name
	doomed  map[types.TopicID]bool   // a deletion was asked for
	deleted map[types.TopicID]bool   // and acknowledged
}

func (l *lives) create(id types.TopicID, name string) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.created == nil {
		l.created, l.doomed, l.deleted = map[types.TopicID]string{}, map[types.TopicID]bool{}, map[types.TopicID]bool{}
	}
	for _, n := range l.created {
		again = again || n == name
	}
	l.created[id] = name
	return again
}

func (l *lives) doom(id types.TopicID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doomed != nil {
		l.doomed[id] = true
	}
}

func (l *lives) bury(id types.TopicID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deleted != nil {
		l.deleted[id] = true
	}
}

func (s *run) create(r *rand.Rand, name string, partitions int32) (types.TopicID, error) {
	return ask(r, s.any(r), sim.Millis(r, 15_000), false, func(ctx context.Context, b *broker.Broker) (types.TopicID, error) {
		t, err := b.CreateTopic(ctx, topic.Spec{Name: name, Partitions: partitions, Replicas: -1})
		if err != nil {
			return types.TopicID{}, err
		}
		return t.ID, nil
	})
}

// makeTopics makes the topics that stay, however long it takes.
func (s *run) makeTopics() {
	for _, name := range s.names {
		n := 1 + s.rng.Int32N(3)
		for {
			id, err := s.create(s.rng, name, n)
			s.trace("create %s: %v", name, err)
			if err == nil {
				s.topics.create(id, name)
			}
			if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
				break
			}
			if !errors.Is(err, errCut) && !errors.Is(err, errRefused) && !kerr.IsRetriable(err) {
				s.t.Errorf("create %s: %v", name, err)
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// admin makes and deletes one topic, again and again, perhaps beside another one
// with the same wish.
func (s *run) admin(r *rand.Rand, name string) {
	for !sim.Over(s.ended) {
		sim.Pause(s.ended, sim.Millis(r, 6000))
		if r.IntN(2) == 0 {
			id, err := s.create(r, name, 1+r.Int32N(3))
			s.trace("create %s: %s, %v", name, id, err)
			switch {
			case err == nil:
				s.tally.note(creations)
				if s.topics.create(id, name) {
					s.tally.note(recreations)
				}
				s.visible(r, name, id)
			case errors.Is(err, kerr.TopicAlreadyExists):
			case !errors.Is(err, errCut) && !errors.Is(err, errRefused) && !kerr.IsRetriable(err):
				s.t.Errorf("create %s: %v", name, err)
			}
			continue
		}
		id, n, ok := s.find(r, name, s.ended)
		if !ok {
			continue
		}
		s.topics.doom(id)
		// Its committed offsets may be forgotten from now on.
		span := s.rec.Begin()
		for g := range s.groups {
			for p := range n {
				s.rec.Commit(history.Commit{Span: span, Group: g, Generation: -1, Log: target{name, id, p}.log(), Offset: -1, Outcome: history.Unknown})
			}
		}
		_, err := ask(r, s.any(r), sim.Millis(r, 15_000), false, func(ctx context.Context, b *broker.Broker) (bool, error) {
			t, err := b.TopicByID(ctx, id)
			if err != nil {
				return false, err
			}
			return true, b.DeleteTopic(ctx, t)
		})
		s.trace("delete %s (%s): %v", name, id, err)
		switch {
		case err == nil:
			s.topics.bury(id)
			s.tally.note(deletions)
		case gone(err):
			s.tally.note(racedAdmins)
		case !errors.Is(err, errCut) && !errors.Is(err, errRefused) && !kerr.IsRetriable(err):
			s.t.Errorf("delete %s: %v", name, err)
		}
	}
}

// visible checks that a topic whose creation was acknowledged is found on every
// gateway, unless somebody has deleted it since.
func (s *run) visible(r *rand.Rand, name string, id types.TopicID) {
	for _, x := range s.seats {
		_, err := ask(r, x.now(), 3*time.Second, false, func(ctx context.Context, b *broker.Broker) (bool, error) {
			_, err := b.TopicByID(ctx, id)
			return true, err
		})
		s.topics.mu.Lock()
		doomed := s.topics.doomed[id]
		s.topics.mu.Unlock()
		if gone(err) && !doomed {
			s.t.Errorf("%s (%s) was made and is denied", name, id)
		}
	}
}

// grower gives topics that stay more partitions.
func (s *run) grower(r *rand.Rand) {
	for !sim.Over(s.ended) {
		sim.Pause(s.ended, sim.Millis(r, 10_000))
		name := s.names[r.IntN(len(s.names))]
		id, n, ok := s.find(r, name, s.ended)
		if !ok || n >= 5 {
			continue
		}
		_, err := ask(r, s.any(r), sim.Millis(r, 15_000), false, func(ctx context.Context, b *broker.Broker) (bool, error) {
			t, err := b.TopicByID(ctx, id)
			if err != nil {
				return false, err
			}
			return true, b.GrowTopic(ctx, t, topic.Growth{Partitions: n + 1})
		})
		s.trace("grow %s to %d: %v", name, n+1, err)
		switch {
		case err == nil:
			s.tally.note(growths)
			if _, err := ask(r, s.any(r), 3*time.Second, false, func(ctx context.Context, b *broker.Broker) (int64, error) {
				return lookup(ctx, b, target{name, id, n}, partition.Earliest)
			}); gone(err) {
				s.t.Errorf("%s has grown to %d partitions, and the last is denied", name, n+1)
			}
		case gone(err):
			s.denied(name)
		case errors.Is(err, kerr.InvalidPartitions): // an earlier wish was carried out
		case !errors.Is(err, errCut) && !errors.Is(err, errRefused) && !kerr.IsRetriable(err):
			s.t.Errorf("grow %s: %v", name, err)
		}
	}
}

// deleter deletes records of topics that stay, up to what was shown.
func (s *run) deleter(r *rand.Rand) {
	for !sim.Over(s.ended) {
		sim.Pause(s.ended, sim.Millis(r, 5000))
		to, ok := s.someLog(r)
		if !ok {
			continue
		}
		end, err := s.latest(r, to)
		if err != nil || end == 0 {
			continue
		}
		d := history.Deletion{Span: s.rec.Begin(), Log: to.log(), Offset: r.Int64N(end + 1), Outcome: history.Unknown}
		start, err := ask(r, s.any(r), sim.Millis(r, 10_000), false, func(ctx context.Context, b *broker.Broker) (types.Offset, error) {
			p, err := open(ctx, b, to)
			if err != nil {
				return 0, err
			}
			return p.DeleteRecords(ctx, types.Offset(d.Offset))
		})
		s.trace("delete records of %s up to %d: %d, %v", to.log(), d.Offset, start, err)
		switch {
		case err == nil:
			d.Outcome = history.OK
			s.tally.note(trims)
			if int64(start) < d.Offset {
				s.t.Errorf("%s: deleted up to %d, the log starts at %d", to.log(), d.Offset, start)
			}
		case errors.Is(err, kerr.OffsetOutOfRange):
			s.t.Errorf("%s: delete up to %d, which was shown: %v", to.log(), d.Offset, err)
		}
		s.rec.Deletion(d)
	}
}

// someLog is a partition of a topic that stays.
func (s *run) someLog(r *rand.Rand) (target, bool) {
	name := s.names[r.IntN(len(s.names))]
	id, n, ok := s.find(r, name, s.done)
	if !ok {
		return target{}, false
	}
	return target{name, id, r.Int32N(n)}, true
}

// latest asks for a log's end and records the answer.
func (s *run) latest(r *rand.Rand, to target) (int64, error) {
	e := history.End{Span: s.rec.Begin(), Log: to.log()}
	var err error
	e.Offset, err = ask(r, s.any(r), 3*time.Second, false, func(ctx context.Context, b *broker.Broker) (int64, error) {
		return lookup(ctx, b, to, partition.Latest)
	})
	if err == nil {
		s.rec.End(e)
	}
	return e.Offset, err
}

// asker asks for ends and committed offsets.
func (s *run) asker(r *rand.Rand) {
	c := &consumer{s: s, r: r, name: "asker"}
	for !sim.Over(s.done) {
		if to, ok := s.someLog(r); ok {
			_, _ = s.latest(r, to)
			for g := range s.groups {
				c.group = g
				c.committed(to)
			}
		}
		sim.Pause(s.done, sim.Millis(r, 1000))
	}
}

// committed asks for what a group has committed, and records the answer.
func (c *consumer) committed(to target) (int64, error) {
	span := c.s.rec.Begin()
	name := c.group
	o, _, err := coordinate(c, 5*time.Second, func(ctx context.Context, g *group.Forwarder, b *broker.Broker) (int64, error) {
		t, err := b.TopicByID(ctx, to.id)
		if err != nil {
			return 0, err
		}
		f := g.Fetch(ctx, group.FetchRequest{Group: name, Partitions: []group.FetchPartition{{
			TopicPartition: types.TopicPartition{Topic: t.Name, Partition: to.partition}, TopicID: t.ID}}})
		if f.Err != nil {
			return 0, f.Err
		}
		return int64(f.Offsets[0].Offset), f.Offsets[0].Err
	})
	if err == nil {
		c.s.rec.Committed(history.Committed{Span: span, Group: c.group, Log: to.log(), Offset: o})
	}
	return o, err
}
