package protocol

import (
	"context"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/types"
)

// FindCoordinator (key 10, v0–v6) names the broker that looks after a
// group or a transactional id.
//
//   - Every gateway names the same one, out of the list that Metadata shows.
//   - A key given twice is answered once.
//   - A key that cannot be served is INVALID_REQUEST with a text, node −1.
//
// v1 key type (0 group, 1 transactional id), error text, throttle time; v3
// flexible; v4 many keys, answered one by one (KIP-699), no top-level error any
// more; v5 and v6 add error codes and key type 2 (share groups, KIP-932).
//
// Left out: key type 2 (no share groups yet) is INVALID_REQUEST.
var findCoordinatorAPI = api{key: 10, min: 0, max: 6, serve: (*handler).findCoordinator}

// Kinds of coordinators (org.apache.kafka.common.requests.FindCoordinatorRequest).
const (
	groupCoordinator = 0
	txnCoordinator   = 1
	shareCoordinator = 2
)

func (h *handler) findCoordinator(_ context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version >= 4 {
		for _, key := range once(req.CoordinatorKeys) {
			resp.Coordinators = append(resp.Coordinators, h.coordinator(r, req, key))
		}
		return resp, nil
	}
	c := h.coordinator(r, req, req.CoordinatorKey)
	resp.ErrorCode, resp.ErrorMessage = c.ErrorCode, c.ErrorMessage
	resp.NodeID, resp.Host, resp.Port = c.NodeID, c.Host, c.Port
	return resp, nil
}

// coordinator answers for one key.
func (h *handler) coordinator(r *request, req *kmsg.FindCoordinatorRequest, key string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key = key
	if err := coordinatorKey(req.Version, req.CoordinatorType, key); err != nil {
		c.NodeID, c.Port = -1, -1
		c.ErrorCode, c.ErrorMessage = h.refusal(err, true)
		return c
	}
	of := h.backend.Coordinator
	if req.CoordinatorType == txnCoordinator {
		of = h.backend.TxnCoordinator
	}
	if n, ok := h.brokers(r).Find(of(key)); ok {
		c.NodeID, c.Host, c.Port = n.ID, n.Host, n.Port
		return c
	}
	// The list and the choice are read one after the other: a gateway may leave
	// the cluster in between. Or we are cut off, and the coordinator may be
	// another one by now. Clients ask again, and elsewhere.
	c.NodeID, c.Port = -1, -1
	c.ErrorCode, c.ErrorMessage = h.refusal(kerr.CoordinatorNotAvailable, true)
	return c
}

// coordinatorKey refuses what has no coordinator here.
func coordinatorKey(version int16, kind int8, key string) error {
	switch kind {
	case groupCoordinator, txnCoordinator:
		return nil
	case shareCoordinator:
		if version < 6 {
			return refuse(kerr.InvalidRequest, "Key type 2 needs version 6, not %d.", version)
		}
		if !shareKey(key) {
			return refuse(kerr.InvalidRequest, "A key of type 2 is group:topicId:partition, not %q.", cut(key))
		}
		return refuse(kerr.InvalidRequest, "Share groups are not supported by this broker.")
	}
	return refuse(kerr.InvalidRequest, "Unknown key type %d.", kind)
}

// shareKey reports whether a key has the form group:topicId:partition; the group
// itself may hold colons (org.apache.kafka.server.share.SharePartitionKey).
func shareKey(key string) bool {
	rest, partition, ok := cutLast(key)
	if !ok {
		return false
	}
	name, id, ok := cutLast(rest)
	if !ok || name == "" {
		return false
	}
	if n, err := strconv.ParseInt(partition, 10, 32); err != nil || n < 0 {
		return false
	}
	_, err := types.ParseTopicID(id)
	return err == nil
}

// cutLast cuts at the last colon.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
