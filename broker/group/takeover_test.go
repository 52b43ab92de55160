package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// crowd is a group of members that heartbeat and commit through a balancer: each
// keeps to its gateway until it is refused there, or cannot reach it.
type crowd struct {
	t     *testing.T
	id    types.TopicID
	sites []*site

	mu    sync.Mutex // guards: all below
	down  map[*site]bool
	acked map[int32]types.Offset
	stall time.Duration // the longest that one request took, with its repetitions
	beats int
}

// member of a crowd.
type crowdMember struct {
	*crowd
	Membership
	part int32
	at   int
}

// gather makes a stable group of n members; even ones are static.
func gather(t *testing.T, sites []*site, n int) (*crowd, []*crowdMember) {
	t.Helper()
	c := &crowd{t: t, id: types.NewTopicID(), sites: sites, down: map[*site]bool{}, acked: map[int32]types.Offset{}}
	members := make([]*crowdMember, n)
	var joined sync.WaitGroup
	for i := range members {
		m := &crowdMember{crowd: c, part: int32(i), at: i % len(sites)}
		members[i] = m
		joined.Go(func() {
			r := joinRequest("g", "")
			r.SessionTimeout = 45 * time.Second
			if i%2 == 0 {
				instance := fmt.Sprint("static", i)
				r.Instance = &instance
			}
			j := sites[m.at].Join(t.Context(), r)
			m.Membership = Membership{Group: "g", Member: j.Member, Instance: r.Instance, Generation: j.Generation}
			req := SyncRequest{Membership: m.Membership}
			for _, jm := range j.Members {
				req.Assignments = append(req.Assignments, Assignment{Member: jm.Member, Data: []byte(jm.Member)})
			}
			if s := sites[m.at].Sync(t.Context(), req); j.Err != nil || s.Err != nil || string(s.Assignment) != j.Member {
				t.Errorf("join %v, sync %v, share %q of %q", j.Err, s.Err, s.Assignment, j.Member)
			}
		})
	}
	joined.Wait()
	return c, members
}

// insist repeats a request as clients do, elsewhere after a refusal, and notes
// how long that took.
func (m *crowdMember) insist(ctx context.Context, what string, ask func(groups) error) {
	began := time.Now()
	for ctx.Err() == nil {
		m.mu.Lock()
		for m.down[m.sites[m.at]] {
			m.at = (m.at + 1) % len(m.sites)
		}
		s := m.sites[m.at]
		m.mu.Unlock()
		err := ask(s)
		m.mu.Lock()
		lost := m.down[s] // the answer too
		m.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && !lost:
			m.mu.Lock()
			m.stall = max(m.stall, time.Since(began))
			m.beats++
			m.mu.Unlock()
			return
		case lost:
		case !errors.Is(err, kerr.NotCoordinator) && !errors.Is(err, kerr.CoordinatorNotAvailable) && !errors.Is(err, kerr.CoordinatorLoadInProgress):
			m.t.Errorf("%s of %s at %v: %v", what, m.Member, s.cluster.Self(), err)
			return
		}
		m.at = (m.at + 1) % len(m.sites)
		time.Sleep(100 * time.Millisecond)
	}
}

