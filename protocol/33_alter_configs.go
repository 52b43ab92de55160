package protocol

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// AlterConfigs (key 33, v0–v2) replaces all that was set on a resource: what the
// request leaves out is unset. Rules and refusals are those of
// IncrementalAlterConfigs, which every newer client prefers.
//
// v2 flexible.
//
// Left out: as in IncrementalAlterConfigs. A resource given twice is
// INVALID_REQUEST each time (Kafka never answers such a request).
var alterConfigsAPI = api{key: 33, min: 0, max: 2, large: true, serve: (*handler).alterConfigs}

func (h *handler) alterConfigs(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	times := make(map[configResource]int, len(req.Resources))
	for _, rr := range req.Resources {
		times[configResource{rr.ResourceType, rr.ResourceName}]++
	}
	for _, rr := range req.Resources {
		id := configResource{rr.ResourceType, rr.ResourceName}
		a := topic.Alteration{Replace: true, ValidateOnly: req.ValidateOnly}
		for _, c := range rr.Configs {
			a.Changes = append(a.Changes, topic.Change{Name: c.Name, Value: c.Value})
		}
		sr := kmsg.NewAlterConfigsResponseResource()
		sr.ResourceType, sr.ResourceName = id.kind, id.name
		sr.ErrorCode, sr.ErrorMessage = h.refusal(h.alter(ctx, id, times[id], a), false)
		resp.Resources = append(resp.Resources, sr)
	}
	return resp, nil
}

// configResource is what has configs.
type configResource struct {
	kind kmsg.ConfigResourceType
	name string
}

// alter carries out what a request wants of one resource, which it names so many
// times.
func (h *handler) alter(ctx context.Context, r configResource, times int, a topic.Alteration) error {
	if times > 1 {
		return refuse(kerr.InvalidRequest, "Each resource must appear at most once.")
	}
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		if r.name == "" {
			return refuse(kerr.InvalidRequest, "Default topic resources are not allowed.")
		}
		err := h.ofName(ctx, r.name, func(t *topic.Topic) error { return h.backend.AlterTopic(ctx, t, a) })
		if refusedWith(err, kerr.UnknownTopicOrPartition) {
			return refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", r.name)
		}
		return err
	case kmsg.ConfigResourceTypeBroker:
		if r.name == "" {
			return h.backend.AlterBroker(ctx, "", a)
		}
		id, err := strconv.ParseInt(r.name, 10, 32)
		if err != nil {
			return refuse(kerr.InvalidRequest, "Node id must be an integer, but it is: %s", cut(r.name))
		}
		if brokers := h.backend.Brokers(); !brokers.knows(id) {
			return refuse(kerr.InvalidRequest, "Unexpected broker id, expected %s, but received %s", brokers.ids(), cut(r.name))
		}
		return h.backend.AlterBroker(ctx, strconv.FormatInt(id, 10), a)
	case kmsg.ConfigResourceTypeClientMetrics:
		return h.backend.AlterMetrics(ctx, r.name, a)
	case kmsg.ConfigResourceTypeGroupConfig:
		return h.backend.AlterGroup(ctx, r.name, a)
	case kmsg.ConfigResourceTypeBrokerLogger:
		return refuse(kerr.InvalidRequest, "Broker loggers are not supported: log-level is a setting of the process.")
	}
	return refuse(kerr.InvalidRequest, "Unknown resource type %d", r.kind)
}
