package clients

import (
	"context"
	"errors"

	kafka "github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

type confluentTransactor struct {
	p    *kafka.Producer
	open bool
}

func (c confluent) transactor(ctx context.Context, id string) (transactor, error) {
	p, err := kafka.NewProducer(c.settings(kafka.ConfigMap{"transactional.id": id, "linger.ms": 5}))
	if err != nil {
		return nil, err
	}
	if err := p.InitTransactions(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return &confluentTransactor{p: p}, nil
}

func (x *confluentTransactor) send(ctx context.Context, topic string, rs []record) error {
	if !x.open {
		if err := x.p.BeginTransaction(); err != nil {
			return err
		}
		x.open = true
	}
	return confluentProduce(ctx, x.p, topic, rs)
}

func (x *confluentTransactor) end(ctx context.Context, commit bool) error {
	x.open = false
	if commit {
		return x.p.CommitTransaction(ctx)
	}
	return x.p.AbortTransaction(ctx)
}

func (x *confluentTransactor) close(context.Context) error {
	x.p.Close()
	return nil
}

func (c confluent) pipe(ctx context.Context, l pipe) (err error) {
	x, err := c.transactor(ctx, l.id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close(ctx)) }()
	in, err := kafka.NewConsumer(c.settings(kafka.ConfigMap{"group.id": l.group, "enable.auto.commit": false, "auto.offset.reset": "earliest",
		"isolation.level": "read_committed", "heartbeat.interval.ms": 500}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if err := in.Subscribe(l.from, nil); err != nil {
		return err
	}
	for done := 0; done < l.n; {
		m, err := confluentPoll(ctx, in)
		if err != nil {
			return err
		}
		out := []record{l.transform(confluentRecord(m))}
		for { // and what else is there already
			m, ok := in.Poll(0).(*kafka.Message)
			if !ok {
				break
			}
			out = append(out, l.transform(confluentRecord(m)))
		}
		if err := x.send(ctx, l.to, out); err != nil {
			return err
		}
		group, err := in.GetConsumerGroupMetadata()
		if err != nil {
			return err
		}
		var offsets []kafka.TopicPartition
		for p, next := range l.positions(out) {
			offsets = append(offsets, kafka.TopicPartition{Topic: &l.from, Partition: p, Offset: kafka.Offset(next)})
		}
		if err := x.(*confluentTransactor).p.SendOffsetsToTransaction(ctx, offsets, group); err != nil {
			return err
		}
		if err := x.end(ctx, l.commit); err != nil {
			return err
		}
		done += len(out)
	}
	return nil
}
