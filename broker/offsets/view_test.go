package offsets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bucket = "kafka-consumer-offsets"

// rig is a table and a view of it, through clients of their own.
type rig struct {
	t     *testing.T
	srv   *memory.Server
	table pubsub.Table // the writers'
	revs  map[string]pubsub.Rev
	*View
}

func newRig(t *testing.T, f memory.Faults, replicas int) *rig {
	t.Helper()
	r := &rig{t: t, srv: memory.NewServer(memory.Config{}), revs: map[string]pubsub.Rev{}}
	open := func(f memory.Faults) pubsub.Table {
		c := r.srv.Client(f)
		t.Cleanup(c.Close)
		table, err := c.Table(t.Context(), pubsub.TableConfig{Name: bucket})
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	r.table = open(memory.Faults{})
	r.View = New(Deps{Table: open(f), Cluster: "cluster", Replicas: replicas})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return r
}

func (r *rig) put(key, data string, gone bool) types.Offset {
	r.t.Helper()
	rev, err := r.table.Set(r.t.Context(), pubsub.Write{Key: key, Data: []byte(data), Expect: r.revs[key], Delete: gone})
	if err != nil {
		r.t.Fatal(err)
	}
	r.revs[key] = rev
	return types.Offset(rev) - 1
}

// commit stores an offset of partition 0 and returns where it shows.
func (r *rig) commit(group string, offset int, at int64) types.Offset {
	r.t.Helper()
	return r.put(group+".t.0", fmt.Sprintf(`{"v":1,"offset":%d,"epoch":-1,"metadata":"","timestamp":%d}`, offset, at), false)
}

// seen is a record as a reader sees it.
type seen struct {
	offset types.Offset
	time   int64
	group  string
	at     int64 // -1: a tombstone
}

func decode(t *testing.T, batches [][]byte) (rs []seen, next types.Offset) {
	t.Helper()
	for _, p := range batches {
		b, rest, err := serde.ParseBatch(p)
		if err != nil || len(rest) > 0 || !b.ChecksumOK() {
			t.Fatalf("batch: %v, %d bytes left", err, len(rest))
		}
		it := serde.NewRecords(b.Records(), b.Count())
		for it.Next() {
			s := seen{offset: types.Offset(b.BaseOffset()) + types.Offset(it.Record.OffsetDelta), time: b.BaseTimestamp() + it.Record.TimestampDelta, at: -1}
			var k kmsg.OffsetCommitKey
			if err := k.ReadFrom(it.Record.Key); err != nil {
				t.Fatal(err)
			}
			s.group = k.Group
			if it.Record.Value != nil {
				var v kmsg.OffsetCommitValue
				if err := v.ReadFrom(it.Record.Value); err != nil {
					t.Fatal(err)
				}
				s.at = v.Offset
			}
			rs = append(rs, s)
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
		next = types.Offset(b.LastOffset()) + 1
	}
	return rs, next
}

// drain reads from an offset to the end as a client does, which goes on behind
// the last batch, whatever is in it.
func (r *rig) drain(from types.Offset, limit int, whole bool) (rs []seen) {
	r.t.Helper()
	for {
		res, err := r.Read(r.t.Context(), partition.ReadRequest{Offset: from, MaxBytes: limit, Whole: whole})
		if err != nil {
			r.t.Fatalf("read at %d: %v", from, err)
		}
		if from == res.HighWatermark {
			return rs
		}
		got, next := decode(r.t, res.Batches)
		if next <= from || next > res.HighWatermark || res.LastStable != res.HighWatermark || res.LogStart != 0 {
			r.t.Fatalf("read at %d: covered to %d, %+v", from, next, res)
		}
		if b, _, _ := serde.ParseBatch(res.Batches[0]); types.Offset(b.BaseOffset()) != from {
			r.t.Fatalf("read at %d: batch begins at %d", from, b.BaseOffset())
		}
		if res.Bytes > limit && !(whole && len(got) <= 1) {
			r.t.Fatalf("read at %d: %d bytes of %d, %d records", from, res.Bytes, limit, len(got))
		}
		rs, from = append(rs, got...), next
	}
}

// story stores commits, overwritten ones, placeholders, foreign keys and ends;
// it returns what readers must see.
func (r *rig) story() (want []seen) {
	for i := range 300 {
		r.commit("hot", i, int64(i))
		switch i % 10 {
		case 3:
			g := fmt.Sprint("g", i)
			want = append(want, seen{r.commit(g, i, int64(i)), int64(i), g, int64(i)})
		case 5:
			r.put(fmt.Sprint("p", i, ".t.0"), `{"v":1,"placeholder":true,"offset":-1}`, false)
		case 7:
			r.put(fmt.Sprint("foreign", i, ".x"), "whatever", false)
		case 9:
			g := fmt.Sprint("d", i)
			r.commit(g, i, 0)
			want = append(want, seen{r.put(g+".t.0", "", true), -1, g, -1})
		}
	}
	return append(want, seen{r.commit("hot", 300, 300), 300, "hot", 300})
}

func sameSeen(t *testing.T, what string, got, want []seen) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d records, want %d", what, len(got), len(want))
	}
	for i, g := range got {
		if w := want[i]; g.offset != w.offset || g.group != w.group || g.at != w.at || w.time >= 0 && g.time != w.time {
			t.Errorf("%s: record %d is %+v, want %+v", what, i, g, w)
		}
	}
}

