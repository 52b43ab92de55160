package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups (key 42, v0–v2) deletes groups with all their offsets.
//
//   - With members NON_EMPTY_GROUP, unknown GROUP_ID_NOT_FOUND.
//   - A name given twice is deleted, and answered, once.
//
// v1 throttle time; v2 flexible.
var deleteGroupsAPI = api{key: 42, min: 0, max: 2, serve: (*handler).deleteGroups}

func (h *handler) deleteGroups(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DeleteGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	seen := make(map[string]bool, len(req.Groups))
	for _, name := range req.Groups {
		if seen[name] {
			continue
		}
		seen[name] = true
		sg := kmsg.NewDeleteGroupsResponseGroup()
		sg.Group = name
		sg.ErrorCode = h.backend.Code(h.backend.Groups().Delete(ctx, name), true)
		resp.Groups = append(resp.Groups, sg)
	}
	return resp, nil
}
