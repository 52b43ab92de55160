package txn

import (
	"context"
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
)

func ids(ls []Listing) string {
	var b strings.Builder
	for _, l := range ls {
		fmt.Fprintf(&b, "%.3s %s %d; ", l.TransactionalID, l.State, l.ProducerID)
	}
	return b.String()
}

// ListTransactions and DescribeTransactions tell the same at every gateway, of ids
// that this one owns and of others, also if the key is a hash.
func TestListAndDescribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.begin(memory.Faults{}, nil)
		long := "c" + strings.Repeat("/x", 300)
		init := func(s *site, id string) Producer {
			r := s.Init(t.Context(), InitRequest{TransactionalID: id, Timeout: time.Minute, Producer: NoProducer})
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			return r.Producer
		}
		b := w.begin(memory.Faults{}, nil)
		time.Sleep(5 * time.Second)
		init(a, "a.1")
		p := init(a, "b")
		open := time.Now().UnixMilli()
		if r := a.AddPartitions(t.Context(), AddPartitionsRequest{TransactionalID: "b", Producer: p, Partitions: []Partition{p2, p0}}); r.Err != nil {
			t.Fatal(r.Err)
		}
		if r := a.AddOffsets(t.Context(), AddOffsetsRequest{TransactionalID: "b", Producer: p, Group: "g"}); r.Err != nil {
			t.Fatal(r.Err)
		}
		q := init(b, long)
		if r := b.End(t.Context(), EndRequest{TransactionalID: long, Producer: q, Bump: true}); r.Err != nil {
			t.Fatal(r.Err)
		}
		time.Sleep(10 * time.Second)
		for _, s := range w.sites {
			for _, tc := range []struct {
				r    ListRequest
				want string
			}{
				{ListRequest{Duration: -1}, "a.1 Empty 1000; b Ongoing 1001; c/x CompleteAbort 1002; "},
				{ListRequest{Duration: -1, States: []string{Ongoing, "Gone"}}, "b Ongoing 1001; "},
				{ListRequest{Duration: -1, States: []string{"ongoing"}}, ""},
				{ListRequest{Duration: -1, ProducerIDs: []int64{1002, 7}}, "c/x CompleteAbort 1002; "},
				{ListRequest{Duration: 9 * time.Second, States: []string{Ongoing}}, "b Ongoing 1001; "},
				{ListRequest{Duration: 10 * time.Second, States: []string{Ongoing}}, ""},
				// As in Kafka, what never had a transaction has had one since 1970.
				{ListRequest{Duration: time.Hour}, "a.1 Empty 1000; "},
				{ListRequest{Duration: -1, Pattern: "a.1|b"}, "a.1 Empty 1000; b Ongoing 1001; "},
				{ListRequest{Duration: -1, Pattern: "c"}, ""},
				{ListRequest{Duration: -1, Pattern: "c.*"}, "c/x CompleteAbort 1002; "},
			} {
				got, err := s.List(t.Context(), tc.r)
				if err != nil || ids(got) != tc.want {
					t.Errorf("%+v: %s %v, want %s", tc.r, ids(got), err, tc.want)
				}
			}
			for _, p := range []string{"(", "a)(b"} {
				_, err := s.List(t.Context(), ListRequest{Pattern: p})
				if k, ok := errors.AsType[*kerr.Error](err); !ok || k.Code != kerr.InvalidRegularExpression.Code {
					t.Errorf("pattern %q: %v", p, err)
				}
			}
			d := s.Describe(t.Context(), "b")
			want := Description{TransactionalID: "b", State: Ongoing, Timeout: time.Minute, Start: open, Producer: p, Partitions: []Partition{p0, p2}, Groups: []string{"g"}}
			if fmt.Sprint(d) != fmt.Sprint(want) {
				t.Errorf("describe: %+v, want %+v", d, want)
			}
			if d := s.Describe(t.Context(), long); d.State != CompleteAbort || d.Err != nil {
				t.Errorf("describe: %+v", d)
			}
			wantErr(t, "describe of an unknown one", s.Describe(t.Context(), "x").Err, kerr.TransactionalIDNotFound)
			wantErr(t, "describe of none", s.Describe(t.Context(), "").Err, kerr.InvalidRequest)
		}
	})
}

