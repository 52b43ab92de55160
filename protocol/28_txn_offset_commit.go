package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/txn"
)

// TxnOffsetCommit (key 28, v0–v5) commits a group's offsets within a transaction:
// they count once it is committed (KIP-98), and are gone if it is aborted.
//
//   - The coordinator of the transaction is asked first, then the group as by
//     OffsetCommit. Unknown topics and partitions are
//     UNKNOWN_TOPIC_OR_PARTITION; if nothing is left, neither is asked.
//   - A group that is not in the transaction is INVALID_TXN_STATE, v4
//     TRANSACTION_ABORTABLE; v5 puts it there.
//   - The empty group id is INVALID_GROUP_ID, unlike in OffsetCommit.
//   - A producer of the past is INVALID_PRODUCER_EPOCH in every version, as in
//     Kafka.
//   - What concerns the transaction, the member or the group is told on every
//     partition.
//
// v1 nothing; v2 leader epoch (KIP-320); v3 member, generation and instance id
// (KIP-447), flexible; v4 TRANSACTION_ABORTABLE; v5 what AddOffsetsToTxn does
// (KIP-890).
var txnOffsetCommitAPI = api{key: 28, min: 0, max: 5, lends: true, serve: (*handler).txnOffsetCommit}

func (h *handler) txnOffsetCommit(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.TxnOffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	commit := r.commit(req.Group, req.MemberID, req.InstanceID, req.Generation)
	find := h.finder(ctx)
	places := commitPlaces{h: h, ctx: ctx, commit: &commit}
	resp.Topics = make([]kmsg.TxnOffsetCommitResponseTopic, len(req.Topics))
	for i, rt := range req.Topics {
		st := &resp.Topics[i]
		st.Topic = rt.Topic
		st.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(rt.Partitions))
		t, err := find(rt.Topic)
		place := places.topic(t, err, len(rt.Partitions), func(j int) int32 { return rt.Partitions[j].Partition })
		for j, rp := range rt.Partitions {
			st.Partitions[j].Partition = rp.Partition
			place(&st.Partitions[j].ErrorCode, rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata)
		}
	}
	switch {
	case len(places.answers) == 0:
		return resp, nil
	case req.Group == "":
		places.refuse(kerr.InvalidGroupID.Code)
		return resp, nil
	}
	n, err := h.offsetsIn(ctx, req)
	if err != nil {
		places.refuse(h.txnCode(err, false))
		return resp, nil
	}
	commit.Txn = &group.TxnCommit{TransactionalID: req.TransactionalID, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch, N: n}
	places.ask()
	return resp, nil
}

// offsetsIn is the number of the transaction that a group's offsets are in.
func (h *handler) offsetsIn(ctx context.Context, req *kmsg.TxnOffsetCommitRequest) (int64, error) {
	res := h.backend.Transactions().AddOffsets(ctx, txn.AddOffsetsRequest{
		TransactionalID: req.TransactionalID,
		Producer:        txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Group:           req.Group,
		VerifyOnly:      req.Version < 5,
		Implicit:        req.Version >= 5,
	})
	switch {
	case res.Err != nil:
		return 0, res.Err
	case res.Missing && req.Version < 4:
		return 0, kerr.InvalidTxnState
	case res.Missing:
		return 0, kerr.TransactionAbortable
	}
	return res.N, nil
}
