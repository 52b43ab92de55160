package cluster

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// Rows of the fault catalogue that need several real gateways under load. Times
// are printed; what fails a test is far above them, for these run beside others.
// make chaos judges times. An election alone takes four to nine seconds.
const patience = time.Minute

// under runs faults under the load of all kinds of clients, and has the history
// checked.
func under(t *testing.T, s shape, faults func(w *world, l *load)) {
	t.Helper()
	w := newWorld(t, s)
	watch := newWatch(w)
	l := newLoad(t, w, watch, "fault")
	l.waitBegun()
	faults(w, l)
	w.heal(t)
	l.finish(0, false)
	watch.report(t, false)
	watch.within(t, patience)
}

// progress waits until n more records are acknowledged on every partition, and
// returns how long that took.
func (l *load) progress(n int64) time.Duration {
	l.t.Helper()
	began := time.Now()
	l.mu.Lock()
	before := l.ends
	l.mu.Unlock()
	testkit.Poll(l.t, lastWords, "records are acknowledged", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for p, o := range l.ends {
			if o < before[p]+n {
				return fmt.Errorf("partition %d: %d of %d", p, o-before[p], n)
			}
		}
		return nil
	})
	return time.Since(began)
}

// TestFault01Kill ends one of two gateways under load, with SIGKILL and with
// SIGTERM: nothing acknowledged is lost, clients go on, and none is told an error
// that its library does not try again.
func TestFault01Kill(t *testing.T) {
	t.Parallel()
	under(t, shape{gateways: 2, replicas: 1, mode: shared}, func(w *world, l *load) {
		for i, g := range w.gateways {
			f := l.watch.begin(killGateway, g.name)
			g.kill(t)
			t.Logf("killed: 5 more records on every partition after %v", l.progress(5).Round(time.Millisecond))
			g.start(t)
			g.ready(t)
			l.watch.end(f)
			other := w.gateways[1-i]
			f = l.watch.begin(termGateway, other.name)
			if code := other.Process().Terminate(t, 40*time.Second); code != 0 {
				t.Errorf("%s ended with exit code %d after SIGTERM", other.name, code)
			}
			t.Logf("stopped: 5 more records on every partition after %v", l.progress(5).Round(time.Millisecond))
			other.start(t)
			other.ready(t)
			l.watch.end(f)
		}
	})
}

// TestFault02Frozen freezes each of three gateways for longer than the others wait
// before they take over, in the middle of writes and of a group's life: what the
// frozen one had in hand is refused when it wakes, no offset is used twice, no
// committed offset goes back, the group lives on.
func TestFault02Frozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{gateways: 3, replicas: 1, mode: shared})
	k := &killed{T: t, w: w, a: connect(t, w.gateways[0].Addr), b: connect(t, w.gateways[1].Addr)}
	k.b.create("kill", 1)
	members := k.gather()
	peers := []*peer{k.a, k.b, connect(t, w.gateways[2].Addr)}
	k.shares(peers, members)
	id := k.a.producer()
	next, committed := int32(0), int64(0)
	for round, g := range w.gateways {
		sleeper, other := peers[round], peers[(round+1)%len(peers)]
		sleeper.produce("kill", 0, batch{producer: id, first: next, values: []string{"before"}})
		next++
		committed++
		k.commit([]*peer{sleeper, other}, members[0], committed)
		// Its append is on its way, or in its queue, when it stops.
		answer := make(chan int16, 1)
		late, lost := connect(t, g.Addr), connect(t, g.Addr)
		must[*kmsg.ProduceResponse](late, batch{producer: id, first: next - 1, values: []string{"before"}}.request("kill", 0))
		must[*kmsg.OffsetCommitResponse](lost, commitRequest(members[0], committed))
		freeze(t, g)
		go func() {
			r, err := ask[*kmsg.ProduceResponse](late, batch{producer: id, first: next, values: []string{"late"}}.request("kill", 0))
			if err != nil {
				answer <- kerr.UnknownServerError.Code
				return
			}
			answer <- r.Topics[0].Partitions[0].ErrorCode
		}()
		// So has a commit that its member repeats elsewhere, before it goes on.
		lateCommit := make(chan int16, 1)
		committed++
		old := commitRequest(members[0], committed)
		go func() {
			r, err := ask[*kmsg.OffsetCommitResponse](lost, old)
			if err != nil {
				lateCommit <- kerr.UnknownServerError.Code
				return
			}
			lateCommit <- r.Topics[0].Partitions[0].ErrorCode
		}()
		k.commit([]*peer{other}, members[0], committed)
		// The same record, through the other one, and more.
		if base, _ := other.produce("kill", 0, batch{producer: id, first: next, values: []string{"late"}}); base != int64(next) {
			t.Errorf("the record is at %d, want %d", base, next)
		}
		if base, _ := other.produce("kill", 0, batch{producer: id, first: next + 1, values: []string{"after"}}); base != int64(next)+1 {
			t.Errorf("the one after it is at %d, want %d", base, next+1)
		}
		next += 2
		committed += 10
		k.commit([]*peer{other}, members[0], committed)
		k.shares([]*peer{other}, members)
		rest(t, 4*time.Second) // twice the time-to-live, if nothing had to wait for it
		resume(g)
		if c := <-answer; c != 0 && !kerr.IsRetriable(kerr.ErrorForCode(c)) {
			t.Errorf("the record that waited is answered with %v", kerr.ErrorForCode(c))
		}
		if c := <-lateCommit; c == 0 {
			t.Error("a commit that waited at the frozen one is accepted")
		}
		for _, p := range []*peer{connect(t, g.Addr), other} {
			if got := k.committed([]*peer{p}); got != committed {
				t.Errorf("%d is committed, want %d", got, committed)
			}
		}
		k.shares([]*peer{connect(t, g.Addr)}, members)
		peers[round] = connect(t, g.Addr)
	}
	var want []string
	for range w.gateways {
		want = append(want, "before", "late", "after")
	}
	k.b = peers[1]
	k.wantValues("kill", want...)
}