// What is refused before any record is looked at.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.begin(memory.Faults{}, nil)
		for _, tc := range []struct {
			id      string
			timeout time.Duration
			want    error
		}{
			{"", time.Minute, kerr.InvalidRequest}, {"t", 0, kerr.InvalidTransactionTimeout}, {"t", -time.Second, kerr.InvalidTransactionTimeout},
			{"t", 15*time.Minute + time.Millisecond, kerr.InvalidTransactionTimeout}, {"t", 15 * time.Minute, nil},
		} {
			r := s.Init(t.Context(), InitRequest{TransactionalID: tc.id, Timeout: tc.timeout, Producer: NoProducer})
			wantErr(t, fmt.Sprintf("init %q %v", tc.id, tc.timeout), r.Err, tc.want)
			if tc.want != nil && r.Producer != NoProducer {
				t.Errorf("%+v beside an error", r.Producer)
			}
		}
		wantErr(t, "add", s.AddPartitions(t.Context(), AddPartitionsRequest{}).Err, kerr.InvalidRequest)
		wantErr(t, "offsets", s.AddOffsets(t.Context(), AddOffsetsRequest{}).Err, kerr.InvalidRequest)
		wantErr(t, "end", s.End(t.Context(), EndRequest{}).Err, kerr.InvalidRequest)
	})
}

// Ids that nobody uses expire, at their owner and if nobody owns them; those with a
// transaction do not.
func TestIDsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.c.IDExpiration, w.c.ExpirationInterval = time.Hour, 5*time.Minute
		a := w.begin(memory.Faults{}, nil)
		begin := func(s *site, id string) Producer {
			r := s.Init(t.Context(), InitRequest{TransactionalID: id, Timeout: 15 * time.Minute, Producer: NoProducer})
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			return r.Producer
		}
		begin(a, "left")
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.kill()
		b := w.begin(memory.Faults{}, nil)
		begin(b, "idle")
		time.Sleep(45 * time.Minute)
		p := begin(b, "used")
		list := func() string {
			ls, err := b.List(t.Context(), ListRequest{Duration: -1})
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, l := range ls {
				out = append(out, l.TransactionalID)
			}
			return strings.Join(out, " ")
		}
		if got := list(); got != "idle left used" {
			t.Fatalf("before: %s", got)
		}
		time.Sleep(30 * time.Minute)
		if got := list(); got != "used" {
			t.Fatalf("after: %s", got)
		}
		wantErr(t, "one that expired", b.AddPartitions(t.Context(), AddPartitionsRequest{TransactionalID: "idle", Partitions: []Partition{p0}}).Err, kerr.InvalidProducerIDMapping)
		if q := begin(b, "idle"); q.ID <= p.ID || q.Epoch != 0 {
			t.Fatalf("again as %+v", q)
		}
	})
}

// Something that is added implicitly waits for the transaction before it; what a
// client adds itself is told at once.
func TestNextWaitsForCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var slow atomic.Int64
		slow.Store(int64(80 * time.Millisecond))
		s := w.begin(memory.Faults{}, func(_ *site, ctx context.Context, what string) error {
			if strings.HasPrefix(what, "before") {
				time.Sleep(time.Duration(slow.Load()))
			}
			return ctx.Err()
		})
		cl := &client{w: w}
		cl.init()
		cl.add(p0)
		cl.end(true, true)
		ask := func(implicit bool) error {
			return s.AddPartitions(t.Context(), AddPartitionsRequest{TransactionalID: "t", Producer: cl.p, Partitions: []Partition{p1}, Implicit: implicit}).Err
		}
		began := time.Now()
		wantErr(t, "added by the client", ask(false), kerr.ConcurrentTransactions)
		wantErr(t, "added implicitly", ask(true), nil)
		if took := time.Since(began); took < 80*time.Millisecond || took > 160*time.Millisecond {
			t.Errorf("took %v", took)
		}
		cl.end(true, true)
		slow.Store(int64(time.Second))
		w.wait("the marker of the second is slow", func() bool { return len(w.logs.of(place(p1))) == 1 })
		cl.add(p1)
		cl.end(true, true)
		began = time.Now()
		wantErr(t, "after a slow one", ask(true), kerr.ConcurrentTransactions)
		if took := time.Since(began); took != w.sites[0].c.CompletionWait {
			t.Errorf("waited %v", took)
		}
	})
}

