package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// picture is a state as it can be compared: what every verdict depends on.
type picture struct {
	Seq       pubsub.Seq
	ID        string
	Next      types.Offset
	Now       int64
	Producers map[int64]producer
}

func (s *state) picture() picture {
	p := picture{s.seq, s.id, s.next, s.now, map[int64]producer{}}
	for id, x := range s.producers {
		if !expired(x, s.now) {
			c := *x
			for i := int(c.kept); i < keptBatches; i++ {
				c.batches[i] = appended{}
			}
			p.Producers[id] = c
		}
	}
	return p
}

func (g *gateway) picture() picture {
	if err := g.p.ready(context.Background()); err != nil {
		g.w.t.Fatal(err)
	}
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	return g.p.st.picture()
}

// Whatever was admitted and stored: the state of the gateway that appended, of
// one that rebuilt it from all headers, and of one that started from a snapshot
// at a random point are equal, and so are their verdicts about any next batch.
func TestStateFollowsFromTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const topic = "AAAAAAAAAAAAAAAAAAAAAA"
		live := newState()
		var d draft
		var log []pubsub.Message
		clock := int64(1_700_000_000_000)
		var snap image
		var snapSeq pubsub.Seq
		gen := func(t *rapid.T) entry {
			e := entry{length: 100, count: int32(rapid.IntRange(1, 3).Draw(t, "n")), pid: -1, epoch: -1, first: -1, maxTime: clock}
			if rapid.IntRange(0, 3).Draw(t, "idempotent") > 0 {
				e.pid = int64(rapid.IntRange(0, 2).Draw(t, "pid"))
				e.epoch = int16(rapid.IntRange(0, 2).Draw(t, "epoch"))
				e.first = rapid.SampledFrom([]int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1<<31 - 2, 1<<31 - 1}).Draw(t, "first")
				if p := live.producers[e.pid]; p != nil && p.kept > 0 && rapid.Bool().Draw(t, "next") {
					e.epoch, e.first = p.epoch, addSequence(p.batches[p.kept-1].last, 1)
				}
			}
			return e
		}
		for range rapid.IntRange(1, 60).Draw(t, "messages") {
			clock += rapid.SampledFrom([]int64{0, 1, 1000, -5000, 3600_000, producerExpiry - 1, producerExpiry + 1}).Draw(t, "later")
			seq := live.seq + 1
			if rapid.IntRange(0, 9).Draw(t, "plain") == 0 {
				log = append(log, pubsub.Message{Seq: seq, Time: time.UnixMilli(clock), Size: 10})
			} else {
				d.reset(live, clock)
				m := meta{seq: seq, prev: live.id, base: live.next, id: fmt.Sprint("x.", seq), maxTime: -1, appendTime: d.now}
				for range rapid.IntRange(1, 4).Draw(t, "batches") {
					e := gen(t)
					if v := d.admit(&e); v.refuse == nil && !v.duplicate {
						m.entries = append(m.entries, e)
						m.size += int(e.length)
						m.maxTime = max(m.maxTime, e.maxTime)
					}
				}
				if len(m.entries) == 0 {
					continue
				}
				m.last = d.next - 1
				h := encodeHeader(topic, &m)
				log = append(log, pubsub.Message{Seq: seq, Time: time.UnixMilli(clock), Header: h, Size: m.size})
			}
			msg := log[len(log)-1]
			dm, err := decodeHeader(topic, &msg)
			if err != nil {
				t.Fatal(err)
			}
			if c := live.verify(&dm); c != nil {
				t.Fatal(c)
			}
			live.apply(&dm)
			if rapid.IntRange(0, 9).Draw(t, "snapshot") == 0 {
				snap = imageOf(live)
				snapSeq = live.seq
			}
		}
		if live.seq == 0 {
			return
		}
		b, err := pack(&snap)
		if err != nil {
			t.Fatal(err)
		}
		var back image
		if err := unpack(b, &back); err != nil {
			t.Fatal(err)
		}
		warm, err := back.state()
		if err != nil {
			t.Fatal(err)
		}
		cold := newState()
		for _, st := range []*state{cold, warm} {
			for _, msg := range log {
				if msg.Seq <= st.seq {
					continue
				}
				dm, err := decodeHeader(topic, &msg)
				if err != nil {
					t.Fatal(err)
				}
				if c := st.verify(&dm); c != nil {
					t.Fatal(c)
				}
				st.apply(&dm)
			}
		}
		if want := live.picture(); !reflect.DeepEqual(want, cold.picture()) || !reflect.DeepEqual(want, warm.picture()) {
			t.Fatalf("snapshot at %d\nlive %+v\ncold %+v\nwarm %+v", snapSeq, want, cold.picture(), warm.picture())
		}
		for range 10 {
			e := gen(t)
			var vs []verdict
			for _, st := range []*state{live, cold, warm} {
				var d draft
				d.reset(st, clock)
				e := e
				vs = append(vs, d.admit(&e))
			}
			if vs[0] != vs[1] || vs[0] != vs[2] {
				t.Fatalf("verdicts differ about %+v: %+v", e, vs)
			}
		}
	})
}

