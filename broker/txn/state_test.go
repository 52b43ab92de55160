package txn

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Every state, every request, of the present epoch, the one before, the one after,
// and of another producer id; the codes are those of Kafka 4.3.1 in newest form.
func TestC33StateTable(t *testing.T) {
	const (
		ok     = "ok"
		fenced = "PRODUCER_FENCED"
		mapped = "INVALID_PRODUCER_ID_MAPPING"
		state  = "INVALID_TXN_STATE"
		busy   = "CONCURRENT_TRANSACTIONS"
		miss   = "TRANSACTION_ABORTABLE"
	)
	// The producer that asks: present epoch, epoch before, epoch after, another id.
	askers := []string{"same", "before", "after", "other id"}
	all := func(code string) []string { return []string{code, code, code, code} }
	usual := func(code string) []string { return []string{code, fenced, fenced, mapped} }
	type row map[string][]string
	prepared := row{
		"init": all(busy), "add": all(busy), "offsets": all(busy), "verify": usual(busy),
		"commit": usual(busy), "abort": usual(busy), "commit 2": all(busy), "abort 2": all(busy), "init fresh": all(busy),
	}
	never := row{
		"init": all(ok), "init fresh": all(ok), "add": all(mapped), "offsets": all(mapped), "verify": all(mapped),
		"commit": all(mapped), "abort": all(mapped), "commit 2": all(mapped), "abort 2": all(mapped),
	}
	table := []struct {
		name string
		to   func(r *rig) Producer
		rows row
	}{
		{"unknown", func(r *rig) Producer { return Producer{ID: 77, Epoch: 3} }, never},
		{"Empty", func(r *rig) Producer { r.mustInit(NoProducer); return r.mustInit(Producer{1000, 0}) }, row{
			// The one before may be the same client that did not get our answer.
			"init": {ok, ok, fenced, fenced}, "init fresh": all(ok), "add": usual(ok), "offsets": usual(ok), "verify": usual(miss),
			"commit": usual(state), "abort": usual(state), "commit 2": usual(state), "abort 2": usual(ok),
		}},
		{"Empty, never initialised with an epoch", func(r *rig) Producer { r.mustInit(NoProducer); return r.mustInit(NoProducer) }, row{
			"init": {ok, fenced, fenced, fenced}, "init fresh": all(ok), "add": usual(ok), "offsets": usual(ok), "verify": usual(miss),
			"commit": usual(state), "abort": usual(state), "commit 2": usual(state), "abort 2": usual(ok),
		}},
		{"Ongoing", func(r *rig) Producer {
			r.mustInit(NoProducer)
			p := r.mustInit(NoProducer)
			r.mustAdd(p, p0)
			return p
		}, row{
			// Whoever knows the id aborts it, whatever its epoch.
			"init": {busy, busy, busy, fenced}, "init fresh": all(busy), "add": usual(ok), "offsets": usual(ok), "verify": usual(ok),
			"commit": usual(ok), "abort": usual(ok), "commit 2": usual(ok), "abort 2": usual(ok),
		}},
		{"PrepareCommit", func(r *rig) Producer {
			p := r.mustInit(NoProducer)
			r.mustAdd(p, p0)
			r.mustEnd(p, true, false)
			return p
		}, prepared},
		{"PrepareAbort", func(r *rig) Producer {
			p := r.mustInit(NoProducer)
			r.mustAdd(p, p0)
			return r.mustEnd(p, false, true)
		}, prepared},
		{"CompleteCommit, version 1", func(r *rig) Producer {
			p := r.mustInit(NoProducer)
			p = r.mustInit(NoProducer)
			r.mustAdd(p, p0)
			r.mustEnd(p, true, false)
			r.complete()
			return p
		}, row{
			"init": {ok, fenced, fenced, fenced}, "init fresh": all(ok), "add": usual(ok), "offsets": usual(ok), "verify": usual(miss),
			"commit": usual(ok), "abort": usual(state),
			"commit 2": {state, ok, fenced, mapped}, "abort 2": {ok, state, fenced, mapped},
		}},
		{"CompleteCommit, version 2", func(r *rig) Producer {
			p := r.mustInit(NoProducer)
			r.mustAdd(p, p0)
			p = r.mustEnd(p, true, true)
			r.complete()
			return p
		}, row{
			"init": {ok, ok, fenced, fenced}, "init fresh": all(ok), "add": usual(ok), "offsets": usual(ok), "verify": usual(miss),
			"commit": usual(ok), "abort": usual(state),
			"commit 2": {state, ok, fenced, mapped}, "abort 2": {ok, state, fenced, mapped},
		}},
		{"CompleteAbort, version 1", func(r *rig) Producer {
			r.mustInit(NoProducer)
			p := r.mustInit(NoProducer)
			r.mustAdd(p, p0)
			r.mustEnd(p, false, false)
			r.complete()
			return p
		}, row{
			"init": {ok, fenced, fenced, fenced}, "init fresh": all(ok), "add": usual(ok), "offsets": usual(ok), "verify": usual(miss),
			"commit": usual(state), "abort": usual(ok),
			"commit 2": {state, state, fenced, mapped}, "abort 2": {ok, ok, fenced, mapped},
		}},
		{"CompleteAbort by timeout", func(r *rig) Producer {
			p := r.mustInit(NoProducer)
			r.mustAdd(p, p0)
			r.pass(61 * time.Second)
			r.complete()
			return Producer{p.ID, p.Epoch + 1}
		}, row{
			"init": {ok, ok, fenced, fenced}, "init fresh": all(ok), "add": usual(ok), "offsets": usual(ok), "verify": usual(miss),
			"commit": usual(state), "abort": usual(ok),
			"commit 2": {state, state, fenced, mapped}, "abort 2": {ok, ok, fenced, mapped},
		}},
	}
	requests := map[string]func(r *rig, p Producer) error{
		"init":       func(r *rig, p Producer) error { _, err := r.init(p); return err },
		"init fresh": func(r *rig, _ Producer) error { _, err := r.init(NoProducer); return err },
		"add":        func(r *rig, p Producer) error { _, err := r.add(p, p0, p1); return err },
		"offsets":    func(r *rig, p Producer) error { _, err := r.addOffsets(p, "g"); return err },
		"verify": func(r *rig, p Producer) error {
			a, err := r.verify(p, p0)
			if err == nil && len(a.Missing) > 0 {
				err = kerr.TransactionAbortable
			}
			return err
		},
		"commit":   func(r *rig, p Producer) error { _, err := r.end(p, true, false); return err },
		"abort":    func(r *rig, p Producer) error { _, err := r.end(p, false, false); return err },
		"commit 2": func(r *rig, p Producer) error { _, err := r.end(p, true, true); return err },
		"abort 2":  func(r *rig, p Producer) error { _, err := r.end(p, false, true); return err },
	}
	for _, tc := range table {
		for name, ask := range requests {
			codes := tc.rows[name]
			if codes == nil {
				t.Fatalf("%s: no row for %s", tc.name, name)
			}
			for i, asker := range askers {
				t.Run(fmt.Sprintf("%s/%s/%s", tc.name, name, asker), func(t *testing.T) {
					r := newRig(t)
					p := tc.to(r)
					switch asker {
					case "before":
						p.Epoch--
					case "after":
						p.Epoch++
					case "other id":
						p.ID++
					}
					before := r.writes
					err := ask(r, p)
					got := ok
					if err != nil {
						got = err.(*kerr.Error).Message
					}
					if got != codes[i] {
						t.Fatalf("%s, want %s", got, codes[i])
					}
					if wrote := r.writes != before; got != ok && got != busy && wrote {
						t.Fatal("a refusal was stored")
					}
					// What is stored is what is in memory, but for a completion.
					was := r.look()
					r.reload()
					if was.producer != r.s.producer && !was.unstored || !was.unstored && was.state != r.s.state || was.n != r.s.n {
						t.Fatalf("after a reload %s %+v, before %s %+v", r.s.state, r.s.producer, was.state, was.producer)
					}
				})
			}
		}
	}
}

