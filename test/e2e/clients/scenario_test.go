package clients

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

// limit bounds one scenario.
const limit = 90 * time.Second

// world is what a scenario works with.
type world struct {
	addr  string
	topic string // made for this scenario
	cl    client
	kcl   *kgo.Client
	adm   *kadm.Client
}

var scenarios = []struct {
	name       string
	partitions int32
	run        func(ctx context.Context, t *testing.T, w world)
}{
	{"codec-none", 3, codec("none")},
	{"codec-gzip", 3, codec("gzip")},
	{"codec-snappy", 3, codec("snappy")},
	{"codec-lz4", 3, codec("lz4")},
	{"codec-zstd", 3, codec("zstd")},
	{"nulls", 1, nulls},
	{"large", 1, large},
	{"seek", 1, seek},
	{"resume", 3, resume},
	{"rebalance", 6, rebalance},
	{"admin", 0, admin},
}

func TestClients(t *testing.T) {
	broker.Each(t, []string{broker.Embedded, broker.NATS210, broker.NATS211, broker.NATS}, func(t *testing.T, b *broker.Broker) {
		kcl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
		if err != nil {
			t.Fatal(err)
		}
		defer kcl.Close()
		for _, cl := range clients {
			t.Run(cl.name(), func(t *testing.T) {
				for _, s := range scenarios {
					if s.name == "admin" && cl.limits().noAdmin {
						continue
					}
					t.Run(s.name, func(t *testing.T) {
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						defer cancel()
						w := world{addr: b.Addr, topic: cl.name() + "." + s.name, cl: cl, kcl: kcl, adm: kadm.NewClient(kcl)}
						if s.partitions > 0 {
							if _, err := w.adm.CreateTopic(ctx, s.partitions, 1, nil, w.topic); err != nil {
								t.Fatalf("create %s: %v", w.topic, err)
							}
						}
						s.run(ctx, t, w)
					})
				}
			})
		}
	})
}

// produce produces rs and sets their offsets, from where the partitions end.
func (w world) produce(ctx context.Context, t *testing.T, codec string, rs []record) {
	t.Helper()
	ends, err := w.adm.ListEndOffsets(ctx, w.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatalf("end offsets: %v", err)
	}
	next := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) { next[o.Partition] = o.Offset })
	if err := w.cl.produce(ctx, t, w.addr, w.topic, codec, rs); err != nil {
		t.Fatalf("produce: %v", err)
	}
	for i := range rs {
		rs[i].Offset = next[rs[i].Partition]
		next[rs[i].Partition]++
	}
}

// read reads with cl and compares with want, all of one partition.
func (w world) read(ctx context.Context, t *testing.T, cl client, at start, want []record) {
	t.Helper()
	p := want[0].Partition
	got, err := cl.read(ctx, t, w.addr, w.topic, p, at, len(want))
	if err != nil {
		t.Fatalf("%s reads partition %d: %v after %d of %d records", cl.name(), p, err, len(got), len(want))
	}
	if len(got) < len(want) {
		t.Fatalf("%s reads partition %d: %d of %d records", cl.name(), p, len(got), len(want))
	}
	w.compare(t, fmt.Sprintf("%s reads partition %d", cl.name(), p), got[:len(want)], want)
}

func (w world) compare(t *testing.T, what string, got, want []record) {
	t.Helper()
	for i := range want {
		g, r := got[i], want[i]
		if w.cl.limits().noTimestamps {
			if d := time.Since(g.Time); d < -time.Minute || d > 5*time.Minute {
				t.Fatalf("%s: record %d was produced at %v", what, i, g.Time)
			}
			r.Time = g.Time
		}
		if !g.equal(r) {
			t.Fatalf("%s: record %d is\n  %v\nwant\n  %v", what, i, g, r)
		}
	}
}

// readers are the clients that read what w.cl produced.
func (w world) readers() []client {
	if (w.cl == franz{}) {
		return []client{w.cl}
	}
	return []client{w.cl, franz{}}
}

