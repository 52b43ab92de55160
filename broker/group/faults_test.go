package group

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

const bucket = "kafka-consumer-offsets"

// value reads a key as an operator would.
func value(t *testing.T, srv *memory.Server, key string) string {
	t.Helper()
	c := srv.Client(memory.Faults{})
	defer c.Close()
	table, err := c.Table(t.Context(), pubsub.TableConfig{Name: bucket})
	if err != nil {
		t.Fatal(err)
	}
	v, err := table.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return string(v.Data)
}

// put writes a key as an operator, or another version, would.
func put(t *testing.T, srv *memory.Server, key, data string) {
	t.Helper()
	c := srv.Client(memory.Faults{})
	defer c.Close()
	table, err := c.Table(t.Context(), pubsub.TableConfig{Name: bucket})
	if err != nil {
		t.Fatal(err)
	}
	v, err := table.Get(t.Context(), key)
	if err != nil && !errors.Is(err, pubsub.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := table.Set(t.Context(), pubsub.Write{Key: key, Data: []byte(data), Header: v.Header, Expect: v.Rev}); err != nil {
		t.Fatal(err)
	}
}

// A lost acknowledgement of any write, of the record or of an offset, changes
// nothing but the time it takes.
func TestLostAcks(t *testing.T) {
	for name, fault := range map[string]memory.WriteFault{
		"ack lost": {LoseAck: true}, "dropped": {Drop: true}, "late": {Late: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := memory.NewServer(memory.Config{})
				var n atomic.Int32
				g := start(t, srv, 1, "a", everyOther(fault, &n), newTestConfig())
				m := stable(t, g, "g")
				if m.Generation != 1 {
					t.Fatalf("generation %d", m.Generation)
				}
				id := types.NewTopicID()
				for i := range types.Offset(5) {
					mustCommit(t, g, commitOf(m, "foo", id, i))
					wantOffset(t, g, "g", "foo", id, i)
				}
				wantErr(t, "heartbeat", g.Heartbeat(t.Context(), m), nil)
				if n.Load() < 10 {
					t.Fatalf("%d writes", n.Load())
				}
			})
		})
	}
}

// A store that refuses writes: nothing is told that is not stored, and when it
// is back the group goes on in its generation.
func TestC41StoreAway(t *testing.T) {
	for _, cause := range []error{pubsub.ErrUnavailable, pubsub.ErrFull} {
		synctest.Test(t, func(t *testing.T) {
			srv := memory.NewServer(memory.Config{})
			away := &fault{what: memory.WriteFault{Err: cause}}
			g := start(t, srv, 1, "a", away.faults(), newTestConfig())
			m := stable(t, g, "g")
			id := types.NewTopicID()
			mustCommit(t, g, commitOf(m, "foo", id, 1))
			away.Store(true)
			if r := g.Commit(t.Context(), commitOf(m, "foo", id, 2)); r.Err != nil || !errors.Is(r.Partitions[0], pubsub.ErrUnavailable) {
				t.Fatalf("commit: %+v", r)
			}
			wantOffset(t, g, "g", "foo", id, 1)
			if r := g.Join(t.Context(), joinRequest("g", m.Member)); !errors.Is(r.Err, pubsub.ErrUnavailable) || r.Generation != -1 {
				t.Fatalf("join: %+v", r)
			}
			if r := g.Leave(t.Context(), "g", []LeaveMember{{Member: m.Member}}); !errors.Is(r.Err, pubsub.ErrUnavailable) {
				t.Fatalf("leave: %+v", r)
			}
			if r := g.Commit(t.Context(), commitOf(Membership{Group: "new", Generation: -1}, "foo", id, 2)); !errors.Is(r.Err, pubsub.ErrUnavailable) {
				t.Fatalf("first commit of a group: %+v", r)
			}
			away.Store(false)
			wantErr(t, "heartbeat", g.Heartbeat(t.Context(), m), nil)
			wantOffset(t, g, "g", "foo", id, 1)
			mustCommit(t, g, commitOf(m, "foo", id, 3))
		})
	}
}

