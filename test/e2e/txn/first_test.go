package txn

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/e2e/broker"
)

// TestFirstSequence: with which sequence a producer may begin on a partition that
// does not know it. A transaction of version 2, which is what Produce v12 makes of
// it, begins at 0; all others may begin anywhere.
func TestFirstSequence(t *testing.T) {
	const outOfOrder = 45
	for _, kind := range broker.Kinds([]string{broker.Embedded}) {
		t.Run(kind, func(t *testing.T) {
			o := broker.Options{}
			if kind == broker.Kafka {
				o.Properties = kafkaProperties
			}
			b := newBench(t, broker.StartWith(t, kind, o).Addr, kind == broker.Kafka)
			var cells []*cell
			check := func(name string, f func(c *cell)) {
				s := &state{name: name, a: states[len(cells)].a, make: func(c *cell) { c.init(long); f(c) }}
				cells = append(cells, &cell{bench: b, state: s, row: &row{name: "Produce"}})
			}
			send := func(c *cell, version int16, sequence int32, want int16) {
				id := &c.id
				if c.id == "" {
					id = nil
				}
				resp, err := c.do(version, c.batch(version, c.state.a, c.pid, c.epoch, sequence, id != nil, id))
				if err != nil {
					c.fatalf("%v", err)
				}
				if got := produced(resp.(*kmsg.ProduceResponse)); got != want {
					c.fatalf("v%d, sequence %d: code %d, want %d", version, sequence, got, want)
				}
			}
			for _, v := range []int16{12, 13} {
				check("version 2", func(c *cell) {
					send(c, v, 5, outOfOrder)
					send(c, v, 0, 0)
					send(c, v, 1, 0)
				})
				check("version 2, added as before it", func(c *cell) {
					c.add(c.state.a, 0)
					send(c, v, 5, outOfOrder)
					send(c, v, 0, 0)
				})
				check("version 2, ended as before it", func(c *cell) {
					send(c, v, 0, 0)
					c.end(4, true)
					c.settled()
					send(c, v, 1, 0)
				})
				check("version 2, nothing but a marker", func(c *cell) {
					c.add(c.state.a, 0)
					c.end(5, false)
					c.settled()
					send(c, v, 5, outOfOrder)
					send(c, v, 0, 0)
				})
				check("no transaction", func(c *cell) {
					c.id = ""
					c.plain()
					send(c, v, 5, 0)
					send(c, v, 6, 0)
				})
			}
			check("before version 2", func(c *cell) {
				c.add(c.state.a, 0)
				send(c, 11, 5, 0)
				send(c, 11, 6, 0)
			})
			b.each(t, cells, (*cell).setup)
		})
	}
}