func partition(rs []record, p int32) []record {
	return slices.DeleteFunc(slices.Clone(rs), func(r record) bool { return r.Partition != p })
}

// codec produces three partitions of records with keys, headers and timestamps
// in one codec and reads them back.
func codec(name string) func(context.Context, *testing.T, world) {
	return func(ctx context.Context, t *testing.T, w world) {
		base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		var rs []record
		for i := range 300 {
			r := record{
				Partition: int32(i % 3),
				Key:       fmt.Appendf(nil, "key %d", i),
				Value:     fmt.Appendf(nil, "%d %s", i, strings.Repeat("value ", 1+i%50)),
				Headers:   []header{{"number", fmt.Append(nil, i)}, {"twice", []byte("1")}, {"twice", []byte("2")}},
				Time:      base.Add(time.Duration(i) * time.Second),
			}
			if w.cl.limits().noRecordHeaders {
				r.Headers[0].Value = []byte("all")
			}
			rs = append(rs, r)
		}
		w.produce(ctx, t, name, rs)
		for p := range int32(3) {
			for _, cl := range w.readers() {
				w.read(ctx, t, cl, start{}, partition(rs, p))
			}
		}
		w.storedAs(ctx, t, name)
		// and the client reads what another one compressed
		other := world{addr: w.addr, topic: w.topic, cl: franz{}, kcl: w.kcl, adm: w.adm}
		more := slices.Clone(rs[:60])
		other.produce(ctx, t, name, more)
		for p := range int32(3) {
			want := partition(more, p)
			other.read(ctx, t, w.cl, start{offset: want[0].Offset}, want)
		}
	}
}

// storedAs checks that batches came through in their codec. Clients leave a
// batch as it is where compression gains nothing, as with a first small one.
func (w world) storedAs(ctx context.Context, t *testing.T, codec string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.addr), kgo.ConsumeTopics(w.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	want := slices.Index([]string{"none", "gzip", "snappy", "lz4", "zstd"}, codec)
	compressed := 0
	for n := 0; n < 300; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read: %v", err)
		}
		for _, r := range fetches.Records() {
			n++
			switch got := int(r.Attrs.CompressionType()); got {
			case want:
				compressed++
			case 0:
			default:
				t.Fatalf("partition %d offset %d: codec %d, want %d (%s)", r.Partition, r.Offset, got, want, codec)
			}
		}
	}
	if compressed < 150 {
		t.Errorf("%d of 300 records are stored as %s", compressed, codec)
	}
}

// nulls tells null from empty in keys, values and header values.
func nulls(ctx context.Context, t *testing.T, w world) {
	now := time.Now().Truncate(time.Millisecond)
	full, empty, null := []byte("x"), []byte{}, []byte(nil)
	values := [][]byte{full, empty, null}
	headers := []header{{"full", full}, {"empty", empty}, {"null", null}, {"", full}}
	if w.cl.limits().noEmpty {
		values, headers = [][]byte{full, null}, []header{{"full", full}}
	}
	var rs []record
	for _, k := range values {
		for _, v := range values {
			r := record{Key: k, Value: v, Time: now}
			rs = append(rs, r)
			if !w.cl.limits().noRecordHeaders {
				r.Headers = headers
				rs = append(rs, r)
			}
		}
	}
	w.produce(ctx, t, "none", rs)
	for _, cl := range w.readers() {
		want := slices.Clone(rs)
		if cl.limits().emptyReadsNull {
			for i := range want {
				want[i] = want[i].emptyAsNull()
			}
		}
		w.read(ctx, t, cl, start{}, want)
	}
}

