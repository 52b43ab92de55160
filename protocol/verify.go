package protocol

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/serde"
)

// What a transaction that is ending is waited for, and how often it is asked, as
// add.partitions.to.txn.retry.backoff.max.ms and .ms of Kafka: a producer's first
// batch after a commit often comes before the last marker.
const (
	verifyFor   = 100 * time.Millisecond
	verifyEvery = 20 * time.Millisecond
)

// transactional reports whether a field of records is of a transaction. What is no
// batch, or one that no client may write, is refused by its partition.
func transactional(records []byte) bool {
	b, _, err := serde.ParseBatch(records)
	return err == nil && b.Transactional() && !b.Control()
}

// mayTransact refuses a request that has batches of a transaction and does not
// say of which: all of it, as Kafka does.
func mayTransact(req *kmsg.ProduceRequest) error {
	if req.TransactionID != nil {
		return nil
	}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if transactional(req.Topics[i].Partitions[j].Records) {
				return kerr.TransactionalIDAuthorizationFailed
			}
		}
	}
	return nil
}

// verify tells in which transaction a batch may be stored
// (partition.AppendRequest.Verify); nil for one that is of none.
//
//   - Up to v11 the partition must have been added by AddPartitionsToTxn:
//     INVALID_TXN_STATE, v11 TRANSACTION_ABORTABLE. From v12 on it is added now.
//   - A producer of the past is INVALID_PRODUCER_EPOCH in every version.
//   - That the coordinator cannot say now is NOT_ENOUGH_REPLICAS: clients send the
//     batch again, and do not look for another coordinator.
func (h *handler) verify(req *kmsg.ProduceRequest, t *topic.Topic, n int32, records []byte) func(ctx context.Context) (int64, error) {
	if req.TransactionID == nil {
		return nil
	}
	b, _, err := serde.ParseBatch(records)
	if err != nil || !b.Transactional() {
		return nil
	}
	version := req.Version
	ask := txn.AddPartitionsRequest{
		TransactionalID: *req.TransactionID,
		Producer:        txn.Producer{ID: b.ProducerID(), Epoch: b.ProducerEpoch()},
		Partitions:      []txn.Partition{{Topic: t.ID, N: n}},
		VerifyOnly:      version < 12,
		Implicit:        version >= 12,
	}
	return func(ctx context.Context) (int64, error) {
		res := h.backend.Transactions().AddPartitions(ctx, ask)
		for began := time.Now(); version >= 12 && refusedWith(res.Err, kerr.ConcurrentTransactions) && time.Since(began) < verifyFor; {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(verifyEvery):
			}
			res = h.backend.Transactions().AddPartitions(ctx, ask)
		}
		switch {
		case res.Err != nil:
			return 0, h.unverified(res.Err, version)
		case len(res.Missing) > 0 && version < 11:
			return 0, kerr.InvalidTxnState
		case len(res.Missing) > 0:
			return 0, kerr.TransactionAbortable
		}
		return res.N, nil
	}
}

// unverified is what a producer is told of what the coordinator said.
func (h *handler) unverified(err error, version int16) error {
	k := (*kerr.Error)(nil)
	if !errors.As(err, &k) {
		k = kerr.TypedErrorForCode(h.backend.Code(err, true)) // logged there
	}
	switch k.Code {
	case kerr.ProducerFenced.Code:
		return kerr.InvalidProducerEpoch
	case kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code:
		return kerr.NotEnoughReplicas
	case kerr.ConcurrentTransactions.Code:
		if version < 12 {
			return kerr.NotEnoughReplicas
		}
	}
	return k
}
