package txn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/raw"
	"github.com/hanzoai/stream/test/testkit"
)

// recording says that what Apache Kafka answers is to be written to testdata.
var recording = os.Getenv("STREAM_RECORD") != ""

// bench is what the cells of one broker share.
type bench struct {
	addr   string
	other  int64 // a producer id that no transaction has
	topics map[string][16]byte
	many   []int32         // partitions of the topic many
	wanted map[string]bool // names of lines; nil: all
	verify sync.RWMutex    // see row.alone
}

// many is a topic in which a transaction takes long to end.
const many = "txn-many"

// workers is how many cells go on at a time.
const workers = 12

// kafkaProperties make transactions of Apache Kafka end soon after their timeout.
var kafkaProperties = []string{
	"transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
	"transaction.partition.verification.enable=true",
}

// TestTable compares every request in every state with Apache Kafka's answer.
func TestTable(t *testing.T) {
	for _, kind := range broker.Kinds([]string{broker.Embedded}) {
		t.Run(kind, func(t *testing.T) {
			o := broker.Options{}
			if kind == broker.Kafka {
				o.Properties = kafkaProperties
			}
			path := filepath.Join("testdata", "table.txt")
			var want []line
			var wanted map[string]bool
			if !recording {
				want = read(t, path)
			}
			if kind != broker.Kafka {
				want, wanted = slices.DeleteFunc(want, skipped), map[string]bool{}
				for _, l := range want {
					wanted[l.name()] = true
				}
			}
			b := newBench(t, broker.StartWith(t, kind, o).Addr, kind == broker.Kafka)
			b.wanted = wanted
			var got []line
			for _, s := range states {
				if kind != broker.Kafka && s.prepared != "" {
					continue
				}
				began := time.Now()
				got = append(got, b.run(t, s)...)
				t.Logf("%s: %v", s.name, time.Since(began).Round(time.Millisecond))
			}
			if recording {
				if kind != broker.Kafka {
					t.Fatalf("only Apache Kafka is recorded, not %s", kind)
				}
				write(t, path, got)
				return
			}
			compare(t, kind, got, want)
		})
	}
}

// whole asks stream in every version, also between two with the same answer.
var whole = os.Getenv("STREAM_TXN") == "whole"

// skipped is what is not asked of stream: states that are too short to be met
// (broker/txn compares its rules with these rows), and versions between two others
// that Kafka answers alike, unless STREAM_TXN=whole.
func skipped(l line) bool {
	return strings.HasPrefix(l.state, "Prepare") || l.between && !whole
}

func newBench(t *testing.T, addr string, kafka bool) *bench {
	t.Helper()
	b := &bench{addr: addr, topics: map[string][16]byte{}}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 60_000
	topic := func(name string, n int) {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, int32(n), 1
		req.Topics = append(req.Topics, rt)
	}
	for i, s := range states {
		s.a, s.b = fmt.Sprintf("txn-%d-a", i), fmt.Sprintf("txn-%d-b", i)
		topic(s.a, 1)
		topic(s.b, 1)
	}
	if kafka {
		topic(many, 200)
		for i := range int32(200) {
			b.many = append(b.many, i)
		}
	}
	c := &cell{bench: b, state: states[0], row: &row{name: "start"}}
	defer func() {
		if c.conn != nil {
			c.conn.Close()
		}
		if p := recover(); p != nil {
			t.Fatal(p.(fail).err)
		}
	}()
	resp, err := c.do(7, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if st.ErrorCode != 0 {
			t.Fatalf("create %s: code %d", st.Topic, st.ErrorCode)
		}
		b.topics[st.Topic] = st.TopicID
	}
	c.plain()
	b.other = c.pid
	rounds := 1 // so that the internal topics are there
	if kafka {
		rounds = 40 // and each of their partitions has a leader
	}
	for range rounds {
		c.setup()
		c.coordinator(0, c.group)
		c.coordinator(1, c.id)
		c.init(long)
		c.commitOffset()
	}
	return b
}

