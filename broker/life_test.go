package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway is a whole broker on a client of its own.
type gateway struct {
	*Broker
	t      *testing.T
	name   string
	client *memory.Client
	end    func()
}

func startGateway(t *testing.T, srv *memory.Server, name string, f memory.Faults) *gateway {
	t.Helper()
	g := &gateway{t: t, name: name, client: srv.Client(f)}
	tc := topic.Defaults()
	logger := slog.New(slog.DiscardHandler)
	g.Broker = New(Config{Prefix: "kafka", Replicas: 1, Host: name, Port: 9092, Topic: tc,
		Cluster: cluster.Config{TTL: 8 * time.Second, Renew: 2 * time.Second}, // fewer events
		Group:   group.DefaultConfig()}, g.client, logger, prometheus.NewRegistry())
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.end = sync.OnceFunc(func() {
		g.client.Thaw()
		g.client.Disconnect() // without a word, as a kill
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		g.Close(ctx)
		g.client.Close()
	})
	t.Cleanup(g.end)
	return g
}

// produce appends one record to a partition of the topic that this gateway knows
// by that name.
func (g *gateway) produce(ctx context.Context, name string, n int32, value string) (types.TopicID, types.Offset, error) {
	t, err := g.Topic(ctx, name)
	if err != nil {
		return types.TopicID{}, 0, err
	}
	p, err := g.Partition(ctx, t, n)
	if err != nil {
		return t.ID, 0, err
	}
	done := make(chan partition.AppendResult, 1)
	b := serde.Build(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]serde.NewRecord{{TimestampMillis: time.Now().UnixMilli(), Value: []byte(value)}})
	p.Submit(partition.AppendRequest{Records: b, AcksAll: true}, func(r partition.AppendResult) { done <- r })
	select {
	case r := <-done:
		return t.ID, r.BaseOffset, r.Err
	case <-ctx.Done():
		return t.ID, 0, ctx.Err()
	}
}

// values reads a partition from the start.
func (g *gateway) values(ctx context.Context, t *topic.Topic, n int32) ([]string, error) {
	p, err := g.Partition(ctx, t, n)
	if err != nil {
		return nil, err
	}
	var all []string
	for {
		r, err := p.Read(ctx, partition.ReadRequest{Offset: types.Offset(len(all)), MaxBytes: 1 << 20, Whole: true})
		if err != nil {
			return all, err
		}
		for _, data := range r.Batches {
			for len(data) > 0 {
				b, rest, err := serde.ParseBatch(data)
				if err != nil {
					return all, err
				}
				if int64(b.BaseOffset()) != int64(len(all)) {
					return all, fmt.Errorf("offset %d, want %d", b.BaseOffset(), len(all))
				}
				for it := serde.NewRecords(b.Records(), b.Count()); it.Next(); {
					all = append(all, string(it.Record.Value))
				}
				data = rest
			}
		}
		if len(r.Batches) == 0 { // asked of the store, or known for sure
			return all, nil
		}
	}
}

// halting stops a gateway at one of the store calls that its work on topics makes,
// as SIGSTOP does: before the call is sent, or after, before its answer came.
type halting struct {
	mu     sync.Mutex // guards: all below
	client *memory.Client
	how    string
	armed  bool
	at     int // 0: never
	calls  int
	halted chan struct{}
}

// arm begins to count.
func (h *halting) arm(at int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed, h.at = true, at
}

// disarm ends counting.
func (h *halting) disarm() (calls int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed = false
	return h.calls
}

