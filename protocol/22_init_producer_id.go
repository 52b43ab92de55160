package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerID (key 22, v0–v5) hands out producer ids for idempotence.
//
//   - Without a transactional id every call gets an id that was never given
//     before, at epoch 0, whatever timeout, id and epoch the client sends.
//   - While the store is away: COORDINATOR_LOAD_IN_PROGRESS, never
//     COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR: at those Java's producer
//     looks for the coordinator of its transactional id, and it has none.
//
// v2 flexible; v3 id and epoch to go on from (KIP-360), half of such a pair is
// INVALID_REQUEST; v4 PRODUCER_FENCED; v5 TRANSACTION_ABORTABLE (KIP-890).
//
// Left out: transactional ids are INVALID_REQUEST until there are transactions;
// the empty one is so in Kafka too.
var initProducerIDAPI = api{key: 22, min: 0, max: 5, serve: (*handler).initProducerID}

func (h *handler) initProducerID(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil || (req.ProducerID == -1) != (req.ProducerEpoch == -1) {
		resp.ErrorCode = kerr.InvalidRequest.Code
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