// A write with an unknown outcome that arrives long after it was given up:
// whoever is owner then, nothing goes back.
func TestOutcomeNeverKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var late atomic.Bool
		g := start(t, srv, 1, "a", memory.Faults{Set: func(op memory.Op) memory.WriteFault {
			if late.Load() && strings.HasPrefix(op.Key, "g.") {
				return memory.WriteFault{Late: 8 * time.Second}
			}
			return memory.WriteFault{}
		}}, newTestConfig())
		m := stable(t, g, "g")
		id := types.NewTopicID()
		mustCommit(t, g, commitOf(m, "foo", id, 1))
		late.Store(true)
		if r := g.Commit(t.Context(), commitOf(m, "foo", id, 2)); r.Err != nil || !errors.Is(r.Partitions[0], pubsub.ErrOutcomeUnknown) {
			t.Fatalf("commit: %+v", r)
		}
		late.Store(false)
		// Asked now, the key is made sure first: 1 stays 1 when the write arrives.
		wantOffset(t, g, "g", "foo", id, 1)
		wantErr(t, "heartbeat", g.Heartbeat(t.Context(), m), nil)
		time.Sleep(9 * time.Second)
		wantOffset(t, g, "g", "foo", id, 1)
		if v := value(t, srv, "g.foo.0"); !strings.Contains(v, `"offset":1,`) {
			t.Fatalf("stored: %s", v)
		}
	})
}

// C-37: an owner that was frozen, or cut off, stores nothing when it wakes up.
func TestFrozenOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b, delay := freezing(t, srv, 3*time.Second)
		m := stable(t, a, "g")
		id := types.NewTopicID()
		mustCommit(t, a, commitOf(m, "foo", id, 10))
		delay.Store(true)
		late := commitLate(t, a, commitOf(m, "foo", id, 9), commitOf(m, "new", id, 9))
		b.members.died(a.members.Self())
		wantErr(t, "heartbeat at the new owner", b.Heartbeat(t.Context(), m), nil)
		wantOffset(t, b, "g", "foo", id, 10)
		wantOffset(t, b, "g", "new", id, -1)
		r := <-late
		wantErr(t, "the frozen owner's commit", r.Err, kerr.NotCoordinator)
		wantOffset(t, b, "g", "foo", id, 10)
		wantOffset(t, b, "g", "new", id, -1)
		if v := value(t, srv, "g.foo.0"); !strings.Contains(v, `"offset":10,`) {
			t.Fatalf("stored: %s", v)
		}
		delay.Store(false)
		wantErr(t, "heartbeat at the old owner", a.Heartbeat(t.Context(), m), kerr.NotCoordinator)
		mustCommit(t, b, commitOf(m, "foo", id, 11))
		mustCommit(t, b, commitOf(m, "new", id, 1))
		wantOffset(t, b, "g", "new", id, 1)
		all := b.Fetch(t.Context(), FetchRequest{Group: "g", All: true})
		if len(all.Offsets) != 2 || all.Offsets[0].Topic != "foo" || all.Offsets[1].Topic != "new" {
			t.Fatalf("all: %+v", all)
		}
	})
}

// A release in between makes the late write of the first owner no less late.
func TestFrozenOwnerBeforeRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b, delay := freezing(t, srv, 4*time.Second)
		c := start(t, srv, 3, "c", memory.Faults{}, newTestConfig())
		m := stable(t, a, "g")
		id := types.NewTopicID()
		mustCommit(t, a, commitOf(m, "foo", id, 10))
		delay.Store(true)
		late := commitLate(t, a, commitOf(m, "foo", id, 9))
		b.members.died(a.members.Self())
		wantErr(t, "heartbeat at the second owner", b.Heartbeat(t.Context(), m), nil)
		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "heartbeat at the third", c.Heartbeat(t.Context(), m), nil)
		wantOffset(t, c, "g", "foo", id, 10)
		wantErr(t, "the frozen owner's commit", (<-late).Err, kerr.NotCoordinator)
		wantOffset(t, c, "g", "foo", id, 10)
		if v := value(t, srv, "g.foo.0"); !strings.Contains(v, `"offset":10,`) {
			t.Fatalf("stored: %s", v)
		}
	})
}