// TestFault05Acknowledgements delays what NATS answers beyond the time that an
// append waits for it, and loses it, at both gateways: an unknown outcome is found
// out, and nothing is there twice.
func TestFault05Acknowledgements(t *testing.T) {
	t.Parallel()
	under(t, shape{gateways: 2, replicas: 1, mode: shared}, func(w *world, l *load) {
		for round := range 4 {
			for _, g := range w.gateways {
				f := l.watch.begin(lostAcks, g.name)
				for _, r := range g.links {
					r.StallAnswers()
				}
				rest(t, 300*time.Millisecond)
				for _, r := range g.links {
					if round%2 == 0 {
						r.Cut()
					}
					r.Flow()
				}
				l.watch.end(f)
				l.progress(2)
			}
		}
		f := l.watch.begin(lateAcks, w.gateways[0].name)
		for _, r := range w.gateways[0].links {
			r.StallAnswers()
		}
		rest(t, 6*time.Second) // an append waits 5 s
		for _, r := range w.gateways[0].links {
			r.Flow()
		}
		l.watch.end(f)
		l.progress(5)
	})
}

// TestFault06Leader has the leader of a partition's stream step down, and the meta
// leader, while a topic is being made, and kills the NATS server that leads the stream:
// no loss, order kept, clients go on.
func TestFault06Leader(t *testing.T) {
	t.Parallel()
	under(t, shape{gateways: 2, replicas: 3, mode: shared}, func(w *world, l *load) {
		stream := fmt.Sprintf("kafka-%s-0", l.topic)
		f := l.watch.begin(stepDown, stream)
		testkit.Poll(t, 20*time.Second, "the leader steps down", func() error { return w.stepDown(t.Context(), "STREAM.LEADER.STEPDOWN."+stream) })
		t.Logf("stepped down: 5 more records on every partition after %v", l.progress(5).Round(time.Millisecond))
		l.watch.end(f)
		f = l.watch.begin(metaStepDown, "")
		testkit.Poll(t, 20*time.Second, "the meta leader steps down", func() error {
			return w.stepDown(t.Context(), metaLeader, nats.UserInfo(systemUser, systemUser))
		})
		began := time.Now()
		maker := connect(t, w.gateways[1].Addr)
		maker.create("meanwhile", 4)
		maker.produce("meanwhile", 3, batch{producer: -1, values: []string{"there"}})
		t.Logf("meta leader stepped down: a topic can be written to after %v, 5 more records on every partition after %v", time.Since(began).Round(time.Millisecond), l.progress(5).Round(time.Millisecond))
		l.watch.end(f)
		w.whole(t)
		s := w.leader(t, stream)
		f = l.watch.begin(killNATS, s.URL)
		s.Kill()
		t.Logf("killed: 5 more records on every partition after %v", l.progress(5).Round(time.Millisecond))
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		l.watch.end(f)
		w.whole(t)
		l.progress(5)
	})
}

// TestFault09Minority freezes the NATS server that leads a partition's stream, so
// that the others elect another while requests wait at it, and then leaves it
// alone by freezing those: nothing is acknowledged without a majority, nothing
// stale is served, and a leader that wakes up denies nothing.
func TestFault09Minority(t *testing.T) {
	t.Parallel()
	under(t, shape{gateways: 2, replicas: 3, mode: shared}, func(w *world, l *load) {
		stream := fmt.Sprintf("kafka-%s-0", l.topic)
		old := w.leader(t, stream)
		f := l.watch.begin(freezeNATS, old.URL)
		old.Pause()
		t.Logf("frozen: 5 more records on every partition after %v", l.progress(5).Round(time.Millisecond))
		old.Resume()
		l.watch.end(f)
		l.progress(5)
		w.whole(t)

		alone := w.leader(t, stream)
		f = l.watch.begin(freezeNATS, "all but "+alone.URL)
		for _, s := range w.nats {
			if s != alone {
				s.Pause()
			}
		}
		rest(t, 5*time.Second) // what was acknowledged before has come through
		l.mu.Lock()
		sent := l.sent
		l.mu.Unlock()
		rest(t, 2*time.Second)
		l.mu.Lock()
		more := l.sent - sent
		l.mu.Unlock()
		if more > 0 {
			t.Errorf("%d records were acknowledged by a minority", more)
		}
		for _, s := range w.nats {
			if s != alone {
				s.Resume()
			}
		}
		l.watch.end(f)
		l.progress(5)
		w.whole(t) // what is asked at the end needs every bucket's leader
	})
}