// live heartbeats and commits until ctx ends.
func (m *crowdMember) live(ctx context.Context) {
	for n := types.Offset(1); ctx.Err() == nil; n++ {
		m.insist(ctx, "heartbeat", func(g groups) error { return g.Heartbeat(ctx, m.Membership) })
		m.insist(ctx, "commit", func(g groups) error {
			r := g.Commit(ctx, CommitRequest{Membership: m.Membership, Partitions: []CommitPartition{{
				TopicPartition: types.TopicPartition{Topic: "foo", Partition: m.part}, TopicID: m.id, Offset: n, LeaderEpoch: -1}}})
			if r.Err != nil {
				return r.Err
			}
			return r.Partitions[0]
		})
		if ctx.Err() == nil {
			m.mu.Lock()
			m.acked[m.part] = n
			m.mu.Unlock()
		}
		m.look(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// look asks for a neighbour's commit: what was acknowledged before is the least
// that may be told.
func (m *crowdMember) look(ctx context.Context) {
	p := (m.part + 1) % 20
	m.mu.Lock()
	floor := m.acked[p]
	m.mu.Unlock()
	m.insist(ctx, "fetch", func(g groups) error {
		r := g.Fetch(ctx, FetchRequest{Group: "g", Partitions: []FetchPartition{{TopicPartition: types.TopicPartition{Topic: "foo", Partition: p}, TopicID: m.id}}})
		if r.Err != nil || r.Offsets[0].Err != nil {
			return errors.Join(r.Err, r.Offsets[0].Err)
		}
		if got := max(r.Offsets[0].Offset, 0); got < floor {
			m.t.Errorf("partition %d went back: %d after %d was acknowledged", p, got, floor)
		}
		return nil
	})
}

// lasts checks for a while that the crowd goes on, and gives the longest stall.
func (c *crowd) lasts(d time.Duration) time.Duration {
	c.t.Helper()
	time.Sleep(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.beats < 20*10 {
		c.t.Errorf("%d requests were answered in %v", c.beats, d)
	}
	stall := c.stall
	c.stall, c.beats = 0, 0
	return stall
}

// TestC37TwoCoordinators: 20 members behind one address. The owner is killed,
// the next one is cut off from the store and not from its clients, the one after
// that freezes: every time another takes over in less than four seconds with
// generation and members kept, nobody is told to join again, commits never go
// back, and what comes back decides nothing.
func TestC37TwoCoordinators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		c := newTestConfig()
		c.InitialRebalanceDelay = time.Second
		sites := beginAll(t, srv, 3, c)
		all, members := gather(t, sites, 20)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer stop()
		for _, m := range members {
			wg.Go(func() { m.live(ctx) })
		}
		all.lasts(5 * time.Second)

		killed, rest := holder(t, sites, "g")
		all.mu.Lock()
		all.down[killed] = true
		all.mu.Unlock()
		killed.kill()
		stall := all.lasts(10 * time.Second)
		t.Logf("owner killed: longest stall %v", stall)
		if stall > 4*time.Second {
			t.Errorf("stall of %v after a kill", stall)
		}

		cut, others := holder(t, rest, "g")
		was := cut.cluster.Self()
		cut.client.Disconnect()
		if err := cut.Heartbeat(ctx, members[0].Membership); !errors.Is(err, kerr.CoordinatorNotAvailable) && !errors.Is(err, kerr.NotCoordinator) {
			t.Errorf("heartbeat at a gateway that is cut off: %v", err)
		}
		if r := cut.Commit(ctx, commitOf(members[0].Membership, "foo", all.id, 0)); !errors.Is(r.Err, kerr.CoordinatorNotAvailable) && !errors.Is(r.Err, kerr.NotCoordinator) {
			t.Errorf("commit at a gateway that is cut off: %+v", r)
		}
		stall = all.lasts(10 * time.Second)
		t.Logf("owner cut off: longest stall %v", stall)
		if stall > 4*time.Second {
			t.Errorf("stall of %v after an owner was cut off", stall)
		}
		holder(t, others, "g")
		cut.client.Reconnect()
		all.lasts(15 * time.Second)
		if cut.cluster.Self() == was {
			t.Error("found dead, and the same life goes on")
		}
		holder(t, rest, "g") // what the life before held is let go of unasked

		frozen, others := holder(t, rest, "g")
		frozen.client.Freeze()
		// Members that talk to it wait; all others go on.
		stall = all.lasts(30 * time.Second)
		t.Logf("owner frozen: longest stall of others %v", stall)
		if stall > 4*time.Second {
			t.Errorf("stall of %v while an owner is frozen", stall)
		}
		holder(t, others, "g")
		frozen.client.Thaw()
		all.lasts(20 * time.Second)

		for _, s := range rest {
			d := s.Describe(ctx, "g")
			if d.Err != nil || d.State != Stable || len(d.Members) != 20 {
				t.Errorf("in the end: %s with %d members, %v", d.State, len(d.Members), d.Err)
			}
			for _, m := range members {
				if err := s.Heartbeat(ctx, m.Membership); err != nil {
					t.Errorf("heartbeat in generation %d: %v", m.Generation, err)
				}
			}
		}
	})
}
