package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// CreateTopics (key 19, v2–v7) creates topics; after its success they are usable
// through every gateway.
//
//   - Each topic is checked whole and answered alone; a refused or only
//     validated one leaves nothing behind. Topics are made in request order.
//   - A name given twice is INVALID_REQUEST, once, and not created.
//   - Partitions and replication −1 take the broker's default. A manual
//     assignment goes with −1 for both, counts its partitions from 0 without a
//     gap, and decides their number; the brokers it names place nothing.
//   - Topics that come after 10,000 partitions of the same request are
//     POLICY_VIOLATION.
//   - The client's timeout bounds the call: REQUEST_TIMED_OUT. Zero or less
//     means the server's patience (Kafka times out at once).
//
// v4 defaults by −1 (KIP-464; we take −1 in v2 and v3 too); v5 flexible, numbers
// and configs in the answer (KIP-525); v6 may say THROTTLING_QUOTA_EXCEEDED; v7
// topic id (KIP-516).
//
// Left out: replicas are placed by JetStream, not as assigned; topic creation
// policies.
var createTopicsAPI = api{key: 19, min: 2, max: 7, serve: (*handler).createTopics}

// clusterMetadataTopic is the one name that Kafka never lets a client create.
const clusterMetadataTopic = "__cluster_metadata"

// maxCreatedPartitions is where one request's creations end, as in Kafka, which
// refuses such a request whole (QuorumController.MAX_RECORDS_PER_USER_OP).
const maxCreatedPartitions = 10_000

func (h *handler) createTopics(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.CreateTopicsRequest)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()

	times := make(map[string]int, len(req.Topics))
	for _, rt := range req.Topics {
		times[rt.Topic]++
	}
	partitions := int32(0) // of this request so far
	for _, rt := range req.Topics {
		n := times[rt.Topic]
		if n == 0 {
			continue // a repetition, answered already
		}
		times[rt.Topic] = 0
		st := kmsg.NewCreateTopicsResponseTopic()
		st.Topic = rt.Topic
		st.Configs = []kmsg.CreateTopicsResponseTopicConfig{} // null would mean "not allowed to see them"
		var t *topic.Topic
		var err error
		if partitions >= maxCreatedPartitions {
			err = refuse(kerr.PolicyViolation, "%d partitions are in this request before this topic: create it by another one.", partitions)
		} else {
			t, err = h.createTopic(ctx, rt, n > 1, req.ValidateOnly)
		}
		if err != nil {
			st.ErrorCode, st.ErrorMessage = h.refusal(err, false)
		} else {
			partitions += t.Partitions
			st.TopicID, st.NumPartitions, st.ReplicationFactor = t.ID, t.Partitions, int16(t.Replicas)
			for _, v := range h.backend.TopicConfigs(t) {
				st.Configs = append(st.Configs, kmsg.CreateTopicsResponseTopicConfig{
					Name:   v.Name,
					Value:  &v.Value,
					Source: int8(v.Source),
				})
			}
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}

func (h *handler) createTopic(ctx context.Context, rt kmsg.CreateTopicsRequestTopic, twice, validateOnly bool) (*topic.Topic, error) {
	switch {
	case twice:
		return nil, refuse(kerr.InvalidRequest, "Duplicate topic name.")
	case rt.Topic == clusterMetadataTopic:
		return nil, refuse(kerr.InvalidRequest, "Creation of internal topic %s is prohibited.", rt.Topic)
	}
	spec := topic.Spec{
		Name:         rt.Topic,
		Partitions:   rt.NumPartitions,
		Replicas:     rt.ReplicationFactor,
		ValidateOnly: validateOnly,
	}
	if len(rt.ReplicaAssignment) > 0 {
		switch {
		case rt.ReplicationFactor != -1:
			return nil, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
		case rt.NumPartitions != -1:
			return nil, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but the number of partitions was not set to -1.")
		}
		spec.Assignments = make(map[int32][]int32, len(rt.ReplicaAssignment))
		for _, a := range rt.ReplicaAssignment {
			if _, ok := spec.Assignments[a.Partition]; ok {
				return nil, refuse(kerr.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d.", a.Partition)
			}
			spec.Assignments[a.Partition] = a.Replicas
		}
	}
	if len(rt.Configs) > 0 {
		spec.Configs = make(map[string]*string, len(rt.Configs))
		for _, c := range rt.Configs {
			spec.Configs[c.Name] = c.Value // of a key given twice the last counts, as in Kafka
		}
	}
	return h.backend.CreateTopic(ctx, spec)
}
