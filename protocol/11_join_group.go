package protocol

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
)

// JoinGroup (key 11, v0–v9) makes a member of a classic group. It blocks until
// the group has agreed on its members; other requests of the connection wait.
//
//   - Empty group id INVALID_GROUP_ID, session timeout out of range
//     INVALID_SESSION_TIMEOUT, nothing in common INCONSISTENT_GROUP_PROTOCOL.
//   - Only the leader is told the members.
//   - An error comes with generation −1, and with a new member id where the code
//     is MEMBER_ID_REQUIRED.
//
// v1 rebalance timeout (v0 takes the session timeout); v2 throttle time; v4 a
// new member gets MEMBER_ID_REQUIRED and an id to come back with (KIP-394); v5
// instance id (KIP-345); v6 flexible; v7 protocol type in the answer, protocol
// may be null (KIP-559); v8 reason (KIP-800); v9 skip_assignment (KIP-814).
var joinGroupAPI = api{key: 11, min: 0, max: 9, serve: (*handler).joinGroup}

func (h *handler) joinGroup(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.JoinGroupRequest)
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	join := group.JoinRequest{
		Caller:            r.caller(),
		Group:             req.Group,
		Member:            req.MemberID,
		Instance:          req.InstanceID,
		ProtocolType:      req.ProtocolType,
		SessionTimeout:    time.Duration(req.SessionTimeoutMillis) * time.Millisecond,
		RebalanceTimeout:  time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		RequireMemberID:   req.Version >= 4,
		CanSkipAssignment: req.Version >= 9,
	}
	if req.Reason != nil {
		join.Reason = *req.Reason
	}
	// The group keeps the metadata for as long as the member lives: joinGroupAPI
	// must not lend.
	for _, p := range req.Protocols {
		join.Protocols = append(join.Protocols, group.Protocol{Name: p.Name, Metadata: p.Metadata})
	}

	res := h.backend.Groups().Join(ctx, join)
	resp.MemberID = res.Member
	if res.Err != nil {
		resp.ErrorCode = h.backend.Code(res.Err, true) // and generation −1, kmsg's default
		return resp, nil
	}
	resp.Generation = res.Generation
	resp.ProtocolType, resp.Protocol = res.ProtocolType, res.Protocol
	resp.LeaderID, resp.SkipAssignment = res.Leader, res.SkipAssignment
	for _, m := range res.Members {
		sm := kmsg.NewJoinGroupResponseMember()
		sm.MemberID, sm.InstanceID, sm.ProtocolMetadata = m.Member, m.Instance, m.Metadata
		resp.Members = append(resp.Members, sm)
	}
	return resp, nil
}
