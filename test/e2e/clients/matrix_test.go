package clients

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

// limit bounds one scenario.
const limit = 90 * time.Second

// libraries are the columns of the table.
var libraries = slices.Concat([]library{franzLibrary, saramaLibrary, segmentLibrary, confluentLibrary, kcatLibrary}, programs)

// scenarios are its rows.
var scenarios = []struct {
	name, what string
	partitions int32 // of the topic made for it, 0: none
	everywhere bool  // in CI against all kinds of brokers
	run        func(ctx context.Context, t *testing.T, w world)
}{
	{"codec-none", "keys, values, headers, timestamps, uncompressed, in three partitions", 3, true, codec("none")},
	{"codec-gzip", "the same in gzip: stored as such, read by this client and another one, and what another one compressed read by this", 3, true, codec("gzip")},
	{"codec-snappy", "the same in snappy", 3, true, codec("snappy")},
	{"codec-lz4", "the same in lz4", 3, true, codec("lz4")},
	{"codec-zstd", "the same in zstd", 3, true, codec("zstd")},
	{"nulls", "null and empty keys, values, header values, told apart", 1, true, nulls},
	{"large", "records of 900 kB, plain and compressed", 1, true, large},
	{"idempotent", "with a producer id: every record once, in order", 3, false, idempotent},
	{"seek", "from offsets, also inside a batch, and from times", 1, true, seek},
	{"reset", "an offset that is not there, under each policy the client has", 1, false, reset},
	{"resume", "consume in a group, commit, go on with a new member, three times", 3, true, resume},
	{"rebalance", "one, two, three members, one leaves: every record once", 6, true, rebalance(joining{})},
	{"static", "a member with group.instance.id goes and comes back to its partitions", 6, false, static},
	{"cooperative", "rebalance where members keep what they have", 6, false, rebalance(joining{cooperative: true})},
	{"topics", "create, describe, list, delete; create twice", 0, true, topics},
	{"configs", "set one at creation, describe, alter; a wrong value", 0, false, configs},
	{"add-partitions", "more partitions, produce to them; fewer are refused", 2, true, addPartitions},
	{"delete-records", "the start of a partition moves; past its end is refused", 1, true, deleteRecords},
	{"unknown", "describe and delete a topic that is not there", 0, false, unknown},
	{"too-large", "a record above the max.message.bytes of its topic", 0, false, tooLarge},
	{"transactions", "commit, abort, a second producer with the id fences the first; read with both levels of isolation by this client and another one", 3, false, transactions},
	{"isolation", "the same, written by another client, read by this", 3, false, isolation},
	{"exactly-once", "consume, transform, produce: output and offsets in one transaction, one of them aborted", 3, true, exactlyOnce},
}

// world is what a scenario works with.
type world struct {
	topic string // made for this scenario
	lib   library
	cl    client
	other client // franz-go, another library for all but itself
	adm   *kadm.Client
}

// TestClients runs every scenario with every library. On stream with an
// external NATS server CI runs a part; STREAM_E2E_FULL=true runs all.
func TestClients(t *testing.T) {
	for _, kind := range broker.Kinds([]string{broker.Embedded, broker.NATS210, broker.NATS211, broker.NATS}) {
		t.Run(kind, func(t *testing.T) {
			full := kind == broker.Embedded || kind == broker.Kafka || os.Getenv("STREAM_E2E_FULL") == "true"
			// Clients connect to a recorder that notes the versions they use.
			rec := startRecorder(t)
			b := broker.StartWith(t, kind, broker.Options{Advertised: rec.addr})
			rec.target(b.Addr)
			tab := newTable(kind)
			// Subtests in parallel end before this one goes on.
			t.Run("clients", func(t *testing.T) {
				for _, lib := range libraries {
					if full || lib.everywhere {
						t.Run(lib.name, func(t *testing.T) {
							t.Parallel() // they mostly wait
							runLibrary(t, lib, rec, tab, full)
						})
					}
				}
			})
			tab.versions(rec)
			tab.print()
			if full {
				tab.check(t)
			}
		})
	}
}

func runLibrary(t *testing.T, lib library, rec *recorder, tab *table, full bool) {
	// The test's own requests are not the library's.
	kcl, err := kgo.NewClient(kgo.SeedBrokers(rec.addr), kgo.ClientID("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer kcl.Close()
	cl := lib.open(t, rec.addr)
	tab.library(lib, cl.version())
	for _, s := range scenarios {
		if !full && !s.everywhere {
			continue
		}
		if reason, ok := lib.limits.lacks[s.name]; ok {
			tab.lacks(lib, s.name, reason)
			continue
		}
		ok := t.Run(s.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			w := world{topic: lib.name + "." + s.name, lib: lib, cl: cl, other: franz{rec.addr, "test"}, adm: kadm.NewClient(kcl)}
			if s.partitions > 0 {
				w.create(ctx, t, s.partitions, nil)
			}
			s.run(ctx, t, w)
		})
		tab.cell(lib, s.name, ok)
	}
}

// create makes the topic of a scenario and waits until it can be used.
func (w world) create(ctx context.Context, t *testing.T, partitions int32, configs map[string]*string) {
	t.Helper()
	if _, err := w.adm.CreateTopic(ctx, partitions, 1, configs, w.topic); err != nil {
		t.Fatalf("create %s: %v", w.topic, err)
	}
	testkit.Poll(t, 10*time.Second, "topic "+w.topic, func() error {
		ends, err := w.adm.ListEndOffsets(ctx, w.topic)
		if err == nil {
			err = ends.Error()
		}
		if n := len(ends[w.topic]); err == nil && n != int(partitions) {
			err = fmt.Errorf("%d partitions", n)
		}
		return err
	})
}

// produce produces rs and sets their offsets, from where the partitions end.
func (w world) produce(ctx context.Context, t *testing.T, how sending, rs []record) {
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
	if err := w.cl.produce(ctx, w.topic, how, rs); err != nil {
		t.Fatalf("produce: %v", err)
	}
	for i := range rs {
		rs[i].Offset = next[rs[i].Partition]
		next[rs[i].Partition]++
	}
}

// read reads with cl and compares with want, all of one partition.
func (w world) read(ctx context.Context, t *testing.T, cl reader, at start, want []record) {
	t.Helper()
	p := want[0].Partition
	got, err := cl.read(ctx, w.topic, p, at, len(want))
	if err != nil {
		t.Fatalf("%s reads partition %d: %v after %d of %d records", cl.name, p, err, len(got), len(want))
	}
	if len(got) < len(want) {
		t.Fatalf("%s reads partition %d: %d of %d records", cl.name, p, len(got), len(want))
	}
	if cl.limits.headerMap {
		want = slices.Clone(want)
		for i := range want {
			want[i] = want[i].headerMap()
		}
	}
	w.compare(t, fmt.Sprintf("%s reads partition %d", cl.name, p), got[:len(want)], want)
}

func (w world) compare(t *testing.T, what string, got, want []record) {
	t.Helper()
	for i := range want {
		g, r := got[i], want[i]
		if w.lib.limits.noTimestamps {
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

// reader is a client with its name and limits.
type reader struct {
	client
	library
}

// readers are the clients that read what w.cl produced: itself and another.
func (w world) readers() []reader {
	return []reader{{w.cl, w.lib}, {w.other, franzLibrary}}
}

func partition(rs []record, p int32) []record {
	return slices.DeleteFunc(slices.Clone(rs), func(r record) bool { return r.Partition != p })
}
