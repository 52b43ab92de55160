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
//   - Topics: all of them; brokers: those that clients see; groups and
//     subscriptions of client metrics: those for which something was set.
//
// v0 client metrics only (it was ListClientMetricsResources); v1 types
// (KIP-1142).
//
// Left out: broker loggers.
var listConfigResourcesAPI = api{key: 74, min: 0, max: 1, large: true, serve: (*handler).listConfigResources}

func (h *handler) listConfigResources(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.ListConfigResourcesRequest)
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	types := once(req.ResourceTypes)
	switch {
	case r.GetVersion() == 0:
		types = []int8{int8(kmsg.ConfigResourceTypeClientMetrics)}
	case len(types) == 0:
		types = []int8{int8(kmsg.ConfigResourceTypeTopic), int8(kmsg.ConfigResourceTypeBroker),
			int8(kmsg.ConfigResourceTypeClientMetrics), int8(kmsg.ConfigResourceTypeGroupConfig)}
	}
	h.backend.RefreshConfigs(ctx, nil)
	groups, metrics := h.backend.Configured()
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
			for _, n := range h.backend.Brokers().Nodes {
				add(strconv.Itoa(int(n.ID)))
			}
		case kmsg.ConfigResourceTypeClientMetrics:
			for _, name := range metrics {
				add(name)
			}
		case kmsg.ConfigResourceTypeGroupConfig:
			for _, name := range groups {
				add(name)
			}
		case kmsg.ConfigResourceTypeBrokerLogger:
		default:
			resp.ConfigResources = nil
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			return resp, nil
		}
	}
	return resp, nil
}