// TestFault15Coordinator kills the gateway in the middle of a rebalance, each of
// two in turn; a member of an earlier generation commits: one owner per partition
// and generation, and the offset does not move.
func TestFault15Coordinator(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{gateways: 2, replicas: 1, mode: shared})
	k := &killed{T: t, w: w, a: connect(t, w.gateways[0].Addr), b: connect(t, w.gateways[1].Addr)}
	k.b.create("kill", 1)
	members := k.gather()
	peers := []*peer{k.a, k.b}
	k.shares(peers, members)
	k.commit(peers, members[0], 5)
	for round, g := range w.gateways {
		// The leader joins again, which begins a rebalance.
		leader, follower := members[0], members[1]
		if follower.leader {
			leader, follower = follower, leader
		}
		zombie := *follower
		waiting := make(chan error, 1)
		p := connect(t, g.Addr)
		go func() {
			_, err := ask[*kmsg.JoinGroupResponse](p, joinRequest(leader.id))
			waiting <- err
		}()
		k.coordinator(peers, "the rebalance begins", func(p *peer) error {
			switch err := k.beat(p, follower); {
			case errors.Is(err, kerr.RebalanceInProgress):
				return nil
			case err == nil:
				return errors.New("not yet")
			default:
				return err
			}
		})
		g.kill(t)
		<-waiting
		other := peers[1-round]
		members = k.rejoin([]*peer{other}, members)
		k.shares([]*peer{other}, members)
		if members[0].generation <= zombie.generation {
			t.Errorf("generation %d follows %d", members[0].generation, zombie.generation)
		}
		r := must[*kmsg.OffsetCommitResponse](other, commitRequest(&zombie, 3))
		if err := code(r.Topics[0].Partitions[0].ErrorCode); !errors.Is(err, kerr.IllegalGeneration) && !errors.Is(err, kerr.UnknownMemberID) {
			t.Errorf("a commit of an earlier generation is answered with %v", err)
		}
		if got := k.committed([]*peer{other}); got != 5 {
			t.Errorf("%d is committed, want 5", got)
		}
		g.start(t)
		g.ready(t)
		peers[round] = connect(t, g.Addr)
	}
}

// TestFault17Recreated deletes a topic and makes it again, through different
// gateways, one of which is frozen meanwhile: another id, offsets from 0, no
// commit of the old one, no state of its producers.
func TestFault17Recreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shape{gateways: 2, replicas: 1, mode: shared})
	k := &killed{T: t, w: w, a: connect(t, w.gateways[0].Addr), b: connect(t, w.gateways[1].Addr)}
	both := []*peer{k.a, k.b}
	k.a.create("kill", 1)
	id := k.a.producer()
	for i := range int32(5) {
		both[i%2].produce("kill", 0, batch{producer: id, first: i, values: []string{fmt.Sprint("old ", i)}})
	}
	members := k.gather()
	k.shares(both, members)
	k.commit(both, members[0], 5)
	old, _, err := k.a.metadata("kill")
	if err != nil {
		t.Fatal(err)
	}
	freeze(t, w.gateways[0])
	if c := must[*kmsg.DeleteTopicsResponse](k.b, deleteRequest("kill")).Topics[0].ErrorCode; c != 0 {
		t.Fatalf("delete: %v", code(c))
	}
	k.b.create("kill", 1)
	if base, _ := k.b.produce("kill", 0, batch{producer: id, first: 0, values: []string{"new 0"}}); base != 0 {
		t.Errorf("the first record is at %d", base)
	}
	_ = w.gateways[0].Process().Signal(syscall.SIGCONT)
	w.gateways[0].set(running)
	// The one that slept knows the old topic, and the old producer, at first.
	a := connect(t, w.gateways[0].Addr)
	if base, _ := a.produce("kill", 0, batch{producer: id, first: 1, values: []string{"new 1"}}); base != 1 {
		t.Errorf("the second record is at %d", base)
	}
	for i, p := range []*peer{a, k.b} {
		now, _, err := p.metadata("kill")
		if err != nil || now == old {
			t.Errorf("gateway %d: id %x, the old one had %x; %v", i+1, now, old, err)
		}
		if got := p.values("kill", 0); fmt.Sprint(got) != "[new 0 new 1]" {
			t.Errorf("gateway %d: stored: %v", i+1, got)
		}
		if got := k.committed([]*peer{p}); got != -1 {
			t.Errorf("gateway %d: %d is committed, want nothing", i+1, got)
		}
	}
}
