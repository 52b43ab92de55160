package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/types"
)

// OffsetCommit (key 8, v2–v10) stores a group's offsets.
//
//   - An unknown topic or partition is UNKNOWN_TOPIC_OR_PARTITION, an unknown id
//     UNKNOWN_TOPIC_ID; the rest of the request is stored all the same. If
//     nothing is left, the group is not asked at all.
//   - Offsets are not compared with the log, metadata may be null (kept as "").
//   - What concerns the member or the group is told on every partition.
//
// v3 throttle time; v5 drops the retention time; v6 leader epoch (KIP-320); v7
// instance id (KIP-345); v8 flexible; v9 GROUP_ID_NOT_FOUND for an unknown group
// with a generation (KIP-848); v10 topic ids, no names (KIP-848).
//
// Left out: the retention time of v2–v4 (all offsets expire by
// offsets.retention.minutes), member epochs of KIP-848.
var offsetCommitAPI = api{key: 8, min: 2, max: 10, serve: (*handler).offsetCommit}

func (h *handler) offsetCommit(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	commit := group.CommitRequest{
		Caller: r.caller(),
		Membership: group.Membership{
			Group:      req.Group,
			Member:     req.MemberID,
			Instance:   req.InstanceID,
			Generation: req.Generation,
		},
		V9: req.Version >= 9,
	}

	var answers []*int16 // where the answer for commit.Partitions[i] goes
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i, rt := range req.Topics {
		st := &resp.Topics[i]
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		st.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(rt.Partitions))
		t, err := h.topicOf(ctx, rt.Topic, rt.TopicID, req.Version >= 10)
		code := h.backend.Code(err, true)
		if err == nil {
			highest := int32(-1)
			for _, rp := range rt.Partitions {
				highest = max(highest, rp.Partition)
			}
			t = h.upTo(ctx, t, highest)
		}
		for j, rp := range rt.Partitions {
			sp := &st.Partitions[j]
			sp.Partition = rp.Partition
			switch {
			case err != nil:
				sp.ErrorCode = code
			case rp.Partition < 0 || rp.Partition >= t.Partitions:
				sp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				commit.Partitions = append(commit.Partitions, group.CommitPartition{
					TopicPartition: types.TopicPartition{Topic: t.Name, Partition: rp.Partition},
					TopicID:        t.ID,
					Offset:         types.Offset(rp.Offset),
					LeaderEpoch:    rp.LeaderEpoch,
					Metadata:       rp.Metadata,
				})
				answers = append(answers, &sp.ErrorCode)
			}
		}
	}
	if len(answers) == 0 {
		return resp, nil
	}

	res := h.backend.Groups().Commit(ctx, commit)
	if res.Err != nil {
		code := h.backend.Code(res.Err, true)
		for _, answer := range answers {
			*answer = code
		}
		return resp, nil
	}
	for i, answer := range answers {
		*answer = h.backend.Code(res.Partitions[i], true)
	}
	return resp, nil
}
