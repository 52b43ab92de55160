package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// dying is a gateway's store that dies at its k-th call: before the write (or
// read) is done, after it, or with the write on its way for a while.
type dying struct {
	counting
	at   int64 // 0: never
	how  string
	died chan struct{}
}

func (d *dying) fail(n int64, write bool) (memory.WriteFault, memory.ReadFault) {
	switch {
	case d.at == 0 || n < d.at:
		return memory.WriteFault{}, memory.ReadFault{}
	case n > d.at:
		return memory.WriteFault{Err: pubsub.ErrUnavailable}, memory.ReadFault{Err: pubsub.ErrUnavailable}
	}
	close(d.died)
	r := memory.ReadFault{Err: pubsub.ErrUnavailable}
	switch d.how {
	case "after":
		return memory.WriteFault{LoseAck: true}, r
	case "late":
		return memory.WriteFault{Late: 30 * time.Second}, r
	}
	return memory.WriteFault{Err: pubsub.ErrUnavailable}, r
}

const crashPartitions = 3

// whole checks that the server holds topic foo whole, or nothing of it, and
// returns which.
func whole(t *testing.T, c *cluster, g *gateway) (there bool) {
	t.Helper()
	topics, records, logs := c.srv.Keys("kafka-topics"), c.srv.Keys("kafka-partitions"), c.srv.Logs()
	top, err := g.Get(t.Context(), "foo")
	if err != nil {
		wantCode(t, "Get", err, kerr.UnknownTopicOrPartition)
		if len(topics)+len(records)+len(logs) > 0 {
			t.Errorf("left of a topic that is not: %v, %v, %v", topics, records, logs)
		}
		return false
	}
	var wantLogs, wantRecords []string
	for p := range top.Partitions {
		wantLogs = append(wantLogs, g.Partition(top, p).LogConfig.Name)
		wantRecords = append(wantRecords, fmt.Sprintf("%s.%d", top.ID, p))
	}
	if !slices.Equal(logs, wantLogs) || !slices.Equal(records, wantRecords) {
		t.Errorf("topic %+v has %v and %v", top, logs, records)
	}
	if u := g.Unexplained(); len(u) > 0 {
		t.Errorf("unexplained: %v", u)
	}
	return true
}

// TestCrashAnywhere kills a gateway at every store call of a creation, a
// deletion, a growth and a re-creation, before, after and while the call is carried out.
// Another gateway then sweeps, makes the topic anew if it is not there, and what
// was late arrives: at every point the topic is whole or not there at all.
func TestCrashAnywhere(t *testing.T) {
	t.Parallel()
	s := spec("foo")
	s.Partitions = crashPartitions
	for what, work := range map[string]func(ctx context.Context, g *gateway) error{
		"create": func(ctx context.Context, g *gateway) error {
			_, err := g.Create(ctx, s)
			return err
		},
		"delete": func(ctx context.Context, g *gateway) error {
			top, err := g.Get(ctx, "foo")
			if err != nil {
				return err
			}
			return g.Delete(ctx, top)
		},
		"grow": func(ctx context.Context, g *gateway) error {
			top, err := g.Get(ctx, "foo")
			if err != nil {
				return err
			}
			return g.Grow(ctx, top, Growth{Partitions: crashPartitions + 2})
		},
		"recreate": func(ctx context.Context, g *gateway) error {
			top, err := g.Get(ctx, "foo")
			if err != nil {
				return err
			}
			if err := g.Delete(ctx, top); err != nil {
				return err
			}
			_, err = g.Create(ctx, s)
			return err
		},
	} {
		for _, how := range []string{"before", "after", "late"} {
			t.Run(what+" "+how, func(t *testing.T) {
				t.Parallel()
				points := int64(0)
				for done := false; !done; {
					points++
					synctest.Test(t, func(t *testing.T) { done = crash(t, what, how, points, s, work) })
					if t.Failed() {
						t.Fatalf("at call %d", points)
					}
				}
				if points < 5 {
					t.Errorf("only %d calls were tried", points)
				}
			})
		}
	}
}

