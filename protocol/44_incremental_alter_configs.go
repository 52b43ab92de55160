package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// IncrementalAlterConfigs (key 44, v0–v1) changes single settings of topics and
// brokers: set, delete (the inherited value is in force again), append to and
// subtract from lists (KIP-339). The rest stays.
//
//   - Each resource is changed whole or not at all, and answered alone. With
//     validate_only everything is checked and nothing changed.
//   - After success this gateway obeys the change, the others within a second,
//     open partitions included.
//   - Topics: unknown key, bad value, append or subtract on what is no list, and
//     what the store cannot do INVALID_CONFIG; no such topic
//     UNKNOWN_TOPIC_OR_PARTITION; the internal topic INVALID_REQUEST.
//   - Brokers: own id for one, "" for all. Read-only keys, bad values and other
//     ids INVALID_REQUEST. What can be changed are the defaults of topic configs,
//     and settings of Kafka's threads that mean nothing here.
//   - Groups and subscriptions of client metrics: any name; what is set is kept
//     and shown, and means nothing here.
//   - A null value, a key or a resource given twice INVALID_REQUEST.
//
// v1 flexible.
//
// Left out: unknown broker keys, which Kafka keeps for plugins, INVALID_CONFIG;
// broker keys that Kafka can change and we cannot (connections, listeners)
// INVALID_REQUEST; broker loggers INVALID_REQUEST: nothing here would obey them.
var incrementalAlterConfigsAPI = api{key: 44, min: 0, max: 1, large: true, serve: (*handler).incrementalAlterConfigs}

func (h *handler) incrementalAlterConfigs(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	times := make(map[configResource]int, len(req.Resources))
	for _, rr := range req.Resources {
		times[configResource{rr.ResourceType, rr.ResourceName}]++
	}
	for _, rr := range req.Resources {
		id := configResource{rr.ResourceType, rr.ResourceName}
		a := topic.Alteration{ValidateOnly: req.ValidateOnly}
		for _, c := range rr.Configs {
			a.Changes = append(a.Changes, topic.Change{Name: c.Name, Op: topic.Op(c.Op), Value: c.Value})
		}
		sr := kmsg.NewIncrementalAlterConfigsResponseResource()
		sr.ResourceType, sr.ResourceName = id.kind, id.name
		sr.ErrorCode, sr.ErrorMessage = h.refusal(h.alter(ctx, id, times[id], a), false)
		resp.Resources = append(resp.Resources, sr)
	}
	return resp, nil
}
