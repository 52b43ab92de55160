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
//     default, else 5; with synonyms: the topic's own value first, then the
//     broker's key that the default comes from.
//   - Brokers: own id: every key of ours, read-only, source 4 if set, else 5;
//     "": cluster-wide dynamic settings, of which there are none; another id
//     INVALID_REQUEST.
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
// Left out: broker loggers (8) and group configs (32) are INVALID_REQUEST;
// client metrics (16) have no subscriptions, so that every one is empty.
var describeConfigsAPI = api{key: 32, min: 1, max: 4, large: true, serve: (*handler).describeConfigs}

func (h *handler) describeConfigs(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	seen := make(map[resource]bool, len(req.Resources))
	for _, rr := range req.Resources {
		if id := (resource{rr.ResourceType, rr.ResourceName}); seen[id] {
			continue
		} else {
			seen[id] = true
		}
		sr := kmsg.NewDescribeConfigsResponseResource()
		sr.ResourceType, sr.ResourceName = rr.ResourceType, rr.ResourceName
		configs, err := h.configsOf(ctx, rr)
		sr.ErrorCode, sr.ErrorMessage = h.refusal(err, false)
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
			configs = append(configs, topicConfig(v))
		}
	case kmsg.ConfigResourceTypeBroker:
		if rr.ResourceName == "" {
			return nil, nil
		}
		if err := h.ownBroker(rr.ResourceName); err != nil {
			return nil, err
		}
		for _, v := range h.backend.BrokerConfigs() {
			configs = append(configs, brokerConfig(v))
		}
	case kmsg.ConfigResourceTypeClientMetrics:
		if rr.ResourceName == "" {
			return nil, refuse(kerr.InvalidRequest, "The name of a client metrics subscription must not be empty.")
		}
	default:
		return nil, refuse(kerr.InvalidRequest, "Resource type %d is not supported by this broker.", rr.ResourceType)
	}
	return configs, nil
}

// ownBroker refuses a resource name that is not the id of a broker that clients
// reach through us: with one shared address that is one id for all gateways.
func (h *handler) ownBroker(name string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return refuse(kerr.InvalidRequest, "Broker id must be an integer, but it is: %s", cut(name))
	}
	for _, n := range h.backend.Nodes() {
		if n.ID == int32(id) {
			return nil
		}
	}
	return refuse(kerr.InvalidRequest, "There is no broker %d.", id)
}

// topicSource says where a topic's value comes from.
func topicSource(v topic.ConfigValue) kmsg.ConfigSource {
	if v.Set {
		return kmsg.ConfigSourceDynamicTopicConfig
	}
	return kmsg.ConfigSourceDefaultConfig
}

func topicConfig(v topic.ConfigValue) kmsg.DescribeConfigsResponseResourceConfig {
	c := config(v)
	c.Source = topicSource(v)
	if v.Set {
		c.ConfigSynonyms = append(c.ConfigSynonyms, synonym(v.Name, c.Value, c.Source))
	}
	if key, ok := brokerKeys[v.Name]; ok {
		c.ConfigSynonyms = append(c.ConfigSynonyms, synonym(key, &v.Default, kmsg.ConfigSourceDefaultConfig))
	}
	return c
}

func brokerConfig(v topic.ConfigValue) kmsg.DescribeConfigsResponseResourceConfig {
	c := config(v)
	c.ReadOnly = true
	c.Source = kmsg.ConfigSourceDefaultConfig
	if v.Set {
		c.Source = kmsg.ConfigSourceStaticBrokerConfig
		c.ConfigSynonyms = append(c.ConfigSynonyms, synonym(v.Name, c.Value, c.Source))
	}
	unset := &v.Default
	if c.IsSensitive {
		unset = nil
	}
	c.ConfigSynonyms = append(c.ConfigSynonyms, synonym(v.Name, unset, kmsg.ConfigSourceDefaultConfig))
	return c
}

// config is what both kinds have in common.
func config(v topic.ConfigValue) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name = v.Name
	c.ConfigType = kmsg.ConfigType(v.Type)
	c.IsSensitive = c.ConfigType == kmsg.ConfigTypePassword
	if !c.IsSensitive {
		c.Value = &v.Value
	}
	if v.Doc != "" {
		c.Documentation = &v.Doc
	}
	return c
}

func synonym(name string, value *string, source kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
	s.Name, s.Value, s.Source = name, value, source
	return s
}

// brokerKeys names, per topic config, the broker config that its default comes
// from (org.apache.kafka.server.config.ServerTopicConfigSynonyms). Keys whose
// first synonym has no default in Kafka (log.retention.ms, which stands aside
// for log.retention.hours, log.roll.ms, log.roll.jitter.ms,
// log.flush.interval.ms) show none there and here.
var brokerKeys = map[string]string{
	"cleanup.policy":                  "log.cleanup.policy",
	"compression.gzip.level":          "compression.gzip.level",
	"compression.lz4.level":           "compression.lz4.level",
	"compression.type":                "compression.type",
	"compression.zstd.level":          "compression.zstd.level",
	"delete.retention.ms":             "log.cleaner.delete.retention.ms",
	"file.delete.delay.ms":            "log.segment.delete.delay.ms",
	"flush.messages":                  "log.flush.interval.messages",
	"index.interval.bytes":            "log.index.interval.bytes",
	"local.retention.bytes":           "log.local.retention.bytes",
	"local.retention.ms":              "log.local.retention.ms",
	"max.compaction.lag.ms":           "log.cleaner.max.compaction.lag.ms",
	"max.message.bytes":               "message.max.bytes",
	"message.timestamp.after.max.ms":  "log.message.timestamp.after.max.ms",
	"message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
	"message.timestamp.type":          "log.message.timestamp.type",
	"min.cleanable.dirty.ratio":       "log.cleaner.min.cleanable.ratio",
	"min.compaction.lag.ms":           "log.cleaner.min.compaction.lag.ms",
	"min.insync.replicas":             "min.insync.replicas",
	"preallocate":                     "log.preallocate",
	"retention.bytes":                 "log.retention.bytes",
	"segment.bytes":                   "log.segment.bytes",
	"segment.index.bytes":             "log.index.size.max.bytes",
	"unclean.leader.election.enable":  "unclean.leader.election.enable",
}
