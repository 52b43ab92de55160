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
	nats := testkit.StartNATS(t, testkit.NATSOptions{})
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
	g.fillAll(t, to, ss, tail)
	g.stop(t)
	messages += tail

	middle := int64(perMessage*messages/2) + 1
	end := func() int64 { return int64(ss[0].records) }
	steps := []struct {
		what string
		// most is how many bytes it may read: what does not depend on the length
		// of the partition.
		most int
		do   func(*gateway, *client)
	}{
		{"first produce", 4 << 20, func(_ *gateway, c *client) { c.produce(t, to, ss) }},
		{"first fetch in the middle", 6 << 20, func(_ *gateway, c *client) { c.fetch(t, to, ss, []int64{middle}, 1<<20) }},
		{"first fetch at the start", 6 << 20, func(_ *gateway, c *client) { c.fetch(t, to, ss, []int64{0}, 1<<20) }},
		{"first fetch at the last record", 4 << 20, func(_ *gateway, c *client) { c.fetch(t, to, ss, []int64{end() - 1}, 1<<20) }},
		{"first offset by time in the middle", 4 << 20, func(_ *gateway, c *client) {
			if got := c.offsetAt(t, to[0], ss[0].first.UnixMilli()+middle); got != middle {
				t.Errorf("offset by time is %d instead of %d", got, middle)
			}
		}},
		{"first latest offset", 4 << 20, func(_ *gateway, c *client) {
			if got := c.offsetAt(t, to[0], -1); got != end() {
				t.Errorf("latest offset is %d instead of %d", got, end())
			}
		}},
		{"first group join", 1 << 20, func(_ *gateway, c *client) { c.join(t, fmt.Sprintf("g%d", time.Now().UnixNano()), "long") }},
	}
	for _, s := range steps {
		gw, ready := launch(t, o)
		promise(t, "start until ready", ready, fmt.Sprintf("%d bytes read from the store", gw.read(t)))
		c := dial(t, gw.Addr)
		if n := gw.timed(t, s.what, func() { s.do(gw, c) }); n > s.most {
			t.Errorf("%s read %d bytes; %d would do", s.what, n, s.most)
		}
		now, peak := gw.memory(t)
		promiseMemory(t, "  memory", now)
		promiseMemory(t, "  memory at most", peak)
		gw.Kill(t) // it writes no snapshot, so the next one has the same tail
	}

	// All of it on one gateway, each question the first of its kind only in part.
	gw, _ := launch(t, o)
	c = dial(t, gw.Addr)
	for _, s := range steps {
		gw.timed(t, "then "+s.what, func() { s.do(gw, c) })
	}
	_, peak := gw.memory(t)
	promiseMemory(t, "memory at most, all on one gateway", peak)
	gw.Stop(t)
}
