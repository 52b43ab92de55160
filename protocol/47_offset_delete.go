package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/types"
)

// OffsetDelete (key 47, v0) forgets what a group committed for some partitions
// (KIP-496; kafka-consumer-groups --delete-offsets).
//
//   - For the group, and then without partitions: INVALID_GROUP_ID for "",
//     GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP for a group with members that are not
//     consumers, and what a coordinator says that cannot answer.
//   - A topic that a member reads: GROUP_SUBSCRIBED_TO_TOPIC; all topics if the
//     subscription of a member cannot be read.
//   - Unknown topics and partitions: UNKNOWN_TOPIC_OR_PARTITION; these come first
//     in the answer.
//   - Nothing committed: success.
//
// Never flexible.
var offsetDeleteAPI = api{key: 47, min: 0, max: 0, lends: true, serve: (*handler).offsetDelete}

func (h *handler) offsetDelete(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	var (
		asked []types.TopicPartition
		from  []int // which of the request's topics
	)
	find := h.finder(ctx)
	places := topicPlaces{resp: resp, at: make(map[string]int)}
	for i, rt := range req.Topics {
		t, err := find(rt.Topic)
		code := kerr.UnknownTopicOrPartition.Code
		if err != nil {
			if !notThere(err) {
				code = h.backend.Code(err, true)
			}
			places.of(rt.Topic)
		} else {
			highest := int32(-1)
			for _, rp := range rt.Partitions {
				highest = max(highest, rp.Partition)
			}
			t = h.upTo(ctx, t, highest)
		}
		for _, rp := range rt.Partitions {
			if err != nil || rp.Partition < 0 || rp.Partition >= t.Partitions {
				offsetDeleted(places.of(rt.Topic), rp.Partition, code)
				continue
			}
			asked = append(asked, types.TopicPartition{Topic: t.Name, Partition: rp.Partition})
			from = append(from, i)
		}
	}
	res := h.backend.Groups().DeleteOffsets(ctx, req.Group, asked)
	if res.Err != nil {
		resp.ErrorCode, resp.Topics = h.backend.Code(res.Err, true), nil
		return resp, nil
	}
	// A topic that is named again is answered again, but not beside unknown ones,
	// as in Kafka (OffsetDeleteResponse.Builder).
	merge := len(resp.Topics) > 0
	for i, tp := range asked {
		if !merge && (i == 0 || from[i] != from[i-1]) {
			st := kmsg.NewOffsetDeleteResponseTopic()
			st.Topic = tp.Topic
			resp.Topics = append(resp.Topics, st)
		}
		st := &resp.Topics[len(resp.Topics)-1]
		if merge {
			st = places.of(tp.Topic)
		}
		offsetDeleted(st, tp.Partition, h.backend.Code(res.Partitions[i], true))
	}
	return resp, nil
}

// topicPlaces are the places of topics in an answer, one each.
type topicPlaces struct {
	resp *kmsg.OffsetDeleteResponse
	at   map[string]int
}

// of is the place of a topic, until the next call.
func (p topicPlaces) of(name string) *kmsg.OffsetDeleteResponseTopic {
	i, ok := p.at[name]
	if !ok {
		i = len(p.resp.Topics)
		p.at[name] = i
		st := kmsg.NewOffsetDeleteResponseTopic()
		st.Topic = name
		p.resp.Topics = append(p.resp.Topics, st)
	}
	return &p.resp.Topics[i]
}

func offsetDeleted(st *kmsg.OffsetDeleteResponseTopic, n int32, code int16) {
	sp := kmsg.NewOffsetDeleteResponseTopicPartition()
	sp.Partition, sp.ErrorCode = n, code
	st.Partitions = append(st.Partitions, sp)
}
