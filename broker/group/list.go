package group

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/types"
)

// listed is a group's line in ListGroups, for readers outside of its turn.
type listed struct{ p atomic.Pointer[Listing] }

func (l *listed) show(s *State) {
	if !s.exists || s.deleting {
		l.p.Store(nil)
		return
	}
	now := Listing{Group: s.name, ProtocolType: s.protocolType, State: s.phase, Type: classic}
	if old := l.p.Load(); old == nil || *old != now {
		l.p.Store(&now)
	}
}

// Describe shows a group, of whichever gateway. One that does not exist is Dead.
func (co *Coordinator) Describe(ctx context.Context, name string) Description {
	key := pubsub.Token(name)
	if co.rt.Holds(key) {
		var out Description
		err := co.do(ctx, name, func(t *turn) { out = t.State.describe() })
		if err == nil {
			return out
		}
		if !errors.Is(err, kerr.NotCoordinator) {
			return Description{Err: err, Group: name}
		}
	}
	v, err := co.rt.Find(ctx, key)
	switch {
	case errors.Is(err, pubsub.ErrNotFound):
		return Description{Group: name, State: Dead}
	case err != nil:
		return Description{Err: coord.Refusal(err), Group: name}
	}
	s, err := co.decode(name, v)
	if err != nil {
		return Description{Err: coord.Refusal(err), Group: name}
	}
	return s.describe()
}

// decode makes a state of a record for a look at it.
func (co *Coordinator) decode(name string, v pubsub.Value) (*State, error) {
	body, _, err := coord.Open(v)
	if err != nil {
		return nil, err
	}
	s := newState(name, &co.c, nil)
	if err := s.Decode(body); err != nil {
		return nil, fmt.Errorf("record %s at revision %d: %w", v.Key, v.Rev, err)
	}
	return s, nil
}

// List lists all groups of the cluster: those of this gateway as they are, the
// others as last stored. A filter with a name that does not exist matches nothing.
func (co *Coordinator) List(ctx context.Context, states, kinds []string) ([]Listing, error) {
	select {
	case <-co.rt.Ready():
	default:
		return nil, kerr.CoordinatorLoadInProgress
	}
	if !co.d.Members.Fresh() {
		return nil, kerr.CoordinatorNotAvailable
	}
	all := make(map[string]Listing)
	held := co.rt.Held()
	for _, e := range co.rt.List() {
		if _, ours := held[e.Key]; ours || e.Header.Get(deletingHeader) != "" || e.Header.Get(typeHeader) == "" {
			continue
		}
		name, ok := groupName(e)
		if !ok {
			continue
		}
		protocolType, err := url.QueryUnescape(e.Header.Get(protocolTypeHeader))
		if err != nil {
			protocolType = e.Header.Get(protocolTypeHeader)
		}
		all[e.Key] = Listing{Group: name, ProtocolType: protocolType, State: stateOf(e.Header), Type: e.Header.Get(typeHeader)}
	}
	for key, s := range held {
		if l := s.listed.p.Load(); l != nil {
			all[key] = *l
		}
	}
	matches := func(filter []string, v string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, v) })
	}
	out := make([]Listing, 0, len(all))
	for _, l := range all {
		if matches(states, l.State) && matches(kinds, l.Type) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b Listing) int { return strings.Compare(a.Group, b.Group) })
	return out, nil
}

// GroupOffset is one committed offset of one group.
type GroupOffset struct {
	Group string
	CommittedOffset
}

// Offsets reads the committed offsets of all groups from the store, sorted by
// group, topic and partition. Those of topics that were deleted since may be
// among them: TopicID tells.
func (co *Coordinator) Offsets(ctx context.Context) ([]GroupOffset, error) {
	type life struct {
		name  string
		birth pubsub.Rev
		ended endings
	}
	records := make(map[string]life)
	type found struct {
		token string
		tp    types.TopicPartition
		v     *stored
	}
	var values []found
	err := co.d.Table.Scan(ctx, pubsub.WatchOptions{Patterns: []string{"*", "*.*.*"}}, 0, func(v pubsub.Value) error {
		token, rest, below := strings.Cut(v.Key, ".")
		switch {
		case v.Deleted:
		case !below:
			body, e, err := coord.Open(v)
			if err != nil {
				return nil // not readable by this version: nobody's offsets
			}
			s := newState("", &co.c, nil)
			if s.Decode(body) == nil && !s.deleting {
				records[token] = life{s.name, e.Birth, s.ended}
			}
		case rest != "":
			if tp, val, err := parseOffset(v); err == nil && val != nil {
				values = append(values, found{token, tp, val})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read committed offsets: %w", err)
	}
	out := make([]GroupOffset, 0, len(values))
	for _, f := range values {
		r, ok := records[f.token]
		if !ok || r.birth != f.v.Birth {
			continue
		}
		v := r.ended.settle(f.v)
		if v.Placeholder {
			continue
		}
		out = append(out, GroupOffset{Group: r.name, CommittedOffset: CommittedOffset{
			TopicPartition: f.tp, TopicID: v.TopicID, Offset: v.Offset, LeaderEpoch: v.Epoch, Metadata: v.Metadata,
		}})
	}
	slices.SortFunc(out, func(a, b GroupOffset) int {
		if c := strings.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		return comparePartitions(a.TopicPartition, b.TopicPartition)
	})
	return out, nil
}
