package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/coord"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// inTxn makes a commit one of a transaction.
func inTxn(r CommitRequest, producer, n int64) CommitRequest {
	r.Txn = &TxnCommit{TransactionalID: fmt.Sprint("t", producer), ProducerID: producer, N: n}
	return r
}

// fetchStable is fetchOne for one who wants nothing that may change.
func fetchStable(t *testing.T, g groups, group, topic string, id types.TopicID) (types.Offset, error) {
	t.Helper()
	r := g.Fetch(t.Context(), FetchRequest{Group: group, RequireStable: true,
		Partitions: []FetchPartition{{TopicPartition: types.TopicPartition{Topic: topic}, TopicID: id}}})
	if r.Err != nil {
		return -1, r.Err
	}
	return r.Offsets[0].Offset, r.Offsets[0].Err
}

func wantStable(t *testing.T, g groups, group, topic string, id types.TopicID, want types.Offset, werr error) {
	t.Helper()
	got, err := fetchStable(t, g, group, topic, id)
	if got != want || !errors.Is(err, werr) && (err != nil || werr != nil) {
		t.Fatalf("stable offset of %s %s: %d, %v; want %d, %v", group, topic, got, err, want, werr)
	}
}

// State × generation × member of TxnOffsetCommit: a group's state does not
// matter, and who says nothing of members is fenced by his epoch alone.
func TestC34WhoMayCommitInTransaction(t *testing.T) {
	member := []error{ok, unk25, ok, gen22, unk25, gen22, unk25}
	want := map[string][]error{
		//               (-1,)  (0,)   (g,k)  (g-1,k) (g,o)  (-1,k) instance
		"unknown":      {ok, gen22, gen22, gen22, gen22, ok, gen22},
		"offsets only": {ok, unk25, unk25, unk25, unk25, ok, unk25},
		"emptied":      {ok, unk25, unk25, unk25, unk25, ok, unk25},
		"preparing":    member, "completing": member, "stable": member,
	}
	for _, v9 := range []bool{false, true} {
		eachCell(t, want, func(r *rig, m Membership) error {
			req := inTxn(commitOf(m, "foo", types.NewTopicID(), 1), 7, 1)
			req.V9 = v9
			plans, _, err := r.s.commit(r.now, req)
			if (err == nil) != (len(plans) == 1) {
				t.Errorf("%v with %d plans", err, len(plans))
			}
			return err
		})
	}
}

