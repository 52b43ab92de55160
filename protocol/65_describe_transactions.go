package protocol

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/txn"
)

// DescribeTransactions (key 65, v0) shows transactional ids (KIP-664).
//
//   - An unknown one is TRANSACTIONAL_ID_NOT_FOUND, with zeros beside it, as in
//     Kafka.
//   - Partitions are those of the open transaction; while it ends, Kafka takes out
//     those that have their marker already. A group's offsets are a partition of
//     __consumer_offsets.
//   - Partitions of topics that were deleted since are left out.
//   - Without an open transaction its start is −1.
var describeTransactionsAPI = api{key: 65, min: 0, max: 0, lends: true, large: true, serve: (*handler).describeTransactions}

// committedOffsets is the topic of what groups commit.
const committedOffsets = "__consumer_offsets"

func (h *handler) describeTransactions(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DescribeTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	ids := once(req.TransactionalIDs)
	resp.TransactionStates = make([]kmsg.DescribeTransactionsResponseTransactionState, len(ids))
	work := newTogether()
	for i, id := range ids {
		work.add(func() { resp.TransactionStates[i] = h.describeTransaction(ctx, id) })
	}
	work.wait()
	return resp, nil
}

func (h *handler) describeTransaction(ctx context.Context, id string) kmsg.DescribeTransactionsResponseTransactionState {
	st := kmsg.NewDescribeTransactionsResponseTransactionState()
	st.TransactionalID = id
	d := h.backend.Transactions().Describe(ctx, id)
	if d.Err != nil {
		st.ErrorCode = h.backend.Code(d.Err, true)
		return st
	}
	st.State, st.TimeoutMillis, st.StartTimestamp = d.State, int32(d.Timeout.Milliseconds()), d.Start
	st.ProducerID, st.ProducerEpoch = d.Producer.ID, d.Producer.Epoch
	st.Topics = h.transactionTopics(ctx, d)
	return st
}

// transactionTopics names what is in a transaction, in order.
func (h *handler) transactionTopics(ctx context.Context, d txn.Description) []kmsg.DescribeTransactionsResponseTransactionStateTopic {
	of := map[string][]int32{}
	for _, p := range d.Partitions {
		if t, err := h.backend.TopicByID(ctx, p.Topic); err == nil {
			of[t.Name] = append(of[t.Name], p.N)
		}
	}
	if len(d.Groups) > 0 {
		of[committedOffsets] = []int32{0} // it has one partition
	}
	topics := make([]kmsg.DescribeTransactionsResponseTransactionStateTopic, 0, len(of))
	for name, partitions := range of {
		slices.Sort(partitions)
		st := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
		st.Topic, st.Partitions = name, partitions
		topics = append(topics, st)
	}
	slices.SortFunc(topics, func(a, b kmsg.DescribeTransactionsResponseTransactionStateTopic) int {
		return strings.Compare(a.Topic, b.Topic)
	})
	return topics
}