// A transaction from begin to end, for both versions: number, epochs, what is told
// to partitions and groups, and what is written.
func TestTransaction(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(NoProducer)
	r.want(Empty, Producer{1000, 0})
	if n := r.mustAdd(p, p0, p2); n != 1 {
		t.Fatalf("first transaction has number %d", n)
	}
	writes := r.writes
	if n := r.mustAdd(p, p2); n != 1 || r.writes != writes {
		t.Fatalf("added again: number %d, %d writes", n, r.writes-writes)
	}
	if n, err := r.addOffsets(p, "g"); n != 1 || err != nil {
		t.Fatalf("offsets: %d %v", n, err)
	}
	a, err := r.verify(p, p0, p1)
	if err != nil || a.N != 1 || !reflect.DeepEqual(a.Missing, []Partition{p1}) {
		t.Fatalf("verify: %+v %v", a, err)
	}
	next := r.mustEnd(p, true, true)
	r.want(PrepareCommit, Producer{1000, 1})
	if next != (Producer{1000, 1}) {
		t.Fatalf("goes on as %+v", next)
	}
	want := chore{id: "t", n: 1, commit: true, producer: Producer{1000, 1}, term: 1, partitions: []Partition{p0, p2}, groups: []string{"g"}}
	if !reflect.DeepEqual(r.chores, []chore{want}) {
		t.Fatalf("to do: %+v", r.chores)
	}
	// Whoever adopts it has the same to do.
	r.env.Owner.Term = 2
	r.reload()
	want.term = 2
	if !reflect.DeepEqual(r.chores, []chore{want}) {
		t.Fatalf("to do after adoption: %+v", r.chores)
	}
	// The completion is stored with the next begin.
	writes = r.writes
	r.complete()
	r.want(CompleteCommit, next)
	if r.writes != writes {
		t.Fatal("the completion was written at once")
	}
	if n := r.mustAdd(next, p1); n != 2 || r.writes != writes+1 {
		t.Fatalf("second transaction: number %d, %d writes", n, r.writes-writes)
	}
	if got := r.s.listPartitions(); !reflect.DeepEqual(got, []Partition{p1}) || len(r.s.groups) != 0 {
		t.Fatalf("in it: %v %v", got, r.s.groups)
	}
	// Version 1 keeps its epoch.
	r.mustEnd(next, false, false)
	r.want(PrepareAbort, next)
	if c := r.chores[len(r.chores)-1]; c.n != 2 || c.commit || c.producer != next || c.abort {
		t.Fatalf("to do: %+v", c)
	}
	r.complete()
	// Without another begin it is stored a little later.
	writes = r.writes
	r.pass(time.Second)
	if r.writes != writes+1 {
		t.Fatalf("%d writes", r.writes-writes)
	}
	r.reload()
	r.want(CompleteAbort, next)
}