// A reader sees what is there and gets to the end, with any limit, from any
// offset, also from one that was overwritten.
func TestRead(t *testing.T) {
	r := newRig(t, memory.Faults{}, 1)
	want := r.story()
	for _, limit := range []int{61, 200, 1000, 1 << 20} {
		sameSeen(t, fmt.Sprint("within ", limit), r.drain(0, limit, true), want)
	}
	sameSeen(t, "without the promise of one record", r.drain(0, 500, false), want)
	for from := range r.end {
		i := 0
		for want[i].offset < from {
			i++
		}
		sameSeen(t, fmt.Sprint("from ", from), r.drain(from, 1<<20, true), want[i:])
	}
	for _, off := range []types.Offset{-1, r.end + 1, 1 << 50} {
		_, err := r.Read(t.Context(), partition.ReadRequest{Offset: off, MaxBytes: 100})
		if _, aerr := r.Available(t.Context(), off, true); !errors.Is(err, kerr.OffsetOutOfRange) || !errors.Is(aerr, kerr.OffsetOutOfRange) {
			t.Errorf("offset %d: %v, %v", off, err, aerr)
		}
	}
	if res, err := r.Read(t.Context(), partition.ReadRequest{Offset: 0, MaxBytes: 60, Committed: true}); err != nil || res.Bytes != 0 || res.Aborted == nil {
		t.Errorf("less than a batch's header: %+v, %v", res, err)
	}
	r.Submit(partition.AppendRequest{}, func(res partition.AppendResult) {
		if !errors.Is(res.Err, kerr.InvalidTopicException) || res.BaseOffset != -1 {
			t.Errorf("submit: %+v", res)
		}
	})
}

// Replicas that lag behind, come short or fail hide nothing.
func TestC41ReadFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Uint64
		r := newRig(t, memory.Faults{TableRead: func(op memory.Op) memory.ReadFault {
			if op.Rev == 0 {
				return memory.ReadFault{}
			}
			switch i := n.Add(1); i % 5 {
			case 1:
				return memory.ReadFault{Behind: i * 7 % 500}
			case 2:
				return memory.ReadFault{Short: 2}
			case 3:
				return memory.ReadFault{Err: pubsub.ErrUnavailable}
			case 4:
				return memory.ReadFault{Behind: 1 << 40}
			}
			return memory.ReadFault{}
		}}, 1)
		want := r.story()
		for _, limit := range []int{200, 1000, 1 << 20} {
			sameSeen(t, fmt.Sprint("within ", limit), r.drain(0, limit, true), want)
		}
		// Replicas that know nothing at all: the leader does.
		r = newRig(t, memory.Faults{TableRead: func(op memory.Op) memory.ReadFault {
			if op.Rev == 0 {
				return memory.ReadFault{}
			}
			return memory.ReadFault{Behind: 1 << 40}
		}}, 1)
		want = r.story()
		sameSeen(t, "from the leader alone", r.drain(0, 1000, true), want)
	})
}