// Cold equals warm with snapshots written at random points by either gateway.
func TestC30ColdEqualsWarm(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			w := newWorld(t, memory.Config{})
			gs := []*gateway{w.gateway(memory.Faults{}), w.gateway(memory.Faults{})}
			seqs := map[int64]int32{}
			for range 200 {
				g := gs[r.IntN(2)]
				pid := int64(1 + r.IntN(5))
				n := 1 + r.IntN(3)
				switch r.IntN(12) {
				case 0:
					if _, err := w.server.Publish(testSubject, nil, []byte("x")); err != nil {
						t.Fatal(err)
					}
				case 1:
					if err := g.host.Drain(t.Context()); err != nil {
						t.Fatal(err)
					}
				case 2:
					time.Sleep(time.Duration(r.IntN(10)) * time.Hour)
				default:
					if a := g.produce(AppendRequest{Records: idempotent(pid, 0, seqs[pid], n)}); a.Err != nil {
						t.Fatal(a.Err, a.Message)
					}
					seqs[pid] += int32(n)
				}
			}
			for _, g := range gs {
				if err := g.p.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			cold := w.gateway(memory.Faults{})
			want := cold.picture()
			for i, g := range gs {
				if got := g.picture(); !reflect.DeepEqual(got, want) {
					t.Errorf("gateway %d\nwarm %+v\ncold %+v", i, got, want)
				}
			}
		})
	}
}

func TestC30ProducersExpireByAppendTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		send := func(g *gateway, pid int64, seq int32) AppendResult {
			return g.produce(AppendRequest{Records: idempotent(pid, 0, seq, 1)})
		}
		send(g, 1, 0)
		time.Sleep(23 * time.Hour)
		send(g, 2, 0)
		if a := send(g, 1, 0); a.BaseOffset != 0 {
			t.Errorf("after 23 h: %+v", a)
		}
		time.Sleep(2 * time.Hour)
		for _, g := range []*gateway{g, w.gateway(memory.Faults{})} {
			// Unknown by now: any sequence starts anew, so its old batch is stored again.
			if a := send(g, 1, 7); a.Err != nil {
				t.Errorf("after 25 h: %+v", a)
			}
			if a := send(g, 2, 0); a.BaseOffset != 1 {
				t.Errorf("a producer of 2 h ago: %+v", a)
			}
		}
	})
}

// keys lists what is stored of a partition.
func (g *gateway) keys() []string {
	var ks []string
	err := g.host.records.Scan(g.w.t.Context(), pubsub.WatchOptions{}, 0, func(v pubsub.Value) error {
		if !v.Deleted {
			ks = append(ks, v.Key)
		}
		return nil
	})
	if err != nil {
		g.w.t.Fatal(err)
	}
	return ks
}

