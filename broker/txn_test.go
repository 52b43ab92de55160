package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// transactional produces one record in a transaction of version 2.
func (g *gateway) transactional(ctx context.Context, t *topic.Topic, n int32, p txn.Producer, seq int32, value string) error {
	part, err := g.Partition(ctx, t, n)
	if err != nil {
		return err
	}
	b := serde.Build(serde.BatchFields{Attributes: 1 << 4, ProducerID: p.ID, ProducerEpoch: p.Epoch, BaseSequence: seq},
		[]serde.NewRecord{{TimestampMillis: time.Now().UnixMilli(), Value: []byte(value)}})
	done := make(chan partition.AppendResult, 1)
	part.Submit(partition.AppendRequest{Records: b, AcksAll: true, Transactional: true, Verify: func(ctx context.Context) (int64, error) {
		r := g.Transactions().AddPartitions(ctx, txn.AddPartitionsRequest{TransactionalID: "t", Producer: p, Partitions: []txn.Partition{{Topic: t.ID, N: n}}, Implicit: true})
		return r.N, r.Err
	}}, func(r partition.AppendResult) { done <- r })
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// committed reads what isolation level 1 shows, aborted records and markers left
// out, and where it ends.
func (g *gateway) committed(ctx context.Context, t *topic.Topic, n int32) (values []string, stable types.Offset, err error) {
	p, err := g.Partition(ctx, t, n)
	if err != nil {
		return nil, 0, err
	}
	r, err := p.Read(ctx, partition.ReadRequest{MaxBytes: 1 << 20, Whole: true, Committed: true})
	if err != nil {
		return nil, 0, err
	}
	for _, data := range r.Batches {
		for len(data) > 0 {
			b, rest, err := serde.ParseBatch(data)
			if err != nil {
				return nil, 0, err
			}
			data = rest
			aborted := slices.ContainsFunc(r.Aborted, func(a partition.Aborted) bool {
				return a.ProducerID == b.ProducerID() && int64(a.First) <= b.BaseOffset() && b.Transactional()
			})
			if b.Control() || aborted {
				continue
			}
			for it := serde.NewRecords(b.Records(), b.Count()); it.Next(); {
				values = append(values, string(it.Record.Value))
			}
		}
	}
	return values, r.LastStable, nil
}

func (g *gateway) mustInit() txn.Producer {
	g.t.Helper()
	for {
		r := g.Transactions().Init(g.t.Context(), txn.InitRequest{TransactionalID: "t", Timeout: time.Minute, Producer: txn.NoProducer})
		if r.Err == nil {
			return r.Producer
		}
		if !errors.Is(r.Err, kerr.ConcurrentTransactions) {
			g.t.Fatalf("init: %v", r.Err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (g *gateway) mustEnd(p txn.Producer, commit bool) txn.Producer {
	g.t.Helper()
	r := g.Transactions().End(g.t.Context(), txn.EndRequest{TransactionalID: "t", Producer: p, Commit: commit, Bump: true})
	if r.Err != nil {
		g.t.Fatalf("end: %v", r.Err)
	}
	return r.Producer
}

// sees waits until a gateway shows so much of a partition.
func (g *gateway) sees(t *topic.Topic, n int32, want []string, stable types.Offset) {
	g.t.Helper()
	var last string
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
		got, lso, err := g.committed(g.t.Context(), t, n)
		if err == nil && slices.Equal(got, want) && lso == stable {
			return
		}
		last = fmt.Sprintf("%q to %d (%v)", got, lso, err)
	}
	g.t.Fatalf("%s: partition %d shows %s, want %q to %d", g.name, n, last, want, stable)
}

// begun starts gateways and waits until transactions may be written.
func begun(t *testing.T, srv *memory.Server, faults ...memory.Faults) []*gateway {
	t.Helper()
	var gs []*gateway
	for i, f := range faults {
		gs = append(gs, startGateway(t, srv, fmt.Sprintf("g%d", i), f))
	}
	time.Sleep(15 * time.Second) // they know each other
	for began := time.Now(); gs[0].Format() < partition.FormatTransactions; time.Sleep(time.Second) {
		if time.Since(began) > 5*time.Minute {
			t.Fatal("the format of transactions does not come in force")
		}
	}
	return gs
}

// Two gateways, one transactional id: written through both, ended at either, with
// the offsets of a group; what is committed is seen, what is aborted is not.
func TestTransactionThroughTwoGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := begun(t, memory.NewServer(memory.Config{}), memory.Faults{}, memory.Faults{})
		a, b := gs[0], gs[1]
		ctx := t.Context()
		top, err := a.CreateTopic(ctx, topic.Spec{Name: "t", Partitions: 2, Replicas: 1})
		if err != nil {
			t.Fatal(err)
		}
		p := a.mustInit()
		for i, g := range gs {
			if err := g.transactional(ctx, top, int32(i), p, 0, "first"); err != nil {
				t.Fatal(err)
			}
		}
		r := b.Transactions().AddOffsets(ctx, txn.AddOffsetsRequest{TransactionalID: "t", Producer: p, Group: "g", Implicit: true})
		if r.Err != nil || r.N != 1 {
			t.Fatalf("offsets: %+v", r)
		}
		commit := group.CommitRequest{Membership: group.Membership{Group: "g", Generation: -1},
			Partitions: []group.CommitPartition{{TopicPartition: types.TopicPartition{Topic: "t"}, TopicID: top.ID, Offset: 7, LeaderEpoch: -1}},
			Txn:        &group.TxnCommit{TransactionalID: "t", ProducerID: p.ID, Epoch: p.Epoch, N: r.N}}
		if c := b.Groups().Commit(ctx, commit); c.Err != nil || c.Partitions[0] != nil {
			t.Fatalf("commit: %+v", c)
		}
		for _, g := range gs {
			g.sees(top, 0, nil, 0)
		}
		p = b.mustEnd(p, true)
		for _, g := range gs {
			g.sees(top, 0, []string{"first"}, 2)
			g.sees(top, 1, []string{"first"}, 2)
		}
		offset := func() types.Offset {
			f := a.Groups().Fetch(ctx, group.FetchRequest{Group: "g", RequireStable: true,
				Partitions: []group.FetchPartition{{TopicPartition: types.TopicPartition{Topic: "t"}, TopicID: top.ID}}})
			if f.Err != nil || f.Offsets[0].Err != nil {
				return -2
			}
			return f.Offsets[0].Offset
		}
		for began := time.Now(); offset() != 7; time.Sleep(50 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("offset %d", offset())
			}
		}
		if err := b.transactional(ctx, top, 0, p, 0, "second"); err != nil {
			t.Fatal(err)
		}
		a.mustEnd(p, false)
		for _, g := range gs {
			g.sees(top, 0, []string{"first"}, 4)
		}
		// A batch of the transaction that ended comes late.
		if err := b.transactional(ctx, top, 0, p, 1, "late"); !errors.Is(err, kerr.InvalidProducerEpoch) && !errors.Is(err, kerr.ProducerFenced) {
			t.Fatalf("late: %v", err)
		}
	})
}

