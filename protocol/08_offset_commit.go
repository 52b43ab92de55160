package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/topic"
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
	commit := r.commit(req.Group, req.MemberID, req.InstanceID, req.Generation)
	commit.V9 = req.Version >= 9
	places := commitPlaces{h: h, ctx: ctx, commit: &commit}
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i, rt := range req.Topics {
		st := &resp.Topics[i]
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		st.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(rt.Partitions))
		t, err := h.topicOf(ctx, rt.Topic, rt.TopicID, req.Version >= 10)
		place := places.topic(t, err, len(rt.Partitions), func(j int) int32 { return rt.Partitions[j].Partition })
		for j, rp := range rt.Partitions {
			st.Partitions[j].Partition = rp.Partition
			place(&st.Partitions[j].ErrorCode, rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata)
		}
	}
	places.ask()
	return resp, nil
}

// commit begins a commit of offsets by a member of a group, or by nobody.
func (r *request) commit(name, member string, instance *string, generation int32) group.CommitRequest {
	return group.CommitRequest{
		Caller:     r.caller(),
		Membership: group.Membership{Group: name, Member: member, Instance: instance, Generation: generation},
	}
}

// commitPlaces connects the offsets of a commit with the places of their answers.
type commitPlaces struct {
	h       *handler
	ctx     context.Context
	commit  *group.CommitRequest
	answers []*int16 // where the answer for commit.Partitions[i] goes
}

// topic returns a function that takes in the offset of one partition of a topic,
// or of one that could not be found, and where its answer goes. The topic has n
// partitions in the request.
func (p *commitPlaces) topic(t *topic.Topic, err error, n int, partition func(int) int32) func(answer *int16, number int32, offset int64, leaderEpoch int32, metadata *string) {
	code := p.h.backend.Code(err, true)
	if err == nil {
		highest := int32(-1)
		for i := range n {
			highest = max(highest, partition(i))
		}
		t = p.h.upTo(p.ctx, t, highest)
	}
	return func(answer *int16, number int32, offset int64, leaderEpoch int32, metadata *string) {
		switch {
		case err != nil:
			*answer = code
		case number < 0 || number >= t.Partitions:
			*answer = kerr.UnknownTopicOrPartition.Code
		default:
			p.commit.Partitions = append(p.commit.Partitions, group.CommitPartition{
				TopicPartition: types.TopicPartition{Topic: t.Name, Partition: number}, TopicID: t.ID,
				Offset: types.Offset(offset), LeaderEpoch: leaderEpoch, Metadata: metadata,
			})
			p.answers = append(p.answers, answer)
		}
	}
}

// refuse answers all that was taken in with one code.
func (p *commitPlaces) refuse(code int16) {
	for _, answer := range p.answers {
		*answer = code
	}
}

// ask commits what was taken in.
func (p *commitPlaces) ask() {
	if len(p.answers) == 0 {
		return
	}
	res := p.h.backend.Groups().Commit(p.ctx, *p.commit)
	if res.Err != nil {
		p.refuse(p.h.backend.Code(res.Err, true))
		return
	}
	for i, answer := range p.answers {
		*answer = p.h.backend.Code(res.Partitions[i], true)
	}
}