// run asks all rows in one state.
func (b *bench) run(t *testing.T, s *state) (lines []line) {
	t.Helper()
	var cells []*cell
	for _, r := range rows() {
		name := line{state: s.name, request: r.name, version: r.version, variant: r.variant}.name()
		if s.prepared != "" && r.passing() || b.wanted != nil && !b.wanted[name] {
			continue
		}
		cells = append(cells, &cell{bench: b, state: s, row: r})
	}
	b.each(t, cells, func(c *cell) {
		if s.ready != nil {
			c.setup()
			return
		}
		c.whole()
	})
	if s.ready != nil {
		b.each(t, cells, func(c *cell) {
			err := testkit.Within(time.Minute, 10*pause, func() error {
				if !s.ready(c) {
					return errors.New(c.transaction(c.describe()))
				}
				return nil
			})
			if err != nil {
				c.fatalf("never ready: %v", err)
			}
			c.ask()
		})
	}
	for _, c := range cells {
		lines = append(lines, line{state: s.name, request: c.row.name, version: c.row.version, variant: c.row.variant, answer: c.answer()})
	}
	return lines
}

// each works on some cells at a time, each worker with a connection.
func (b *bench) each(t *testing.T, cells []*cell, f func(c *cell)) {
	t.Helper()
	next := make(chan *cell)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var conn *raw.Conn
			for c := range next {
				if t.Failed() {
					continue
				}
				c.conn = conn
				func() {
					defer func() {
						if p := recover(); p != nil {
							e, ok := p.(fail)
							if !ok {
								panic(p)
							}
							t.Error(e.err)
						}
					}()
					f(c)
				}()
				conn, c.conn = c.conn, nil
			}
			if conn != nil {
				conn.Close()
			}
		})
	}
	for _, c := range cells {
		next <- c
	}
	close(next)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

var ids atomic.Int64

// setup makes a fresh id of the state.
func (c *cell) setup() {
	n := ids.Add(1)
	*c = cell{bench: c.bench, state: c.state, row: c.row, conn: c.conn,
		id: fmt.Sprintf("txn-id-%d.", n), group: fmt.Sprintf("txn-group-%d", n), wrote: -2}
	c.state.make(c)
}

// whole makes the state and asks. A state that passes is made again until it has
// held.
func (c *cell) whole() {
	for range 100 {
		c.setup()
		if c.state.prepared == "" {
			c.ask()
			return
		}
		if c.askPrepared() {
			return
		}
	}
	c.fatalf("not once was it still %s after the request", c.state.prepared)
}

// once sends the request once.
func (c *cell) once() (text string, code int16) {
	if c.sent == nil {
		c.sent = c.row.make(c)
	}
	resp, err := c.do(c.row.version, c.sent)
	if errors.Is(err, errClosed) {
		return "closed", -1
	}
	return c.tell(resp)
}

// patiently sends it until it is not told to come again.
func (c *cell) patiently() (text string) {
	waited := ""
	_ = testkit.Within(time.Minute, pause, func() error { // or it is 51 that is shown
		var code int16
		if text, code = c.once(); code == 51 {
			waited = "51, "
			return errors.New(text)
		}
		return nil
	})
	return waited + text
}

func (c *cell) ask() {
	c.first = c.patiently()
	c.settled()
	c.second = c.patiently() // the same bytes
	c.look()
}

// askPrepared asks once, and reports whether the state still held afterwards.
func (c *cell) askPrepared() bool {
	if c.row.waits() {
		c.first = strings.TrimPrefix(c.patiently(), "51, ")
	} else if c.first, _ = c.once(); c.describe().State != c.state.prepared {
		return false
	}
	c.second = "-"
	c.look()
	return true
}

// look tells what has come of it.
func (c *cell) look() {
	c.after, c.log = c.transaction(c.settled()), "-"
	if c.row.log != nil {
		c.log = c.partition(c.row.log(c))
	}
}

func (c *cell) answer() string {
	return strings.Join([]string{c.first, c.second, c.after, c.log}, " | ")
}