// Nothing was begun: an abort of version 2 gives the next epoch, with one write.
func TestAbortOfNothing(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(NoProducer)
	for i := range int16(3) {
		writes := r.writes
		p = r.mustEnd(p, false, true)
		r.want(CompleteAbort, Producer{1000, i + 1})
		if r.writes != writes+1 || len(r.chores) != 0 {
			t.Fatalf("%d writes, to do %+v", r.writes-writes, r.chores)
		}
	}
	if n := r.mustAdd(p, p0); n != 1 {
		t.Fatalf("number %d", n)
	}
}

// C-33: a transaction that lasts too long is aborted with the next epoch; its
// producer may end it all the same, in its own way, and go on.
func TestTimeout(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(NoProducer)
	r.pass(time.Hour)
	r.mustAdd(p, p0)
	r.pass(60 * time.Second)
	r.want(Ongoing, p)
	r.pass(time.Millisecond)
	bumped := Producer{p.ID, p.Epoch + 1}
	r.want(PrepareAbort, bumped)
	if c := r.chores[0]; c.commit || c.producer != bumped || c.n != 1 {
		t.Fatalf("to do: %+v", c)
	}
	_, err := r.end(p, true, true)
	wantErr(t, "commit while it is aborted", err, kerr.ConcurrentTransactions)
	r.complete()
	_, err = r.end(p, true, true)
	wantErr(t, "commit after the abort", err, kerr.InvalidTxnState)
	_, err = r.add(p, p0)
	wantErr(t, "adding after the abort", err, kerr.ProducerFenced)
	if next := r.mustEnd(p, false, true); next != bumped {
		t.Fatalf("goes on as %+v", next)
	}
}

// An owner that adopts an open transaction gives its client a moment, however old
// it is, and so does one that nobody could reach; each transaction has that once.
func TestTimeoutAfterSilence(t *testing.T) {
	for name, silence := range map[string]func(*rig){"adopted": (*rig).adopt, "not reached": func(r *rig) { r.s.Restart(r.now) }} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			p := r.mustInit(NoProducer)
			for range 2 {
				r.mustAdd(p, p0)
				r.now = r.now.Add(time.Hour)
				silence(r)
				r.pass(graceful - time.Millisecond)
				r.want(Ongoing, p)
				r.pass(time.Millisecond)
				r.want(PrepareAbort, Producer{p.ID, p.Epoch + 1})
				r.complete()
				r.chores = nil
				p = r.mustInit(NoProducer)
			}
		})
	}
}

