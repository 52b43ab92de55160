package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/history"
	"github.com/hanzoai/stream/test/sim"
	"github.com/hanzoai/stream/types"
)

const (
	sessionTimeout   = 8 * time.Second
	rebalanceTimeout = 12 * time.Second
)

// consumer is a member of a group. With the eager protocol it gives up all partitions
// before it joins, and takes what the leader gives it. With the cooperative one it
// says what it has and goes on with what it is left; what is to be another's it gives
// up, and joins again, and only then the other gets it.
type consumer struct {
	s        *run
	r        *rand.Rand
	group    string
	name     string
	topics   []string
	instance *string

	at         int // the seat that it asks about the group
	member     string
	generation int32
	joined     *process // where it joined

	cooperative bool
	held        []*reading // what it has, also while it joins
	since       int32      // the generation that gave it that
}

// claim is what a cooperative member has, and since which generation.
type claim struct {
	Generation int32
	Shares     []share
}

// protocol is the name and the metadata with which it joins.
func (c *consumer) protocol() group.Protocol {
	if !c.cooperative {
		return group.Protocol{Name: "range", Metadata: []byte(c.name)}
	}
	has := claim{Generation: c.since}
	for _, x := range c.held {
		has.Shares = append(has.Shares, x.share)
	}
	data, err := json.Marshal(has)
	if err != nil {
		panic(err)
	}
	return group.Protocol{Name: "cooperative", Metadata: data}
}

// shape is what a leader assigns.
type shape struct {
	ID         types.TopicID
	Partitions int32
}

// assignment is what a member is told: its share of topics as the leader saw them.
type assignment struct {
	Seen   map[string]shape
	Shares []share
}

// share is one partition of an assignment.
type share struct {
	Name      string
	ID        types.TopicID
	Partition int32
}

func (x share) target() target { return target{x.Name, x.ID, x.Partition} }

func (c *consumer) run(r *rand.Rand) {
	c.r = r
	for !sim.Over(c.s.done) && !c.s.t.Failed() {
		if a, ok := c.join(); ok {
			c.consume(a)
		}
		sim.Pause(c.s.done, sim.Millis(r, 300))
	}
}

func (c *consumer) membership() group.Membership {
	return group.Membership{Group: c.group, Member: c.member, Instance: c.instance, Generation: c.generation}
}

// coordinate asks a gateway something of the group (fn may run when the caller has
// given up long ago, so what it sends is made before): the one that has answered last,
// and another one if it does not answer well, at once while it is not the
// coordinator. It gives up after a while, or when the run is over.
func coordinate[T any](c *consumer, timeout time.Duration, fn func(ctx context.Context, g *group.Forwarder, b *broker.Broker) (T, error)) (v T, p *process, err error) {
	if c.r.IntN(20) == 0 {
		c.at = c.r.IntN(len(c.s.seats))
	}
	for try := 0; ; try++ {
		p = c.s.seats[c.at].now()
		v, err = ask(c.r, p, timeout, true, func(ctx context.Context, b *broker.Broker) (T, error) { return fn(ctx, b.Groups(), b) })
		if errors.Is(err, errCut) || errors.Is(err, errRefused) || kerr.IsRetriable(err) {
			c.at = (c.at + 1) % len(c.s.seats)
		}
		switch {
		case errors.Is(err, kerr.NotCoordinator):
			c.s.tally.note(notOwner)
		case errors.Is(err, kerr.CoordinatorNotAvailable), errors.Is(err, kerr.CoordinatorLoadInProgress):
			c.s.tally.note(notAvailable)
			return v, p, err
		case errors.Is(err, errRefused):
		default:
			return v, p, err
		}
		if try >= 2*len(c.s.seats) || sim.Over(c.s.done) {
			return v, p, err
		}
		sim.Pause(c.s.done, sim.Millis(c.r, 30))
	}
}

