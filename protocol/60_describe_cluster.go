package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster (key 60, v0–v2) names the brokers, the controller and the
// cluster id, out of the same list as Metadata.
//
//   - Only endpoint type 1 (brokers) lives here: controllers are
//     MISMATCHED_ENDPOINT_TYPE, anything else UNSUPPORTED_ENDPOINT_TYPE.
//   - The controller is a broker of the list; −1 if it left a moment ago.
//   - Authorized operations if asked, −2147483648 if not.
//
// v1 endpoint type (KIP-919); v2 fenced brokers (KIP-1073): we have none, a
// gateway that does not live is not listed.
var describeClusterAPI = api{key: 60, min: 0, max: 2, serve: (*handler).describeCluster}

// Endpoint types (org.apache.kafka.clients.admin.EndpointType).
const (
	brokerEndpoint     = 1
	controllerEndpoint = 2
)

func (h *handler) describeCluster(_ context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	switch req.EndpointType {
	case brokerEndpoint:
	case controllerEndpoint:
		resp.ErrorCode, resp.ErrorMessage = h.refusal(refuse(kerr.MismatchedEndpointType, "This is an endpoint of brokers, not of controllers."), false)
		return resp, nil
	default:
		resp.ErrorCode, resp.ErrorMessage = h.refusal(refuse(kerr.UnsupportedEndpointType, "Endpoint type %d is unknown.", req.EndpointType), false)
		return resp, nil
	}
	resp.ClusterID = h.backend.ClusterID()
	brokers := h.brokers(r)
	for _, n := range brokers.Nodes {
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, n.Rack
		resp.Brokers = append(resp.Brokers, b)
		if n.ID == brokers.Controller {
			resp.ControllerID = n.ID
		}
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp, nil
}