// What an open transaction commits is seen by nobody, and told apart by those who
// ask for stable offsets; the end makes it count, or go.
func TestC34OffsetsInTransaction(t *testing.T) {
	for _, commit := range []bool{true, false} {
		for _, before := range []types.Offset{-1, 40} {
			t.Run(fmt.Sprintf("C-34 commit %v after %d", commit, before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := start(t, memory.NewServer(memory.Config{}), 1, "a", memory.Faults{}, newTestConfig())
					id := types.NewTopicID()
					m := stable(t, g, "g")
					if before >= 0 {
						mustCommit(t, g, commitOf(m, "foo", id, before))
					}
					mustCommit(t, g, commitOf(m, "bar", id, 3))
					mustCommit(t, g, commitOf(Membership{Group: "other", Generation: -1}, "foo", id, 4))
					mustCommit(t, g, inTxn(commitOf(m, "foo", id, 50), 7, 1))

					wantOffset(t, g, "g", "foo", id, before)
					wantStable(t, g, "g", "foo", id, -1, kerr.UnstableOffsetCommit)
					wantStable(t, g, "g", "bar", id, 3, nil)
					wantStable(t, g, "other", "foo", id, 4, nil)
					wantStable(t, g, "g", "foo", types.NewTopicID(), -1, nil) // another topic of that name
					all := g.Fetch(t.Context(), FetchRequest{Group: "g", All: true, RequireStable: true})
					want := 1 // a commit that was never more than pending is not listed
					if before >= 0 {
						want = 2
					}
					if all.Err != nil || len(all.Offsets) != want || all.Offsets[0].Offset != 3 {
						t.Fatalf("all: %+v", all)
					}
					if want == 2 && (!errors.Is(all.Offsets[1].Err, kerr.UnstableOffsetCommit) || all.Offsets[1].Offset != -1 || all.Offsets[1].TopicID != id) {
						t.Fatalf("all: %+v", all)
					}
					if d := g.Describe(t.Context(), "g"); d.State != Stable || len(d.Members) != 1 {
						t.Fatalf("described %+v", d)
					}

					wantErr(t, "end of another producer's", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 8, N: 1, Commit: true}), nil)
					wantErr(t, "end of an earlier one", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 0, Commit: true}), nil)
					wantStable(t, g, "g", "foo", id, -1, kerr.UnstableOffsetCommit)
					after := before
					if commit {
						after = 50
					}
					for range 2 {
						wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 1, Commit: commit}), nil)
						wantStable(t, g, "g", "foo", id, after, nil)
						wantOffset(t, g, "g", "foo", id, after)
					}
					// Late, and repeated.
					wantErr(t, "late commit", g.Commit(t.Context(), inTxn(commitOf(m, "foo", id, 60), 7, 1)).Err, kerr.InvalidProducerEpoch)
					wantStable(t, g, "g", "foo", id, after, nil)
					// The other decision about the same transaction comes too late.
					wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 1, Commit: !commit}), nil)
					wantStable(t, g, "g", "foo", id, after, nil)
					mustCommit(t, g, inTxn(commitOf(m, "foo", id, 70), 7, 2))
					wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 1, Commit: true}), nil)
					wantStable(t, g, "g", "foo", id, -1, kerr.UnstableOffsetCommit)
					wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 2, Commit: true}), nil)
					wantStable(t, g, "g", "foo", id, 70, nil)
				})
			})
		}
	}
	t.Run("no group", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := memory.NewServer(memory.Config{})
			g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
			wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 1, Commit: true}), nil)
			if keys := srv.Keys(bucket); len(keys) != 0 {
				t.Fatalf("made %v", keys)
			}
			wantErr(t, "commit to no name", g.Commit(t.Context(), inTxn(commitOf(Membership{Generation: -1}, "foo", types.NewTopicID(), 1), 7, 1)).Err, kerr.InvalidGroupID)
		})
	})
}

// Which of several commits counts: the order in which they came decides, not that
// in which their transactions ended. P and Q are pending commits of two producers,
// C a plain one, D its deletion; p and q commit, x and y abort.
func TestTransactionOrder(t *testing.T) {
	for _, c := range []struct {
		steps  string
		offset types.Offset // of the step by place, −1: none
		stable bool
	}{
		{"P", -1, false},
		{"Pp", 0, true},
		{"Px", -1, true},
		{"PPp", 1, true},
		{"CP", 0, false},
		{"CPp", 1, true},
		{"CPx", 0, true},
		{"PC", 1, false},
		{"PCp", 1, true},
		{"PCx", 1, true},
		{"PCPp", 2, true}, // written again after the plain one
		{"PQp", 0, false},
		{"PQpq", 1, true},
		{"PQqp", 1, true},
		{"PQqx", 1, true},
		{"PQpy", 0, true},
		{"PQyp", 0, true},
		{"PQxy", -1, true},
		{"PQPqp", 2, true},
		{"PQPpq", 2, true},
		{"PQCqp", 2, true},
		{"PCQqp", 2, true},
		{"PCQpq", 2, true},
		{"PD", -1, true},
		{"PDp", -1, true},
		{"CPDp", -1, true},
		{"CPDPp", 3, true},
		{"PDQpq", 2, true},
		{"CDP", -1, false},
		{"CDPp", 2, true},
	} {
		for _, oneTurn := range []bool{false, true} {
			t.Run(fmt.Sprint(c.steps, " ", oneTurn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := memory.NewServer(memory.Config{})
					g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
					id := types.NewTopicID()
					nobody := Membership{Group: "g", Generation: -1}
					mustCommit(t, g, commitOf(nobody, "bar", id, 1))
					step := func(s *State, i int, kind rune) {
						var err error
						r := commitOf(nobody, "foo", id, types.Offset(i))
						switch kind {
						case 'P', 'Q':
							_, _, err = s.commit(time.Now(), inTxn(r, int64(kind), 1))
						case 'C':
							_, _, err = s.commit(time.Now(), r)
						case 'D':
							_, _, err = s.deleteOffsets([]types.TopicPartition{{Topic: "foo"}})
						case 'p', 'q':
							_, err = s.end(time.Now(), TxnEnd{ProducerID: int64(kind - 'p' + 'P'), N: 1, Commit: true})
						default:
							_, err = s.end(time.Now(), TxnEnd{ProducerID: int64(kind - 'x' + 'P'), N: 1})
						}
						wantErr(t, string(kind), err, nil)
					}
					turn := func(fn func(s *State)) {
						wantErr(t, "turn", g.do(t.Context(), "g", func(t *turn) { fn(t.State) }), nil)
					}
					if oneTurn {
						turn(func(s *State) {
							for i, kind := range c.steps {
								step(s, i, kind)
							}
						})
					} else {
						for i, kind := range c.steps {
							turn(func(s *State) { step(s, i, kind) })
						}
					}
					check := func(g groups) {
						t.Helper()
						wantOffset(t, g, "g", "foo", id, c.offset)
						if c.stable {
							wantStable(t, g, "g", "foo", id, c.offset, nil)
						} else {
							wantStable(t, g, "g", "foo", id, -1, kerr.UnstableOffsetCommit)
						}
					}
					check(g)
					g.kill()
					b := heir(t, srv, 2, "b", g)
					check(b)
					offsets, err := b.Offsets(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					seen := types.Offset(-1)
					for _, o := range offsets {
						if o.Topic == "foo" {
							seen = o.Offset
						}
					}
					if seen != c.offset {
						t.Errorf("listed as %d, want %d", seen, c.offset)
					}
				})
			})
		}
	}
}