// While answers from memory may not leave there are none, and no timer judges;
// after that timers begin in full.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		m := stable(t, g, "g")
		id := types.NewTopicID()
		mustCommit(t, g, commitOf(m, "foo", id, 1))
		time.Sleep(9 * time.Second)
		g.members.setStale(true)
		wantErr(t, "heartbeat", g.Heartbeat(t.Context(), m), kerr.CoordinatorNotAvailable)
		if _, err := fetchOne(t, g, "g", "foo", id); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Fatalf("fetch: %v", err)
		}
		if _, err := fetchOne(t, g, "unknown", "foo", id); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Fatalf("fetch of an unknown group: %v", err)
		}
		wantErr(t, "describe", g.Describe(t.Context(), "unknown").Err, kerr.CoordinatorNotAvailable)
		if _, err := g.List(t.Context(), nil, nil); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Fatalf("list: %v", err)
		}
		time.Sleep(time.Minute) // six sessions
		g.members.setStale(false)
		time.Sleep(9 * time.Second)
		wantErr(t, "heartbeat after all", g.Heartbeat(t.Context(), m), nil)
		time.Sleep(11 * time.Second)
		wantErr(t, "heartbeat after silence", g.Heartbeat(t.Context(), m), kerr.UnknownMemberID)
	})
}

// A timer that comes due while stale judges nobody either.
func TestStaleTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		m := stable(t, g, "g")
		time.Sleep(9 * time.Second)
		g.members.setStale(true)
		time.Sleep(30 * time.Second)
		g.members.setStale(false)
		time.Sleep(9 * time.Second)
		wantErr(t, "heartbeat", g.Heartbeat(t.Context(), m), nil)
	})
}

// Drain lets go at once: who waits is sent away, the next owner fences nothing.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		var keyWrites atomic.Int32
		b := start(t, srv, 2, "b", memory.Faults{Set: func(op memory.Op) memory.WriteFault {
			if strings.Contains(op.Key, ".") {
				keyWrites.Add(1)
			}
			return memory.WriteFault{}
		}}, newTestConfig())
		m := stable(t, a, "g")
		id := types.NewTopicID()
		mustCommit(t, a, commitOf(m, "foo", id, 5))
		mustCommit(t, a, commitOf(Membership{Group: "simple", Generation: -1}, "foo", id, 6))
		waits := make(chan JoinResponse, 1)
		go func() { waits <- a.Join(t.Context(), joinRequest("g", "")) }()
		synctest.Wait()
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "who waited", (<-waits).Err, kerr.NotCoordinator)
		wantErr(t, "afterwards", a.Heartbeat(t.Context(), m), kerr.NotCoordinator)
		// The join had begun a rebalance, which the next owner goes on with.
		wantErr(t, "heartbeat at the next owner", b.Heartbeat(t.Context(), m), kerr.RebalanceInProgress)
		j := b.Join(t.Context(), joinRequest("g", m.Member))
		if j.Err != nil || j.Generation != 2 {
			t.Fatalf("join: %+v", j)
		}
		wantOffset(t, b, "g", "foo", id, 5)
		wantOffset(t, b, "simple", "foo", id, 6)
		wantOffset(t, b, "simple", "bar", id, -1)
		if n := keyWrites.Load(); n != 0 {
			t.Fatalf("%d keys were written", n)
		}
	})
}

