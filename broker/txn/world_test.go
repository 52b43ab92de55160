package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/cluster"
	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

const bucket = "kafka-txns"

// world is a store, the partitions and groups, and gateways on them.
type world struct {
	t     *testing.T
	srv   *memory.Server
	logs  *logs
	c     Config
	ids   atomic.Int64
	sites []*site
}

func newWorld(t *testing.T) *world {
	return &world{t: t, srv: memory.NewServer(memory.Config{}), logs: newLogs(), c: DefaultConfig()}
}

// logs stands for all partitions and groups: what package partition promises of
// markers, and package group of decisions.
type logs struct {
	mu      sync.Mutex             // guards: all below
	markers map[string][]endMarker // by partition or group
	told    int                    // calls, repeated ones too
	gone    map[string]bool        // topics that were deleted
}

type endMarker struct {
	pid, n int64
	epoch  int16 // of partitions
	commit bool
}

func newLogs() *logs { return &logs{markers: map[string][]endMarker{}, gone: map[string]bool{}} }

func place(p Partition) string { return fmt.Sprintf("%s.%d", p.Topic, p.N) }

// end appends a marker, unless a later one is there.
func (l *logs) end(where string, m endMarker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told++
	for _, o := range l.markers[where] {
		if o.pid == m.pid && o.n >= m.n {
			return
		}
	}
	l.markers[where] = append(l.markers[where], m)
}

func (l *logs) of(where string) []endMarker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.markers[where])
}

// teller is a gateway's way to them.
type teller struct {
	s    *site
	logs *logs
}

func (w teller) tell(ctx context.Context, where string, m endMarker) error {
	if err := w.s.step(ctx, "before "+where); err != nil {
		return err
	}
	w.logs.end(where, m)
	return w.s.step(ctx, "after "+where)
}

// End implements Markers.
func (w teller) End(ctx context.Context, p Partition, m partition.Marker) error {
	return w.tell(ctx, place(p), endMarker{m.ProducerID, m.N, m.Epoch, m.Commit})
}

// EndTransaction implements Groups.
func (w teller) EndTransaction(ctx context.Context, g string, e group.TxnEnd) error {
	return w.tell(ctx, g, endMarker{e.ProducerID, e.N, -1, e.Commit})
}

// site is a gateway with a membership of its own: it calls, and is called by, the
// others.
type site struct {
	*Forwarder
	cluster *cluster.Cluster
	client  *memory.Client
	dead    atomic.Bool
	kill    func() // as SIGKILL
	// at is asked at every step that something outside is told; an error fails it.
	at func(ctx context.Context, what string) error
}

var errKilled = errors.New("killed")

func (s *site) step(ctx context.Context, what string) error {
	if s.dead.Load() {
		return errKilled
	}
	if s.at != nil {
		return s.at(ctx, what)
	}
	return ctx.Err()
}

