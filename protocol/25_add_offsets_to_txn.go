package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/txn"
)

// AddOffsetsToTxn (key 25, v0–v4) puts what a group will commit into a transaction
// and begins it, if none is open (KIP-98). The offsets follow by TxnOffsetCommit.
//
//   - The group need not exist.
//
// v1 nothing; v2 PRODUCER_FENCED (below it INVALID_PRODUCER_EPOCH); v3 flexible; v4
// TRANSACTION_ABORTABLE (KIP-890).
var addOffsetsToTxnAPI = api{key: 25, min: 0, max: 4, lends: true, serve: (*handler).addOffsetsToTxn}

func (h *handler) addOffsetsToTxn(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.AddOffsetsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	res := h.backend.Transactions().AddOffsets(ctx, txn.AddOffsetsRequest{
		TransactionalID: req.TransactionalID,
		Producer:        txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Group:           req.Group,
	})
	resp.ErrorCode = h.txnCode(res.Err, req.Version >= 2)
	return resp, nil
}
