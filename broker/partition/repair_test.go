package partition

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// rig is a world with a ledger of what was acknowledged where.
type rig struct {
	*world
	t      testing.TB
	client *memory.Client
	env    RepairEnv
	spec   RepairSpec
	ledger map[types.Offset]string // what stands, or stood, at an offset
	n      int
}

func newRig(t testing.TB, c memory.Config) *rig {
	w := newWorld(t, c)
	r := &rig{world: w, t: t, client: w.server.Client(memory.Faults{}), ledger: map[types.Offset]string{}}
	t.Cleanup(r.client.Close)
	tab, err := r.client.Table(t.Context(), pubsub.TableConfig{Name: "kafka-partitions"})
	if err != nil {
		t.Fatal(err)
	}
	r.env = RepairEnv{Store: r.client, Records: tab, By: "operator"}
	r.spec = RepairSpec{Topic: "t", ID: w.id, Log: pubsub.LogConfig{Name: testLog, Subject: testSubject, Replicas: max(c.MaxReplicas, 1)}}
	return r
}

// note keeps what stands at an offset: something else there is an offset used
// twice.
func (r *rig) note(o types.Offset, v string) {
	r.t.Helper()
	if old, ok := r.ledger[o]; ok && old != v {
		r.t.Errorf("offset %d held %q and holds %q", o, old, v)
	}
	r.ledger[o] = v
}

// append produces n records with values of their own and notes them.
func (r *rig) append(g *gateway, n int) types.Offset {
	r.t.Helper()
	s := batchSpec{times: make([]int64, n), values: make([][]byte, n)}
	for i := range n {
		r.n++
		s.times[i], s.values[i] = time.Now().UnixMilli(), fmt.Append(nil, "v", r.n)
	}
	base := g.mustProduce(s.bytes())
	for i, v := range s.values {
		r.note(base+types.Offset(i), string(v))
	}
	return base
}

func (r *rig) plain(v string) {
	if _, err := r.server.Publish(testSubject, nil, []byte(v)); err != nil {
		r.t.Fatal(err)
	}
}

// served reads everything from an offset to the end, and notes it.
func (r *rig) served(g *gateway, from types.Offset) (offsets []types.Offset) {
	r.t.Helper()
	end, err := g.p.Lookup(r.t.Context(), LookupRequest{Timestamp: Latest})
	if err != nil {
		r.t.Fatal(err)
	}
	for from < end.Offset {
		res, err := g.p.Read(r.t.Context(), ReadRequest{Offset: from, MaxBytes: 1 << 20, Whole: true})
		if err != nil {
			r.t.Fatalf("read at %d: %v", from, err)
		}
		if res.Bytes == 0 {
			break
		}
		for _, b := range split(r.t, res) {
			it := serde.NewRecords(b.Records(), b.Count())
			for it.Next() {
				o := types.Offset(b.BaseOffset()) + types.Offset(it.Record.OffsetDelta)
				if o < from {
					continue // the batch contains the offset asked for
				}
				r.note(o, string(it.Record.Value))
				offsets = append(offsets, o)
				from = o + 1
			}
			if it.Err() != nil {
				r.t.Fatal(it.Err())
			}
		}
	}
	return offsets
}

func (r *rig) survey() *Report {
	r.t.Helper()
	rep, err := Survey(r.t.Context(), r.env, r.spec)
	if err != nil {
		r.t.Fatal(err)
	}
	return rep
}

// mend accepts the loss and checks that nothing is wrong any more.
func (r *rig) mend() *Report {
	r.t.Helper()
	rep, err := AcceptLoss(r.t.Context(), r.env, r.spec)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(rep.Trouble) != 0 || rep.Done == "" || rep.Stop != nil {
		r.t.Fatalf("after the repair: %+v", rep)
	}
	if _, err := AcceptLoss(r.t.Context(), r.env, r.spec); !errors.Is(err, ErrHealthy) {
		r.t.Errorf("repair of a healthy partition: %v", err)
	}
	synctest.Wait()
	return rep
}