// Owners that are lost one after the other do not hold up readers for longer.
func TestTimeoutAfterSeveralOwners(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(NoProducer)
	for range 2 {
		r.mustAdd(p, p0)
		r.adopt()
		r.pass(59 * time.Second)
		for range 2 {
			r.adopt()
			r.want(Ongoing, p)
		}
		r.pass(time.Second)
		r.want(Ongoing, p)
		r.adopt()
		r.pass(time.Millisecond)
		r.want(PrepareAbort, Producer{p.ID, p.Epoch + 1})
		r.complete()
		p = r.mustInit(NoProducer)
	}
}

// The age is the store's: a clock of ours that is ahead, or runs away, ends nothing
// early.
func TestTimeoutByStoreTime(t *testing.T) {
	r := newRig(t)
	ahead := 3 * time.Minute
	r.s.ahead = func() time.Duration { return ahead }
	p := r.mustInit(NoProducer)
	r.mustAdd(p, p0)
	if want := r.now.Add(-ahead).UnixMilli(); r.s.start != want {
		t.Fatalf("began at %d, want %d", r.s.start, want)
	}
	r.pass(30 * time.Second)
	ahead += time.Minute
	r.now = r.now.Add(time.Minute)
	r.pass(29 * time.Second)
	r.want(Ongoing, p)
	r.pass(2 * time.Second)
	r.want(PrepareAbort, Producer{p.ID, p.Epoch + 1})
}

// InitProducerId: a transaction that is open is aborted first; a repeated request
// gets the same answer; who was there before is fenced.
func TestC31InitTransactional(t *testing.T) {
	r := newRig(t)
	a := r.mustInit(NoProducer)
	r.mustAdd(a, p0)
	_, err := r.init(NoProducer)
	wantErr(t, "init of another", err, kerr.ConcurrentTransactions)
	r.want(PrepareAbort, Producer{1000, 1})
	_, err = r.init(NoProducer)
	wantErr(t, "while it is aborted", err, kerr.ConcurrentTransactions)
	r.complete()
	b := r.mustInit(NoProducer)
	if b != (Producer{1000, 2}) {
		t.Fatalf("epoch after an abort: %+v", b)
	}
	_, err = r.add(a, p0)
	wantErr(t, "the first producer", err, kerr.ProducerFenced)
	_, err = r.init(a)
	wantErr(t, "init of the first producer", err, kerr.ProducerFenced)
	c := r.mustInit(b)
	if again := r.mustInit(b); again != c || c != (Producer{1000, 3}) {
		t.Fatalf("%+v, repeated %+v", c, again)
	}
	// From somebody who names nothing: nothing can be a repetition any more.
	r.mustInit(NoProducer)
	_, err = r.init(b)
	wantErr(t, "repeated after another", err, kerr.ProducerFenced)
}

// Epochs are used up: a new producer id takes over, by InitProducerId, by EndTxn
// and by an abort in nobody's name, and repeated requests find it.
func TestExhaustion(t *testing.T) {
	last := int16(math.MaxInt16 - 1)
	at := func(t *testing.T) (*rig, Producer) {
		r := newRig(t)
		r.mustInit(NoProducer)
		r.s.producer.Epoch = last - 1
		r.s.dirty = true
		p := r.mustInit(Producer{1000, last - 1})
		r.want(Empty, Producer{1000, last})
		return r, p
	}
	t.Run("init", func(t *testing.T) {
		r, p := at(t)
		next := r.mustInit(p)
		r.want(Empty, Producer{1001, 0})
		if again := r.mustInit(p); again != next {
			t.Fatalf("%+v, repeated %+v", next, again)
		}
		_, err := r.init(Producer{1000, last - 1})
		wantErr(t, "an earlier epoch", err, kerr.ProducerFenced)
	})
	t.Run("init of somebody new", func(t *testing.T) {
		r, p := at(t)
		r.mustInit(NoProducer)
		r.want(Empty, Producer{1001, 0})
		_, err := r.init(p)
		wantErr(t, "who was there before", err, kerr.ProducerFenced)
	})
	t.Run("init of an old one", func(t *testing.T) {
		r, _ := at(t)
		_, err := r.init(Producer{1000, 5})
		wantErr(t, "as kafka", err, kerr.UnknownServerError)
	})
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("end %v", commit), func(t *testing.T) {
			r, p := at(t)
			r.mustAdd(p, p0)
			next := r.mustEnd(p, commit, true)
			if next != (Producer{1001, 0}) {
				t.Fatalf("goes on as %+v", next)
			}
			if c := r.chores[0]; c.producer != (Producer{1000, math.MaxInt16}) {
				t.Fatalf("marker of %+v", c.producer)
			}
			r.reload()
			r.complete()
			if again := r.mustEnd(p, commit, true); again != next {
				t.Fatalf("repeated: %+v", again)
			}
			if n := r.mustAdd(next, p0); n != 2 {
				t.Fatalf("number %d", n)
			}
			_, err := r.end(p, commit, true)
			wantErr(t, "late", err, kerr.InvalidProducerIDMapping)
		})
	}
	t.Run("timeout", func(t *testing.T) {
		r, p := at(t)
		r.mustAdd(p, p0)
		r.pass(2 * time.Minute)
		r.want(PrepareAbort, Producer{1000, math.MaxInt16})
		r.complete()
		r.want(CompleteAbort, Producer{1001, 0})
		if next := r.mustEnd(p, false, true); next != (Producer{1001, 0}) {
			t.Fatalf("goes on as %+v", next)
		}
	})
}

