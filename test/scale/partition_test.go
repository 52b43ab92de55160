package scale

import (
	"fmt"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// TestLongPartition: a partition of many messages is served at once by a gateway
// that knows nothing of it, whose caches are cold for each question.
func TestLongPartition(t *testing.T) {
	messages := sized(20_000, 2_000_000)
	nats := startNATS(t)
	o := testkit.Options{PubsubURL: nats.URL}

	first, _ := launch(t, o)
	c := dial(t, first.Addr)
	to := c.create(t, "long", 1)[:1]
	ss := []*series{newSeries(c.producer(t), time.Now().Add(-time.Duration(perMessage*messages)*time.Millisecond).Truncate(time.Millisecond))}
	first.Stop(t)

	g := newGenerator(t, nats.URL)
	g.fillAll(t, to, ss, messages)
	g.drain(t)
	// What a killed gateway leaves: a tail that no snapshot covers.
	const tail = 1999
	g.records.frozen.Store(true)
	g.fillAll(t, to, ss, tail)
	messages += tail
	g.close(t)
	nats.Stop() // its caches are cold too
	if err := nats.Start(); err != nil {
		t.Fatal(err)
	}

	middle := int64(perMessage*messages/2) + 1
	end := func() int64 { return int64(ss[0].records) }
	steps := []step{
		{"first produce", 4 << 20, func(c *client) { c.produce(t, to, ss) }},
		{"first fetch in the middle", 6 << 20, func(c *client) { c.fetch(t, to, ss, []int64{middle}, 1<<20) }},
		{"first fetch at the start", 6 << 20, func(c *client) { c.fetch(t, to, ss, []int64{0}, 1<<20) }},
		{"first fetch at the last record", 4 << 20, func(c *client) { c.fetch(t, to, ss, []int64{end() - 1}, 1<<20) }},
		{"first offset by time in the middle", 4 << 20, func(c *client) {
			if got := c.offsetAt(t, to[0], ss[0].first.UnixMilli()+middle); got != middle {
				t.Errorf("offset by time is %d instead of %d", got, middle)
			}
		}},
		{"first latest offset", 4 << 20, func(c *client) {
			if got := c.offsetAt(t, to[0], -1); got != end() {
				t.Errorf("latest offset is %d instead of %d", got, end())
			}
		}},
		{"first group join", 1 << 20, func(c *client) { c.join(t, fmt.Sprintf("g%d", time.Now().UnixNano()), "long") }},
	}
	for _, s := range steps {
		cold(t, o, s)
	}

	// All of it on one gateway: what one question has loaded serves the next.
	gw, _ := launch(t, o)
	c = dial(t, gw.Addr)
	for _, s := range steps {
		gw.timed(t, "then "+s.what, func() { s.do(c) })
	}
	_, peak := gw.memory(t)
	promiseMemory(t, "memory at most, all on one gateway", peak)
	gw.Kill(t)

	// The longest tail that a gateway leaves behind whose snapshots cost more
	// than they may: beyond it they are written anyway, once a second.
	longest := sized(5_000, 50_000)
	g = newGenerator(t, nats.URL)
	g.records.frozen.Store(true)
	g.fillAll(t, to, ss, longest)
	g.close(t)
	cold(t, o, step{fmt.Sprintf("first produce, a tail of %d", longest), 400 * (longest + 4000), func(c *client) { c.produce(t, to, ss) }})

	// Without its snapshot a partition is rebuilt from all headers. That takes
	// its time, but ends.
	g = newGenerator(t, nats.URL)
	g.records.loseSnapshot(t, to[0])
	g.close(t)
	gw, _ = launch(t, o)
	c = dial(t, gw.Addr)
	before, begin := gw.read(t), time.Now()
	testkit.Poll(t, 3*time.Minute, "the end of a partition without snapshot", func() error {
		offset, code := c.listed(t, to[0], -1)
		if code != 0 || offset != end() {
			return fmt.Errorf("code %d, offset %d instead of %d", code, offset, end())
		}
		return nil
	})
	t.Logf("%-44s %8.1f ms  %d bytes read from the store", "first latest offset, snapshot lost", float64(time.Since(begin).Microseconds())/1000, gw.read(t)-before)
	c.produce(t, to, ss)
	_, peak = gw.memory(t)
	promiseMemory(t, "  memory at most", peak)
	gw.Stop(t) // it leaves a snapshot
	cold(t, o, step{"first produce, snapshot made anew", 4 << 20, func(c *client) { c.produce(t, to, ss) }})
}

// step is one thing to ask of a gateway.
type step struct {
	what string
	// most is how many bytes it may read from the store; nothing of it depends
	// on the length of the partition.
	most int
	do   func(*client)
}

// cold runs a step on a gateway that knows nothing, and kills it: it writes no
// snapshot, so that the next one finds the same tail.
func cold(t *testing.T, o testkit.Options, s step) {
	t.Helper()
	gw, ready := launch(t, o)
	promise(t, "start until ready", ready, fmt.Sprintf("%d bytes read from the store", gw.read(t)))
	c := dial(t, gw.Addr)
	if n := gw.timed(t, s.what, func() { s.do(c) }); n > s.most {
		t.Errorf("%s read %d bytes; %d would do", s.what, n, s.most)
	}
	now, peak := gw.memory(t)
	promiseMemory(t, "  memory", now)
	promiseMemory(t, "  memory at most", peak)
	gw.Kill(t)
}