// What an older build stored is read, and what a newer one adds to a pending
// commit is written back as it came.
func TestPendingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		a := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		id := types.NewTopicID()
		nobody := Membership{Group: "g", Generation: -1}
		mustCommit(t, a, commitOf(nobody, "foo", id, 1))
		if v := value(t, srv, "g.foo.0"); strings.Contains(v, "pending") {
			t.Fatalf("stored: %s", v)
		}
		mustCommit(t, a, inTxn(commitOf(nobody, "foo", id, 5), 7, 3))
		v := value(t, srv, "g.foo.0")
		if !strings.Contains(v, `"offset":1,`) || !strings.Contains(v, `"pending":[{"producer_id":7,"n":3,"transactional_id":"t7","topic_id":"`+id.String()+`","offset":5,`) {
			t.Fatalf("stored: %s", v)
		}
		a.kill()
		put(t, srv, "g.foo.0", strings.Replace(v, `"n":3,`, `"n":3,"later":{"x":[1]},`, 1))
		b := heir(t, srv, 2, "b", a)
		mustCommit(t, b, commitOf(nobody, "foo", id, 2))
		if v := value(t, srv, "g.foo.0"); !strings.Contains(v, `"later":{"x":[1]}`) || !strings.Contains(v, `"passed":true`) || !strings.Contains(v, `"offset":2,`) {
			t.Fatalf("stored: %s", v)
		}
		if h, err := Highest(t.Context(), table(t, b), id, types.TopicPartition{Topic: "foo"}); err != nil || h != 5 {
			t.Fatalf("highest %d, %v", h, err)
		}
		wantErr(t, "end", b.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 3, Commit: true}), nil)
		if v := value(t, srv, "g.foo.0"); strings.Contains(v, "pending") || !strings.Contains(v, `"offset":2,`) {
			t.Fatalf("stored: %s", v)
		}
		if v := value(t, srv, "g"); !strings.Contains(v, `"ended":[{"producer_id":7,"n":3,"commit":true,"at":`) {
			t.Fatalf("stored: %s", v)
		}
		// A value whose commits cannot be read is left alone.
		put(t, srv, "g.foo.0", strings.Replace(value(t, srv, "g.foo.0"), `"v":1`, `"v":1,"pending":"x"`, 1))
		b.kill()
		c := heir(t, srv, 3, "c", b)
		if _, err := fetchOne(t, c, "g", "foo", id); err == nil {
			t.Fatal("an unreadable value was told")
		}
	})
}