func (h *halting) hit(name string) (halt bool, how string) {
	if name != "kafka-topics" && name != "kafka-partitions" && !strings.HasPrefix(name, "kafka-foo") && !strings.HasPrefix(name, "kafka.foo") {
		return false, ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.armed {
		return false, ""
	}
	if h.calls++; h.calls != h.at {
		return false, ""
	}
	close(h.halted)
	return true, h.how
}

func (h *halting) write(op memory.Op) memory.WriteFault {
	switch halt, how := h.hit(op.Name); {
	case halt && how == "after":
		time.AfterFunc(time.Millisecond, h.client.Freeze)
		return memory.WriteFault{After: 2 * time.Millisecond}
	case halt && how == "gasp": // the last that it does
		h.client.Freeze()
		return memory.WriteFault{After: time.Hour}
	case halt:
		h.client.Freeze()
	}
	return memory.WriteFault{}
}

func (h *halting) read(op memory.Op) memory.ReadFault {
	if halt, _ := h.hit(op.Name); halt {
		h.client.Freeze()
	}
	return memory.ReadFault{}
}

func (h *halting) faults() memory.Faults {
	return memory.Faults{Append: h.write, Set: h.write, Trim: h.write, Create: h.write, Delete: h.write,
		Read: h.read, Get: h.read, Bounds: h.read, Headers: h.read, TableGet: h.read, TableRead: h.read, Scan: h.read, Find: h.read}
}

// life is one run of TestTopicLife: a gateway stops in the middle of its work on
// topic foo, others do something with it, and the gateway goes on.
type life struct {
	t       *testing.T
	srv     *memory.Server
	a, b, c *gateway
	halt    *halting
	// ctx is that of requests to the gateway that stops.
	ctx      context.Context
	original types.TopicID // of the topic that was there before
	// put is what was acknowledged, by topic id and partition.
	put map[types.TopicID][][]string
}

const lifePartitions = 3

func str(s string) *string { return &s }

func (l *life) context(g *gateway) context.Context {
	if g == l.a {
		return l.ctx
	}
	return l.t.Context()
}

func (l *life) create(g *gateway) error {
	_, err := g.CreateTopic(l.context(g), topic.Spec{Name: "foo", Partitions: lifePartitions, Replicas: -1})
	return err
}

func (l *life) delete(g *gateway) error {
	t, err := g.Topic(l.context(g), "foo")
	if err != nil {
		return err
	}
	return g.DeleteTopic(l.context(g), t)
}

// fill produces one record to each partition there is, as clients do: again until
// it is stored, in the topic that has the name by then.
func (l *life) fill(g *gateway, value string) {
	l.t.Helper()
	t, err := g.Topic(l.t.Context(), "foo")
	if err != nil {
		l.t.Fatalf("produce: %v", err)
	}
	for n := range t.Partitions {
		v := fmt.Sprint(value, " ", n)
		deadline := time.Now().Add(time.Minute)
		for {
			ctx, cancel := context.WithTimeout(l.t.Context(), 10*time.Second)
			id, at, err := g.produce(ctx, "foo", n, v)
			cancel()
			if err == nil {
				for len(l.put[id]) <= int(n) {
					l.put[id] = append(l.put[id], nil)
				}
				if int(at) != len(l.put[id][n]) {
					l.t.Errorf("%q has offset %d after %q", v, at, l.put[id][n])
				}
				l.put[id][n] = append(l.put[id][n], v)
				break
			}
			// It may have meant the topic before, with more partitions.
			if now, terr := g.Topic(l.t.Context(), "foo"); terr == nil && n >= now.Partitions {
				break
			}
			if time.Now().After(deadline) {
				l.t.Fatalf("produce to foo-%d through %s: %v", n, g.name, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	time.Sleep(100 * time.Millisecond) // the news has come everywhere
}

// there is the topic's id as a gateway knows it; ok is false if there is none.
func (l *life) there(g *gateway) (t *topic.Topic, ok bool) {
	l.t.Helper()
	t, err := g.Topic(l.t.Context(), "foo")
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		l.t.Errorf("%s: %v", g.name, err)
	}
	return t, err == nil
}

// whole checks that the store holds the topic with all that was acknowledged, or
// nothing of it, and never anything that no topic explains but what was there
// before; all gateways say the same.
func (l *life) whole(gs ...*gateway) (id types.TopicID) {
	l.t.Helper()
	var logs, records []string
	t, ok := l.there(l.b)
	if ok {
		id = t.ID
		for n := range t.Partitions {
			logs = append(logs, l.b.topics.Partition(t, n).LogConfig.Name)
			records = append(records, partition.RecordKey(t.ID, n))
		}
	}
	logs = append(logs, "mine", "theirs")
	slices.Sort(logs)
	slices.Sort(records)
	var gotRecords []string
	for _, k := range l.srv.Keys("kafka-partitions") {
		if strings.Count(k, ".") == 1 {
			gotRecords = append(gotRecords, k)
		} else if !ok || !strings.HasPrefix(k, t.ID.String()) {
			l.t.Errorf("a snapshot of a topic that is gone: %s", k)
		}
	}
	if got := l.srv.Logs(); !slices.Equal(got, logs) {
		l.t.Errorf("streams %v, want %v", got, logs)
	}
	if !slices.Equal(gotRecords, records) {
		l.t.Errorf("partition records %v, want %v", gotRecords, records)
	}
	for _, g := range gs {
		now, there := l.there(g)
		if there != ok || ok && now.ID != t.ID {
			l.t.Errorf("%s has topic %v (%v), %s has %v (%v)", g.name, now, there, l.b.name, t, ok)
			continue
		}
		if !ok {
			continue
		}
		for n := range now.Partitions {
			var want []string
			if int(n) < len(l.put[id]) {
				want = l.put[id][n]
			}
			if got, err := g.values(l.t.Context(), now, n); err != nil || !slices.Equal(got, want) {
				l.t.Errorf("%s: foo-%d holds %q (%v), want %q", g.name, n, got, err, want)
			}
		}
	}
	return id
}

// lifeWorks is what the gateway that stops is at; lifeRivals what others do
// meanwhile.
var (
	lifeWorks = map[string]func(l *life) error{
		"create": func(l *life) error { return l.create(l.a) },
		"delete": func(l *life) error { return l.delete(l.a) },
		"recreate": func(l *life) error {
			if err := l.delete(l.a); err != nil {
				return err
			}
			return l.create(l.a)
		},
		"grow": func(l *life) error {
			t, err := l.a.Topic(l.ctx, "foo")
			if err != nil {
				return err
			}
			return l.a.GrowTopic(l.ctx, t, topic.Growth{Partitions: lifePartitions + 2})
		},
		"alter": func(l *life) error {
			t, err := l.a.Topic(l.ctx, "foo")
			if err != nil {
				return err
			}
			return l.a.AlterTopic(l.ctx, t, topic.Alteration{Changes: []topic.Change{{Name: "max.message.bytes", Value: str("77000")}}})
		},
		"produce": func(l *life) error {
			_, _, err := l.a.produce(l.ctx, "foo", 0, late)
			return err
		},
	}
	lifeRivals = map[string]func(l *life){
		"nothing": func(*life) {},
		"use": func(l *life) {
			if _, ok := l.there(l.b); ok {
				l.fill(l.c, "used")
			}
		},
		"delete": func(l *life) { l.gone() },
		"remake": func(l *life) { l.remake() },
		"remake twice": func(l *life) {
			l.remake()
			l.remake()
		},
	}
)

// late is what the gateway that stops produces.
const late = "late 0"

// arrived takes in the late record if it is in the topic that it was meant for,
// whether its producer was told so or not.
func (l *life) arrived() {
	l.t.Helper()
	t, ok := l.there(l.b)
	if !ok || t.ID != l.original {
		return
	}
	got, err := l.b.values(l.t.Context(), t, 0)
	if err != nil {
		l.t.Error(err)
	}
	put := l.put[t.ID][0]
	if i := slices.Index(got, late); i >= 0 && !slices.Contains(put, late) {
		l.put[t.ID][0] = slices.Insert(put, min(i, len(put)), late)
	}
}

// inPlace reports that the topic is the one from before.
func (l *life) inPlace() bool {
	t, ok := l.there(l.b)
	return ok && t.ID == l.original
}

func (l *life) gone() {
	l.t.Helper()
	if _, ok := l.there(l.b); !ok {
		return
	}
	if err := l.delete(l.b); err != nil {
		l.t.Errorf("delete: %v", err)
	}
}

func (l *life) remake() {
	l.t.Helper()
	l.gone()
	if err := l.create(l.b); err != nil {
		l.t.Fatalf("create: %v", err)
	}
	l.fill(l.c, "new")
}

// TestTopicLife: a gateway stops for a minute, or dies, or dies when it has gone on
// with one call, at every store call of its work on a topic, the call sent or not. Others take its place, delete the topic,
// make it again, produce. Then it goes on. At no time is there a stream or a
// record too many or too few, nothing that was acknowledged is missing or in
// another topic of the name, and what nobody explains is left alone.
func TestTopicLife(t *testing.T) {
	t.Parallel()
	for what, work := range lifeWorks {
		calls := 0
		synctest.Test(t, func(t *testing.T) { calls = stopAt(t, what, "", 0, work, nil) })
		if calls < 1 {
			t.Fatalf("%s makes %d calls", what, calls)
		}
		for rival, act := range lifeRivals {
			for _, how := range []string{"before", "after", "killed", "gasp"} {
				// Of so many points one, and not the same in each run.
				name, stride, at := what+" "+rival+" "+how, lifeStride(), 0
				for _, c := range []byte(name) {
					at = (at*31 + int(c)) % stride
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					for at++; at <= calls; at += stride {
						synctest.Test(t, func(t *testing.T) { stopAt(t, what, how, at, work, act) })
						if t.Failed() {
							t.Fatalf("stopped at call %d", at)
						}
					}
				})
			}
		}
	}
}

// lifeStride is 1 for all points (SIM_LIFE=full), which take minutes under the race
// detector.
func lifeStride() int {
	if os.Getenv("SIM_LIFE") == "full" {
		return 1
	}
	return 12
}

// stopAt stops the work at one of its calls, or at none if at is 0, and returns how
// many it made until then.
func stopAt(t *testing.T, what, how string, at int, work func(*life) error, act func(*life)) (calls int) {
	srv := memory.NewServer(memory.Config{})
	l := &life{t: t, srv: srv, put: map[types.TopicID][][]string{}, halt: &halting{how: how, halted: make(chan struct{})}}
	l.a = startGateway(t, srv, "a", l.halt.faults()) // the first holds the lease
	l.halt.client = l.a.client
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.ctx = ctx
	l.b, l.c = startGateway(t, srv, "b", memory.Faults{}), startGateway(t, srv, "c", memory.Faults{})
	for name, meta := range map[string]map[string]string{"mine": nil, "theirs": {"stream.format": "1", "stream.cluster": "other", "stream.topic": "foo", "stream.n": "1"}} {
		if err := l.b.client.CreateLog(t.Context(), pubsub.LogConfig{Name: name, Subject: "kafka." + name + ".0", Metadata: meta}); err != nil {
			t.Fatal(err)
		}
	}
	if what != "create" {
		if err := l.create(l.b); err != nil {
			t.Fatal(err)
		}
		l.fill(l.c, "old")
		l.fill(l.a, "old too")
		if first, ok := l.there(l.a); ok {
			l.original = first.ID
		}
	}
	time.Sleep(20 * time.Second) // snapshots are written
	l.halt.arm(at)
	ended := make(chan error, 1)
	go func() { ended <- work(l) }()
	select {
	case err := <-ended:
		calls = l.halt.disarm()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if at > 0 {
			return calls // it had less to do this time
		}
		time.Sleep(time.Second)
		if what == "produce" {
			l.arrived()
		}
		l.whole(l.a, l.b, l.c)
		return calls
	case <-l.halt.halted:
	}
	if how == "killed" {
		time.Sleep(time.Millisecond)
		cancel()
		l.a.end()
	}
	time.Sleep(20 * time.Second) // it is found dead
	if what == "produce" {
		l.arrived()
	}
	act(l)
	before, was := l.there(l.b)
	time.Sleep(40 * time.Second)
	gs := []*gateway{l.b, l.c}
	switch how {
	case "killed":
	case "gasp":
		l.a.client.Thaw()
		time.Sleep(time.Millisecond)
		cancel()
		l.a.end()
	default:
		l.a.client.Thaw()
		gs = append(gs, l.a)
	}
	err := <-ended
	time.Sleep(time.Minute)
	if how == "gasp" {
		time.Sleep(sweepEvery)
	}
	if what == "produce" {
		if l.arrived(); err == nil && l.inPlace() && !slices.Contains(l.put[l.original][0], late) {
			t.Error("a record that was acknowledged is not there")
		}
	}
	now, is := l.there(l.b)
	switch {
	case !was:
		if is && (err != nil || what == "delete") {
			t.Errorf("a topic came back although %s said %v", what, err)
		}
	case is && now.ID == before.ID:
	case what != "delete" && what != "recreate":
		t.Errorf("topic %v became %v (%v) by %s", before, now, is, what)
	case before.ID != l.original:
		t.Errorf("a topic that others made, %v, was deleted by a late %s: %v", before, what, now)
	}
	l.whole(gs...)
	if is {
		l.fill(gs[len(gs)-1], "last")
		l.fill(l.c, "very last")
		gs = append(gs, startGateway(t, srv, "d", memory.Faults{})) // with nothing in memory
		l.whole(gs...)
	}
	l.gone()
	time.Sleep(time.Second)
	l.whole(gs...)
	return at
}
