package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
)

// DescribeGroups (key 15, v0–v6) shows classic groups with their members.
//
//   - An unknown group is Dead without an error; from v6 it is also
//     GROUP_ID_NOT_FOUND. One bad group never spoils the others.
//   - A name given twice is answered once.
//   - Protocol and assignments are shown in state Stable only; hosts start with
//     a slash.
//
// v1 throttle time; v3 authorized operations if asked (−2147483648 if not); v4
// instance id (KIP-345); v5 flexible; v6 error text and GROUP_ID_NOT_FOUND
// (KIP-1043).
var describeGroupsAPI = api{key: 15, min: 0, max: 6, large: true, serve: (*handler).describeGroups}

func (h *handler) describeGroups(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DescribeGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, name := range once(req.Groups) {
		resp.Groups = append(resp.Groups, h.describeGroup(ctx, req, name))
	}
	return resp, nil
}

func (h *handler) describeGroup(ctx context.Context, req *kmsg.DescribeGroupsRequest, name string) kmsg.DescribeGroupsResponseGroup {
	sg := kmsg.NewDescribeGroupsResponseGroup()
	sg.Group = name
	d := h.backend.Groups().Describe(ctx, name)
	if d.Err == nil && d.State == group.Dead && req.Version >= 6 {
		d.Err = refuse(kerr.GroupIDNotFound, "Group %s not found.", name)
	}
	sg.State = d.State
	if d.Err != nil {
		sg.ErrorCode, sg.ErrorMessage = h.refusal(d.Err, true)
		return sg
	}
	sg.ProtocolType, sg.Protocol = d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		sm := kmsg.NewDescribeGroupsResponseGroupMember()
		sm.MemberID, sm.InstanceID = m.Member, m.Instance
		sm.ClientID, sm.ClientHost = m.ClientID, m.Host
		sm.ProtocolMetadata, sm.MemberAssignment = m.Metadata, m.Assignment
		sg.Members = append(sg.Members, sm)
	}
	if req.IncludeAuthorizedOperations {
		sg.AuthorizedOperations = groupOperations
	}
	return sg
}
