package protocol

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListConfigResources (key 74, v0–v1) names what configs can be set on.
//
//   - No types means all. A type that Kafka does not know is
//     UNSUPPORTED_VERSION.
//   - Topics: all of them; brokers: those that clients see. Client metrics and
//     groups have no configs here, so that none is listed.
//
// v0 client metrics only (it was ListClientMetricsResources); v1 types
// (KIP-1142).
//
// Left out: broker loggers.
var listConfigResourcesAPI = api{key: 74, min: 0, max: 1, large: true, serve: (*handler).listConfigResources}

func (h *handler) listConfigResources(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.ListConfigResourcesRequest)
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	if r.GetVersion() == 0 {
		return resp, nil
	}
	types := once(req.ResourceTypes)
	if len(types) == 0 {
		types = []int8{int8(kmsg.ConfigResourceTypeTopic), int8(kmsg.ConfigResourceTypeBroker)}
	}
	for _, kind := range types {
		add := func(name string) {
			c := kmsg.NewListConfigResourcesResponseConfigResource()
			c.Name, c.Type = name, kind
			resp.ConfigResources = append(resp.ConfigResources, c)
		}
		switch kmsg.ConfigResourceType(kind) {
		case kmsg.ConfigResourceTypeTopic:
			ts, err := h.backend.Topics(ctx)
			if err != nil {
				resp.ConfigResources = nil
				resp.ErrorCode = h.backend.Code(err, false)
				return resp, nil
			}
			for _, t := range ts {
				add(t.Name)
			}
		case kmsg.ConfigResourceTypeBroker:
			for _, n := range h.backend.Nodes() {
				add(strconv.Itoa(int(n.ID)))
			}
		case kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		default:
			resp.ConfigResources = nil
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			return resp, nil
		}
	}
	return resp, nil
}
