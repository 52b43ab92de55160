package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// CreatePartitions (key 37, v0–v3) gives topics more partitions; after its
// success they are usable through every gateway.
//
//   - The count is the new total: what is not above the present one is
//     INVALID_PARTITIONS.
//   - Each topic is answered alone; unknown UNKNOWN_TOPIC_OR_PARTITION, given
//     twice INVALID_REQUEST, once, and not grown.
//   - A manual assignment must name known brokers for exactly the new
//     partitions (INVALID_REPLICA_ASSIGNMENT); the store places them.
//   - The client's timeout bounds the call: REQUEST_TIMED_OUT. A growth that has
//     begun is finished all the same, later.
//
// v2 flexible; v3 may say THROTTLING_QUOTA_EXCEEDED.
//
// Left out: the internal topic is INVALID_REQUEST.
var createPartitionsAPI = api{key: 37, min: 0, max: 3, large: true, serve: (*handler).createPartitions}

func (h *handler) createPartitions(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.CreatePartitionsRequest)
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()

	times := make(map[string]int, len(req.Topics))
	for _, rt := range req.Topics {
		times[rt.Topic]++
	}
	for _, rt := range req.Topics {
		n := times[rt.Topic]
		if n == 0 {
			continue // a repetition, answered already
		}
		times[rt.Topic] = 0
		st := kmsg.NewCreatePartitionsResponseTopic()
		st.Topic = rt.Topic
		err := h.growTopic(ctx, rt, n > 1, req.ValidateOnly)
		st.ErrorCode, st.ErrorMessage = h.refusal(err, false)
		if refusedWith(err, kerr.UnknownTopicOrPartition) {
			st.ErrorMessage = nil // as Kafka
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}

func (h *handler) growTopic(ctx context.Context, rt kmsg.CreatePartitionsRequestTopic, twice, validateOnly bool) error {
	if twice {
		return refuse(kerr.InvalidRequest, "Duplicate topic name.")
	}
	g := topic.Growth{Partitions: rt.Count, ValidateOnly: validateOnly}
	if rt.Assignment != nil {
		g.Assignments = make([][]int32, len(rt.Assignment))
		for i, a := range rt.Assignment {
			g.Assignments[i] = a.Replicas
		}
	}
	err := h.ofName(ctx, rt.Topic, func(t *topic.Topic) error { return h.backend.GrowTopic(ctx, t, g) })
	if refusedWith(err, kerr.InvalidTopicException) { // what is no name is no topic
		return kerr.UnknownTopicOrPartition
	}
	return err
}