// works checks that warm and cold gateways append and read alike, and agree.
func (r *rig) works(warm ...*gateway) {
	r.t.Helper()
	cold := r.gateway(memory.Faults{})
	all := append(warm, cold)
	for range 3 {
		for _, g := range all {
			r.append(g, 2)
		}
	}
	r.plain("plain")
	want := r.served(cold, 0)
	for i := 1; i < len(want); i++ {
		if want[i] <= want[i-1] {
			r.t.Errorf("offset %d comes after %d", want[i], want[i-1])
		}
	}
	for i, g := range append(all, r.gateway(memory.Faults{})) {
		if got := r.served(g, 0); !reflect.DeepEqual(got, want) {
			r.t.Errorf("gateway %d serves %v, want %v", i, got, want)
		}
		if got, want := g.picture(), cold.picture(); !reflect.DeepEqual(got, want) {
			r.t.Errorf("gateway %d\n%+v\nwant %+v", i, got, want)
		}
	}
}

func has(t testing.TB, rep *Report, texts ...string) {
	t.Helper()
	all := fmt.Sprintf("%+v", *rep)
	for _, x := range texts {
		if !strings.Contains(all, x) {
			t.Errorf("no %q in %s", x, all)
		}
	}
}

// A stream restored from an older copy: what was appended since is lost, the
// rest stays, and no offset comes again, on a warm and on a cold gateway alike.
func TestRepairStreamRestoredFromOlderCopy(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, memory.Config{MaxReplicas: replicas})
			g := r.gateway(memory.Faults{})
			run(t, g)
			for range 5 {
				r.append(g, 3)
			}
			older := r.server.Snapshot(testLog)
			for range 5 {
				r.append(g, 3)
			}
			time.Sleep(7 * time.Second) // a snapshot of sequence 10 is written
			newest := r.server.Snapshot(testLog)
			r.server.Restore(older)
			ch := make(chan struct{}, 1)
			defer g.p.Notify(ch)()
			// Nobody has seen it for 20 s: not stopped yet, and told all the same.
			has(t, r.survey(), "the stream ends at sequence 5, its snapshot is of 10", "restore a newer copy")
			time.Sleep(30 * time.Second)
			g.stopped("back")
			r.gateway(memory.Faults{}).stopped("back")
			before := r.server.Snapshot("kafka-partitions")
			rep := r.survey()
			has(t, rep, "stopped: back at sequence 10", "sequence 10", "New records begin at offset 11000000000; the highest known is 29 (the snapshot)")
			if rep.Next != 15 || rep.Highest != 30 || rep.LastSequence != 5 || len(rep.Remedies) != 2 {
				t.Errorf("%+v", rep)
			}
			if !reflect.DeepEqual(before, r.server.Snapshot("kafka-partitions")) {
				t.Error("looking has changed the records")
			}

			// The newest copy comes back: the stop is lifted, nothing is lost.
			r.server.Restore(newest)
			has(t, r.survey(), "Everything that was missing is there again")
			has(t, r.mend(), "the stop was lifted")
			if at := r.append(g, 1); at != 30 {
				t.Errorf("appended at %d", at)
			}
			time.Sleep(7 * time.Second)

			r.server.Restore(older)
			time.Sleep(30 * time.Second)
			cold := r.gateway(memory.Faults{})
			for range 12 {
				_, _ = cold.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest})
				time.Sleep(2 * time.Second)
			}
			cold.stopped("back")
			run(t, cold)
			has(t, r.mend(), "goes on at offset 11000000000 after sequence 5")
			// A reader in what is lost goes on at the end, and waits there.
			for _, g := range []*gateway{g, cold} {
				if n, err := g.p.Available(t.Context(), 20, false); n != 0 || err != nil {
					t.Errorf("available: %d, %v", n, err)
				}
				if res, err := g.p.Read(t.Context(), ReadRequest{Offset: 20, MaxBytes: 1000, Whole: true}); err != nil || res.Bytes != 0 || res.HighWatermark != 11_000_000_000 {
					t.Errorf("read: %+v, %v", res, err)
				}
				if _, err := g.p.Read(t.Context(), ReadRequest{Offset: 11_000_000_001, MaxBytes: 1000, Whole: true}); !errors.Is(err, kerr.OffsetOutOfRange) {
					t.Errorf("read beyond the end: %v", err)
				}
				if got := r.served(g, 0); len(got) != 15 || got[14] != 14 {
					t.Errorf("served %v", got)
				}
			}
			if at := r.append(g, 1); at != 11_000_000_000 {
				t.Errorf("appended at %d", at)
			}
			if got := r.served(cold, 20); len(got) != 1 || got[0] != 11_000_000_000 {
				t.Errorf("from 20: %v", got)
			}
			r.works(g, cold)
			// A second time, below the break that was accepted.
			r.server.Restore(older)
			time.Sleep(30 * time.Second)
			g.stopped("back")
			has(t, r.mend(), "goes on at offset 22000000000 after sequence 5")
			r.works(g)
		})
	}
}