// large moves records of 900 kB, one per batch and compressed together.
func large(ctx context.Context, t *testing.T, w world) {
	var all []record
	for _, codec := range []string{"none", "zstd"} {
		var rs []record
		for i := range 3 {
			value := fmt.Appendf(nil, "%d:", i)
			for len(value) < 900_000 {
				value = fmt.Appendf(value, " %d", len(value)*7919)
			}
			rs = append(rs, record{Key: fmt.Append(nil, i), Value: value[:900_000], Time: time.Now().Truncate(time.Millisecond)})
		}
		w.produce(ctx, t, codec, rs)
		all = append(all, rs...)
	}
	for _, cl := range w.readers() {
		w.read(ctx, t, cl, start{}, all)
	}
}

// seek reads from an offset and from a time.
func seek(ctx context.Context, t *testing.T, w world) {
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var rs []record
	for i := range 500 {
		rs = append(rs, record{Key: []byte("k"), Value: fmt.Append(nil, i), Time: base.Add(time.Duration(i) * time.Second)})
	}
	// timestamps that franz-go can set, in batches of 100
	with := world{addr: w.addr, topic: w.topic, cl: franz{}, kcl: w.kcl, adm: w.adm}
	for batch := range slices.Chunk(rs, 100) {
		with.produce(ctx, t, "lz4", batch)
	}
	with.read(ctx, t, w.cl, start{offset: 0}, rs[:10])
	with.read(ctx, t, w.cl, start{offset: 137}, rs[137:])                       // inside a batch
	with.read(ctx, t, w.cl, start{offset: 499}, rs[499:])                       // the last one
	with.read(ctx, t, w.cl, start{time: base.Add(250 * time.Second)}, rs[250:]) // exactly
	with.read(ctx, t, w.cl, start{time: base.Add(-time.Minute)}, rs[:10])       // before all
	// between two records: the later one
	with.read(ctx, t, w.cl, start{time: base.Add(299*time.Second + time.Millisecond)}, rs[300:310])
}

// receive takes n records from the members; it fails on a record that came
// twice and on offsets that go back.
func receive(ctx context.Context, t *testing.T, n int, members ...member) []record {
	t.Helper()
	in := make(chan record)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	for _, m := range members {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case r := <-m.records():
					select {
					case in <- r:
					case <-ctx.Done():
						t.Errorf("more records than %d: %v", n, r)
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	defer func() {
		cancel()
		for range members {
			<-done
		}
	}()
	var out []record
	last := map[int32]int64{}
	for len(out) < n {
		select {
		case r := <-in:
			if o, ok := last[r.Partition]; ok && r.Offset != o+1 {
				t.Fatalf("partition %d: offset %d after %d", r.Partition, r.Offset, o)
			}
			last[r.Partition] = r.Offset
			out = append(out, r)
		case <-ctx.Done():
			t.Fatalf("%d of %d records: %v", len(out), n, ctx.Err())
		}
	}
	return out
}

func values(rs []record) []string {
	var out []string
	for _, r := range rs {
		out = append(out, string(r.Value))
	}
	slices.Sort(out)
	return out
}

// batch is n records with distinct values, spread over partitions.
func batch(n, partitions int, prefix string) []record {
	var rs []record
	for i := range n {
		rs = append(rs, record{Partition: int32(i % partitions), Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "%s %04d", prefix, i), Time: time.Now()})
	}
	return rs
}

// committed waits until the group has committed the end of every partition.
func (w world) committed(ctx context.Context, t *testing.T, group string) {
	t.Helper()
	testkit.Poll(t, 20*time.Second, "commits of "+group, func() error {
		ends, err := w.adm.ListEndOffsets(ctx, w.topic)
		if err != nil {
			return err
		}
		got, err := w.adm.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		for p, end := range ends[w.topic] {
			if o, ok := got.Lookup(w.topic, p); !ok || o.At != end.Offset {
				return fmt.Errorf("partition %d: committed %d (%v), end %d", p, o.At, ok, end.Offset)
			}
		}
		return nil
	})
}

// resume consumes in a group, commits, and goes on with a new member.
func resume(ctx context.Context, t *testing.T, w world) {
	group := "group." + w.topic
	for round := range 3 {
		rs := batch(90, 3, fmt.Sprint("round ", round))
		w.produce(ctx, t, "none", rs)
		m, err := w.cl.join(ctx, t, w.addr, group, w.topic)
		if err != nil {
			t.Fatalf("join: %v", err)
		}
		got := values(receive(ctx, t, len(rs), m))
		if want := values(rs); !slices.Equal(got, want) {
			t.Errorf("round %d: got %q, want %q", round, got, want)
		}
		if err := m.commit(ctx); err != nil {
			t.Errorf("commit: %v", err)
		}
		if err := m.close(); err != nil {
			t.Errorf("close: %v", err)
		}
		w.committed(ctx, t, group)
		testkit.Poll(t, 20*time.Second, "group without members", func() error {
			return w.members(ctx, group)
		})
	}
}

// members is nil once the group is stable and its members have as many
// partitions as want says, in any order.
func (w world) members(ctx context.Context, group string, want ...int) error {
	groups, err := w.adm.DescribeGroups(ctx, group)
	if err != nil {
		return err
	}
	g := groups[group]
	if g.Err != nil {
		return g.Err
	}
	var got []int
	for _, m := range g.Members {
		n := 0
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, topic := range a.Topics {
				n += len(topic.Partitions)
			}
		}
		got = append(got, n)
	}
	slices.Sort(got)
	state := "Stable"
	if len(want) == 0 {
		state = "Empty"
	}
	if g.State != state || !slices.Equal(got, want) {
		return fmt.Errorf("group is %s with %v partitions per member, want %s with %v", g.State, got, state, want)
	}
	return nil
}

