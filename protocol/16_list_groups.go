package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups (key 16, v0–v5) lists the groups that this broker coordinates, as
// FindCoordinator would say: tools ask every broker and put the answers together.
//
//   - Filters ignore case; no filter means all; an unknown state or type matches
//     nothing and is no error.
//   - Groups that hold offsets only are listed too, with protocol type "".
//
// v1 throttle time; v3 flexible; v4 state and state filter (KIP-518); v5 type
// and type filter (KIP-848).
var listGroupsAPI = api{key: 16, min: 0, max: 5, large: true, serve: (*handler).listGroups}

func (h *handler) listGroups(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.ListGroupsRequest)
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	groups, err := h.backend.Groups().List(ctx, req.StatesFilter, req.TypesFilter)
	if err != nil {
		resp.ErrorCode = h.backend.Code(err, true)
		return resp, nil
	}
	brokers := h.backend.Brokers()
	for _, g := range groups {
		// With one broker it has all groups, also while nobody can coordinate.
		if len(brokers.Nodes) > 1 && h.backend.Coordinator(g.Group) != brokers.Self {
			continue
		}
		sg := kmsg.NewListGroupsResponseGroup()
		sg.Group, sg.ProtocolType, sg.GroupState, sg.GroupType = g.Group, g.ProtocolType, g.State, g.Type
		resp.Groups = append(resp.Groups, sg)
	}
	return resp, nil
}
