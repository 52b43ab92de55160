package group

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "seed of the one simulation to run; 0: several")
	simCount = flag.Int("sim.count", 20, "simulations to run")
)

// sim is a cluster of gateways whose store loses, delays and refuses writes,
// that are killed, cut off and drained, and consumers that only do what the
// protocol says.
type sim struct {
	t    *testing.T
	srv  *memory.Server
	id   types.TopicID
	calm chan struct{} // closed when faults end

	mu       sync.Mutex // guards: all below
	rng      *rand.Rand
	gateways []*gateway
	sites    []*site // instead of gateways
	born     int
	dead     []cluster.Identity
	owners   map[int32]map[int32]string // generation -> partition -> member
	acked    map[int32]types.Offset     // partition -> highest offset acknowledged
	commits  int
}

func (s *sim) intn(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *sim) quiet() bool {
	select {
	case <-s.calm:
		return true
	default:
		return false
	}
}

func (s *sim) fault(memory.Op) memory.WriteFault {
	if s.quiet() {
		return memory.WriteFault{}
	}
	f := memory.WriteFault{After: time.Duration(s.intn(20)) * time.Millisecond}
	switch n := s.intn(100); {
	case n < 3:
		f.LoseAck = true
	case n < 5:
		f.Drop = true
	case n < 7:
		return memory.WriteFault{Err: errAway}
	case n < 9:
		f.Late = time.Duration(s.intn(8000)) * time.Millisecond
	case n < 12:
		f.Before = time.Duration(s.intn(3000)) * time.Millisecond
	}
	return f
}

var errAway = fmt.Errorf("simulated: %w", pubsub.ErrUnavailable)

// boot puts a new gateway in place i.
func (s *sim) boot(i int) {
	s.mu.Lock()
	s.born++
	name := fmt.Sprintf("life%d", s.born)
	s.mu.Unlock()
	g := start(s.t, s.srv, int32(i), name, memory.Faults{Set: s.fault}, newTestConfig())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.dead {
		g.members.died(id)
	}
	s.gateways[i] = g
}

// bury tells everybody, once its answers have surely ended.
func (s *sim) bury(id cluster.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = append(s.dead, id)
	for _, g := range s.gateways {
		g.members.died(id)
	}
}

