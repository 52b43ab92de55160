package protocol

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/txn"
)

// ListTransactions (key 66, v0–v2) lists the transactional ids that this broker
// coordinates, as FindCoordinator would say: tools ask every broker and put the
// answers together (KIP-664).
//
//   - States that there are not are told; no id is in one.
//
// v1 filter by duration (−1: none; KIP-994); v2 by a pattern, INVALID_REGULAR_EXPRESSION
// if it is none (KIP-1152).
var listTransactionsAPI = api{key: 66, min: 0, max: 2, lends: true, large: true, serve: (*handler).listTransactions}

// millis is a number of milliseconds, or the longest time that there is.
func millis(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

func (h *handler) listTransactions(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.ListTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	ask := txn.ListRequest{ProducerIDs: req.ProducerIDFilters, Duration: millis(req.DurationFilterMillis), States: req.StateFilters}
	if req.TransactionalIDPattern != nil {
		ask.Pattern = *req.TransactionalIDPattern
	}
	for _, state := range req.StateFilters {
		if !txn.KnownState(state) && !slices.Contains(resp.UnknownStateFilters, state) {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, state)
		}
	}
	listed, err := h.backend.Transactions().List(ctx, ask)
	if resp.ErrorCode = h.backend.Code(err, true); resp.ErrorCode != 0 {
		return resp, nil
	}
	brokers := h.backend.Brokers()
	for _, l := range listed {
		// With one broker it has all, also while nobody can coordinate.
		if len(brokers.Nodes) > 1 && h.backend.TxnCoordinator(l.TransactionalID) != brokers.Self {
			continue
		}
		st := kmsg.NewListTransactionsResponseTransactionState()
		st.TransactionalID, st.ProducerID, st.TransactionState = l.TransactionalID, l.ProducerID, l.State
		resp.TransactionStates = append(resp.TransactionStates, st)
	}
	return resp, nil
}