// Snapshots are written 5 s after the last append, when due, and on drain;
// replaced ones go away, also those of processes that died.
func TestSnapshotsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		run(t, g)
		g.mustProduce(idempotent(1, 0, 0, 3))
		if n := len(g.keys()); n != 1 {
			t.Fatalf("keys at first: %v", g.keys())
		}
		time.Sleep(4 * time.Second)
		if n := len(g.keys()); n != 1 {
			t.Errorf("too early: %v", g.keys())
		}
		time.Sleep(3 * time.Second)
		if n := len(g.keys()); n != 2 {
			t.Fatalf("after 7 s: %v", g.keys())
		}
		g.kill()
		// Another process, which leaves two replaced ones behind.
		b := w.gateway(memory.Faults{})
		for range 2 {
			b.mustProduce(batch(1))
			if err := b.host.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		b.kill()
		c := w.gateway(memory.Faults{})
		run(t, c)
		c.mustProduce(batch(1))
		time.Sleep(2 * time.Minute)
		if ks := c.keys(); len(ks) != 2 {
			t.Errorf("left: %v", ks)
		}
		// What is there is a whole snapshot.
		c.kill()
		counted := 0
		d := w.gateway(memory.Faults{Headers: func(memory.Op) memory.ReadFault { counted++; return memory.ReadFault{} }})
		if a := d.produce(AppendRequest{Records: idempotent(1, 0, 0, 3)}); a.Err != nil || a.BaseOffset != 0 {
			t.Errorf("%+v", a)
		}
		if counted > 0 {
			t.Errorf("read headers although the snapshot is of the last message")
		}
	})
}

// Snapshots cost no more than their share of what is appended.
func TestSnapshotsStayWithinTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		var mu sync.Mutex
		written := 0
		g := w.gateway(memory.Faults{Set: func(op memory.Op) memory.WriteFault {
			mu.Lock()
			defer mu.Unlock()
			written += op.Size
			return memory.WriteFault{}
		}})
		run(t, g)
		bytes := 0
		for i := range 30_000 {
			b := idempotent(int64(1+i%500), 0, int32(i/500), 1)
			bytes += len(b)
			g.mustProduce(b)
			if i%100 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if limit := bytes/snapshotShare + snapshotAllowance + 50_000; written > limit {
			t.Errorf("%d bytes of snapshots for %d appended, limit %d", written, bytes, limit)
		}
		if written == 0 {
			t.Error("no snapshot")
		}
	})
}

// A snapshot three batches older than the log, and one that was lost. One that is
// newer than the log is TestC39RestoredFromAnOlderCopy; what compaction keeps of
// producers belongs to compaction.
func TestC30OldOrLostSnapshot(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Config{})
			g := w.gateway(memory.Faults{})
			send := func(g *gateway, seq int32) AppendResult {
				return g.produce(AppendRequest{Records: idempotent(5, 0, seq, 2)})
			}
			for i := range int32(6) {
				if a := send(g, 2*i); a.Err != nil {
					t.Fatal(a.Err)
				}
				if i == 2 {
					if err := g.host.Drain(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			g.kill()
			b := w.gateway(memory.Faults{})
			if lost {
				for _, k := range b.keys() {
					if k != b.p.key {
						w.server.Forget("kafka-partitions", k)
					}
				}
			}
			if a := send(b, 10); a.Err != nil || a.BaseOffset != 10 {
				t.Errorf("lost %v, the last again: %+v", lost, a)
			}
			if a := send(b, 4); a.Err != nil || a.BaseOffset != 4 {
				t.Errorf("lost %v, one in the snapshot: %+v", lost, a)
			}
			if a := send(b, 12); a.Err != nil || a.BaseOffset != 12 {
				t.Errorf("lost %v, the next: %+v", lost, a)
			}
		})
	}
}