// Records with members are adopted without being asked for: their timers run.
func TestAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		b := start(t, srv, 2, "b", memory.Faults{}, newTestConfig())
		stable(t, a, "g")
		mustCommit(t, a, commitOf(Membership{Group: "simple", Generation: -1}, "foo", types.NewTopicID(), 6))
		a.kill()
		time.Sleep(30 * time.Second)
		if d := b.Describe(t.Context(), "g"); d.State != Stable {
			t.Fatalf("%s before anybody may adopt it", d.State)
		}
		b.members.died(a.members.Self())
		synctest.Wait()
		if !b.rt.Holds("g") || b.rt.Holds("simple") {
			t.Fatalf("holds g: %v, simple: %v", b.rt.Holds("g"), b.rt.Holds("simple"))
		}
		time.Sleep(11 * time.Second)
		if d := b.Describe(t.Context(), "g"); d.State != Empty {
			t.Fatalf("%s after a session of silence", d.State)
		}
	})
}

// A gateway that was found dead and comes back as a new incarnation trusts
// nothing it remembers.
func TestFoundDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		b := start(t, srv, 2, "b", memory.Faults{}, newTestConfig())
		m := stable(t, a, "g")
		id := types.NewTopicID()
		mustCommit(t, a, commitOf(m, "foo", id, 1))
		b.members.died(a.members.Self())
		mustCommit(t, b, commitOf(m, "foo", id, 2))
		a.members.set(func() { a.members.self.Incarnation = "a2" })
		wantErr(t, "heartbeat", a.Heartbeat(t.Context(), m), kerr.NotCoordinator)
		if _, err := fetchOne(t, a, "g", "foo", id); !errors.Is(err, kerr.NotCoordinator) {
			t.Fatalf("fetch: %v", err)
		}
	})
}

// Somebody else writes the record without taking it over: read back, it is
// still ours, and serves on from what is stored.
func TestRecordChangedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		m := stable(t, g, "g")
		put(t, srv, "g", value(t, srv, "g"))
		r := g.Leave(t.Context(), "g", []LeaveMember{{Member: m.Member}})
		if r.Err == nil {
			t.Fatal("a write that lost was answered")
		}
		wantErr(t, "heartbeat", g.Heartbeat(t.Context(), m), nil)
		if r := g.Leave(t.Context(), "g", []LeaveMember{{Member: m.Member}}); r.Err != nil {
			t.Fatalf("leave: %v", r.Err)
		}
	})
}

// Values of an unknown version are not served, and not overwritten.
func TestUnknownVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		m := stable(t, a, "g")
		id := types.NewTopicID()
		mustCommit(t, a, commitOf(m, "foo", id, 1))
		mustCommit(t, a, commitOf(Membership{Group: "later", Generation: -1}, "foo", id, 1))
		a.kill()
		offset := strings.Replace(value(t, srv, "g.foo.0"), `"v":1`, `"v":2`, 1)
		record := strings.Replace(value(t, srv, "later"), `"v":1`, `"v":2`, 1)
		put(t, srv, "g.foo.0", offset)
		put(t, srv, "later", record)
		b := heir(t, srv, 1, "b", a)
		if _, err := fetchOne(t, b, "g", "foo", id); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Fatalf("fetch: %v", err)
		}
		if r := b.Commit(t.Context(), commitOf(m, "foo", id, 2)); r.Err != nil || !errors.Is(r.Partitions[0], kerr.CoordinatorNotAvailable) {
			t.Fatalf("commit: %+v", r)
		}
		if r := b.Commit(t.Context(), commitOf(Membership{Group: "later", Generation: -1}, "foo", id, 1)); !errors.Is(r.Err, kerr.CoordinatorNotAvailable) {
			t.Fatalf("commit: %+v", r)
		}
		wantErr(t, "describe", b.Describe(t.Context(), "later").Err, kerr.CoordinatorNotAvailable)
		if value(t, srv, "g.foo.0") != offset || value(t, srv, "later") != record {
			t.Fatal("overwritten")
		}
	})
}

