package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
)

// AddPartitionsToTxn (key 24, v0–v5) puts partitions into a transaction and begins
// it, if none is open (KIP-98).
//
//   - All or none: with a partition that there is not, which is
//     UNKNOWN_TOPIC_OR_PARTITION, the others are OPERATION_NOT_ATTEMPTED and the
//     coordinator is not asked. Internal topics are TOPIC_AUTHORIZATION_FAILED up
//     to v3, as in Kafka.
//   - Otherwise each partition has what the coordinator says of the transaction.
//   - v4 and v5 are what Kafka's brokers ask each other: many transactions, each
//     for itself under the same rules, or, to verify only, whether the partitions
//     are in it already: TRANSACTION_ABORTABLE for those that are not.
//
// v1 nothing; v2 PRODUCER_FENCED (below it INVALID_PRODUCER_EPOCH); v3 flexible; v4
// many transactions, verification (KIP-890); v5 TRANSACTION_ABORTABLE.
var addPartitionsToTxnAPI = api{key: 24, min: 0, max: 5, lends: true, serve: (*handler).addPartitionsToTxn}

func (h *handler) addPartitionsToTxn(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.AddPartitionsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if req.Version < 4 {
		topics := make([]kmsg.AddPartitionsToTxnRequestTransactionTopic, len(req.Topics))
		for i, rt := range req.Topics {
			topics[i].Topic, topics[i].Partitions = rt.Topic, rt.Partitions
		}
		answers := h.addPartitions(ctx, txn.AddPartitionsRequest{
			TransactionalID: req.TransactionalID, Producer: txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		}, topics, req.Version)
		resp.Topics = make([]kmsg.AddPartitionsToTxnResponseTopic, len(answers))
		for i, st := range answers {
			resp.Topics[i].Topic = st.Topic
			for _, sp := range st.Partitions {
				resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: sp.Partition, ErrorCode: sp.ErrorCode})
			}
		}
		return resp, nil
	}
	resp.Transactions = make([]kmsg.AddPartitionsToTxnResponseTransaction, len(req.Transactions))
	work := newTogether()
	for i := range req.Transactions {
		rt, st := &req.Transactions[i], &resp.Transactions[i]
		work.add(func() {
			st.TransactionalID = rt.TransactionalID
			st.Topics = h.addPartitions(ctx, txn.AddPartitionsRequest{
				TransactionalID: rt.TransactionalID, Producer: txn.Producer{ID: rt.ProducerID, Epoch: rt.ProducerEpoch}, VerifyOnly: rt.VerifyOnly,
			}, rt.Topics, req.Version)
		})
	}
	work.wait()
	return resp, nil
}

// addPartitions asks for one transaction and answers for its topics.
func (h *handler) addPartitions(ctx context.Context, ask txn.AddPartitionsRequest, topics []kmsg.AddPartitionsToTxnRequestTransactionTopic, version int16) []kmsg.AddPartitionsToTxnResponseTransactionTopic {
	out := make([]kmsg.AddPartitionsToTxnResponseTransactionTopic, len(topics))
	find := h.finder(ctx)
	var answers []*int16 // where the answer for ask.Partitions[i] goes
	refused := false
	for i, rt := range topics {
		out[i].Topic = rt.Topic
		out[i].Partitions = make([]kmsg.AddPartitionsToTxnResponseTransactionTopicPartition, len(rt.Partitions))
		t, err := find(rt.Topic)
		if err == nil {
			t = h.upTo(ctx, t, rt.Partitions...)
		}
		for j, n := range rt.Partitions {
			sp := &out[i].Partitions[j]
			sp.Partition = n
			switch {
			case version < 4 && topic.Internal(rt.Topic):
				sp.ErrorCode = kerr.TopicAuthorizationFailed.Code
			case notThere(err), err == nil && (n < 0 || n >= t.Partitions):
				sp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case err != nil:
				sp.ErrorCode = h.backend.Code(err, true)
			default:
				ask.Partitions = append(ask.Partitions, txn.Partition{Topic: t.ID, N: n})
				answers = append(answers, &sp.ErrorCode)
				continue
			}
			refused = true
		}
	}
	if refused {
		for _, answer := range answers {
			*answer = kerr.OperationNotAttempted.Code
		}
		return out
	}
	res := h.backend.Transactions().AddPartitions(ctx, ask)
	code := h.txnCode(res.Err, version >= 2)
	missing := make(map[txn.Partition]bool, len(res.Missing))
	for _, p := range res.Missing {
		missing[p] = true
	}
	for i, answer := range answers {
		*answer = code
		if res.Err == nil && ask.VerifyOnly && missing[ask.Partitions[i]] {
			*answer = kerr.TransactionAbortable.Code
		}
	}
	return out
}

// txnCode maps what the coordinator of a transaction says. fenced: the version
// knows PRODUCER_FENCED.
func (h *handler) txnCode(err error, fenced bool) int16 {
	code := h.backend.Code(err, true)
	if code == kerr.ProducerFenced.Code && !fenced {
		code = kerr.InvalidProducerEpoch.Code
	}
	return code
}
