package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
)

// Heartbeat (key 12, v0–v4) says that a member lives.
//
//   - REBALANCE_IN_PROGRESS tells it to join again; waiting in JoinGroup or
//     SyncGroup counts as a heartbeat.
//   - Unknown group, member or instance UNKNOWN_MEMBER_ID, another generation
//     ILLEGAL_GENERATION, an older holder of the instance id FENCED_INSTANCE_ID.
//   - A group that is still being read answers success, as in Kafka: its members
//     are alive, their timers start when it was read, and sarama and kafka-go
//     end their session at COORDINATOR_LOAD_IN_PROGRESS, which makes a rebalance.
//
// v1 throttle time; v3 instance id (KIP-345); v4 flexible.
var heartbeatAPI = api{key: 12, min: 0, max: 4, serve: (*handler).heartbeat}

func (h *handler) heartbeat(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.HeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	err := h.backend.Groups().Heartbeat(ctx, group.Membership{
		Group:      req.Group,
		Member:     req.MemberID,
		Instance:   req.InstanceID,
		Generation: req.Generation,
	})
	if !refusedWith(err, kerr.CoordinatorLoadInProgress) {
		resp.ErrorCode = h.backend.Code(err, true)
	}
	return resp, nil
}