// A replicated store's leader that woke from a freeze denies what is there: no
// "nothing committed", no "unknown member".
func TestC41DeniedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		m := stable(t, a, "g")
		id := types.NewTopicID()
		mustCommit(t, a, commitOf(m, "foo", id, 1))
		a.kill()
		var deny atomic.Bool
		replicated := func(node int32, incarnation string) *gateway {
			client := srv.Client(memory.Faults{TableGet: func(memory.Op) memory.ReadFault { return memory.ReadFault{Deny: deny.Load()} }})
			table, err := client.Table(t.Context(), pubsub.TableConfig{Name: bucket})
			if err != nil {
				t.Fatal(err)
			}
			return run(t, client, newMembers(node, incarnation), newTestConfig(), Deps{Table: table, Replicated: true})
		}
		b := replicated(2, "b")
		b.members.died(a.members.Self())
		if synctest.Wait(); !b.rt.Holds("g") {
			t.Fatal("not adopted")
		}
		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := replicated(3, "c")
		deny.Store(true)
		time.AfterFunc(900*time.Millisecond, func() { deny.Store(false) })
		offset, err := fetchOne(t, c, "g", "foo", id)
		if err == nil && offset != 1 {
			t.Fatalf("offset %d", offset)
		}
		wantOffset(t, c, "g", "foo", id, 1)
		deny.Store(true)
		time.AfterFunc(900*time.Millisecond, func() { deny.Store(false) })
		began := time.Now()
		wantOffset(t, c, "surely unknown", "foo", id, -1)
		if took := time.Since(began); took < time.Second {
			t.Fatalf("absence believed after %v", took)
		}
	})
}

// Deleting is cut short at every write: whoever comes next ends it, and a group
// of the same name begins with nothing.
func TestDeleteCrash(t *testing.T) {
	for crash := int32(1); ; crash++ {
		done := false
		synctest.Test(t, func(t *testing.T) {
			srv := memory.NewServer(memory.Config{})
			armed := &crashing{at: crash}
			a := start(t, srv, 1, "a", armed.faults(), newTestConfig())
			id := types.NewTopicID()
			r := commitOfAll(Membership{Group: "g", Generation: -1}, "foo", id, 1, 4)
			mustCommit(t, a, r)
			armed.Store(true)
			err := a.Delete(t.Context(), "g")
			done = err == nil
			a.kill()
			b := heir(t, srv, 2, "b", a)
			if !done && crash > 1 {
				for {
					// The first to ask may be told to ask again while the rest goes.
					d := b.Fetch(t.Context(), FetchRequest{Group: "g", All: true})
					if d.Err == nil {
						if len(d.Offsets) != 0 {
							t.Fatalf("offsets left: %+v", d)
						}
						break
					}
					if !errors.Is(d.Err, kerr.CoordinatorLoadInProgress) {
						t.Fatal(d.Err)
					}
				}
			}
			if crash == 1 {
				wantOffset(t, b, "g", "foo", id, 1) // nothing had happened
				return
			}
			if keys := srv.Keys(bucket); len(keys) != 0 {
				t.Fatalf("crash at write %d: keys left: %v", crash, keys)
			}
			mustCommit(t, b, commitOf(Membership{Group: "g", Generation: -1}, "bar", id, 3))
			all := b.Fetch(t.Context(), FetchRequest{Group: "g", All: true})
			if all.Err != nil || len(all.Offsets) != 1 {
				t.Fatalf("all: %+v", all)
			}
		})
		if t.Failed() || done {
			if crash < 6 {
				t.Fatalf("done after %d writes", crash)
			}
			return
		}
	}
}

