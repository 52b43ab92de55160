package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
)

// line is a transactional id's line in ListTransactions, with what filters ask.
type line struct {
	Listing
	start int64
}

// listed is the line of a held state, for readers outside of its turn.
type listed struct{ p atomic.Pointer[line] }

func (l *listed) show(s *State) {
	if !s.exists {
		l.p.Store(nil)
		return
	}
	now := line{Listing{s.id, s.producer.ID, s.state}, s.start}
	if old := l.p.Load(); old == nil || *old != now {
		l.p.Store(&now)
	}
}

func (s *State) describe() Description {
	if !s.exists {
		return Description{Err: kerr.TransactionalIDNotFound, TransactionalID: s.id}
	}
	return Description{
		TransactionalID: s.id, State: s.state, Timeout: s.timeout, Start: s.start, Producer: s.producer,
		Partitions: s.listPartitions(), Groups: s.listGroups(),
	}
}

// Describe shows a transactional id, of whichever gateway.
func (co *Coordinator) Describe(ctx context.Context, id string) Description {
	fail := func(err error) Description {
		return Description{Err: coord.Refusal(err), TransactionalID: id, Producer: NoProducer}
	}
	if id == "" {
		return fail(kerr.InvalidRequest)
	}
	key := pubsub.Token(id)
	if co.rt.Holds(key) {
		var out Description
		err := co.rt.Do(ctx, key, func(t *turn) { out = t.State.describe() })
		if err == nil {
			return out
		}
		if !errors.Is(err, coord.ErrNotOwner) {
			return fail(err)
		}
	}
	v, err := co.rt.Find(ctx, key)
	switch {
	case errors.Is(err, pubsub.ErrNotFound):
		return fail(kerr.TransactionalIDNotFound)
	case err != nil:
		return fail(err)
	}
	body, _, err := coord.Open(v)
	if err != nil {
		return fail(err)
	}
	s := newState(id, &co.c, co.d.Ahead, nil)
	if err := s.Decode(body); err != nil {
		return fail(fmt.Errorf("record %s at revision %d: %w", v.Key, v.Rev, err))
	}
	return s.describe()
}

// List lists the transactional ids of the cluster, by id: those of this gateway as
// they are, the others as last stored.
func (co *Coordinator) List(_ context.Context, r ListRequest) ([]Listing, error) {
	select {
	case <-co.rt.Ready():
	default:
		return nil, kerr.CoordinatorLoadInProgress
	}
	if !co.d.Members.Fresh() {
		return nil, kerr.CoordinatorNotAvailable
	}
	var pattern *regexp.Regexp
	if r.Pattern != "" {
		_, err := regexp.Compile(r.Pattern)
		if err == nil {
			pattern, err = regexp.Compile(`\A(?:` + r.Pattern + `)\z`)
		}
		if err != nil {
			k := *kerr.InvalidRegularExpression
			k.Description = "The pattern of transactional ids is not a regular expression: " + err.Error()
			return nil, &k
		}
	}
	all := map[string]line{}
	held := co.rt.Held()
	for _, e := range co.rt.List() {
		if _, ours := held[e.Key]; ours || e.Header.Get(stateHeader) == "" {
			continue
		}
		if id, ok := nameOf(e); ok {
			all[e.Key] = line{Listing{id, number(e, producerHeader), e.Header.Get(stateHeader)}, number(e, startHeader)}
		}
	}
	for key, s := range held {
		if l := s.listed.p.Load(); l != nil {
			all[key] = *l
		}
	}
	now := time.Now().Add(-co.d.Ahead()).UnixMilli()
	out := make([]Listing, 0, len(all))
	for _, l := range all {
		switch {
		case len(r.ProducerIDs) > 0 && !slices.Contains(r.ProducerIDs, l.ProducerID):
		case len(r.States) > 0 && !slices.Contains(r.States, l.State):
		case r.Duration >= 0 && now-l.start <= r.Duration.Milliseconds():
		case pattern != nil && !pattern.MatchString(l.TransactionalID):
		default:
			out = append(out, l.Listing)
		}
	}
	slices.SortFunc(out, func(a, b Listing) int { return cmp.Compare(a.TransactionalID, b.TransactionalID) })
	return out, nil
}