func table(t *testing.T, g *gateway) pubsub.Table {
	t.Helper()
	table, err := g.client.Table(t.Context(), pubsub.TableConfig{Name: bucket})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// What is remembered of ended transactions has bounds, and what a pending commit
// still depends on is not forgotten.
func TestEndingsForgotten(t *testing.T) {
	r := newRig(t, newTestConfig())
	r.s.create(r.now)
	for i := range int64(maxEndings + 10) {
		if _, err := r.s.end(r.now, TxnEnd{ProducerID: i, N: 1, Commit: true}); err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	if n := len(r.s.ended.list); n > maxEndings+1 || r.s.ended.last(maxEndings+9) != 1 || r.s.ended.last(0) != 0 {
		t.Fatalf("%d are remembered", n)
	}
	if len(r.stored) > 200<<10 {
		t.Errorf("a record of %d bytes", len(r.stored))
	}
	r.reload()
	if r.s.ended.last(maxEndings+9) != 1 {
		t.Fatal("not read back")
	}
	// The last one has left something that has not been carried out.
	kept := int64(maxEndings + 9)
	r.s.offsets.know(types.TopicPartition{Topic: "foo"}, entry{rev: 1, value: &stored{Birth: r.s.env.Birth, Placeholder: true,
		Pending: []pendingCommit{{ProducerID: kept, N: 1, commit: commit{Offset: 5}}}}})
	r.now = r.now.Add(endingsKept + time.Second)
	if _, err := r.s.end(r.now, TxnEnd{ProducerID: 1, N: 9}); err != nil {
		t.Fatal(err)
	}
	if got := []int64{r.s.ended.last(kept), r.s.ended.last(1), int64(len(r.s.ended.list))}; !slices.Equal(got, []int64{1, 9, 2}) {
		t.Fatalf("remembered: %v", got)
	}
	// The next end of the same producer waits until that is done.
	if _, err := r.s.end(r.now, TxnEnd{ProducerID: kept, N: 2}); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
		t.Fatalf("end: %v", err)
	}
	if r.s.ended.last(kept) != 1 || r.s.offsets.ops[types.TopicPartition{Topic: "foo"}] == nil {
		t.Fatal("not planned")
	}
}

// Kafka: with a transaction open nothing expires, neither offset nor group.
func TestPendingDoesNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		id := types.NewTopicID()
		for _, name := range []string{"g", "only pending"} {
			nobody := Membership{Group: name, Generation: -1}
			if name == "g" {
				mustCommit(t, g, commitOf(nobody, "foo", id, 1))
				mustCommit(t, g, commitOf(nobody, "bar", id, 2))
			}
			mustCommit(t, g, inTxn(commitOf(nobody, "foo", id, 5), 7, 1))
		}
		time.Sleep(8*24*time.Hour + time.Minute) // beside the looks for what has expired
		wantStable(t, g, "g", "foo", id, -1, kerr.UnstableOffsetCommit)
		wantOffset(t, g, "g", "foo", id, 1)
		wantOffset(t, g, "g", "bar", id, -1)
		wantStable(t, g, "only pending", "foo", id, -1, kerr.UnstableOffsetCommit)
		wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 1, Commit: true}), nil)
		wantErr(t, "end", g.EndTransaction(t.Context(), "only pending", TxnEnd{ProducerID: 7, N: 1}), nil)
		wantStable(t, g, "g", "foo", id, 5, nil)
		time.Sleep(2 * time.Hour)
		if keys := srv.Keys(bucket); len(keys) != 0 {
			t.Fatalf("left: %v", keys)
		}
	})
}

// A topic that is deleted takes what was committed for it, pending or not, and
// nothing of the next one of its name; a group takes all.
func TestPendingOfDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		g := start(t, srv, 1, "a", memory.Faults{}, newTestConfig())
		old, id := types.NewTopicID(), types.NewTopicID()
		nobody := Membership{Group: "g", Generation: -1}
		mustCommit(t, g, commitOf(nobody, "foo", old, 1))
		mustCommit(t, g, inTxn(commitOf(nobody, "foo", old, 5), 7, 1))
		mustCommit(t, g, inTxn(commitOf(nobody, "foo", id, 2), 8, 1))
		mustCommit(t, g, inTxn(commitOf(nobody, "bar", old, 9), 7, 1))
		g.DropTopic(old)
		synctest.Wait()
		wantStable(t, g, "g", "foo", old, -1, nil)
		wantStable(t, g, "g", "foo", id, -1, kerr.UnstableOffsetCommit)
		wantStable(t, g, "g", "bar", old, -1, nil)
		for _, producer := range []int64{7, 8} {
			wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: producer, N: 1, Commit: true}), nil)
		}
		wantOffset(t, g, "g", "foo", old, -1)
		wantOffset(t, g, "g", "foo", id, 2)
		wantOffset(t, g, "g", "bar", old, -1)

		mustCommit(t, g, inTxn(commitOf(nobody, "foo", id, 3), 7, 2))
		wantErr(t, "delete", g.Delete(t.Context(), "g"), nil)
		if keys := srv.Keys(bucket); len(keys) != 0 {
			t.Fatalf("left: %v", keys)
		}
		wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 2, Commit: true}), nil)
		wantStable(t, g, "g", "foo", id, -1, nil)
	})
}