// The coordinator is killed when its decision is stored and no marker: another
// gateway writes them, once each.
func TestC33CoordinatorKilledAfterDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deaf atomic.Bool
		hang := memory.Faults{Append: func(memory.Op) memory.WriteFault {
			if deaf.Load() {
				return memory.WriteFault{Before: time.Hour}
			}
			return memory.WriteFault{}
		}}
		srv := memory.NewServer(memory.Config{})
		gs := begun(t, srv, hang, hang)
		ctx := t.Context()
		top, err := gs[0].CreateTopic(ctx, topic.Spec{Name: "t", Partitions: 3, Replicas: 1})
		if err != nil {
			t.Fatal(err)
		}
		p := gs[0].mustInit()
		for n := range int32(3) {
			if err := gs[0].transactional(ctx, top, n, p, 0, "x"); err != nil {
				t.Fatal(err)
			}
		}
		c := startGateway(t, srv, "c", memory.Faults{})
		deaf.Store(true)
		gs[0].mustEnd(p, true)
		for n := range int32(3) {
			c.sees(top, n, nil, 0)
		}
		gs[0].end()
		gs[1].end()
		for n := range int32(3) {
			c.sees(top, n, []string{"x"}, 2)
		}
		if r := c.mustInit(); r.ID != p.ID || r.Epoch != p.Epoch+2 {
			t.Errorf("%+v after %+v", r, p)
		}
	})
}

// A producer dies with a transaction open, and its topic goes: nothing stays behind.
func TestTransactionOfATopicThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := begun(t, memory.NewServer(memory.Config{}), memory.Faults{})
		g, ctx := gs[0], t.Context()
		var tops []*topic.Topic
		for _, name := range []string{"goes", "stays"} {
			top, err := g.CreateTopic(ctx, topic.Spec{Name: name, Partitions: 1, Replicas: 1})
			if err != nil {
				t.Fatal(err)
			}
			tops = append(tops, top)
		}
		p := g.mustInit()
		for _, top := range tops {
			if err := g.transactional(ctx, top, 0, p, 0, "x"); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.DeleteTopic(ctx, tops[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(65 * time.Second)
		g.sees(tops[1], 0, nil, 2)
		if d := g.Transactions().Describe(ctx, "t"); d.State != txn.CompleteAbort || d.Producer.Epoch != p.Epoch+1 {
			t.Errorf("%+v", d)
		}
	})
}
