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
	"pgregory.net/rapid"

	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// persist repeats a request as the transaction's owner and clients do.
func persist(t interface{ Fatalf(string, ...any) }, what string, ask func() error) {
	var err error
	for range 20 {
		if err = ask(); err == nil {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("%s: %v", what, err)
}

func commitErr(r CommitResponse) error { return errors.Join(append(r.Partitions, r.Err)...) }

// The end of a transaction is cut short at every write: the next owner of the
// group shows all of it or nothing, and after the decision came again all.
func TestEndTransactionCrash(t *testing.T) {
	const parts = 4
	for _, commit := range []bool{true, false} {
		for crash := int32(1); ; crash++ {
			done := false
			synctest.Test(t, func(t *testing.T) {
				srv := memory.NewServer(memory.Config{})
				armed := &crashing{at: crash}
				a := start(t, srv, 1, "a", armed.faults(), newTestConfig())
				id := types.NewTopicID()
				r := commitOfAll(Membership{Group: "g", Generation: -1}, "foo", id, 1, parts)
				mustCommit(t, a, r)
				for i := range r.Partitions {
					r.Partitions[i].Offset = 5
				}
				mustCommit(t, a, inTxn(r, 7, 1))
				armed.Store(true)
				end := TxnEnd{ProducerID: 7, N: 1, Commit: commit}
				done = a.EndTransaction(t.Context(), "g", end) == nil
				a.kill()
				b := heir(t, srv, 2, "b", a)
				all := func(g *gateway, stable bool) (unstable int, offsets map[types.Offset]int) {
					offsets = map[types.Offset]int{}
					resp := g.Fetch(t.Context(), FetchRequest{Group: "g", All: true, RequireStable: stable})
					wantErr(t, "fetch", resp.Err, nil)
					for _, o := range resp.Offsets {
						if errors.Is(o.Err, kerr.UnstableOffsetCommit) {
							unstable++
							continue
						}
						wantErr(t, "offset", o.Err, nil)
						offsets[o.Offset]++
					}
					return unstable, offsets
				}
				after := types.Offset(1)
				if commit {
					after = 5
				}
				switch unstable, offsets := all(b, true); {
				case unstable == parts && !done && crash == 1: // the decision is not stored
				case unstable == 0 && offsets[after] == parts && crash > 1:
				default:
					t.Fatalf("crash at write %d: %d unstable, %v", crash, unstable, offsets)
				}
				// The last owner before the next end dies too, before anything is repeated.
				b.kill()
				c := heir(t, srv, 3, "c", b)
				wantErr(t, "end again", c.EndTransaction(t.Context(), "g", end), nil)
				if unstable, offsets := all(c, true); unstable != 0 || offsets[after] != parts {
					t.Fatalf("crash at write %d: after all %d unstable, %v", crash, unstable, offsets)
				}
				// Nothing of it may hang on the memory that the next end replaces.
				wantErr(t, "next end", c.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 2}), nil)
				c.kill()
				d := heir(t, srv, 4, "d", c)
				if unstable, offsets := all(d, true); unstable != 0 || offsets[after] != parts {
					t.Fatalf("crash at write %d: later %d unstable, %v", crash, unstable, offsets)
				}
			})
			if t.Failed() || done {
				if crash < parts+1 {
					t.Fatalf("done after %d writes", crash)
				}
				break
			}
		}
	}
}