// lost reports that an error says something of the member, and takes it in.
func (c *consumer) lost(err error) bool {
	switch {
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedInstanceID):
		c.member, c.held = "", nil
		return true
	case errors.Is(err, kerr.IllegalGeneration):
		c.held = nil
		return true
	case errors.Is(err, kerr.RebalanceInProgress):
		return true
	case err == nil, errors.Is(err, errCut), errors.Is(err, errRefused), kerr.IsRetriable(err):
		return false
	}
	c.s.t.Errorf("%s: %v", c.name, err)
	return true
}

// join goes through one rebalance.
func (c *consumer) join() (a assignment, ok bool) {
	s := c.s
	span := s.rec.Begin()
	req := group.JoinRequest{
		Caller: group.Caller{ClientID: c.name, Host: "/sim"}, Group: c.group, Member: c.member, Instance: c.instance, ProtocolType: "consumer",
		Protocols:      []group.Protocol{c.protocol()},
		SessionTimeout: sessionTimeout, RebalanceTimeout: rebalanceTimeout, RequireMemberID: c.instance == nil,
	}
	j, p, err := coordinate(c, rebalanceTimeout+5*time.Second, func(ctx context.Context, g *group.Forwarder, _ *broker.Broker) (group.JoinResponse, error) {
		j := g.Join(ctx, req)
		if errors.Is(j.Err, kerr.MemberIDRequired) {
			return j, nil // an answer like any other
		}
		return j, j.Err
	})
	switch {
	case err != nil:
		c.lost(err)
		return a, false
	case j.Err != nil:
		c.member = j.Member
		return a, false
	}
	s.trace("%s joined generation %d as %s (leader %s) through %s", c.name, j.Generation, j.Member, j.Leader, p.name)
	if c.generation != j.Generation {
		s.tally.note(rebalances)
	}
	c.member, c.generation, c.joined = j.Member, j.Generation, p
	sync := group.SyncRequest{Membership: c.membership()}
	if j.Leader == j.Member && !j.SkipAssignment {
		seen := c.shapes()
		if seen == nil {
			return a, false
		}
		if c.cooperative { // the same again, unless somebody came or went
			slices.SortFunc(j.Members, func(a, b group.JoinMember) int { return strings.Compare(a.Member, b.Member) })
		}
		sync.Assignments = assign(c.topics, seen, j.Members, c.claims(j.Members))
	}
	for deadline := time.Now().Add(rebalanceTimeout); ; {
		sr, _, err := coordinate(c, 5*time.Second, func(ctx context.Context, g *group.Forwarder, _ *broker.Broker) (group.SyncResponse, error) {
			sr := g.Sync(ctx, sync)
			return sr, sr.Err
		})
		if err == nil {
			return c.assigned(span, sr.Assignment)
		}
		if c.lost(err) || time.Now().After(deadline) || sim.Over(s.done) {
			return a, false
		}
		sim.Pause(s.done, sim.Millis(c.r, 100))
	}
}

// shapes asks for the topics; one that is denied has no partitions.
func (c *consumer) shapes() map[string]shape {
	m := map[string]shape{}
	for _, name := range c.topics {
		id, n, ok := c.s.find(c.r, name, c.s.done)
		if !ok && sim.Over(c.s.done) {
			return nil
		}
		m[name] = shape{id, n}
	}
	return m
}

// claims are who has what, by member. Of two that claim the same, the one that has
// been given it last is right.
func (c *consumer) claims(members []group.JoinMember) map[share]string {
	has, since := map[share]string{}, map[share]int32{}
	for _, m := range members {
		var x claim
		if !c.cooperative {
			continue
		}
		if err := json.Unmarshal(m.Metadata, &x); err != nil {
			c.s.t.Errorf("%s: metadata %q of %s: %v", c.name, m.Metadata, m.Member, err)
		}
		for _, sh := range x.Shares {
			if has[sh] == "" || x.Generation > since[sh] {
				has[sh], since[sh] = m.Member, x.Generation
			}
		}
	}
	return has
}

