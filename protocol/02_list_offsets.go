package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
)

// ListOffsets (key 2, v1–v11) finds offsets by time, and a log's ends.
//
//   - −1 is the end (v2+: the last stable offset for read_committed), −2 the
//     start, −3 (v7+) the record with the largest timestamp, −4 (v8+) the start
//     of what is local, which is all. −5 (v9+) and −6 (v11+) ask for tiers that
//     do not exist: −1 without error. Other negative values, and these below
//     their version, are UNSUPPORTED_VERSION.
//   - A time gives the first record whose own timestamp is not before it; none
//     is −1, −1 without error.
//   - A partition named twice is INVALID_REQUEST each time.
//   - A leader epoch above 0 is UNKNOWN_LEADER_EPOCH, one below that is not −1
//     FENCED_LEADER_EPOCH.
//
// v2 isolation level; v4 leader epochs; v6 flexible; v10 timeout (not needed,
// ignored).
//
// Left out: v0, which Kafka 4 dropped too.
var listOffsetsAPI = api{key: 2, min: 1, max: 11, lends: true, serve: (*handler).listOffsets}

// Timestamps that ask for tiered storage.
const (
	latestTiered          int64 = -5
	earliestPendingUpload int64 = -6
)

func (h *handler) listOffsets(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	seen := map[partitionKey]int{}
	for _, rt := range req.Topics {
		for _, rp := range rt.Partitions {
			seen[partitionKey{rt.Topic, rp.Partition}]++
		}
	}
	// Each lookup may ask the store: several at a time, not one after another.
	work := newTogether()
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		rt, st := &req.Topics[i], &resp.Topics[i]
		st.Topic = rt.Topic
		st.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(rt.Partitions))
		t, err := h.backend.Topic(ctx, rt.Topic)
		for j := range rt.Partitions {
			rp, sp := &rt.Partitions[j], &st.Partitions[j]
			*sp = kmsg.NewListOffsetsResponseTopicPartition()
			sp.Partition = rp.Partition
			sp.Timestamp, sp.Offset, sp.LeaderEpoch = -1, -1, -1
			switch {
			case seen[partitionKey{rt.Topic, rp.Partition}] > 1:
				sp.ErrorCode = kerr.InvalidRequest.Code
			case !lookupKnown(req.Version, rp.Timestamp):
				sp.ErrorCode = kerr.UnsupportedVersion.Code
			case err != nil:
				sp.ErrorCode = h.backend.Code(err, false)
			default:
				work.add(func() { sp.ErrorCode = h.backend.Code(h.lookup(ctx, req, t, rp, sp), false) })
			}
		}
	}
	work.wait()
	return resp, nil
}

// lookup fills one partition's answer.
func (h *handler) lookup(ctx context.Context, req *kmsg.ListOffsetsRequest, t *topic.Topic, rp *kmsg.ListOffsetsRequestTopicPartition, sp *kmsg.ListOffsetsResponseTopicPartition) error {
	p, err := h.backend.Partition(ctx, t, rp.Partition)
	if err == nil {
		err = currentEpoch(rp.CurrentLeaderEpoch)
	}
	switch {
	case err != nil:
		return err
	case rp.Timestamp == latestTiered, rp.Timestamp == earliestPendingUpload:
		return nil
	}
	res, err := p.Lookup(ctx, partition.LookupRequest{Timestamp: rp.Timestamp, Committed: req.Version >= 2 && req.IsolationLevel == 1})
	if err == nil {
		sp.Timestamp, sp.Offset, sp.LeaderEpoch = res.Timestamp, int64(res.Offset), res.LeaderEpoch
	}
	return err
}

// partitionKey is a partition as a request names it.
type partitionKey struct {
	topic     string
	partition int32
}

// lookupKnown reports whether a version has a meaning for a timestamp.
func lookupKnown(version int16, timestamp int64) bool {
	switch timestamp {
	case partition.MaxTimestamp:
		return version >= 7
	case partition.EarliestLocal:
		return version >= 8
	case latestTiered:
		return version >= 9
	case earliestPendingUpload:
		return version >= 11
	}
	return timestamp >= partition.Earliest
}
