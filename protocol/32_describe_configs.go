package protocol

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// DescribeConfigs (key 32, v1–v4) tells settings, and where each was made.
//
//   - Topics: every key of Kafka's. Source 1 if set on the topic, even to the
//     default, else where the broker's key is set; with synonyms: the topic's own
//     value first, then every place in which the broker's key has one.
//   - Brokers: own id: every key of ours; "": what was set for all of them while
//     they ran; another id INVALID_REQUEST.
//   - The store is asked first, so that every gateway shows what was changed
//     through another one a moment ago; while it is away, memory answers.
//   - A filter that is null or empty means all; unknown keys are left out.
//   - Unknown topic UNKNOWN_TOPIC_OR_PARTITION, unknown kind of resource
//     INVALID_REQUEST; each resource is answered alone (Kafka refuses the whole
//     request at an unknown kind).
//   - A resource given twice is answered once, for its first filter.
//   - Values of passwords are null.
//
// v1 synonyms and source (KIP-226); v2 throttling as Kafka's; v3 types and
// documentation (KIP-569); v4 flexible.
//
//   - Groups (32) and subscriptions of client metrics (16): every key, whether
//     there is such a one or not; source 8 and 7 if set.
//
// Left out: broker loggers (8) are INVALID_REQUEST.
var describeConfigsAPI = api{key: 32, min: 1, max: 4, large: true, serve: (*handler).describeConfigs}

func (h *handler) describeConfigs(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	var topics []string
	for _, rr := range req.Resources {
		if rr.ResourceType == kmsg.ConfigResourceTypeTopic {
			topics = append(topics, rr.ResourceName)
		}
	}
	h.backend.RefreshConfigs(ctx, topics)
	seen := make(map[configResource]bool, len(req.Resources))
	for _, rr := range req.Resources {
		if id := (configResource{rr.ResourceType, rr.ResourceName}); seen[id] {
			continue
		} else {
			seen[id] = true
		}
		sr := kmsg.NewDescribeConfigsResponseResource()
		sr.ResourceType, sr.ResourceName = rr.ResourceType, rr.ResourceName
		configs, err := h.configsOf(ctx, rr)
		sr.ErrorCode, sr.ErrorMessage = h.refusal(err, false)
		if refusedWith(err, kerr.UnknownTopicOrPartition) {
			sr.ErrorMessage = nil // as Kafka: clients have a text of their own
		}
		for _, c := range configs {
			if len(rr.ConfigNames) > 0 && !slices.Contains(rr.ConfigNames, c.Name) {
				continue
			}
			if !req.IncludeSynonyms {
				c.ConfigSynonyms = nil
			}
			if !req.IncludeDocumentation {
				c.Documentation = nil
			}
			sr.Configs = append(sr.Configs, c)
		}
		resp.Resources = append(resp.Resources, sr)
	}
	return resp, nil
}

// configsOf gives all configs of one resource, with all that can be told.
func (h *handler) configsOf(ctx context.Context, rr kmsg.DescribeConfigsRequestResource) ([]kmsg.DescribeConfigsResponseResourceConfig, error) {
	var configs []kmsg.DescribeConfigsResponseResourceConfig
	switch rr.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		t, err := h.backend.Topic(ctx, rr.ResourceName)
		if err != nil {
			return nil, err
		}
		for _, v := range h.backend.TopicConfigs(t) {
			configs = append(configs, config(v))
		}
	case kmsg.ConfigResourceTypeBroker:
		values := h.backend.ClusterConfigs
		if rr.ResourceName != "" {
			id, err := h.broker(rr.ResourceName)
			if err != nil {
				return nil, err
			}
			values = func() []topic.ConfigValue { return h.backend.BrokerConfigs(id) }
		}
		for _, v := range values() {
			configs = append(configs, config(v))
		}
	case kmsg.ConfigResourceTypeClientMetrics:
		if rr.ResourceName == "" {
			return nil, refuse(kerr.InvalidRequest, "Client metrics subscription name must not be empty")
		}
		for _, v := range h.backend.MetricsConfigs(rr.ResourceName) {
			configs = append(configs, config(v))
		}
	case kmsg.ConfigResourceTypeGroupConfig:
		if rr.ResourceName == "" {
			return nil, refuse(kerr.InvalidRequest, "Group name must not be empty")
		}
		for _, v := range h.backend.GroupConfigs(rr.ResourceName) {
			configs = append(configs, config(v))
		}
	default:
		return nil, kerr.InvalidRequest
	}
	return configs, nil
}

// broker is the id that a resource is named by: one of those that clients reach
// through us.
func (h *handler) broker(name string) (int32, error) {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return 0, refuse(kerr.InvalidRequest, "Broker id must be an integer, but it is: %s", cut(name))
	}
	if brokers := h.backend.Brokers(); !brokers.knows(id) {
		return 0, refuse(kerr.InvalidRequest, "Unexpected broker id, expected %s or empty string, but received %s", brokers.ids(), cut(name))
	}
	return int32(id), nil
}

// config is a value in Kafka's form.
func config(v topic.ConfigValue) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.ReadOnly, c.Source = v.Name, v.ReadOnly, kmsg.ConfigSource(v.Source)
	c.ConfigType = kmsg.ConfigType(v.Type)
	c.IsSensitive = c.ConfigType == kmsg.ConfigTypePassword
	if !c.IsSensitive && !v.Null {
		c.Value = &v.Value
	}
	if v.Doc != "" {
		c.Documentation = &v.Doc
	}
	for _, of := range v.Synonyms {
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Source = of.Name, kmsg.ConfigSource(of.Source)
		if !c.IsSensitive {
			s.Value = &of.Value
		}
		c.ConfigSynonyms = append(c.ConfigSynonyms, s)
	}
	return c
}