// begin starts a site.
func (w *world) begin(f memory.Faults, at func(s *site, ctx context.Context, what string) error) *site {
	w.t.Helper()
	s := &site{client: w.srv.Client(f)}
	if at != nil {
		s.at = func(ctx context.Context, what string) error { return at(s, ctx, what) }
	}
	tables := make([]pubsub.Table, 2)
	for i, name := range []string{"kafka-gateways", bucket} {
		tb, err := s.client.Table(w.t.Context(), pubsub.TableConfig{Name: name})
		if err != nil {
			w.t.Fatal(err)
		}
		tables[i] = tb
	}
	s.cluster = cluster.New(cluster.Config{Prefix: "kafka"}, cluster.Deps{Table: tables[0], Store: s.client, Logger: slog.New(slog.DiscardHandler)})
	if err := s.cluster.Join(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	s.Forwarder = NewForwarder(New(w.c, Deps{
		Table: tables[1], Members: s.cluster, Calls: s.cluster, Markers: teller{s, w.logs}, Groups: teller{s, w.logs},
		NewProducerID: func(ctx context.Context) (int64, error) { return 999 + w.ids.Add(1), s.step(ctx, "id") },
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{s.cluster.Run, s.Coordinator.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				w.t.Errorf("run: %v", err)
			}
		})
	}
	s.kill = sync.OnceFunc(func() {
		s.dead.Store(true)
		s.client.Thaw()
		s.client.Disconnect()
		cancel()
		wg.Wait()
		s.client.Close()
	})
	w.t.Cleanup(s.kill)
	<-s.Ready()
	w.sites = append(w.sites, s)
	return s
}

// client is a producer as Kafka's are: it repeats what was not answered, and what
// is to be repeated, at whatever gateway lives.
type client struct {
	w *world
	p Producer
}

var errGone = errors.New("the gateway that was asked is gone")

// try asks until there is an answer that counts.
func (c *client) try(what string, ask func(ctx context.Context, s *site) error) error {
	c.w.t.Helper()
	began := time.Now()
	for {
		var s *site
		for _, o := range c.w.sites {
			if !o.dead.Load() {
				s = o
				break
			}
		}
		err := errGone
		if s != nil {
			ctx, cancel := context.WithTimeout(c.w.t.Context(), 10*time.Second)
			err = ask(ctx, s)
			cancel()
			if s.dead.Load() {
				err = errGone // whatever it said, nobody heard
			}
		}
		k, refused := errors.AsType[*kerr.Error](err)
		if err == nil || refused && !k.Retriable && k.Code != kerr.ConcurrentTransactions.Code {
			return err
		}
		if time.Since(began) > time.Minute {
			c.w.t.Fatalf("%s: nobody answers: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *client) init() {
	c.w.t.Helper()
	var p Producer
	if err := c.try("init", func(ctx context.Context, s *site) error {
		r := s.Init(ctx, InitRequest{TransactionalID: "t", Timeout: time.Minute, Producer: NoProducer})
		p = r.Producer
		return r.Err
	}); err != nil {
		c.w.t.Fatalf("init: %v", err)
	}
	c.p = p
}

func (c *client) add(ps ...Partition) (n int64) {
	c.w.t.Helper()
	if err := c.try("add", func(ctx context.Context, s *site) error {
		r := s.AddPartitions(ctx, AddPartitionsRequest{TransactionalID: "t", Producer: c.p, Partitions: ps, Implicit: true})
		n = r.N
		return r.Err
	}); err != nil {
		c.w.t.Fatalf("add: %v", err)
	}
	return n
}

func (c *client) addOffsets(g string) {
	c.w.t.Helper()
	if err := c.try("offsets", func(ctx context.Context, s *site) error {
		return s.AddOffsets(ctx, AddOffsetsRequest{TransactionalID: "t", Producer: c.p, Group: g, Implicit: true}).Err
	}); err != nil {
		c.w.t.Fatalf("offsets: %v", err)
	}
}

func (c *client) end(commit, bump bool) {
	c.w.t.Helper()
	var p Producer
	if err := c.try("end", func(ctx context.Context, s *site) error {
		r := s.End(ctx, EndRequest{TransactionalID: "t", Producer: c.p, Commit: commit, Bump: bump})
		p = r.Producer
		return r.Err
	}); err != nil {
		c.w.t.Fatalf("end: %v", err)
	}
	if bump {
		c.p = p
	}
}

// wait polls until what is asked holds.
func (w *world) wait(what string, ok func() bool) {
	w.t.Helper()
	for began := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			w.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// stored is what the store holds of the transactional id.
func (w *world) stored() *State {
	w.t.Helper()
	c := w.srv.Client(memory.Faults{})
	defer c.Close()
	tb, err := c.Table(w.t.Context(), pubsub.TableConfig{Name: bucket})
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := DefaultConfig()
	s := newState("t", &cfg, func() time.Duration { return 0 }, nil)
	v, err := tb.Get(w.t.Context(), "t")
	if errors.Is(err, pubsub.ErrNotFound) {
		return s
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if err := s.Decode(v.Data); err != nil {
		w.t.Fatal(err)
	}
	return s
}
