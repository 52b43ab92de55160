package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/txn"
)

// EndTxn (key 26, v0–v5) commits or aborts a transaction (KIP-98).
//
//   - The answer comes once the decision is stored; what is done with it then,
//     nothing can stop. Until that is through, what is asked of the transactional
//     id next is CONCURRENT_TRANSACTIONS.
//   - The same decision again succeeds, another one is INVALID_TXN_STATE.
//
// v1 nothing; v2 PRODUCER_FENCED (below it INVALID_PRODUCER_EPOCH); v3 flexible; v4
// TRANSACTION_ABORTABLE; v5 the client is one of transaction.version 2, and goes on
// with the producer id and epoch that the answer names; it may abort what it has
// not begun (KIP-890).
var endTxnAPI = api{key: 26, min: 0, max: 5, lends: true, serve: (*handler).endTxn}

func (h *handler) endTxn(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.EndTxnRequest)
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ProducerID, resp.ProducerEpoch = txn.NoProducer.ID, txn.NoProducer.Epoch
	res := h.backend.Transactions().End(ctx, txn.EndRequest{
		TransactionalID: req.TransactionalID,
		Producer:        txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Commit:          req.Commit,
		Bump:            req.Version >= 5,
	})
	if resp.ErrorCode = h.txnCode(res.Err, req.Version >= 2); resp.ErrorCode == 0 {
		resp.ProducerID, resp.ProducerEpoch = res.Producer.ID, res.Producer.Epoch
	}
	return resp, nil
}
