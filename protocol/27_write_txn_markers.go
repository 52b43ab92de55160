package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
)

// WriteTxnMarkers (key 27, v1–v2) ends what a producer has open on some partitions,
// whatever its transactional id says: kafka-transactions abort, for transactions
// that hang (KIP-664). Gateways write the markers of their own transactions
// without it.
//
//   - Each partition succeeds or fails for itself; it is asked for a marker also
//     where nothing is open, as in Kafka.
//   - An epoch below the producer's is INVALID_PRODUCER_EPOCH, a coordinator epoch
//     below the last marker's TRANSACTION_COORDINATOR_FENCED.
//   - A marker of transaction version 2 (v2) ends an open transaction only by an
//     epoch above the producer's, else it is INVALID_PRODUCER_EPOCH (KIP-1228).
//
// v1 flexible; v2 transaction version.
//
// Left out: v0, which Kafka 4 dropped too.
var writeTxnMarkersAPI = api{key: 27, min: 1, max: 2, lends: true, serve: (*handler).writeTxnMarkers}

func (h *handler) writeTxnMarkers(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.WriteTxnMarkersRequest)
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	find := h.finder(ctx)
	resp.Markers = make([]kmsg.WriteTxnMarkersResponseMarker, len(req.Markers))
	for i := range req.Markers {
		rm, sm := &req.Markers[i], &resp.Markers[i]
		sm.ProducerID = rm.ProducerID
		sm.Topics = make([]kmsg.WriteTxnMarkersResponseMarkerTopic, len(rm.Topics))
		work := newTogether() // one marker after the other: they may be of one producer
		for j := range rm.Topics {
			rt, st := &rm.Topics[j], &sm.Topics[j]
			st.Topic = rt.Topic
			st.Partitions = make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(rt.Partitions))
			t, err := find(rt.Topic)
			for k, n := range rt.Partitions {
				sp := &st.Partitions[k]
				sp.Partition = n
				if err != nil {
					sp.ErrorCode = h.backend.Code(err, false)
					continue
				}
				work.add(func() {
					p, err := h.backend.Partition(ctx, t, n)
					if err == nil && rm.TransactionVersion >= 2 {
						err = newerEpoch(ctx, p, rm)
					}
					if err == nil {
						err = p.EndTransaction(ctx, partition.Marker{
							ProducerID: rm.ProducerID, Epoch: rm.ProducerEpoch, Commit: rm.Committed, CoordinatorEpoch: rm.CoordinatorEpoch,
						})
					}
					sp.ErrorCode = h.backend.Code(err, false)
				})
			}
		}
		work.wait()
	}
	return resp, nil
}

// newerEpoch refuses a marker that ends what is open in the epoch it has.
func newerEpoch(ctx context.Context, p Partition, m *kmsg.WriteTxnMarkersRequestMarker) error {
	known, err := p.Producers(ctx)
	for _, s := range known {
		if s.ID == m.ProducerID && s.TxnStart >= 0 && m.ProducerEpoch <= s.Epoch {
			return kerr.InvalidProducerEpoch
		}
	}
	return err
}
