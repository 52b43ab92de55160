package protocol

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/txn"
)

// InitProducerID (key 22, v0–v5) hands out producer ids, for idempotence alone or
// with a transactional id.
//
//   - With a transactional id the coordinator says who the client is from now on:
//     an earlier client with the id is fenced, and what it had open is aborted;
//     until that is through it is CONCURRENT_TRANSACTIONS. The empty id is
//     INVALID_REQUEST.
//   - Without a transactional id every call gets an id that was never given
//     before, at epoch 0, whatever timeout, id and epoch the client sends.
//   - While the store is away: COORDINATOR_LOAD_IN_PROGRESS, never
//     COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR: at those Java's producer
//     looks for the coordinator of its transactional id, and it has none.
//
// v2 flexible; v3 id and epoch to go on from (KIP-360), half of such a pair is
// INVALID_REQUEST; v4 PRODUCER_FENCED (below it INVALID_PRODUCER_EPOCH); v5
// TRANSACTION_ABORTABLE (KIP-890).
//
// Left out: v6, two-phase commit (KIP-939), which Kafka 4.3 does not serve either.
var initProducerIDAPI = api{key: 22, min: 0, max: 5, serve: (*handler).initProducerID}

func (h *handler) initProducerID(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if id := req.TransactionalID; id != nil && *id == "" || (req.ProducerID == -1) != (req.ProducerEpoch == -1) {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, nil
	}
	if req.TransactionalID != nil {
		res := h.backend.Transactions().Init(ctx, txn.InitRequest{
			TransactionalID: *req.TransactionalID,
			Timeout:         time.Duration(req.TransactionTimeoutMillis) * time.Millisecond,
			Producer:        txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		})
		if resp.ErrorCode = h.txnCode(res.Err, req.Version >= 4); resp.ErrorCode == 0 {
			resp.ProducerID, resp.ProducerEpoch = res.Producer.ID, res.Producer.Epoch
		}
		return resp, nil
	}
	id, err := h.backend.ProducerID(ctx)
	if err != nil {
		resp.ErrorCode = h.backend.Code(err, true)
		if resp.ErrorCode == kerr.CoordinatorNotAvailable.Code || resp.ErrorCode == kerr.NotCoordinator.Code {
			resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		}
		return resp, nil
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp, nil
}
