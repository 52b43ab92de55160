package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
)

// SyncGroup (key 14, v0–v5) hands out the leader's assignment. Members that
// come before the leader wait for it.
//
//   - A member that the leader left out gets an empty assignment, no error.
//   - A new rebalance REBALANCE_IN_PROGRESS, another generation
//     ILLEGAL_GENERATION, unknown member or group UNKNOWN_MEMBER_ID.
//
// v1 throttle time; v3 instance id (KIP-345); v4 flexible; v5 protocol type and
// name, both needed: missing or different is INCONSISTENT_GROUP_PROTOCOL
// (KIP-559).
var syncGroupAPI = api{key: 14, min: 0, max: 5, serve: (*handler).syncGroup}

func (h *handler) syncGroup(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.SyncGroupRequest)
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	sync := group.SyncRequest{
		Membership: group.Membership{
			Group:      req.Group,
			Member:     req.MemberID,
			Instance:   req.InstanceID,
			Generation: req.Generation,
		},
		ProtocolType:    req.ProtocolType,
		Protocol:        req.Protocol,
		RequireProtocol: req.Version >= 5,
	}
	// The group keeps the assignments: syncGroupAPI must not lend.
	for _, a := range req.GroupAssignment {
		sync.Assignments = append(sync.Assignments, group.Assignment{Member: a.MemberID, Data: a.MemberAssignment})
	}

	res := h.backend.Groups().Sync(ctx, sync)
	if res.Err != nil {
		resp.ErrorCode = h.backend.Code(res.Err, true)
		return resp, nil
	}
	resp.ProtocolType, resp.Protocol, resp.MemberAssignment = res.ProtocolType, res.Protocol, res.Assignment
	return resp, nil
}
