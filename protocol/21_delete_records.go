package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// DeleteRecords (key 21, v0–v2) moves log starts up: what lies before is gone for
// all readers when it is answered.
//
//   - −1 is the high watermark. Beyond it, or below −1, is OFFSET_OUT_OF_RANGE. An
//     offset at or below the log start changes nothing and is no error.
//   - The answer is the log start as it is then: larger than asked for if it was
//     so before; −1 with an error.
//   - A topic whose cleanup.policy lacks delete is POLICY_VIOLATION, an internal
//     one INVALID_TOPIC_EXCEPTION, an unknown one UNKNOWN_TOPIC_OR_PARTITION.
//   - A partition named twice counts with its last offset and is answered once.
//   - The client's timeout bounds the call: REQUEST_TIMED_OUT.
//
// v2 flexible.
var deleteRecordsAPI = api{key: 21, min: 0, max: 2, lends: true, serve: (*handler).deleteRecords}

func (h *handler) deleteRecords(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()

	// Each partition once, under its topic's first place.
	offsets := map[partitionKey]int64{}
	var names []string
	partitions := map[string][]int32{}
	for _, rt := range req.Topics {
		names = append(names, rt.Topic)
		for _, rp := range rt.Partitions {
			k := partitionKey{rt.Topic, rp.Partition}
			if _, again := offsets[k]; !again {
				partitions[rt.Topic] = append(partitions[rt.Topic], rp.Partition)
			}
			offsets[k] = rp.Offset
		}
	}
	names = once(names)
	lives := h.backend.Unbroken()
	find := h.finder(ctx)
	work := newTogether()
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(names))
	for i, name := range names {
		st := &resp.Topics[i]
		*st = kmsg.NewDeleteRecordsResponseTopic()
		st.Topic = name
		st.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(partitions[name]))
		for j, n := range partitions[name] {
			sp := &st.Partitions[j]
			*sp = kmsg.NewDeleteRecordsResponseTopicPartition()
			sp.Partition, sp.LowWatermark = n, int64(types.NoOffset)
			p, err := h.partitionOf(ctx, find, name, n)
			if err == nil && topic.Internal(name) {
				err = kerr.InvalidTopicException
			}
			if err == nil && !lives(ctx) {
				err = topic.ErrLate // as ofName
			}
			if err != nil {
				sp.ErrorCode = h.backend.Code(err, false)
				continue
			}
			to := types.Offset(offsets[partitionKey{name, n}])
			work.add(func() { sp.LowWatermark, sp.ErrorCode = h.deleteUpTo(ctx, p, to) })
		}
	}
	work.wait()
	return resp, nil
}

func (h *handler) deleteUpTo(ctx context.Context, p Partition, to types.Offset) (low int64, code int16) {
	start, err := p.DeleteRecords(ctx, to)
	if err != nil {
		return int64(types.NoOffset), h.backend.Code(err, false)
	}
	return int64(start), 0
}

// partitionOf opens a partition by the topic's name; what can be no name is
// unknown.
func (h *handler) partitionOf(ctx context.Context, find func(string) (*topic.Topic, error), name string, n int32) (Partition, error) {
	t, err := find(name)
	switch {
	case notThere(err):
		return nil, kerr.UnknownTopicOrPartition
	case err != nil:
		return nil, err
	}
	return h.backend.Partition(ctx, t, n)
}

var _ Partition = (*partition.Partition)(nil)
