package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
)

// OffsetForLeaderEpoch (key 23, v2–v4) tells consumers where a leader's epoch
// ended, so that they notice a log that was cut. Logs are never cut here and the
// epoch is 0 for ever:
//
//   - Epoch 0 ends at the log's end. About a later one, and −1, nothing is known: −1,
//     −1 without error. One before all others, below −1, ended where the log starts.
//   - A current epoch above 0 is UNKNOWN_LEADER_EPOCH, one below that is not −1
//     FENCED_LEADER_EPOCH.
//   - Errors carry −1, −1.
//
// v3 replica id (−2 is a debugging consumer; not used); v4 flexible.
//
// Left out: v0 and v1, which Kafka 4 dropped too.
var offsetForLeaderEpochAPI = api{key: 23, min: 2, max: 4, lends: true, serve: (*handler).offsetForLeaderEpoch}

func (h *handler) offsetForLeaderEpoch(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	find := h.finder(ctx)
	work := newTogether()
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, len(req.Topics))
	for i := range req.Topics {
		rt, st := &req.Topics[i], &resp.Topics[i]
		*st = kmsg.NewOffsetForLeaderEpochResponseTopic()
		st.Topic = rt.Topic
		st.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			rp, sp := &rt.Partitions[j], &st.Partitions[j]
			*sp = kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			sp.Partition, sp.LeaderEpoch, sp.EndOffset = rp.Partition, -1, -1
			p, err := h.partitionOf(ctx, find, rt.Topic, rp.Partition)
			if err == nil {
				err = currentEpoch(rp.CurrentLeaderEpoch)
			}
			if err != nil {
				sp.ErrorCode = h.backend.Code(err, false)
				continue
			}
			if rp.LeaderEpoch > 0 || rp.LeaderEpoch == -1 {
				continue
			}
			work.add(func() {
				at := partition.Latest
				if rp.LeaderEpoch < 0 {
					at = partition.Earliest
				}
				res, err := p.Lookup(ctx, partition.LookupRequest{Timestamp: at})
				if err != nil {
					sp.ErrorCode = h.backend.Code(err, false)
					return
				}
				sp.LeaderEpoch, sp.EndOffset = rp.LeaderEpoch, int64(res.Offset)
			})
		}
	}
	work.wait()
	return resp, nil
}

// currentEpoch compares what a client believes to be a partition's epoch with
// what it is, 0; −1 is no belief.
func currentEpoch(epoch int32) error {
	switch {
	case epoch > 0:
		return kerr.UnknownLeaderEpoch
	case epoch < -1:
		return kerr.FencedLeaderEpoch
	}
	return nil
}
