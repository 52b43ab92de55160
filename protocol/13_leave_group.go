package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
)

// LeaveGroup (key 13, v0–v5) ends memberships at once. librdkafka uses groups
// only where it is listed.
//
//   - v0–v2 name one member, its error stands at the top; from v3 each member
//     has its own and the top tells what concerns the group.
//   - A static member is named by its instance id, the member id may be empty.
//
// v1 throttle time; v3 many members, by id or instance id (KIP-345); v4
// flexible; v5 reason (KIP-800).
var leaveGroupAPI = api{key: 13, min: 0, max: 5, serve: (*handler).leaveGroup}

func (h *handler) leaveGroup(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.LeaveGroupRequest)
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	var members []group.LeaveMember
	if req.Version < 3 {
		members = []group.LeaveMember{{Member: req.MemberID}}
	} else {
		for _, m := range req.Members {
			lm := group.LeaveMember{Member: m.MemberID, Instance: m.InstanceID}
			if m.Reason != nil {
				lm.Reason = *m.Reason
			}
			members = append(members, lm)
		}
	}

	res := h.backend.Groups().Leave(ctx, req.Group, members)
	switch {
	case res.Err != nil:
		resp.ErrorCode = h.backend.Code(res.Err, true)
	case req.Version < 3:
		resp.ErrorCode = h.backend.Code(res.Members[0].Err, true)
	default:
		for _, m := range res.Members {
			sm := kmsg.NewLeaveGroupResponseMember()
			sm.MemberID, sm.InstanceID = m.Member, m.Instance
			sm.ErrorCode = h.backend.Code(m.Err, true)
			resp.Members = append(resp.Members, sm)
		}
	}
	return resp, nil
}