// crash runs one crash point; done reports that the work has fewer calls.
func crash(t *testing.T, what, how string, at int64, s Spec, work func(context.Context, *gateway) error) (done bool) {
	c := newCluster(memory.Config{})
	b := c.gateway(t, "b", memory.Faults{}, nil)
	defer b.stop()
	if what != "create" {
		mustCreate(t, b, s)
	}
	d := &dying{how: how, died: make(chan struct{})}
	d.hook = d.fail
	a := c.gateway(t, "a", d.faults(), nil)
	defer a.stop()
	synctest.Wait()
	d.at = d.calls.Load() + at
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx, a) }()
	select {
	case err := <-ended:
		select {
		case <-d.died:
		default:
			if err != nil {
				t.Errorf("%s without a crash: %v", what, err)
			}
			synctest.Wait() // the news of it has come to b
			if there := whole(t, c, b); there != (what != "delete") {
				t.Errorf("after %s the topic is there: %v", what, there)
			}
			return true
		}
	case <-d.died:
		cancel()
	}
	c.kill("a")
	if err := b.Sweep(t.Context()); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if !whole(t, c, b) {
		mustCreate(t, b, s)
		whole(t, c, b)
	}
	time.Sleep(time.Minute) // what was late has come
	if err := b.Sweep(t.Context()); err != nil {
		t.Errorf("second Sweep: %v", err)
	}
	if !whole(t, c, b) {
		// Only a deletion that was late may have removed it.
		if how != "late" {
			t.Error("the topic vanished")
		}
		mustCreate(t, b, s)
		whole(t, c, b)
	}
	top, err := b.Get(t.Context(), "foo")
	if err == nil {
		err = b.Delete(t.Context(), top)
	}
	if err != nil || whole(t, c, b) {
		t.Errorf("delete: %v", err)
	}
	return false
}

// TestOwnFailureIsUndone: the gateway that failed tidies up itself, at once or,
// if the store is away, later.
func TestOwnFailureIsUndone(t *testing.T) {
	t.Parallel()
	for at := int64(1); at < 12; at++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(memory.Config{})
			s := spec("foo")
			s.Partitions = crashPartitions
			var outage counting
			var from, until atomic.Int64 // call number, Unix nanoseconds
			from.Store(1 << 40)
			outage.hook = func(n int64, _ bool) (memory.WriteFault, memory.ReadFault) {
				if n == from.Load() {
					until.Store(time.Now().Add(20 * time.Second).UnixNano())
				}
				if n >= from.Load() && time.Now().UnixNano() < until.Load() {
					return memory.WriteFault{Err: pubsub.ErrUnavailable}, memory.ReadFault{Err: pubsub.ErrUnavailable}
				}
				return memory.WriteFault{}, memory.ReadFault{}
			}
			a := c.gateway(t, "a", outage.faults(), nil)
			defer a.stop()
			synctest.Wait()
			from.Store(outage.calls.Load() + at)
			_, err := a.Create(t.Context(), s)
			time.Sleep(5 * time.Minute)
			if there := whole(t, c, a); there != (err == nil) {
				t.Errorf("outage at call %d: Create said %v, the topic is there: %v", at, err, there)
			}
		})
	}
}

// TestLivingCreatorIsLeftAlone: nobody takes over what a living gateway makes.
func TestLivingCreatorIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(memory.Config{})
		a := c.gateway(t, "a", memory.Faults{Create: func(op memory.Op) memory.WriteFault {
			if strings.HasPrefix(op.Name, "kafka-foo") {
				return memory.WriteFault{Before: time.Minute}
			}
			return memory.WriteFault{}
		}}, nil)
		b := c.gateway(t, "b", memory.Faults{}, nil)
		defer a.stop()
		defer b.stop()
		made := make(chan error, 1)
		go func() { _, err := a.Create(t.Context(), spec("foo")); made <- err }()
		synctest.Wait()
		if err := b.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		// Who is told 36 goes on to use the topic: not before it is there.
		second := make(chan error, 1)
		go func() { _, err := b.Create(t.Context(), spec("foo")); second <- err }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(second) > 0 {
			t.Errorf("create what another is creating: answered before that has ended: %v", <-second)
		}
		_, err := b.Get(t.Context(), "foo")
		wantCode(t, "get what is being created", err, kerr.UnknownTopicOrPartition)
		if err := a.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-made; err != nil {
			t.Errorf("Create: %v", err)
		}
		wantCode(t, "create what another has created", <-second, kerr.TopicAlreadyExists)
		if !whole(t, c, b) {
			t.Error("the topic is not there")
		}
	})
}