// C-37: an owner is frozen in a transactional commit. Another takes over and hears
// of the end; then the late write comes, to a key that was there and to one that
// was not: it is void, or is what the transaction committed, and nobody waits for
// the transaction any more. So it is for the owner after that.
func TestFrozenOwnerInTransaction(t *testing.T) {
	for _, commit := range []bool{true, false} {
		for _, look := range []bool{true, false} {
			t.Run(fmt.Sprintf("C-37 commit %v looked %v", commit, look), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := memory.NewServer(memory.Config{})
					a, b, delay := freezing(t, srv, 3*time.Second)
					id := types.NewTopicID()
					nobody := Membership{Group: "g", Generation: -1}
					mustCommit(t, a, commitOf(nobody, "foo", id, 1))
					delay.Store(true)
					late := commitLate(t, a, inTxn(commitOf(nobody, "foo", id, 9), 7, 1), commitOf(nobody, "new", id, 9))
					a.members.setStale(true)
					b.members.died(a.members.Self())
					wantErr(t, "end", b.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 1, Commit: commit}), nil)
					if look {
						wantStable(t, b, "g", "foo", id, 1, nil)
						wantStable(t, b, "g", "new", id, -1, nil)
					}
					time.Sleep(4 * time.Second)
					if !look { // the late write was there first
						wantErr(t, "next end", b.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 2, Commit: true}), nil)
					}
					wantStable(t, b, "g", "foo", id, 1, nil)
					wantStable(t, b, "g", "new", id, -1, nil)
					if err := commitErr(<-late); err == nil {
						t.Fatal("the frozen owner acknowledged")
					}
					b.kill()
					c := heir(t, srv, 3, "c", b)
					wantStable(t, c, "g", "foo", id, 1, nil)
					wantStable(t, c, "g", "new", id, -1, nil)
				})
			})
		}
	}
}

// A commit in a transaction that nobody knows whether it was stored is found when
// the transaction ends.
func TestTransactionUnsureCommit(t *testing.T) {
	for name, fault := range map[string]memory.WriteFault{"ack lost": {LoseAck: true}, "dropped": {Drop: true}, "late": {Late: 100 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := memory.NewServer(memory.Config{})
				g := start(t, srv, 1, "a", everyOther(fault, nil), newTestConfig())
				id := types.NewTopicID()
				nobody := Membership{Group: "g", Generation: -1}
				for i := range types.Offset(6) {
					persist(t, "commit", func() error {
						return commitErr(g.Commit(t.Context(), inTxn(commitOf(nobody, "foo", id, i), 7, int64(i)+1)))
					})
					persist(t, "end", func() error {
						return g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: int64(i) + 1, Commit: i%3 != 2})
					})
					want := i
					if i%3 == 2 {
						want--
					}
					wantStable(t, g, "g", "foo", id, want, nil)
				}
			})
		})
	}
}

// An end meets a late write of our own, of another producer's commit: it is
// carried out in what is found.
func TestEndMeetsLateWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var late, slow atomic.Bool
		g := start(t, srv, 1, "a", memory.Faults{Set: func(op memory.Op) memory.WriteFault {
			switch {
			case op.Key == "g":
			case late.Load():
				return memory.WriteFault{Late: 6 * time.Second}
			case slow.CompareAndSwap(true, false):
				return memory.WriteFault{Before: 3 * time.Second}
			}
			return memory.WriteFault{}
		}}, newTestConfig())
		id := types.NewTopicID()
		nobody := Membership{Group: "g", Generation: -1}
		mustCommit(t, g, inTxn(commitOf(nobody, "foo", id, 5), 7, 1))
		late.Store(true)
		if err := commitErr(g.Commit(t.Context(), inTxn(commitOf(nobody, "foo", id, 6), 8, 1))); err == nil {
			t.Fatal("acknowledged")
		}
		late.Store(false)
		slow.Store(true)
		wantErr(t, "end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 1, Commit: true}), nil)
		if v := value(t, srv, "g.foo.0"); !strings.Contains(v, `"offset":5,`) || !strings.Contains(v, `"producer_id":8`) || strings.Contains(v, `"producer_id":7`) {
			t.Fatalf("stored: %s", v)
		}
		wantErr(t, "next end", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 7, N: 2}), nil)
		wantErr(t, "end of the other", g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: 8, N: 1}), nil)
		wantStable(t, g, "g", "foo", id, 5, nil)
	})
}