// assign deals all partitions out, those aside that another member still has.
func assign(topics []string, seen map[string]shape, members []group.JoinMember, has map[share]string) []group.Assignment {
	dealt := make([]assignment, len(members))
	n := 0
	for _, name := range topics {
		for p := range seen[name].Partitions {
			x, to := share{name, seen[name].ID, p}, n%len(members)
			if who := has[x]; who == "" || who == members[to].Member {
				dealt[to].Shares = append(dealt[to].Shares, x)
			}
			n++
		}
	}
	as := make([]group.Assignment, len(members))
	for i, m := range members {
		dealt[i].Seen = seen
		data, err := json.Marshal(dealt[i])
		if err != nil {
			panic(err)
		}
		as[i] = group.Assignment{Member: m.Member, Data: data}
	}
	return as
}

// assigned takes an assignment in.
func (c *consumer) assigned(span history.Span, data []byte) (a assignment, ok bool) {
	if len(data) == 0 { // a member that the leader did not know
		return a, true
	}
	if err := json.Unmarshal(data, &a); err != nil {
		c.s.t.Errorf("%s: assignment %q: %v", c.name, data, err)
		return a, false
	}
	logs := []history.Log{}
	for _, x := range a.Shares {
		logs = append(logs, x.target().log())
	}
	c.s.rec.Assignment(history.Assignment{Span: span, Group: c.group, Generation: c.generation, Member: c.who(), Logs: logs})
	c.s.trace("%s owns %v in generation %d", c.name, logs, c.generation)
	return a, true
}

// who is the member as the history has it: a static member that comes back under
// another id is the same one.
func (c *consumer) who() string {
	if c.instance != nil {
		return *c.instance
	}
	return c.member
}

// reading is one partition of a member.
type reading struct {
	share
	next      int64 // -1: not known yet
	committed int64
}

// take begins with an assignment. A cooperative member goes on with what it had and
// still has; it reports that it has lost something, for which it joins again.
func (c *consumer) take(a assignment) (again bool) {
	c.since = c.generation
	had := map[share]*reading{}
	if c.cooperative {
		for _, x := range c.held {
			had[x.share] = x
		}
	}
	c.held = nil
	for _, x := range a.Shares {
		if r := had[x]; r != nil {
			c.held = append(c.held, r)
			delete(had, x)
			c.s.tally.note(keptOver)
			continue
		}
		c.held = append(c.held, &reading{share: x, next: -1, committed: -1})
	}
	if len(had) > 0 {
		c.s.tally.note(handedOn)
	}
	return len(had) > 0
}

// consume reads what the member owns, until it is told to join again.
func (c *consumer) consume(a assignment) {
	s := c.s
	if c.take(a) {
		return
	}
	beat, looked := time.Now(), time.Now()
	var until time.Time // it goes on while others join; zero: nobody does
	for !sim.Over(s.done) && !s.t.Failed() {
		if !until.IsZero() && time.Now().After(until) {
			return
		}
		for i := 0; i < len(c.held); i++ {
			x := c.held[i]
			ok := true
			if x.next < 0 {
				ok = c.position(x)
			} else {
				ok = c.read(x)
			}
			if !ok { // its topic is gone
				c.held = append(c.held[:i], c.held[i+1:]...)
				i--
				continue
			}
			if x.next > x.committed && c.r.IntN(2) == 0 {
				if c.commit(x) {
					return
				}
			}
		}
		if since := time.Since(beat); since > time.Second {
			m := c.membership()
			_, p, err := coordinate(c, 3*time.Second, func(ctx context.Context, g *group.Forwarder, _ *broker.Broker) (bool, error) {
				return true, g.Heartbeat(ctx, m)
			})
			if err == nil {
				if beat = time.Now(); p != c.joined {
					s.tally.note(takeovers)
				}
			}
			if c.cooperative && errors.Is(err, kerr.RebalanceInProgress) {
				if until.IsZero() {
					until = time.Now().Add(sim.Millis(c.r, 2000))
				}
				beat = time.Now()
			} else if c.lost(err) || since > sessionTimeout {
				s.trace("%s joins again: %v", c.name, err)
				return
			}
		}
		// Who sees topics change has the group join again.
		if time.Since(looked) > 3*time.Second {
			looked = time.Now()
			for name, now := range c.shapes() {
				if now != a.Seen[name] {
					s.trace("%s joins again: %s is %v, was %v", c.name, name, now, a.Seen[name])
					return
				}
			}
		}
		if !sim.Over(s.ended) {
			switch c.r.IntN(400) {
			case 0:
				c.leave()
				return
			case 1: // it dies; its session ends later
				s.trace("%s dies", c.name)
				if c.member, c.held = "", nil; c.instance != nil {
					s.tally.note(staticReturns)
				}
				sim.Pause(s.ended, sim.Millis(c.r, 10_000))
				return
			case 2: // too slow: its session may end while it works
				sim.Pause(s.ended, sim.Millis(c.r, 15_000))
			}
		}
		sim.Pause(s.done, sim.Millis(c.r, 150))
	}
}