// A commit whose outcome nobody knows, of a partition that had none, goes with its
// group, whenever it arrives (simulation of gateways, seed 20070).
func TestDeleteWithALateCommit(t *testing.T) {
	for name, wait := range map[string]time.Duration{"arrived before": time.Minute, "arrives later": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := memory.NewServer(memory.Config{})
				slow := &fault{what: memory.WriteFault{Late: 30 * time.Second}}
				g := start(t, srv, 1, "a", slow.faults(), newTestConfig())
				id := types.NewTopicID()
				r := commitOf(Membership{Group: "g", Generation: -1}, "foo", id, 1)
				mustCommit(t, g, r)
				slow.Store(true)
				late := r
				late.Partitions = []CommitPartition{r.Partitions[0]}
				late.Partitions[0].Partition = 1
				if res := g.Commit(t.Context(), late); res.Err == nil && res.Partitions[0] == nil {
					t.Fatal("committed without an acknowledgement")
				}
				slow.Store(false)
				time.Sleep(wait)
				wantErr(t, "delete", g.Delete(t.Context(), "g"), nil)
				time.Sleep(time.Minute)
				if keys := srv.Keys(bucket); len(keys) != 0 {
					t.Errorf("keys left: %v", keys)
				}
			})
		})
	}
}

// A late write to a group that was deleted and made again is of another life.
func TestBirth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a, b, delay := freezing(t, srv, 3*time.Second)
		id := types.NewTopicID()
		simple := Membership{Group: "g", Generation: -1}
		mustCommit(t, a, commitOf(simple, "foo", id, 1))
		delay.Store(true)
		late := commitLate(t, a, commitOf(simple, "late", id, 2))
		b.members.died(a.members.Self())
		wantErr(t, "delete", b.Delete(t.Context(), "g"), nil)
		mustCommit(t, b, commitOf(simple, "bar", id, 3))
		<-late
		time.Sleep(5 * time.Second)
		b.kill()
		c := heir(t, srv, 3, "c", b)
		wantOffset(t, c, "g", "late", id, -1)
		wantOffset(t, c, "g", "foo", id, -1)
		wantOffset(t, c, "g", "bar", id, 3)
		all := c.Fetch(t.Context(), FetchRequest{Group: "g", All: true})
		if all.Err != nil || len(all.Offsets) != 1 {
			t.Fatalf("all: %+v", all)
		}
	})
}

// Commits that come while others are being stored share the next round trip.
func TestCommitsShareTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var writes atomic.Int32
		g := start(t, srv, 1, "a", memory.Faults{Set: func(memory.Op) memory.WriteFault {
			writes.Add(1)
			return memory.WriteFault{After: 10 * time.Millisecond}
		}}, newTestConfig())
		m := stable(t, g, "g")
		id := types.NewTopicID()
		before, began := writes.Load(), time.Now()
		done := make(chan error, 200)
		for i := range 200 {
			go func() {
				r := g.Commit(t.Context(), commitOf(m, fmt.Sprintf("t%d", i%20), id, types.Offset(i)))
				if r.Err != nil {
					done <- r.Err
					return
				}
				done <- r.Partitions[0]
			}()
		}
		for range 200 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 30*time.Millisecond {
			t.Errorf("200 commits took %v at 10 ms a write", took)
		}
		if n := writes.Load() - before; n > 40 {
			t.Errorf("200 commits of 20 keys took %d writes", n)
		}
	})
}

// After a failed write the group is taken up again by itself: its members' time
// runs although nobody asks.
func TestStoreAwayThenSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		away := &fault{what: memory.WriteFault{Err: pubsub.ErrUnavailable}}
		g := start(t, srv, 1, "a", away.faults(), newTestConfig())
		m := stable(t, g, "g")
		away.Store(true)
		if r := g.Leave(t.Context(), "g", []LeaveMember{{Member: m.Member}}); r.Err == nil {
			t.Fatal("left without a store")
		}
		time.Sleep(5 * time.Second)
		away.Store(false)
		time.Sleep(12 * time.Second)
		if v := value(t, srv, "g"); !strings.Contains(v, `"state":"Empty"`) {
			t.Fatalf("stored: %s", v)
		}
	})
}