func (s *sim) any() groups {
	i := s.intn(max(len(s.gateways), len(s.sites)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sites != nil {
		return s.sites[i]
	}
	return s.gateways[i]
}

// trouble does something bad to a gateway and mends it.
func (s *sim) trouble() {
	i := s.intn(len(s.gateways))
	s.mu.Lock()
	g := s.gateways[i]
	s.mu.Unlock()
	id := g.members.Self()
	switch s.intn(3) {
	case 0: // killed, restarted at once
		g.kill()
		s.boot(i)
		time.Sleep(2 * time.Second)
		s.bury(id)
	case 1: // cut off from the store for a while, not from its clients
		g.client.Freeze()
		time.Sleep(1500 * time.Millisecond)
		g.members.setStale(true)
		time.Sleep(500 * time.Millisecond)
		s.bury(id)
		time.Sleep(time.Duration(s.intn(5000)) * time.Millisecond)
		g.client.Thaw()
		time.Sleep(time.Duration(s.intn(500)) * time.Millisecond)
		s.mu.Lock()
		s.born++
		life := fmt.Sprintf("life%d", s.born)
		s.mu.Unlock()
		g.members.set(func() { g.members.self.Incarnation, g.members.stale = life, false })
		s.mu.Lock()
		for _, id := range s.dead {
			g.members.died(id)
		}
		s.mu.Unlock()
	case 2: // drained, restarted
		ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
		_ = g.Drain(ctx)
		cancel()
		g.kill()
		s.boot(i)
		time.Sleep(2 * time.Second)
		s.bury(id)
	}
}

// consumer joins, commits ever higher offsets of what it is given, and checks
// what it is told.
type consumer struct {
	s    *sim
	name string
	id   string
	gen  int32
}

func (c *consumer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if parts, ok := c.join(ctx); ok {
			c.consume(ctx, parts)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// forget drops what an error has made void.
func (c *consumer) forget(err error) {
	if errors.Is(err, kerr.UnknownMemberID) {
		c.id = ""
	}
}

func (c *consumer) join(ctx context.Context) (parts []int32, ok bool) {
	s := c.s
	r := joinRequest("g", c.id)
	r.RequireMemberID, r.RebalanceTimeout = true, 20*time.Second
	call, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	j := s.any().Join(call, r)
	if j.Err != nil {
		if errors.Is(j.Err, kerr.MemberIDRequired) {
			c.id = j.Member
		}
		c.forget(j.Err)
		return nil, false
	}
	c.id, c.gen = j.Member, j.Generation
	req := SyncRequest{Membership: c.membership()}
	if j.Leader == j.Member {
		shares := make([][]byte, len(j.Members))
		for p := range 4 {
			shares[p%len(shares)] = append(shares[p%len(shares)], byte(p))
		}
		for i, m := range j.Members {
			req.Assignments = append(req.Assignments, Assignment{Member: m.Member, Data: shares[i]})
		}
	}
	for {
		sr := s.any().Sync(call, req)
		if retriable(sr.Err) && call.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if sr.Err != nil {
			c.forget(sr.Err)
			return nil, false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.owners[c.gen] == nil {
			s.owners[c.gen] = map[int32]string{}
		}
		for _, b := range sr.Assignment {
			p := int32(b)
			if o, ok := s.owners[c.gen][p]; ok && o != c.id {
				s.t.Errorf("generation %d: partition %d belongs to %s and %s", c.gen, p, o, c.id)
			}
			s.owners[c.gen][p] = c.id
			parts = append(parts, p)
		}
		return parts, true
	}
}

func (c *consumer) membership() Membership {
	return Membership{Group: "g", Member: c.id, Generation: c.gen}
}

// retriable errors say nothing of the member.
func retriable(err error) bool {
	return err != nil && !errors.Is(err, kerr.UnknownMemberID) && !errors.Is(err, kerr.IllegalGeneration) &&
		!errors.Is(err, kerr.RebalanceInProgress) && !errors.Is(err, context.Canceled)
}

func (c *consumer) consume(ctx context.Context, parts []int32) {
	s := c.s
	next := map[int32]types.Offset{}
	for _, p := range parts {
		tp := types.TopicPartition{Topic: "foo", Partition: p}
		for ctx.Err() == nil {
			s.mu.Lock()
			floor := s.acked[p]
			s.mu.Unlock()
			r := s.any().Fetch(ctx, FetchRequest{Group: "g", Partitions: []FetchPartition{{TopicPartition: tp, TopicID: s.id}}})
			if r.Err != nil || r.Offsets[0].Err != nil {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			if got := max(r.Offsets[0].Offset, 0); got < floor {
				s.t.Errorf("partition %d went back: %d after %d was acknowledged", p, got, floor)
			} else {
				next[p] = got
			}
			break
		}
	}
	beat := time.Now()
	for ctx.Err() == nil {
		for _, p := range parts {
			next[p]++
			r := s.any().Commit(ctx, CommitRequest{Membership: c.membership(), Partitions: []CommitPartition{{
				TopicPartition: types.TopicPartition{Topic: "foo", Partition: p}, TopicID: s.id, Offset: next[p], LeaderEpoch: -1}}})
			if r.Err == nil && r.Partitions[0] == nil {
				s.mu.Lock()
				s.acked[p] = max(s.acked[p], next[p])
				s.commits++
				s.mu.Unlock()
			}
		}
		time.Sleep(time.Duration(50+s.intn(300)) * time.Millisecond)
		s.probe(ctx)
		if time.Since(beat) > time.Second {
			err := s.any().Heartbeat(ctx, c.membership())
			if err != nil && !retriable(err) {
				c.forget(err)
				return
			}
			if err == nil {
				beat = time.Now()
			}
		}
	}
}

// probe asks anybody for any offset: what was acknowledged before is the least
// that may be told.
func (s *sim) probe(ctx context.Context) {
	p := int32(s.intn(4))
	s.mu.Lock()
	floor := s.acked[p]
	s.mu.Unlock()
	r := s.any().Fetch(ctx, FetchRequest{Group: "g", Partitions: []FetchPartition{{TopicPartition: types.TopicPartition{Topic: "foo", Partition: p}, TopicID: s.id}}})
	if r.Err == nil && r.Offsets[0].Err == nil && max(r.Offsets[0].Offset, 0) < floor {
		s.t.Errorf("partition %d: told %d after %d was acknowledged", p, r.Offsets[0].Offset, floor)
	}
}

func TestSimulation(t *testing.T) { simulations(t, *simCount, simulate) }

func simulations(t *testing.T, count int, simulate func(*testing.T, uint64)) {
	seeds := []uint64{*simSeed}
	if *simSeed == 0 {
		seeds = nil
		base := rand.Uint64() >> 32
		for i := range count {
			seeds = append(seeds, base+uint64(i))
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
	}
}

func newSim(t *testing.T, seed uint64) *sim {
	return &sim{
		t: t, srv: memory.NewServer(memory.Config{}), id: types.NewTopicID(), calm: make(chan struct{}),
		rng:    rand.New(rand.NewPCG(seed, 0)),
		owners: map[int32]map[int32]string{}, acked: map[int32]types.Offset{},
	}
}

func simulate(t *testing.T, seed uint64) {
	s := newSim(t, seed)
	s.gateways = make([]*gateway, 3)
	for i := range s.gateways {
		s.boot2(i)
	}
	s.play(s.trouble)
}

// play lets consumers work while trouble comes twelve times, and checks that all
// goes on when it has ended.
func (s *sim) play(trouble func()) {
	t := s.t
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	cs := make([]*consumer, 3)
	for i := range cs {
		cs[i] = &consumer{s: s, name: fmt.Sprint(i)}
		wg.Go(func() { cs[i].run(ctx) })
	}
	for range 12 {
		time.Sleep(time.Duration(s.intn(6000)) * time.Millisecond)
		trouble()
	}
	close(s.calm)
	time.Sleep(90 * time.Second)
	s.mu.Lock()
	before, commits := s.commits, s.commits
	s.mu.Unlock()
	time.Sleep(10 * time.Second)
	stop()
	wg.Wait()
	s.mu.Lock()
	commits = s.commits
	s.mu.Unlock()
	if commits == before {
		t.Errorf("nothing is committed any more (%d commits in all)", commits)
	}
	var d Description
	for range 100 {
		if d = s.any().Describe(t.Context(), "g"); d.Err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if d.State != Stable || len(d.Members) != 3 {
		t.Errorf("left alone, the group is %s with %d members: %v", d.State, len(d.Members), d.Err)
	}
	for p, want := range s.acked {
		ok := false
		for range 100 {
			r := s.any().Fetch(t.Context(), FetchRequest{Group: "g", Partitions: []FetchPartition{{TopicPartition: types.TopicPartition{Topic: "foo", Partition: p}, TopicID: s.id}}})
			if r.Err == nil && r.Offsets[0].Err == nil {
				ok = r.Offsets[0].Offset >= want
				break
			}
		}
		if !ok {
			t.Errorf("partition %d: %d was acknowledged", p, want)
		}
	}
}

// boot2 is boot while the other places are still empty.
func (s *sim) boot2(i int) {
	s.born++
	s.gateways[i] = start(s.t, s.srv, int32(i), fmt.Sprintf("life%d", s.born), memory.Faults{Set: s.fault}, newTestConfig())
}
