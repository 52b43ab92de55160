package clients

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

type saramaTransactor struct {
	p    sarama.SyncProducer
	open bool
}

func (s saramaClient) transactor(_ context.Context, id string) (transactor, error) {
	c := saramaConfig()
	c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1
	c.Producer.Transaction.ID = id
	p, err := sarama.NewSyncProducer([]string{s.addr}, c)
	return &saramaTransactor{p: p}, err
}

func (x *saramaTransactor) send(_ context.Context, topic string, rs []record) error {
	if !x.open {
		if err := x.p.BeginTxn(); err != nil {
			return err
		}
		x.open = true
	}
	return x.p.SendMessages(toSarama(topic, rs))
}

func (x *saramaTransactor) end(_ context.Context, commit bool) error {
	x.open = false
	if commit {
		return x.p.CommitTxn()
	}
	return x.p.AbortTxn()
}

func (x *saramaTransactor) close(context.Context) error { return x.p.Close() }

// saramaInput hands the messages of a group member on, with their session.
type saramaInput struct {
	messages chan *sarama.ConsumerMessage
	sessions chan sarama.ConsumerGroupSession
}

func (saramaInput) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaInput) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (in saramaInput) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-c.Messages():
			if !ok {
				return nil
			}
			select {
			case in.messages <- m:
			case <-s.Context().Done():
				return nil
			}
		case in.sessions <- s:
		case <-s.Context().Done():
			return nil
		}
	}
}

func (s saramaClient) pipe(ctx context.Context, l pipe) (err error) {
	x, err := s.transactor(ctx, l.id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close(ctx)) }()
	c := saramaConfig()
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.Return.Errors = false
	g, err := sarama.NewConsumerGroup([]string{s.addr}, l.group, c)
	if err != nil {
		return err
	}
	in := saramaInput{make(chan *sarama.ConsumerMessage), make(chan sarama.ConsumerGroupSession)}
	consuming, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.Consume(consuming, []string{l.from}, in) }()
	err = s.pump(ctx, l, x.(*saramaTransactor), in)
	stop()
	return errors.Join(err, <-ended, g.Close())
}

// pump is pipe without what it opens and closes.
func (saramaClient) pump(ctx context.Context, l pipe, x *saramaTransactor, in saramaInput) error {
	for done := 0; done < l.n; {
		var out []record
		more := time.NewTimer(time.Hour)
		for wait := true; wait; {
			select {
			case m := <-in.messages:
				out = append(out, l.transform(saramaRecord(m)))
				more.Reset(50 * time.Millisecond) // one transaction for what is there
			case <-more.C:
				wait = false
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := x.send(ctx, l.to, out); err != nil {
			return err
		}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{}
		for p, next := range l.positions(out) {
			offsets[l.from] = append(offsets[l.from], &sarama.PartitionOffsetMetadata{Partition: p, Offset: next, LeaderEpoch: -1})
		}
		select {
		case s := <-in.sessions:
			if err := x.p.AddOffsetsToTxnWithGroupMetadata(offsets, sarama.NewConsumerGroupMetadataFromSession(s, l.group, nil)); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := x.end(ctx, l.commit); err != nil {
			return err
		}
		done += len(out)
	}
	return nil
}
