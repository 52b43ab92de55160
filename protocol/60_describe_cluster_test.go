package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// C-38: the list is Metadata's, the controller is one of it.
func TestDescribeCluster(t *testing.T) {
	versions(t, &describeClusterAPI, func(t *testing.T, v int16) {
		for _, c := range []struct {
			name                 string
			controller, answered int32
			ask                  bool
			operations           int32
		}{
			{"plain", 2, 2, false, -2147483648},
			{"operations", 1, 1, true, 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12},
			{"controller left", 9, -1, false, -2147483648},
		} {
			b := &stub{controller: c.controller, nodes: []Node{{ID: 1, Host: "a", Port: 9092}, {ID: 2, Host: "::1", Port: 19092, Rack: ptr("r")}}}
			req := kmsg.NewPtrDescribeClusterRequest()
			req.IncludeClusterAuthorizedOperations, req.IncludeFencedBrokers = c.ask, true
			resp := asked[*kmsg.DescribeClusterResponse](t, b, &describeClusterAPI, v, req)
			want := kmsg.NewDescribeClusterResponse()
			want.Version, want.ClusterID, want.ControllerID = v, b.ClusterID(), c.answered
			want.ClusterAuthorizedOperations = c.operations
			want.Brokers = []kmsg.DescribeClusterResponseBroker{{NodeID: 1, Host: "a", Port: 9092}, {NodeID: 2, Host: "::1", Port: 19092, Rack: ptr("r")}}
			same(t, c.name, resp, &want)
		}
	})
}

func TestDescribeClusterEndpointType(t *testing.T) {
	for v := int16(1); v <= describeClusterAPI.max; v++ {
		for kind, want := range map[int8]int16{0: 115, 1: 0, 2: 114, 3: 115, -1: 115} {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.EndpointType = kind
			resp := asked[*kmsg.DescribeClusterResponse](t, &stub{}, &describeClusterAPI, v, req)
			if resp.ErrorCode != want || (resp.ErrorMessage != nil) != (want != 0) {
				t.Errorf("v%d type %d: code %d, text %v", v, kind, resp.ErrorCode, resp.ErrorMessage)
			}
		}
	}
}
