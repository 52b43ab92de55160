package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/test/history"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/types"
)

const (
	// looseGroup has no members: its offsets are committed by whoever likes, and it is
	// deleted now and then.
	looseGroup = "loose"
	// offsetsRetention is how long offsets outlive their members in runs at whose end
	// that is waited for: longer than a group can be without any before.
	offsetsRetention = 4 * time.Minute
	// offsetsCheck is the time between two looks for what is over.
	offsetsCheck = 15 * time.Second
)

// loose commits offsets without being a member, asks for them, and deletes the group.
func (s *run) loose(r *rand.Rand) {
	c := &consumer{s: s, r: r, name: "loose", group: looseGroup}
	for !sim.Over(s.ended) {
		sim.Pause(s.ended, sim.Millis(r, 2000))
		to, ok := s.someLog(r)
		if !ok {
			continue
		}
		switch r.IntN(8) {
		case 0, 1, 2, 3:
			s.touch(to)
			k := history.Commit{Span: s.rec.Begin(), Group: looseGroup, Generation: -1, Log: to.log(), Offset: r.Int64N(1000)}
			req := group.CommitRequest{Membership: group.Membership{Group: looseGroup, Generation: -1}, Partitions: []group.CommitPartition{{
				TopicPartition: types.TopicPartition{Topic: to.name, Partition: to.partition}, TopicID: to.id, Offset: types.Offset(k.Offset), LeaderEpoch: -1}}}
			_, _, err := coordinate(c, 5*time.Second, func(ctx context.Context, g *group.Forwarder, _ *broker.Broker) (bool, error) {
				res := g.Commit(ctx, req)
				if res.Err != nil {
					return false, res.Err
				}
				return true, res.Partitions[0]
			})
			s.trace("loose commits %d on %s: %v", k.Offset, k.Log, err)
			k.Outcome = s.came(err)
			s.rec.Commit(k)
		case 4:
			s.deleteGroup(c)
		default:
			_, _ = c.committed(to)
		}
	}
}

// came is what a client knows of a change that was answered so.
func (s *run) came(err error) history.Outcome {
	switch {
	case err == nil:
		return history.OK
	case vague(err):
		return history.Unknown
	case !errors.Is(err, errRefused) && !kerr.IsRetriable(err):
		s.t.Errorf("group %s: %v", looseGroup, err)
	}
	return history.Failed
}

// touch notes that an offset of a partition may be committed in the loose group.
func (s *run) touch(to target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.touched == nil {
		s.touched = map[history.Log]bool{}
	}
	s.touched[to.log()] = true
}

// deleteGroup takes all offsets of the loose group away. It reports that nothing is
// left of it.
func (s *run) deleteGroup(c *consumer) bool {
	span := s.rec.Begin()
	_, _, err := coordinate(c, 5*time.Second, func(ctx context.Context, g *group.Forwarder, _ *broker.Broker) (bool, error) {
		return true, g.Delete(ctx, looseGroup)
	})
	s.trace("group %s is deleted: %v", looseGroup, err)
	if err == nil {
		s.tally.note(deletedGroups)
	}
	// That there is no such group says the same: nothing is committed.
	absent := errors.Is(err, kerr.GroupIDNotFound)
	outcome := history.OK
	if !absent {
		outcome = s.came(err)
	}
	s.mu.Lock()
	logs := slices.Collect(maps.Keys(s.touched))
	s.mu.Unlock()
	for _, log := range logs {
		s.rec.Commit(history.Commit{Span: span, Group: looseGroup, Generation: -1, Log: log, Offset: -1, Outcome: outcome})
	}
	return err == nil || absent
}

// verifyGone checks that a group which is deleted leaves nothing that its last owner
// can have written. A write of an earlier owner, or of an earlier life of the group,
// may come after whoever knew of it has gone; nobody sees it.
func (s *run) verifyGone() {
	var last coord.Envelope
	c := &consumer{s: s, r: s.rng, name: "verifier", group: looseGroup}
	s.eventually("the group without members is not deleted", func() string {
		// So that somebody owns it who lives.
		if _, _, err := coordinate(c, 5*time.Second, func(ctx context.Context, g *group.Forwarder, _ *broker.Broker) (bool, error) {
			return true, g.Fetch(ctx, group.FetchRequest{Group: looseGroup, All: true}).Err
		}); err != nil {
			return err.Error()
		}
		for _, v := range s.offsetValues() {
			if v.Key != looseGroup {
				continue
			}
			var err error
			if _, last, err = coord.Open(v); err != nil {
				s.t.Error(err)
			}
		}
		if !s.deleteGroup(c) {
			return "it is there"
		}
		return ""
	})
	for _, v := range s.offsetValues() {
		var w struct {
			Birth pubsub.Rev `json:"birth"`
			Term  uint64     `json:"term"`
		}
		switch {
		case v.Key == looseGroup:
			s.t.Errorf("group %s was deleted and is there", looseGroup)
		case !strings.HasPrefix(v.Key, looseGroup+"."):
		case json.Unmarshal(v.Data, &w) != nil:
			s.t.Errorf("%s: %q", v.Key, v.Data)
		case w.Birth == last.Birth && w.Term >= last.Owner.Term:
			s.t.Errorf("key %s of term %d is left of a group that was deleted in term %d", v.Key, w.Term, last.Owner.Term)
		}
	}
}

// verifyExpired waits for the end of all offsets, of which one gateway takes care: what
// the others owned is left to it.
func (s *run) verifyExpired() {
	if !s.expires || s.t.Failed() {
		return
	}
	for _, x := range s.seats[1:] {
		x.stop(x.now(), false)
	}
	time.Sleep(offsetsRetention)
	s.eventually("groups that nobody wants any more", func() string {
		var left []string
		for _, v := range s.offsetValues() {
			if !strings.Contains(v.Key, ".") {
				left = append(left, v.Key)
			}
		}
		return strings.Join(left, ", ")
	})
	s.tally.note(expiries)
}

// offsetValues lists what is stored of groups.
func (s *run) offsetValues() (values []pubsub.Value) {
	c := s.server.Client(memory.Faults{})
	defer c.Close()
	tab, err := c.Table(context.Background(), pubsub.TableConfig{Name: "kafka-consumer-offsets", Replicas: s.replicas})
	if err == nil {
		err = tab.Scan(context.Background(), pubsub.WatchOptions{}, 0, func(v pubsub.Value) error {
			if !v.Deleted {
				values = append(values, v)
			}
			return nil
		})
	}
	if err != nil {
		s.t.Error(err)
	}
	return values
}
