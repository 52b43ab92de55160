package protocol

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// AlterPartitionReassignments (key 45, v0–v1) would move replicas. The store
// places them, so that nothing ever moves; each partition is told so alone:
//
//   - The replicas that it has: success, nothing to do.
//   - null (cancel): NO_REASSIGNMENT_IN_PROGRESS.
//   - No replicas, one twice, or one that is no broker, in the order of the ids:
//     INVALID_REPLICA_ASSIGNMENT with Kafka's words; any other set the same, as
//     the store alone places replicas.
//   - Unknown topics and partitions: UNKNOWN_TOPIC_OR_PARTITION.
//
// v1 may forbid that the number of replicas changes, and says it again in the
// answer (KIP-860).
var alterReassignmentsAPI = api{key: 45, min: 0, max: 1, large: true, serve: (*handler).alterReassignments}

func (h *handler) alterReassignments(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.AlterPartitionAssignmentsRequest)
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	if len(req.Topics) == 0 {
		resp.ErrorMessage = new(string) // as Kafka's, for no reason that is known
	}
	brokers := h.backend.Brokers()
	find := h.finder(ctx)
	for i := range req.Topics {
		rt := &req.Topics[i]
		st := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		st.Topic = rt.Topic
		st.Partitions = make([]kmsg.AlterPartitionAssignmentsResponseTopicPartition, len(rt.Partitions))
		t, err := find(rt.Topic)
		if notThere(err) {
			err = refuse(kerr.UnknownTopicOrPartition, "Unable to find a topic named %s.", rt.Topic)
		}
		if err == nil {
			highest := int32(-1)
			for _, rp := range rt.Partitions {
				highest = max(highest, rp.Partition)
			}
			t = h.upTo(ctx, t, highest)
		}
		for j := range rt.Partitions {
			rp, sp := &rt.Partitions[j], &st.Partitions[j]
			*sp = kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			sp.Partition = rp.Partition
			switch {
			case err != nil:
				sp.ErrorCode, sp.ErrorMessage = h.refusal(err, false)
			case rp.Partition < 0 || rp.Partition >= t.Partitions:
				sp.ErrorCode, sp.ErrorMessage = h.refusal(refuse(kerr.UnknownTopicOrPartition, "Unable to find partition %s:%d.", t.Name, rp.Partition), false)
			case rp.Replicas == nil:
				sp.ErrorCode = kerr.NoReassignmentInProgress.Code
			default:
				sp.ErrorCode, sp.ErrorMessage = h.refusal(h.reassign(brokers, t, rp), false)
			}
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}

// reassign says why a partition does not get these replicas; nil if it has them.
func (h *handler) reassign(brokers Brokers, t *topic.Topic, rp *kmsg.AlterPartitionAssignmentsRequestTopicPartition) error {
	if len(rp.Replicas) == 0 {
		return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	ids := slices.Sorted(slices.Values(rp.Replicas))
	if now, _, _ := h.replicas(brokers, t, rp.Partition); slices.Equal(ids, slices.Sorted(slices.Values(now))) {
		return nil
	}
	for i, id := range ids {
		if _, ok := brokers.Find(id); !ok {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", id)
		}
		if i > 0 && ids[i-1] == id {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", id)
		}
	}
	return refuse(kerr.InvalidReplicaAssignment, "The store places replicas: they cannot be assigned to brokers.")
}