// What was removed at the end is a gap like others; what the leader has not
// heard of is not.
func TestReadTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := atomic.Uint64{}
		r := newRig(t, memory.Faults{TableRead: func(memory.Op) memory.ReadFault { return memory.ReadFault{Behind: behind.Load()} }}, 3)
		a := r.commit("a", 1, 1)
		r.commit("b", 2, 2)
		want := []seen{{a, 1, "a", 1}}
		r.srv.Forget(bucket, "b.t.0")
		sameSeen(t, "after a removal", r.drain(0, 1000, true), want)

		r.commit("c", 3, 3)
		if _, err := r.Topic(t.Context()); err != nil {
			t.Fatal(err)
		}
		end, err := r.look(t.Context(), 2)
		if err != nil || end != 3 {
			t.Fatal(end, err)
		}
		behind.Store(1)
		r.srv.Forget(bucket, "c.t.0")
		if res, err := r.Read(t.Context(), partition.ReadRequest{Offset: 2, MaxBytes: 1000}); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("a leader that forgets: %+v, %v", res, err)
		}
	})
}

// What cannot be read stops readers there, not before.
func TestReadUnreadable(t *testing.T) {
	r := newRig(t, memory.Faults{}, 1)
	a := r.commit("a", 1, 1)
	bad := r.put("b.t.0", `{"v":99}`, false)
	c := r.commit("c", 3, 3)
	res, err := r.Read(t.Context(), partition.ReadRequest{Offset: a, MaxBytes: 1000})
	if rs, next := decode(t, res.Batches); err != nil || len(rs) != 1 || next != bad {
		t.Errorf("before: %+v to %d, %v", rs, next, err)
	}
	if res, err := r.Read(t.Context(), partition.ReadRequest{Offset: bad, MaxBytes: 1000}); !errors.Is(err, pubsub.ErrUnavailable) {
		t.Errorf("at: %+v, %v", res, err)
	}
	sameSeen(t, "after", r.drain(c, 1000, true), []seen{{c, 3, "c", 3}})
}

// A reader that waits is woken by a change, and by a store that fails; nobody
// asks the store for the sake of those who wait but now and then.
func TestNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		var asked atomic.Int64
		r := newRig(t, memory.Faults{TableRead: func(memory.Op) memory.ReadFault {
			asked.Add(1)
			if failing.Load() {
				return memory.ReadFault{Err: pubsub.ErrUnavailable}
			}
			return memory.ReadFault{}
		}}, 1)
		r.commit("a", 1, 1)
		ch := make(chan struct{}, 1)
		cancel := r.Notify(ch)
		synctest.Wait()
		if n, err := r.Available(t.Context(), 1, false); n != 0 || err != nil {
			t.Fatalf("at the end: %d, %v", n, err)
		}
		for len(ch) > 0 {
			<-ch
		}
		before := asked.Load()
		for range 1000 {
			if n, err := r.Available(t.Context(), 1, false); n != 0 || err != nil {
				t.Fatalf("at the end: %d, %v", n, err)
			}
		}
		if asked.Load() != before {
			t.Errorf("%d questions for what is known", asked.Load()-before)
		}
		start := time.Now()
		r.commit("a", 2, 2)
		<-ch
		if time.Since(start) > time.Second {
			t.Errorf("woken after %v", time.Since(start))
		}
		if n, err := r.Available(t.Context(), 1, false); n == 0 || err != nil {
			t.Errorf("after a commit: %d, %v", n, err)
		}
		failing.Store(true)
		<-ch
		if d := time.Since(start); d > 2*checkEvery {
			t.Errorf("told of a failing store after %v", d)
		}
		if n, err := r.Available(t.Context(), 2, false); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("a failing store: %d, %v", n, err)
		}
		failing.Store(false)
		cancel()
		time.Sleep(followFor + 2*checkEvery)
		synctest.Wait()
		r.mu.Lock()
		following := r.following
		r.mu.Unlock()
		if following {
			t.Error("still following although nobody waits")
		}
		// And again.
		defer r.Notify(ch)()
		synctest.Wait()
		r.commit("a", 3, 3)
		<-ch
	})
}