// A commit that came after its transaction had ended, to a group that could not
// know, does not stay unstable for ever.
func TestOverdueTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		client := srv.Client(memory.Faults{})
		table, err := client.Table(t.Context(), pubsub.TableConfig{Name: bucket})
		if err != nil {
			t.Fatal(err)
		}
		var asked []string
		away := true
		g := run(t, client, newMembers(1, "a"), newTestConfig(), Deps{Table: table, Open: func(_ context.Context, group string, x TxnCommit) (bool, error) {
			asked = append(asked, fmt.Sprint(group, " ", x.TransactionalID, " ", x.ProducerID, " ", x.N))
			if away {
				return false, coord.ErrStale
			}
			return x.TransactionalID == "t8", nil
		}})
		id := types.NewTopicID()
		nobody := Membership{Group: "g", Generation: -1}
		wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 4}), nil) // there is no such group
		mustCommit(t, g, inTxn(commitOf(nobody, "foo", id, 5), 7, 4))
		mustCommit(t, g, inTxn(commitOf(nobody, "bar", id, 6), 8, 1))
		time.Sleep(overdueAfter - time.Second)
		wantStable(t, g, "g", "foo", id, -1, kerr.UnstableOffsetCommit)
		synctest.Wait()
		if len(asked) > 0 {
			t.Fatalf("asked %v too early", asked)
		}
		time.Sleep(time.Second)
		for _, want := range []error{kerr.UnstableOffsetCommit, kerr.UnstableOffsetCommit, nil} {
			wantStable(t, g, "g", "foo", id, -1, want)
			wantStable(t, g, "g", "bar", id, -1, kerr.UnstableOffsetCommit)
			synctest.Wait()
			away = false
		}
		if !slices.Contains(asked, "g t7 7 4") || !slices.Contains(asked, "g t8 8 1") {
			t.Fatalf("asked %v", asked)
		}
		wantErr(t, "late commit", g.Commit(t.Context(), inTxn(commitOf(nobody, "foo", id, 5), 7, 4)).Err, kerr.InvalidProducerEpoch)
		wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 8, N: 1, Commit: true}), nil)
		wantStable(t, g, "g", "bar", id, 6, nil)
	})
}

// Gateways tell each other of ends, also where other requests do not travel.
func TestForwardEnd(t *testing.T) {
	for _, on := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newTestConfig()
			c.Forward = on
			sites := beginAll(t, memory.NewServer(memory.Config{}), 3, c)
			id := types.NewTopicID()
			var owner *site
			for _, s := range sites {
				if o, ok := sites[0].Owner("g"); ok && o == s.cluster.Self() {
					owner = s
				}
			}
			m := stable(t, owner, "g")
			time.Sleep(time.Second)
			for i, s := range sites {
				n := int64(i) + 1
				at := owner
				if on {
					at = s
				}
				mustCommit(t, at, inTxn(commitOf(m, "foo", id, types.Offset(n)), 7, n))
				wantStable(t, at, "g", "foo", id, -1, kerr.UnstableOffsetCommit)
				wantErr(t, "end", s.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: n, Commit: true}), nil)
				wantErr(t, "end of no group's", s.EndTransaction(t.Context(), "unknown", TxnEnd{ProducerID: 7, N: n, Commit: true}), nil)
				wantStable(t, at, "g", "foo", id, types.Offset(n), nil)
			}
		})
	}
}