// position begins where the group's last commit says, else at the log start.
func (c *consumer) position(x *reading) (there bool) {
	s, log := c.s, x.target().log()
	o, err := c.committed(x.target())
	if err != nil {
		return c.present(x, err)
	}
	s.trace("%s: %s is committed on %s", c.name, fmt.Sprint(o), log)
	if o < 0 {
		return c.reset(x)
	}
	x.next, x.committed = o, o
	s.rec.Seek(history.Seek{Consumer: c.name, Log: log, Offset: o})
	return true
}

// present reports whether an error leaves a topic there.
func (c *consumer) present(x *reading, err error) bool {
	if gone(err) {
		c.s.denied(x.Name)
		return false
	}
	if !errors.Is(err, errCut) && !errors.Is(err, errRefused) && !kerr.IsRetriable(err) {
		c.s.t.Errorf("%s on %s: %v", c.name, x.target().log(), err)
	}
	sim.Pause(c.s.done, sim.Millis(c.r, 100))
	return true
}

// reset goes to the log start.
func (c *consumer) reset(x *reading) bool {
	o, err := ask(c.r, c.s.any(c.r), 5*time.Second, false, func(ctx context.Context, b *broker.Broker) (int64, error) {
		return lookup(ctx, b, x.target(), partition.Earliest)
	})
	if err != nil {
		return c.present(x, err)
	}
	x.next = o
	c.s.rec.Seek(history.Seek{Consumer: c.name, Log: x.target().log(), Offset: o})
	return true
}

func lookup(ctx context.Context, b *broker.Broker, to target, what int64) (int64, error) {
	p, err := open(ctx, b, to)
	if err != nil {
		return 0, err
	}
	a, err := p.Lookup(ctx, partition.LookupRequest{Timestamp: what})
	return int64(a.Offset), err
}