// A message removed by hand: only its records are lost.
func TestRepairMessageRemovedByHand(t *testing.T) {
	for name, c := range map[string]struct {
		seq  pubsub.Seq
		left int
	}{"first": {1, 15}, "middle": {3, 15}, "last": {6, 15}} {
		for _, replicas := range []int{1, 3} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, memory.Config{MaxReplicas: replicas})
					g := r.gateway(memory.Faults{})
					run(t, g)
					for range 6 {
						r.append(g, 3)
					}
					r.server.Remove(testLog, c.seq)
					if _, err := g.p.Read(t.Context(), ReadRequest{Offset: types.Offset(c.seq-1) * 3, MaxBytes: 1000, Whole: true}); !errors.Is(err, kerr.KafkaStorageError) {
						t.Errorf("read of the hole: %v", err)
					}
					g.stopped("gap")
					cold := r.gateway(memory.Faults{})
					run(t, cold)
					cold.stopped("gap")
					has(t, r.survey(), fmt.Sprintf("sequence %d: it is missing", c.seq), "Sequence:"+fmt.Sprint(c.seq)+" What:nothing")
					r.mend()
					for _, g := range []*gateway{g, cold, r.gateway(memory.Faults{})} {
						if got := r.served(g, 0); len(got) != c.left {
							t.Errorf("%d records are served: %v", len(got), got)
						}
						// In the hole, a reader goes on after it.
						hole := types.Offset(c.seq-1)*3 + 1
						if got := r.served(g, hole); c.seq < 6 && got[0] != types.Offset(c.seq)*3 {
							t.Errorf("from %d: %v", hole, got)
						}
					}
					r.works(g, cold)
				})
			})
		}
	}
}

// A forged message in the middle of what plain publishers write: it is left
// out, what came after it gets offsets.
func TestRepairForgedMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Config{})
		g := r.gateway(memory.Faults{})
		run(t, g)
		r.append(g, 2)
		r.append(g, 2)
		h := pubsub.Header{
			headerLog:   {"v=1 topic=" + r.id.String() + " seq=3 append=x.1 prev=x.0 base=4 last=4"},
			headerBatch: {"len=70 n=1 max=1 at=1"},
		}
		if _, err := r.server.Publish(testSubject, h, make([]byte, 70)); err != nil {
			t.Fatal(err)
		}
		r.plain("after")
		if a := g.produce(AppendRequest{Records: batch(1)}); a.Err == nil {
			t.Errorf("appended at %d after a forged message", a.BaseOffset)
		}
		g.stopped("order")
		has(t, r.survey(), "sequence 3: its payload is not the batches", "append id x.1 after x.0", "The 1 messages of plain publishers after sequence 3")
		r.mend()
		for _, g := range []*gateway{g, r.gateway(memory.Faults{})} {
			if got := r.served(g, 0); !reflect.DeepEqual(got, []types.Offset{0, 1, 2, 3, 11_000_000_000}) {
				t.Errorf("served %v", got)
			}
		}
		r.works(g)
	})
}

// A hole that nobody has read yet, before the snapshot: the survey sees it.
func TestRepairHoleBeforeSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Config{})
		g := r.gateway(memory.Faults{})
		run(t, g)
		for range 5 {
			r.append(g, 2)
		}
		time.Sleep(7 * time.Second)
		r.server.Remove(testLog, 2)
		rep := r.survey()
		has(t, rep, "sequence 2: it is missing", "Offsets 2 to 3 are lost")
		if rep.Stop != nil {
			t.Errorf("stopped by looking: %+v", rep.Stop)
		}
		r.mend()
		if got := r.served(g, 0); !reflect.DeepEqual(got, []types.Offset{0, 1, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("served %v", got)
		}
		r.works(g)
	})
}

// A payload that rotted: its message is left out, what follows stays.
func TestRepairUnreadablePayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Config{})
		g := r.gateway(memory.Faults{})
		for range 4 {
			r.append(g, 2)
		}
		g.kill()
		r.server.Rewrite(testLog, 2, func(m *pubsub.Message) { m.Data[16] = 9 })
		g = r.gateway(memory.Faults{})
		run(t, g)
		if _, err := g.p.Read(t.Context(), ReadRequest{Offset: 2, MaxBytes: 1000, Whole: true}); !errors.Is(err, kerr.KafkaStorageError) {
			t.Errorf("read: %v", err)
		}
		g.stopped("header")
		r.mend()
		if got := r.served(g, 0); !reflect.DeepEqual(got, []types.Offset{0, 1, 4, 5, 6, 7}) {
			t.Errorf("served %v", got)
		}
		r.works(g)
	})
}