// Someone waits while the store is away: it is told, and woken once it is back.
func TestNotifyFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		failing.Store(true)
		r := newRig(t, memory.Faults{TableRead: func(memory.Op) memory.ReadFault {
			if failing.Load() {
				return memory.ReadFault{Err: pubsub.ErrUnavailable}
			}
			return memory.ReadFault{}
		}}, 1)
		ch := make(chan struct{}, 1)
		defer r.Notify(ch)()
		<-ch
		if _, err := r.Available(t.Context(), 0, false); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Errorf("available: %v", err)
		}
		failing.Store(false)
		r.commit("a", 1, 1)
		for {
			<-ch
			if n, err := r.Available(t.Context(), 0, false); err == nil && n > 0 {
				return
			}
		}
	})
}

func TestLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Faults{}, 1)
		lookup := func(ts int64) partition.LookupResult {
			t.Helper()
			res, err := r.Lookup(t.Context(), partition.LookupRequest{Timestamp: ts})
			if err != nil {
				t.Fatalf("lookup of %d: %v", ts, err)
			}
			return res
		}
		none := partition.LookupResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
		for _, ts := range []int64{0, 1 << 50, partition.MaxTimestamp} {
			if res := lookup(ts); res != none {
				t.Errorf("lookup of %d in nothing: %+v", ts, res)
			}
		}
		type at struct {
			offset types.Offset
			time   int64
		}
		var all []at
		for i := range 400 {
			now := time.Now().UnixMilli()
			all = append(all, at{r.commit(fmt.Sprint("g", i), i, now), now})
			time.Sleep(time.Second)
			if i%100 == 50 { // an old commit, written again by a new owner
				all = append(all, at{r.commit(fmt.Sprint("old", i), i, now-50_000), now - 50_000})
			}
		}
		most := at{0, -1}
		for _, a := range all {
			if a.time > most.time {
				most = a
			}
			for _, ts := range []int64{a.time, a.time - 1, a.time + 1} {
				want := none
				for _, b := range all {
					if b.time >= ts {
						want = partition.LookupResult{Offset: b.offset, Timestamp: b.time}
						break
					}
				}
				if res := lookup(ts); res != want {
					t.Errorf("lookup of %d: %+v, want %+v", ts, res, want)
				}
			}
		}
		if res := lookup(partition.MaxTimestamp); res.Offset != most.offset || res.Timestamp != most.time {
			t.Errorf("the largest timestamp: %+v, want %+v", res, most)
		}
		// A gateway whose clock is ahead, long before the last values.
		ahead := time.Now().Add(slack / 2).UnixMilli()
		early := r.commit("ahead", 1, ahead)
		for i := range 300 {
			all = append(all, at{r.commit(fmt.Sprint("late", i), i, time.Now().UnixMilli()), 0})
		}
		if res := lookup(partition.MaxTimestamp); res.Offset != early || res.Timestamp != ahead {
			t.Errorf("the largest timestamp is early: %+v, want %d at %d", res, ahead, early)
		}
		if res := lookup(partition.Latest); res.Offset != all[len(all)-1].offset+1 || res.Timestamp != -1 {
			t.Errorf("latest: %+v", res)
		}
		if res := lookup(partition.Earliest); res.Offset != 0 {
			t.Errorf("earliest: %+v", res)
		}
	})
}

// The topic is there once a group was stored or a coordinator looked for, on
// every gateway under the same id.
func TestTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Faults{}, 1)
		if tp, err := r.Topic(t.Context()); !errors.Is(err, kerr.UnknownTopicOrPartition) || r.Known() != nil {
			t.Fatalf("before: %+v, %v", tp, err)
		}
		other := New(Deps{Table: r.table, Cluster: "cluster", Replicas: 1})
		for range 3 {
			r.Use()
		}
		synctest.Wait()
		a, err := r.Topic(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := other.Topic(t.Context())
		if err != nil || a.ID != b.ID || !r.Is(b.ID) || a.ID.IsZero() || strings.HasPrefix(a.ID.String(), "-") {
			t.Errorf("on another gateway: %+v, %v; here %+v", b, err, a)
		}
		if x := New(Deps{Table: r.table, Cluster: "another"}); x.Is(a.ID) {
			t.Error("two clusters share the id")
		}
		if a.Name != Name || a.Partitions != 1 || a.Configs["cleanup.policy"] != "compact" {
			t.Errorf("topic: %+v", a)
		}
		if rs := r.drain(0, 1000, true); len(rs) != 0 {
			t.Errorf("records of no group: %+v", rs)
		}
		if r.end != 1 {
			t.Errorf("written %d times", r.end)
		}
	})
}