// rebalance lets three members share six partitions and one of them leave.
func rebalance(ctx context.Context, t *testing.T, w world) {
	group := "group." + w.topic
	var members []member
	join := func(want ...int) {
		t.Helper()
		m, err := w.cl.join(ctx, t, w.addr, group, w.topic)
		if err != nil {
			t.Fatalf("join: %v", err)
		}
		members = append(members, m)
		testkit.Poll(t, 40*time.Second, fmt.Sprintf("balance of %d members", len(members)), func() error { return w.members(ctx, group, want...) })
	}
	leave := func() {
		m := members[0]
		members = members[1:]
		if err := m.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	defer func() {
		for len(members) > 0 {
			leave()
		}
	}()
	round := func(name string) {
		t.Helper()
		rs := batch(120, 6, name)
		w.produce(ctx, t, "none", rs)
		got := values(receive(ctx, t, len(rs), members...))
		if want := values(rs); !slices.Equal(got, want) {
			seen := map[string]bool{}
			for _, v := range got {
				seen[v] = true
			}
			t.Errorf("%s: got %q (%d distinct), want %q", name, got, len(slices.Collect(maps.Keys(seen))), want)
		}
		for _, m := range members {
			if err := m.commit(ctx); err != nil {
				t.Errorf("commit: %v", err)
			}
		}
		if !w.cl.limits().commitsAlone {
			w.committed(ctx, t, group)
		}
	}
	join(6)
	round("one member")
	join(3, 3)
	join(2, 2, 2)
	round("three members")
	leave()
	testkit.Poll(t, 40*time.Second, "balance after a leave", func() error { return w.members(ctx, group, 3, 3) })
	round("two members")
	for len(members) > 0 {
		leave()
	}
	w.committed(ctx, t, group)
}

func admin(ctx context.Context, t *testing.T, w world) {
	n, err := w.cl.admin(ctx, w.addr, w.topic, 5)
	if err != nil || n != 5 {
		t.Errorf("%d partitions, %v, want 5", n, err)
	}
	testkit.Poll(t, 20*time.Second, "topic gone", func() error {
		list, err := w.adm.ListTopics(ctx)
		if err == nil && list.Has(w.topic) {
			err = fmt.Errorf("%s is still there", w.topic)
		}
		return err
	})
}