// A snapshot that was deleted is no trouble: it is rebuilt from the log, and
// there is nothing to repair.
func TestRepairSnapshotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Config{})
		g := r.gateway(memory.Faults{})
		run(t, g)
		for range 5 {
			r.append(g, 2)
		}
		time.Sleep(7 * time.Second)
		n := 0
		for _, k := range g.keys() {
			if strings.Contains(k, ".s.") {
				r.server.Forget("kafka-partitions", k)
				n++
			}
		}
		if n == 0 {
			t.Fatal("no snapshot was written")
		}
		rep := r.survey()
		has(t, rep, "snapshot cannot be read")
		if len(rep.Trouble) != 0 || len(rep.Remedies) != 0 {
			t.Errorf("%+v", rep)
		}
		if _, err := AcceptLoss(t.Context(), r.env, r.spec); !errors.Is(err, ErrHealthy) {
			t.Errorf("repair: %v", err)
		}
		r.works(g)
	})
}

// The bucket restored from yesterday, the stream as it is: warm and cold
// gateways go on without a stop, and no offset comes twice. If the stream was
// purged since, what the record says is not there: stopped, and mended without
// another loss.
func TestRepairBucketOfYesterday(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Config{})
		g := r.gateway(memory.Faults{})
		run(t, g)
		for range 5 {
			r.append(g, 2)
		}
		time.Sleep(7 * time.Second)
		yesterday := r.server.Snapshot("kafka-partitions")
		for range 3 {
			for range 5 {
				r.append(g, 2)
			}
			time.Sleep(7 * time.Second)
		}
		r.server.Restore(yesterday)
		if rep := r.survey(); len(rep.Trouble) != 0 {
			t.Errorf("%+v", rep)
		}
		r.works(g)

		r.server.Restore(yesterday)
		if err := r.client.Log(testLog, testSubject).Trim(t.Context(), 9); err != nil {
			t.Fatal(err)
		}
		cold := r.gateway(memory.Faults{})
		run(t, cold)
		cold.stopped("gap")
		has(t, r.survey(), "sequence 1: 8 messages are missing from here")
		r.mend()
		r.works(cold)
		// The warm one had revisions that the restored bucket has not reached.
		r.works(g, cold)
	})
}

// A record or a stream that is missing: never made anew quietly, brought back
// on demand.
func TestRepairMissingRecordOrStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Config{})
		g := r.gateway(memory.Faults{})
		run(t, g)
		for range 4 {
			r.append(g, 2)
		}
		r.spec.Known, r.spec.KnownFrom = 100, "a committed offset"
		r.server.Forget("kafka-partitions", g.p.key)
		has(t, r.survey(), "the partition record is missing", "Lost:[record]", "the highest known is 99 (a committed offset)")
		has(t, r.mend(), "goes on at offset 11000000000 after sequence 4")
		if got := r.served(r.gateway(memory.Faults{}), 0); len(got) != 8 {
			t.Errorf("served %v", got)
		}
		r.works(g)

		time.Sleep(10 * time.Second)
		if err := r.client.DeleteLog(t.Context(), testLog); err != nil {
			t.Fatal(err)
		}
		has(t, r.survey(), "the stream is missing", "Lost:[stream]", "all records are lost")
		has(t, r.mend(), "goes on at offset 22000000000 after sequence 0")
		r.works(g)
	})
}