// logModel is what Kafka's log would make of the same requests: commits are
// records with places, and the highest place of those that count wins.
type logModel struct {
	place     int
	committed map[string]modelCommit
	pending   map[int64]map[string]modelCommit
	n         map[int64]int64 // open or next number, by producer
}

type modelCommit struct {
	place  int
	offset types.Offset
}

func (m *logModel) end(producer int64, commit bool) {
	for topic, c := range m.pending[producer] {
		if old, ok := m.committed[topic]; commit && (!ok || c.place > old.place) {
			m.committed[topic] = c
		}
	}
	delete(m.pending, producer)
}

// Whatever is committed, ended, repeated and deleted, in whatever order, and
// whenever the owner dies, freezes or lets go between two writes: what clients see
// is what Kafka's log would say.
func TestTransactionModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) { transactionModel(t, rt) })
	})
}

func transactionModel(t *testing.T, rt *rapid.T) {
	srv := memory.NewServer(memory.Config{})
	id := types.NewTopicID()
	nobody := Membership{Group: "g", Generation: -1}
	topics, producers := []string{"foo", "bar", "baz"}, []int64{7, 8, 9}
	m := &logModel{committed: map[string]modelCommit{}, pending: map[int64]map[string]modelCommit{}, n: map[int64]int64{}}
	var (
		g     *gateway
		born  int32
		trap  atomic.Int32 // writes until the owner dies; 0: it lives
		late  atomic.Bool  // what it has under way then arrives later
		calls int
	)
	boot := func() {
		born++
		old := g
		dies := make(chan struct{})
		var died atomic.Bool
		g = start(t, srv, born, fmt.Sprint("life", born), memory.Faults{Set: func(memory.Op) memory.WriteFault {
			if !died.Load() && (trap.Load() == 0 || trap.Add(-1) > 0) {
				return memory.WriteFault{}
			}
			if died.CompareAndSwap(false, true) {
				close(dies)
			}
			if late.Load() {
				return memory.WriteFault{Late: 3 * time.Second}
			}
			return memory.WriteFault{Drop: true}
		}}, newTestConfig())
		trap.Store(0)
		if old != nil {
			g.members.died(old.members.Self())
		}
	}
	boot()
	mustCommit(t, g, commitOf(nobody, "keeper", id, 1))
	// ask repeats a request until it is done, at the next owner if this one dies.
	ask := func(what string, fn func() error) {
		for calls = 0; ; calls++ {
			if calls == 20 {
				rt.Fatalf("%s is never done", what)
			}
			err := fn()
			if err == nil {
				return
			}
			frozen := g
			frozen.members.setStale(true) // it answers nobody
			boot()
			t.Cleanup(frozen.kill)
		}
	}
	check := func(stable bool, topic string) {
		open := false
		for _, p := range m.pending {
			_, has := p[topic]
			open = open || has
		}
		want := types.Offset(-1)
		if c, ok := m.committed[topic]; ok {
			want = c.offset
		}
		r := g.Fetch(t.Context(), FetchRequest{Group: "g", RequireStable: stable, Partitions: []FetchPartition{{TopicPartition: types.TopicPartition{Topic: topic}, TopicID: id}}})
		if r.Err != nil {
			rt.Fatalf("fetch: %v", r.Err)
		}
		got := r.Offsets[0]
		if open && stable {
			if !errors.Is(got.Err, kerr.UnstableOffsetCommit) || got.Offset != -1 {
				rt.Fatalf("%s is unstable, and told %d, %v", topic, got.Offset, got.Err)
			}
			return
		}
		if got.Err != nil || got.Offset != want {
			rt.Fatalf("%s: told %d, %v; committed is %d", topic, got.Offset, got.Err, want)
		}
	}
	offset := types.Offset(100)
	steps := rapid.IntRange(1, 30).Draw(rt, "steps")
	for range steps {
		if rapid.IntRange(0, 3).Draw(rt, "trouble") == 0 {
			late.Store(rapid.Bool().Draw(rt, "late"))
			trap.Store(int32(rapid.IntRange(1, 5).Draw(rt, "writes")))
		}
		topic := rapid.SampledFrom(topics).Draw(rt, "topic")
		producer := rapid.SampledFrom(producers).Draw(rt, "producer")
		if m.n[producer] == 0 {
			m.n[producer] = 1
		}
		offset++
		r := commitOf(nobody, topic, id, offset)
		if rapid.Bool().Draw(rt, "two") {
			p := r.Partitions[0]
			p.Topic = topics[2]
			if topic != topics[2] {
				r.Partitions = append(r.Partitions, p)
			}
		}
		switch rapid.SampledFrom([]string{"plain", "txn", "txn", "txn", "commit", "commit", "abort", "repeat", "erase", "look", "hand over"}).Draw(rt, "step") {
		case "plain":
			ask("commit", func() error { return commitErr(g.Commit(t.Context(), r)) })
			for _, p := range r.Partitions {
				m.place++
				m.committed[p.Topic] = modelCommit{m.place, p.Offset}
			}
		case "txn":
			ask("commit in a transaction", func() error { return commitErr(g.Commit(t.Context(), inTxn(r, producer, m.n[producer]))) })
			for _, p := range r.Partitions {
				m.place++
				if m.pending[producer] == nil {
					m.pending[producer] = map[string]modelCommit{}
				}
				m.pending[producer][p.Topic] = modelCommit{m.place, p.Offset}
			}
		case "commit", "abort":
			commit := rapid.Bool().Draw(rt, "decision")
			ask("end", func() error {
				return g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: producer, N: m.n[producer], Commit: commit})
			})
			m.end(producer, commit)
			m.n[producer]++
		case "repeat": // of an end, and of a commit, that was done long ago
			ask("end", func() error {
				return g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: producer, N: m.n[producer] - 1, Commit: rapid.Bool().Draw(rt, "decision")})
			})
			if n := m.n[producer] - 1; n > 0 {
				if err := g.Commit(t.Context(), inTxn(r, producer, n)).Err; !errors.Is(err, kerr.InvalidProducerEpoch) {
					rt.Fatalf("a commit of transaction %d after its end: %v", n, err)
				}
			}
		case "erase":
			ask("erase", func() error {
				d := g.DeleteOffsets(t.Context(), "g", []types.TopicPartition{{Topic: topic}})
				return errors.Join(append(d.Partitions, d.Err)...)
			})
			delete(m.committed, topic)
			for _, p := range m.pending {
				delete(p, topic)
			}
		case "look":
			ask("look", func() error {
				return g.Fetch(t.Context(), FetchRequest{Group: "g", Partitions: []FetchPartition{{TopicPartition: types.TopicPartition{Topic: topic}, TopicID: id}}}).Err
			})
		case "hand over":
			if trap.Load() == 0 {
				if err := g.Drain(t.Context()); err != nil {
					rt.Fatal(err)
				}
				g.kill()
				boot()
			}
		}
		if trap.Load() == 0 {
			for _, topic := range topics {
				check(rapid.Bool().Draw(rt, "stable"), topic)
			}
		}
	}
	trap.Store(0)
	ask("look", func() error { return g.Fetch(t.Context(), FetchRequest{Group: "g", All: true}).Err })
	time.Sleep(10 * time.Second) // whatever was late has come
	for _, topic := range topics {
		check(true, topic)
		check(false, topic)
	}
	for _, producer := range producers {
		ask("end", func() error {
			return g.EndTransaction(t.Context(), "g", TxnEnd{ProducerID: producer, N: max(m.n[producer], 1), Commit: true})
		})
		m.end(producer, true)
	}
	g.kill()
	boot()
	for _, topic := range topics {
		check(true, topic)
	}
}