// The records table restored from yesterday names an older snapshot, whose
// chunks are gone: the state is rebuilt from the log, nothing is wrong.
func TestC30RecordsTableOfYesterday(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		run(t, g)
		g.mustProduce(idempotent(5, 0, 0, 1))
		time.Sleep(10 * time.Second)
		old := w.server.Snapshot("kafka-partitions")
		g.mustProduce(idempotent(5, 0, 1, 1))
		time.Sleep(10 * time.Second)
		w.server.Restore(old)
		if a := g.produce(AppendRequest{Records: idempotent(5, 0, 2, 1)}); a.Err != nil || a.BaseOffset != 2 {
			t.Errorf("warm: %+v", a)
		}
		b := w.gateway(memory.Faults{})
		for seq := range int32(4) {
			if a := b.produce(AppendRequest{Records: idempotent(5, 0, seq, 1)}); a.Err != nil || a.BaseOffset != types.Offset(seq) {
				t.Errorf("cold, sequence %d: %+v", seq, a)
			}
		}
	})
}

// Parts of the index move out of memory and are loaded again when asked for,
// or rebuilt when lost. 300,000 messages.
func TestStoredIndexParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		const n = chunkSpan*span + 20_000
		for range n {
			if _, err := w.server.Publish(testSubject, nil, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		g := w.gateway(memory.Faults{})
		g.mustProduce(batch(3))
		if err := g.host.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.p.mu.Lock()
		chunks, tail := slices.Clone(g.p.ix.chunks), len(g.p.ix.tail)
		g.p.mu.Unlock()
		if len(chunks) != 1 || tail > 200 {
			t.Fatalf("%d parts stored, %d intervals in memory", len(chunks), tail)
		}
		var mu sync.Mutex
		headers := map[pubsub.Seq]int{}
		cold := w.gateway(memory.Faults{Headers: func(op memory.Op) memory.ReadFault {
			mu.Lock()
			defer mu.Unlock()
			headers[op.Seq]++
			return memory.ReadFault{}
		}})
		check := func(g *gateway) {
			t.Helper()
			for _, o := range []types.Offset{0, 1, 255, 256, 257, 100_000, chunkSpan*span - 1, chunkSpan * span, n - 1, n, n + 2} {
				want := min(o, n)
				if bs := g.read(o); len(bs) == 0 || bs[0].BaseOffset() != int64(want) {
					t.Errorf("read at %d: %v", o, offsets(bs[:min(len(bs), 2)]))
				}
			}
			if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: 0}); err != nil || r.Offset != 0 {
				t.Errorf("lookup 0: %+v, %v", r, err)
			}
		}
		check(g)
		check(cold)
		if len(headers) > 8 {
			t.Errorf("headers read from %v", slices.Sorted(maps.Keys(headers)))
		}
		for _, k := range cold.keys() {
			if k == cold.p.chunkKey(chunks[0]) {
				w.server.Forget("kafka-partitions", k)
			}
		}
		check(w.gateway(memory.Faults{}))
	})
}

// slowLog takes its time for each interval of headers.
type slowLog struct {
	pubsub.Log
	pause time.Duration
}

func (l slowLog) Headers(ctx context.Context, from, to pubsub.Seq, fn func(pubsub.Message) error) error {
	return l.Log.Headers(ctx, from, to, func(m pubsub.Message) error {
		if m.Seq%span == 0 && !sleep(ctx, l.pause) {
			return ctx.Err()
		}
		return fn(m)
	})
}

// A load that gets on may take as long as it needs; one that does not, ends.
func TestLongLoadEnds(t *testing.T) {
	const intervals = 6
	for pause, want := range map[time.Duration]error{openTimeout / 2: nil, 2 * openTimeout: pubsub.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Config{})
			a := w.gateway(memory.Faults{})
			for range intervals * span {
				a.mustProduce(batch(1))
			}
			a.kill() // before any snapshot
			g := w.gateway(memory.Faults{})
			g.p.log = slowLog{g.p.log, pause}
			began := time.Now()
			err := g.p.ready(t.Context())
			if !errors.Is(err, want) {
				t.Errorf("with %v per interval: %v, want %v", pause, err, want)
			}
			if took := time.Since(began); want == nil && took < 2*openTimeout || want != nil && took > 2*openTimeout {
				t.Errorf("with %v per interval it took %v", pause, took)
			}
		})
	}
}