// Old index parts are of another log after a repair: the new ones are stored
// beside them, and times and offsets are found across breaks of many intervals.
func TestRepairIndexParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.Config{})
		g := r.gateway(memory.Faults{})
		run(t, g)
		const n = chunkSpan*span + 3*span
		one := func(count int) {
			for range count {
				r.plain("p")
			}
		}
		one(5 * span)
		r.append(g, 1)
		one(n - 5*span - 1)
		time.Sleep(time.Minute)
		r.append(g, 1)
		time.Sleep(10 * time.Second)
		parts := func() (k int) {
			for _, key := range g.keys() {
				if strings.Contains(key, ".i.") {
					k++
				}
			}
			return k
		}
		if parts() != 1 {
			t.Fatalf("%d parts are stored: %v", parts(), g.keys())
		}
		// A whole interval goes missing, and a little beside it.
		r.server.RemoveRange(testLog, span-6, 2*span+8)
		cold := r.gateway(memory.Faults{})
		if _, err := cold.p.Read(t.Context(), ReadRequest{Offset: 2 * span, MaxBytes: 1000, Whole: true}); err == nil {
			t.Error("a hole was read")
		}
		cold.stopped("gap")
		r.mend()
		r.append(g, 1)
		time.Sleep(10 * time.Second)
		if parts() != 2 {
			t.Errorf("%d parts are stored: %v", parts(), g.keys())
		}
		for _, g := range []*gateway{g, r.gateway(memory.Faults{})} {
			for _, o := range []types.Offset{0, span - 8, span - 7, 3 * span, 5*span - 1, 5 * span, n - 1} {
				res, err := g.p.Read(t.Context(), ReadRequest{Offset: o, MaxBytes: 1, Whole: true})
				if err != nil || res.Bytes == 0 {
					t.Errorf("read at %d: %+v, %v", o, res, err)
				}
			}
			if res, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: time.Now().Add(-30 * time.Second).UnixMilli()}); err != nil || res.Offset < 0 {
				t.Errorf("lookup: %+v, %v", res, err)
			}
		}
	})
}

// Whatever is done to a stream, after one or two repairs every gateway serves
// the same, all that is left of ours is readable, and no offset is used twice.
func TestRepairProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type act struct{ what, arg int }
		var acts []act
		for range rapid.IntRange(4, 14).Draw(rt, "acts") {
			acts = append(acts, act{rapid.IntRange(0, 6).Draw(rt, "what"), rapid.IntRange(0, 1000).Draw(rt, "arg")})
		}
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, memory.Config{})
			g := r.gateway(memory.Faults{})
			ctx, end := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = g.host.Run(ctx) }()
			defer func() { end(); <-done }()
			r.append(g, 2)
			var older *memory.Image
			for _, a := range acts {
				ms := r.server.Messages(testLog)
				switch a.what {
				case 0, 1:
					if x := g.produce(AppendRequest{Records: batch(1 + a.arg%3)}); x.Err == nil {
						if _, ok := r.ledger[x.BaseOffset]; ok {
							t.Errorf("%d was given twice", x.BaseOffset)
						}
						for i := range 1 + a.arg%3 {
							r.ledger[x.BaseOffset+types.Offset(i)] = "v"
						}
					}
				case 2:
					r.plain(fmt.Sprint("p", a.arg))
				case 3:
					if len(ms) > 1 {
						r.server.Remove(testLog, ms[a.arg%len(ms)].Seq)
					}
				case 4:
					older = r.server.Snapshot(testLog)
				case 5:
					if older != nil {
						r.server.Restore(older)
					}
					time.Sleep(time.Duration(a.arg) * 30 * time.Millisecond)
				case 6:
					time.Sleep(7 * time.Second)
				}
			}
			// Found by a warm or by a cold one; several holes take several repairs.
			var last error
			for range 20 {
				cold := r.gateway(memory.Faults{})
				for range 12 {
					_, e1 := cold.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest})
					_, e2 := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest})
					if e1 == nil && e2 == nil {
						break
					}
					time.Sleep(2 * time.Second)
				}
				synctest.Wait() // a stop that it found is written
				cold.kill()
				_, err := AcceptLoss(t.Context(), r.env, r.spec)
				if err != nil && !errors.Is(err, ErrHealthy) {
					t.Fatal(err)
				}
				synctest.Wait()
				cold = r.gateway(memory.Faults{})
				clean := err != nil
				for o := types.Offset(0); clean; {
					res, rerr := cold.p.Read(t.Context(), ReadRequest{Offset: o, MaxBytes: 1 << 20, Whole: true})
					if rerr != nil {
						last, clean = fmt.Errorf("read at %d: %w (%s)", o, rerr, cold.p.stopMessage()), false
						break
					}
					if res.Bytes == 0 {
						break
					}
					bs := split(t, res)
					o = types.Offset(bs[len(bs)-1].LastOffset()) + 1
				}
				synctest.Wait() // a stop that it found is written
				cold.kill()
				if clean {
					if x := g.produce(AppendRequest{Records: batch(1)}); x.Err != nil {
						t.Errorf("append after the repair: %+v", x)
					} else if _, ok := r.ledger[x.BaseOffset]; ok {
						t.Errorf("%d was given twice", x.BaseOffset)
					}
					return
				}
			}
			t.Errorf("not mended by 20 repairs: %v; %+v", last, *r.survey())
		})
	})
}