// TestCreationThatFails: who asks for the same topic meanwhile, through another
// gateway or the same, makes it.
func TestCreationThatFails(t *testing.T) {
	t.Parallel()
	for _, elsewhere := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(memory.Config{})
			var failing atomic.Bool
			failing.Store(true)
			a := c.gateway(t, "a", memory.Faults{Create: func(op memory.Op) memory.WriteFault {
				if strings.HasPrefix(op.Name, "kafka-foo") && failing.Load() {
					return memory.WriteFault{Before: 20 * time.Second, Err: pubsub.ErrUnavailable}
				}
				return memory.WriteFault{}
			}}, nil)
			b := c.gateway(t, "b", memory.Faults{}, nil)
			defer a.stop()
			defer b.stop()
			made := make(chan error, 1)
			go func() { _, err := a.Create(t.Context(), spec("foo")); made <- err }()
			synctest.Wait()
			second := a
			if elsewhere {
				second = b
			}
			ended := make(chan error, 1)
			go func() { _, err := second.Create(t.Context(), spec("foo")); ended <- err }()
			time.Sleep(time.Second)
			failing.Store(false) // for what begins from now on
			if err := <-made; !errors.Is(err, pubsub.ErrUnavailable) {
				t.Errorf("the first creation: %v", err)
			}
			if err := <-ended; err != nil {
				t.Errorf("the second creation: %v", err)
			}
			if !whole(t, c, b) {
				t.Error("the topic is not there")
			}
			// A creation that nobody ends is waited for as long as a request may take.
			failing.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			go func() { _, err := a.Create(t.Context(), spec("foobar")); made <- err }()
			synctest.Wait()
			_, err := second.Create(ctx, spec("foobar"))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a third: %v", err)
			}
			<-made
		})
	}
}

// TestFrozenCreator: A is held for dead while it makes a topic, B makes it
// instead, and A wakes up: B's topic is not harmed, and A leaves nothing.
func TestFrozenCreator(t *testing.T) {
	t.Parallel()
	for calls := int64(2); calls < 26; calls++ {
		synctest.Test(t, func(t *testing.T) {
			remake, calls := calls%2 == 1, calls/2
			c := newCluster(memory.Config{})
			s := spec("foo")
			s.Partitions = crashPartitions
			var n counting
			var at atomic.Int64
			var client atomic.Pointer[memory.Client]
			n.hook = func(n int64, _ bool) (memory.WriteFault, memory.ReadFault) {
				if n == at.Load() {
					client.Load().Freeze()
				}
				return memory.WriteFault{}, memory.ReadFault{}
			}
			a := c.gateway(t, "a", n.faults(), nil)
			b := c.gateway(t, "b", memory.Faults{}, nil)
			defer a.stop()
			defer b.stop()
			synctest.Wait()
			client.Store(a.client)
			at.Store(n.calls.Load() + calls)
			made := make(chan error, 1)
			go func() { _, err := a.Create(t.Context(), s); made <- err }()
			synctest.Wait()
			c.kill("a")
			if err := b.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			if there := whole(t, c, b); !remake {
				// Nobody makes it again: what A makes late is in nobody's way.
				a.client.Thaw()
				err := <-made
				synctest.Wait()
				if now := whole(t, c, b); now != (there || err == nil) {
					t.Errorf("frozen at call %d: Create said %v, the topic is there: %v", calls, err, now)
				}
				return
			} else if !there {
				mustCreate(t, b, s)
			}
			top, err := b.Get(t.Context(), "foo")
			if err != nil {
				t.Fatal(err)
			}
			a.client.Thaw()
			<-made
			synctest.Wait()
			whole(t, c, b) // A has tidied up after itself, before any sweep
			time.Sleep(time.Minute)
			if err := b.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			if !whole(t, c, b) {
				t.Errorf("frozen at call %d: the topic is not there", calls)
			}
			if got, err := b.Get(t.Context(), "foo"); err != nil || got.ID != top.ID {
				t.Errorf("frozen at call %d: the topic became %+v, %v", calls, got, err)
			}
		})
	}
}

// TestUnexplainedStreams (design rule 11): what no record explains is reported
// and left alone; what has ended for sure is removed.
func TestUnexplainedStreams(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	g := c.gateway(t, "a", memory.Faults{}, nil)
	ctx := t.Context()
	first := mustCreate(t, g, spec("foo"))
	if err := g.Delete(ctx, first); err != nil {
		t.Fatal(err)
	}
	foo := mustCreate(t, g, spec("foo"))
	stream := func(name, subject string, meta map[string]string) {
		t.Helper()
		if err := g.client.CreateLog(ctx, pubsub.LogConfig{Name: name, Subject: subject, Metadata: meta}); err != nil {
			t.Fatal(err)
		}
	}
	other := *foo
	other.ID[0]++
	stream("plain", "kafka.plain.0", nil)
	stream("theirs", "kafka.theirs.0", metadata("cluster-2", &Topic{Name: "theirs", ID: foo.ID, N: 1}, 0))
	stream("never", "kafka.never.0", metadata("cluster-1", &Topic{Name: "never", ID: foo.ID, N: 1}, 0))
	stream("future", "kafka.foo.9", metadata("cluster-1", &Topic{Name: "foo", ID: other.ID, N: foo.N + 100}, 9))
	stream("extra", "kafka.foo.5", metadata("cluster-1", foo, 5))
	stream("elsewhere", "other.foo.0", nil)
	stream("ended", "kafka.foo.7", metadata("cluster-1", first, 7))
	if err := g.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if want := []string{"extra", "future", "never", "plain", "theirs"}; !slices.Equal(g.Unexplained(), want) {
		t.Errorf("unexplained %v, want %v", g.Unexplained(), want)
	}
	if want := []string{"elsewhere", "extra", "future", g.Partition(foo, 0).LogConfig.Name, "never", "plain", "theirs"}; !slices.Equal(c.srv.Logs(), want) {
		t.Errorf("streams %v, want %v", c.srv.Logs(), want)
	}
}

