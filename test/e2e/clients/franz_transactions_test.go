package clients

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franzTransactor struct {
	cl   *kgo.Client
	open bool
}

func (c franz) transactor(_ context.Context, id string) (transactor, error) {
	cl, err := c.new(kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return &franzTransactor{cl: cl}, err
}

func (x *franzTransactor) send(ctx context.Context, topic string, rs []record) error {
	if !x.open {
		if err := x.cl.BeginTransaction(); err != nil {
			return err
		}
		x.open = true
	}
	return x.cl.ProduceSync(ctx, toFranz(topic, rs)...).FirstErr()
}

func (x *franzTransactor) end(ctx context.Context, commit bool) error {
	x.open = false
	return x.cl.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func (x *franzTransactor) close(context.Context) error {
	x.cl.Close()
	return nil
}

// pipe is a GroupTransactSession: it aborts by itself where a rebalance comes between.
func (c franz) pipe(ctx context.Context, l pipe) error {
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(c.addr), kgo.ClientID(c.name), kgo.TransactionalID(l.id),
		kgo.ConsumerGroup(l.group), kgo.ConsumeTopics(l.from), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.HeartbeatInterval(500*time.Millisecond), kgo.Balancers(kgo.RangeBalancer()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer s.Close()
	for done := 0; done < l.n; {
		fetches := s.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		var out []record
		for _, r := range fetches.Records() {
			out = append(out, l.transform(franzRecord(r)))
		}
		if len(out) == 0 {
			continue
		}
		if err := s.Begin(); err != nil {
			return err
		}
		if err := s.ProduceSync(ctx, toFranz(l.to, out)...).FirstErr(); err != nil {
			return err
		}
		committed, err := s.End(ctx, kgo.TransactionEndTry(l.commit))
		if err != nil {
			return err
		}
		if committed == l.commit {
			done += len(out)
		}
	}
	return nil
}
