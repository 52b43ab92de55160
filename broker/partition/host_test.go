package partition

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

func TestCreateAndDestroyAreIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		spec := CreateSpec{ID: w.id, Log: pubsub.LogConfig{Name: testLog, Subject: testSubject, Replicas: 1}}
		g.mustProduce(batch(3))
		if err := g.host.Create(t.Context(), spec); err != nil {
			t.Errorf("again: %v", err)
		}
		if err := g.host.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := spec
		other.ID = types.NewTopicID()
		other.Log.Metadata = map[string]string{"topic": "another"}
		if err := g.host.Create(t.Context(), other); !errors.Is(err, pubsub.ErrExists) {
			t.Errorf("another topic's log: %v", err)
		}
		if bs := w.gateway(memory.Faults{}).read(0); len(bs) != 1 {
			t.Errorf("%d batches after creating it again", len(bs))
		}
		for range 2 {
			if err := g.host.Destroy(t.Context(), DestroySpec{ID: w.id, Log: testLog}); err != nil {
				t.Errorf("destroy: %v", err)
			}
			if ks, ls := g.keys(), w.server.Logs(); len(ks) != 0 || len(ls) != 0 {
				t.Errorf("left: %v, %v", ks, ls)
			}
		}
		// Whoever still holds the partition is told that it is gone.
		if a := g.produce(AppendRequest{Records: batch(1)}); !errors.Is(a.Err, kerr.UnknownTopicOrPartition) {
			t.Errorf("produce: %+v", a)
		}
		if _, err := g.p.Read(t.Context(), ReadRequest{MaxBytes: 1, Whole: true}); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("read: %v", err)
		}
	})
}

// A crash between the log and its record: create finishes it, destroy removes it.
func TestCreateAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		w.server.Forget("kafka-partitions", g.p.key)
		if err := g.host.Create(t.Context(), CreateSpec{ID: w.id, Log: pubsub.LogConfig{Name: testLog, Subject: testSubject, Replicas: 1}}); err != nil {
			t.Fatal(err)
		}
		if got := g.mustProduce(batch(1)); got != 0 {
			t.Errorf("base %d", got)
		}
		w.server.Forget("kafka-partitions", g.p.key)
		if err := g.host.Destroy(t.Context(), DestroySpec{ID: w.id, Log: testLog}); err != nil || len(w.server.Logs()) != 0 {
			t.Errorf("%v, left: %v", err, w.server.Logs())
		}
	})
}

// Many waiters cost one listing every 5 s, not a question each, and lost news
// is found all the same.
func TestC22ManyWaitersAreCheckedByOneListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer(memory.Config{})
		var listings, questions atomic.Int64
		c := server.Client(memory.Faults{
			News:   func(string, pubsub.Message) bool { return true },
			Find:   func(memory.Op) (f memory.ReadFault) { listings.Add(1); return f },
			Bounds: func(memory.Op) (f memory.ReadFault) { questions.Add(1); return f },
		})
		tab, err := c.Table(t.Context(), pubsub.TableConfig{Name: "kafka-partitions"})
		if err != nil {
			t.Fatal(err)
		}
		h := NewHost(Env{Store: c, Records: tab, Gateway: "g", Subjects: "kafka.>", Registerer: prometheus.NewRegistry()})
		g := &gateway{w: &world{t: t, server: server}, client: c, host: h}
		run(t, g)
		const n = 100
		id := types.NewTopicID()
		woken := make([]chan struct{}, n)
		ps := make([]*Partition, n)
		for i := range int32(n) {
			name := fmt.Sprintf("kafka-t-%d", i)
			l := pubsub.LogConfig{Name: name, Subject: fmt.Sprintf("kafka.t.%d", i), Replicas: 1}
			if err := h.Create(t.Context(), CreateSpec{ID: id, Partition: i, Log: l}); err != nil {
				t.Fatal(err)
			}
			p := h.Open(OpenSpec{Topic: "t", ID: id, Partition: i, Log: c.Log(name, l.Subject), Config: Config{MaxMessageBytes: 1 << 20}})
			ps[i], woken[i] = p, make(chan struct{}, 1)
			defer p.Notify(woken[i])()
			if _, err := p.Available(t.Context(), 0, false); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		listings.Store(0)
		questions.Store(0)
		time.Sleep(time.Minute)
		if l, q := listings.Load(), questions.Load(); q > 0 || l < 10 || l > 15 {
			t.Errorf("%d listings, %d questions in a minute", l, q)
		}
		select {
		case <-woken[77]:
		default:
		}
		if _, err := server.Publish("kafka.t.77", nil, []byte("x")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-woken[77]
		if n, err := ps[77].Available(t.Context(), 0, false); n == 0 || err != nil || time.Since(began) > checkEvery+time.Second {
			t.Errorf("%d bytes after %v (%v)", n, time.Since(began), err)
		}
	})
}

// A gateway whose clock is off must not write append times.
func TestFault14ClockThatIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		var off atomic.Int64
		g.host.ahead = func() (time.Duration, bool) { return time.Duration(off.Load()), true }
		for _, d := range []time.Duration{0, time.Minute, -time.Minute} {
			off.Store(int64(d))
			if a := g.produce(AppendRequest{Records: batch(1)}); a.Err != nil {
				t.Errorf("%v: %v", d, a.Err)
			}
		}
		for _, d := range []time.Duration{time.Minute + 1, -time.Hour} {
			off.Store(int64(d))
			if a := g.produce(AppendRequest{Records: batch(1)}); !errors.Is(a.Err, pubsub.ErrUnavailable) {
				t.Errorf("%v: %v", d, a.Err)
			}
			if bs := g.read(0); len(bs) != 3 {
				t.Errorf("%d batches", len(bs))
			}
		}
	})
}

// The tail cache stays within its budget over all partitions.
func TestCacheBudget(t *testing.T) {
	c := newCache(1000)
	a, b := &Partition{}, &Partition{}
	for seq := pubsub.Seq(1); seq <= 50; seq++ {
		c.add(a, seq, make([]byte, 60))
		c.add(b, seq, make([]byte, 30))
		if n := c.used(); n > 1000 {
			t.Fatalf("%d bytes", n)
		}
	}
	var got []pubsub.Seq
	c.from(a, 48, func(s pubsub.Seq, _ []byte) bool { got = append(got, s); return true })
	if len(got) != 3 || got[0] != 48 {
		t.Errorf("cached from 48: %v", got)
	}
	c.add(a, 60, make([]byte, 10)) // a gap: what was before is useless
	got = nil
	c.from(a, 48, func(s pubsub.Seq, _ []byte) bool { got = append(got, s); return true })
	if len(got) != 0 {
		t.Errorf("cached before a gap: %v", got)
	}
	c.add(b, 51, make([]byte, 400)) // too large to share a cache with
	c.drop(a)
	c.drop(b)
	if n := c.used(); n != 0 {
		t.Errorf("%d bytes after all was dropped", n)
	}
}