// TestInTheWay: a stream that stands in the way of a new topic is removed only
// if it has ended for sure.
func TestInTheWay(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{})
	g := c.gateway(t, "a", memory.Faults{}, nil)
	ctx := t.Context()
	first := mustCreate(t, g, spec("foo"))
	if err := g.Delete(ctx, first); err != nil {
		t.Fatal(err)
	}
	ended := g.Partition(first, 0).LogConfig
	if err := g.client.CreateLog(ctx, ended); err != nil {
		t.Fatal(err)
	}
	second := mustCreate(t, g, spec("foo")) // without a sweep
	if _, err := g.client.FindLog(ctx, ended.Name); !errors.Is(err, pubsub.ErrNotFound) {
		t.Errorf("the ended stream: %v", err)
	}
	if err := g.Delete(ctx, second); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]pubsub.LogConfig{
		"foo": {Name: "x", Subject: "kafka.foo.0"},
		"bar": {Name: "kafka-bar-0", Subject: "mine"},
		"baz": {Name: "y", Subject: "kafka.baz.0", Metadata: metadata("cluster-1", &Topic{Name: "baz", ID: first.ID, N: 1}, 0)},
	} {
		if err := g.client.CreateLog(ctx, l); err != nil {
			t.Fatal(err)
		}
		s := spec(name)
		s.Partitions = 3
		_, err := g.Create(ctx, s)
		wantCode(t, "create "+name, err, kerr.KafkaStorageError)
		if _, err := g.client.FindLog(ctx, l.Name); err != nil {
			t.Errorf("%s was removed: %v", l.Name, err)
		}
		if _, err := g.Get(ctx, name); err == nil {
			t.Errorf("%s exists", name)
		}
	}
	if logs, records := c.srv.Logs(), c.srv.Keys("kafka-partitions"); len(logs) != 3 || len(records) != 0 || len(c.srv.Keys("kafka-topics")) != 0 {
		t.Errorf("left: %v, %v, %v", logs, records, c.srv.Keys("kafka-topics"))
	}
}

// TestCollidingRace: A is making x.y when B, which has not heard of it, makes
// x_y: the earlier stays, the later is undone.
func TestCollidingRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(memory.Config{})
		a := c.gateway(t, "a", memory.Faults{Create: func(op memory.Op) memory.WriteFault {
			if strings.HasPrefix(op.Name, "kafka-x") {
				return memory.WriteFault{Before: time.Minute}
			}
			return memory.WriteFault{}
		}}, nil)
		b := c.gateway(t, "b", memory.Faults{}, noNews)
		defer a.stop()
		defer b.stop()
		made := make(chan error, 1)
		go func() { _, err := a.Create(t.Context(), spec("x.y")); made <- err }()
		synctest.Wait()
		_, err := b.Create(t.Context(), spec("x_y"))
		wantCode(t, "the later one", err, kerr.InvalidTopicException)
		if err := <-made; err != nil {
			t.Errorf("the earlier one: %v", err)
		}
		if logs := c.srv.Logs(); !slices.Equal(logs, []string{"kafka-x=2Ey-0"}) {
			t.Errorf("streams %v", logs)
		}
		if keys := c.srv.Keys("kafka-topics"); !slices.Equal(keys, []string{"x=2Ey"}) {
			t.Errorf("records %v", keys)
		}
	})
}

// TestAdoptedLater: a creator that cannot be told from a living one at the time
// of the sweep is looked at again.
func TestAdoptedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(memory.Config{})
		d := &dying{how: "before", died: make(chan struct{})}
		d.hook = d.fail
		a := c.gateway(t, "a", d.faults(), nil)
		b := c.gateway(t, "b", memory.Faults{}, nil)
		defer a.stop()
		defer b.stop()
		d.at = d.calls.Load() + 6 // the record is written, not all partitions are
		s := spec("foo")
		s.Partitions = crashPartitions
		if _, err := a.Create(t.Context(), s); err == nil {
			t.Fatal("created by a gateway that died")
		}
		if err := b.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if len(c.srv.Keys("kafka-topics")) != 1 {
			t.Fatal("there is nothing to adopt: the test proves nothing")
		}
		c.kill("a")
		time.Sleep(10 * time.Second)
		if whole(t, c, b) {
			t.Error("the topic is there")
		}
	})
}