// A hundred transactions one after the other: two writes of the record each, and
// each is complete in the end.
func TestWritesPerTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var writes atomic.Int32
		w.begin(memory.Faults{Set: func(op memory.Op) memory.WriteFault {
			if op.Name == bucket {
				writes.Add(1)
			}
			return memory.WriteFault{}
		}}, nil)
		cl := &client{w: w}
		cl.init()
		writes.Store(0)
		for range 100 {
			cl.add(p0, p1)
			cl.end(true, true)
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		if n := writes.Load(); n != 200 {
			t.Errorf("%d writes", n)
		}
		time.Sleep(time.Second)
		if s, n := w.stored(), writes.Load(); n != 201 || s.state != CompleteCommit || s.n != 100 {
			t.Errorf("%d writes, %s, n=%d", n, s.state, s.n)
		}
	})
}

// Requests are carried out by the owner, whichever gateway is asked, and by the next
// one when it goes in order, without a word to the client.
func TestForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for range 3 {
			w.begin(memory.Faults{}, nil)
		}
		time.Sleep(7 * time.Second)
		sites := w.sites
		ask := func(i int) *client { return &client{w: &world{t: t, srv: w.srv, logs: w.logs, sites: sites[i : i+1]}} }
		cl := ask(0)
		cl.init()
		p := cl.p
		for i := range 3 {
			c := ask(i)
			c.p = p
			if n := c.add(Partition{topicA, int32(i)}); n != 1 {
				t.Fatalf("gateway %d: number %d", i, n)
			}
			r := sites[i].AddPartitions(t.Context(), AddPartitionsRequest{TransactionalID: "t", Producer: p, Partitions: []Partition{p2}, VerifyOnly: true})
			if r.Err != nil || r.N != 1 || len(r.Missing) != 1 || r.Missing[0] != p2 {
				t.Fatalf("gateway %d: %+v", i, r)
			}
			wantErr(t, "another producer", sites[i].End(t.Context(), EndRequest{TransactionalID: "t", Producer: Producer{p.ID, 5}}).Err, kerr.ProducerFenced)
		}
		owner := -1
		for i, s := range sites {
			if s.rt.Holds(pubsub.Token("t")) {
				owner = i
			}
		}
		if owner < 0 {
			t.Fatal("nobody owns it")
		}
		if err := sites[owner].Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := ask((owner + 1) % 3)
		c.p = p
		c.end(true, true)
		w.wait("all know", func() bool { return len(w.logs.of(place(Partition{topicA, 2}))) == 1 })
		if c.p != (Producer{p.ID, p.Epoch + 1}) {
			t.Errorf("goes on as %+v", c.p)
		}
	})
}

// TestUnknownToOthers: while a gateway of an earlier version lives no id is given,
// so that nothing of a transaction is stored that it would misread.
func TestUnknownToOthers(t *testing.T) {
	known := false
	co := New(DefaultConfig(), Deps{
		Known: func() bool { return known },
		NewProducerID: func(context.Context) (int64, error) {
			if !known {
				t.Error("a producer id was taken")
			}
			return 0, pubsub.ErrUnavailable // which ends the request
		},
	})
	q := InitRequest{TransactionalID: "t", Timeout: time.Minute, Producer: NoProducer}
	if r := co.Init(t.Context(), q); !errors.Is(r.Err, kerr.CoordinatorNotAvailable) {
		t.Errorf("init while an earlier version lives: %v", r.Err)
	}
	known = true
	if r := co.Init(t.Context(), q); !errors.Is(r.Err, pubsub.ErrUnavailable) {
		t.Errorf("init later: %v", r.Err)
	}
}