// A copy of a request that is late changes nothing, whatever became of the
// transactional id since. Without its name it would: EndTxn of version 1 cannot be
// told from one for the next transaction, nor InitProducerId from a new client's.
func TestLateCopies(t *testing.T) {
	r := newRig(t)
	init := func() Producer {
		t.Helper()
		p, err := ask(r, func(fresh int64) (Producer, error) {
			return r.s.init(r.now, InitRequest{Timeout: time.Minute, Producer: NoProducer}, "i", fresh)
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	end := func() {
		t.Helper()
		if _, err := ask(r, func(fresh int64) (Producer, error) {
			return r.s.end(r.now, EndRequest{Producer: Producer{1000, 0}, Commit: true}, "e", fresh)
		}); err != nil {
			t.Fatal(err)
		}
	}
	p := init()
	if again := init(); again != p {
		t.Fatalf("%+v, again %+v", p, again)
	}
	r.mustAdd(p, p0)
	end()
	end()
	r.want(PrepareCommit, p)
	r.complete()
	end()
	r.mustAdd(p, p1)
	r.reload()
	end()
	r.want(Ongoing, p)
	if again := init(); again != p {
		t.Fatalf("late init: %+v", again)
	}
	r.want(Ongoing, p)
}

// An id that nobody uses expires, unless it has a transaction.
func TestExpired(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(NoProducer)
	if r.now = r.now.Add(r.c.IDExpiration - time.Millisecond); r.s.expired(r.now) {
		t.Fatal("expired early")
	}
	if r.now = r.now.Add(time.Millisecond); !r.s.expired(r.now) {
		t.Fatal("not expired")
	}
	r.mustAdd(p, p0)
	if r.now = r.now.Add(2 * r.c.IDExpiration); r.s.expired(r.now) {
		t.Fatal("expired with a transaction open")
	}
	r.mustEnd(p, true, false)
	if r.now = r.now.Add(2 * r.c.IDExpiration); r.s.expired(r.now) {
		t.Fatal("expired before all know the decision")
	}
	r.complete()
	if r.s.expired(r.now) {
		t.Fatal("expired early")
	}
	if r.now = r.now.Add(r.c.IDExpiration); !r.s.expired(r.now) {
		t.Fatal("not expired")
	}
}

// What is stored comes back, fields of later versions too; an unknown state does not.
func TestRecord(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(NoProducer)
	r.mustAdd(p, p0, p1, p2)
	if _, err := r.addOffsets(p, "g.é"); err != nil {
		t.Fatal(err)
	}
	r.adopt()
	s := newState("", &r.c, r.s.ahead, nil)
	body := append(r.stored[:len(r.stored)-1:len(r.stored)-1], `,"later":{"x":1}}`...)
	if err := s.Decode(body); err != nil {
		t.Fatal(err)
	}
	again, _, err := s.Encode(r.env)
	if err != nil || string(again) != string(body) {
		t.Fatalf("%v\n%s\n%s", err, again, body)
	}
	if err := s.Decode([]byte(`{"v":1,"state":"PrepareEpochFence"}`)); err == nil {
		t.Fatal("an unknown state was read")
	}
}