// read is one fetch of one partition, through any gateway.
func (c *consumer) read(x *reading) (there bool) {
	s, log := c.s, x.target().log()
	size, wait := 1+c.r.IntN(8000), []time.Duration{0, 0, sim.Millis(c.r, 500)}[c.r.IntN(3)]
	if sim.Over(s.ended) {
		// What is left is read as a real client would: one that has dozens of partitions
		// and takes a little here and waits a little there needs longer than patience.
		size, wait = max(size, 64<<10), 0
	}
	span := s.rec.Begin()
	q := partition.ReadRequest{Offset: types.Offset(x.next), MaxBytes: size, Whole: true}
	got, err := ask(c.r, s.any(c.r), sim.Millis(c.r, 5000)+wait, false, func(ctx context.Context, b *broker.Broker) (partition.ReadResult, error) {
		p, err := open(ctx, b, x.target())
		if err != nil {
			return partition.ReadResult{}, err
		}
		if wait == 0 {
			return p.Read(ctx, q)
		}
		return longPoll(ctx, p, q, wait)
	})
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		s.trace("%s: %d is out of range on %s", c.name, x.next, log)
		s.tally.note(fencedReads)
		was := x.next
		x.next = -1
		if !c.reset(x) {
			return false
		}
		if x.next >= 0 && x.next <= was {
			s.t.Errorf("%s: offset %d is out of range on %s, the log starts at %d", c.name, was, log, x.next)
		}
		return true
	case err != nil:
		return c.present(x, err)
	}
	p := history.Poll{Span: span, Consumer: c.name, Log: log, HighWatermark: int64(got.HighWatermark)}
	for _, data := range got.Batches {
		for len(data) > 0 {
			b, rest, err := serde.ParseBatch(data)
			if err != nil || !b.ChecksumOK() {
				s.t.Errorf("%s: batch at %d of %s is unreadable (%v)", c.name, x.next, log, err)
				return true
			}
			data = rest
			rs, err := values(b)
			if err != nil {
				s.t.Errorf("%s: records at %d of %s: %v", c.name, x.next, log, err)
			}
			for _, r := range rs {
				if r.Offset >= x.next {
					p.Records = append(p.Records, r)
				}
			}
		}
	}
	s.rec.Poll(p)
	if n := len(p.Records); n > 0 {
		x.next = p.Records[n-1].Offset + 1
	}
	return true
}

// longPoll reads when there is something, or after a while.
func longPoll(ctx context.Context, p *partition.Partition, q partition.ReadRequest, wait time.Duration) (partition.ReadResult, error) {
	ch := make(chan struct{}, 1)
	defer p.Notify(ch)()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		n, err := p.Available(ctx, q.Offset, false)
		if err != nil || n > 0 {
			return p.Read(ctx, q)
		}
		select {
		case <-ch:
		case <-timer.C:
			return p.Read(ctx, q)
		case <-ctx.Done():
			return partition.ReadResult{}, ctx.Err()
		}
	}
}

// commit stores a position. It reports that the member must join again.
func (c *consumer) commit(x *reading) (again bool) {
	s := c.s
	k := history.Commit{Span: s.rec.Begin(), Group: c.group, Generation: c.generation, Member: c.who(), Log: x.target().log(), Offset: x.next, Outcome: history.OK}
	req := group.CommitRequest{Membership: c.membership(), Partitions: []group.CommitPartition{{
		TopicPartition: types.TopicPartition{Topic: x.Name, Partition: x.Partition}, TopicID: x.ID, Offset: types.Offset(x.next), LeaderEpoch: -1}}}
	_, p, err := coordinate(c, 5*time.Second, func(ctx context.Context, g *group.Forwarder, b *broker.Broker) (bool, error) {
		if _, err := b.TopicByID(ctx, x.ID); err != nil {
			return false, err
		}
		res := g.Commit(ctx, req)
		if res.Err != nil {
			return false, res.Err
		}
		return true, res.Partitions[0]
	})
	name := "nobody"
	if p != nil {
		name = p.name
	}
	s.trace("%s commits %d on %s in generation %d through %s: %v", c.name, k.Offset, k.Log, k.Generation, name, err)
	switch {
	case err == nil:
		x.committed = x.next
	case vague(err):
		s.tally.note(unknownCommits)
		k.Outcome = history.Unknown
	default:
		k.Outcome = history.Failed
	}
	s.rec.Commit(k)
	if gone(err) {
		s.denied(x.Name)
		return false
	}
	if errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.UnknownMemberID) {
		s.tally.note(zombies)
	}
	return c.lost(err)
}

// leave says goodbye.
func (c *consumer) leave() {
	who := []group.LeaveMember{{Member: c.member, Instance: c.instance}}
	_, _, err := coordinate(c, 3*time.Second, func(ctx context.Context, g *group.Forwarder, _ *broker.Broker) (bool, error) {
		l := g.Leave(ctx, c.group, who)
		if l.Err == nil {
			l.Err = l.Members[0].Err
		}
		return true, l.Err
	})
	c.s.trace("%s leaves: %v", c.name, err)
	c.member, c.held = "", nil
}
