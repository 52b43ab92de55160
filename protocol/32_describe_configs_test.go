package protocol

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

func configsStub() *stub {
	return &stub{
		nodes:  []Node{{ID: 1}},
		topics: []*topic.Topic{stubTopic(1, "orders", 1)},
		configs: []topic.ConfigValue{
			{Name: "cleanup.policy", Value: "compact", Source: 1, Type: 7, Doc: "What to do.",
				Synonyms: []topic.Synonym{{Name: "cleanup.policy", Value: "compact", Source: 1}, {Name: "log.cleanup.policy", Value: "delete", Source: 5}}},
			{Name: "max.message.bytes", Value: "1048588", Source: 5, Type: 3, Synonyms: []topic.Synonym{{Name: "message.max.bytes", Value: "1048588", Source: 5}}},
			{Name: "retention.ms", Value: "604800000", Source: 1, Type: 5, Doc: "How long.", Synonyms: []topic.Synonym{{Name: "retention.ms", Value: "604800000", Source: 1}}},
			{Name: "segment.ms", Value: "604800000", Source: 5, Type: 5},
		},
		broker: []topic.ConfigValue{
			{Name: "log.retention.ms", Null: true, Source: 5, Type: 5},
			{Name: "num.partitions", Value: "4", Source: 4, Type: 3, ReadOnly: true,
				Synonyms: []topic.Synonym{{Name: "num.partitions", Value: "4", Source: 4}, {Name: "num.partitions", Value: "1", Source: 5}}},
			{Name: "pubsub.password", Value: "secret", Source: 4, Type: 9, ReadOnly: true,
				Synonyms: []topic.Synonym{{Name: "pubsub.password", Value: "secret", Source: 4}, {Name: "pubsub.password", Value: "also secret", Source: 5}}},
		},
		cluster: []topic.ConfigValue{
			{Name: "log.retention.ms", Value: "7", Source: 3, Type: 5, Synonyms: []topic.Synonym{{Name: "log.retention.ms", Value: "7", Source: 3}}},
		},
	}
}

func describe(t *testing.T, b Backend, v int16, kind kmsg.ConfigResourceType, name string, filter []string, synonyms, docs bool) kmsg.DescribeConfigsResponseResource {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = synonyms, docs
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.ConfigNames = kind, name, filter
	req.Resources = append(req.Resources, rr)
	resp := asked[*kmsg.DescribeConfigsResponse](t, b, &describeConfigsAPI, v, req)
	if len(resp.Resources) != 1 || resp.Resources[0].ResourceType != kind || resp.Resources[0].ResourceName != name {
		t.Fatalf("resources %+v", resp.Resources)
	}
	return resp.Resources[0]
}

type synonymT = kmsg.DescribeConfigsResponseResourceConfigConfigSynonym

// The value in force and the place where it was set are two facts.
func TestC43DescribeConfigsTopic(t *testing.T) {
	versions(t, &describeConfigsAPI, func(t *testing.T, v int16) {
		for _, all := range []bool{true, false} { // synonyms and documentation
			got := describe(t, configsStub(), v, kmsg.ConfigResourceTypeTopic, "orders", nil, all, all)
			want := []kmsg.DescribeConfigsResponseResourceConfig{
				{Name: "cleanup.policy", Value: ptr("compact"), Source: 1, ConfigType: 7, Documentation: ptr("What to do."),
					ConfigSynonyms: []synonymT{{Name: "cleanup.policy", Value: ptr("compact"), Source: 1}, {Name: "log.cleanup.policy", Value: ptr("delete"), Source: 5}}},
				{Name: "max.message.bytes", Value: ptr("1048588"), Source: 5, ConfigType: 3,
					ConfigSynonyms: []synonymT{{Name: "message.max.bytes", Value: ptr("1048588"), Source: 5}}},
				// Set to the default, and a key whose broker's key has no default.
				{Name: "retention.ms", Value: ptr("604800000"), Source: 1, ConfigType: 5, Documentation: ptr("How long."),
					ConfigSynonyms: []synonymT{{Name: "retention.ms", Value: ptr("604800000"), Source: 1}}},
				{Name: "segment.ms", Value: ptr("604800000"), Source: 5, ConfigType: 5},
			}
			for i := range want {
				if v < 3 {
					want[i].ConfigType = 0
				}
				if v < 3 || !all {
					want[i].Documentation = nil
				}
				if !all {
					want[i].ConfigSynonyms = nil
				}
			}
			if got.ErrorCode != 0 || got.ErrorMessage != nil {
				t.Errorf("code %d", got.ErrorCode)
			}
			for i := range got.Configs {
				if len(got.Configs[i].ConfigSynonyms) == 0 {
					got.Configs[i].ConfigSynonyms = nil
				}
			}
			same(t, "configs", got.Configs, want)
		}
	})
}

func TestC06DescribeConfigsFilter(t *testing.T) {
	for _, c := range []struct {
		filter, want []string
	}{
		{nil, []string{"cleanup.policy", "max.message.bytes", "retention.ms", "segment.ms"}},
		{[]string{}, []string{"cleanup.policy", "max.message.bytes", "retention.ms", "segment.ms"}},
		{[]string{"retention.ms", "no.such", "cleanup.policy", "retention.ms"}, []string{"cleanup.policy", "retention.ms"}},
		{[]string{"no.such"}, nil},
	} {
		versions(t, &describeConfigsAPI, func(t *testing.T, v int16) {
			got := describe(t, configsStub(), v, kmsg.ConfigResourceTypeTopic, "orders", c.filter, false, false)
			var names []string
			for _, config := range got.Configs {
				names = append(names, config.Name)
			}
			same(t, "names", names, c.want)
		})
	}
}

func TestDescribeConfigsBroker(t *testing.T) {
	got := describe(t, configsStub(), 4, kmsg.ConfigResourceTypeBroker, "1", nil, true, false)
	same(t, "configs", got.Configs, []kmsg.DescribeConfigsResponseResourceConfig{
		{Name: "log.retention.ms", Source: 5, ConfigType: 5},
		{Name: "num.partitions", Value: ptr("4"), Source: 4, ConfigType: 3, ReadOnly: true, ConfigSynonyms: []synonymT{
			{Name: "num.partitions", Value: ptr("4"), Source: 4}, {Name: "num.partitions", Value: ptr("1"), Source: 5}}},
		{Name: "pubsub.password", Source: 4, ConfigType: 9, ReadOnly: true, IsSensitive: true, ConfigSynonyms: []synonymT{
			{Name: "pubsub.password", Source: 4}, {Name: "pubsub.password", Source: 5}}},
	})
	got = describe(t, configsStub(), 4, kmsg.ConfigResourceTypeBroker, "", nil, true, false)
	same(t, "configs of all brokers", got.Configs, []kmsg.DescribeConfigsResponseResourceConfig{
		{Name: "log.retention.ms", Value: ptr("7"), Source: 3, ConfigType: 5, ConfigSynonyms: []synonymT{{Name: "log.retention.ms", Value: ptr("7"), Source: 3}}},
	})
}

// What has no configs here says so, alone, and with nothing beside it.
func TestDescribeConfigsRefusals(t *testing.T) {
	for _, c := range []struct {
		kind kmsg.ConfigResourceType
		name string
		code int16
	}{
		{kmsg.ConfigResourceTypeTopic, "gone", 3},
		{kmsg.ConfigResourceTypeBroker, "2", 42},
		{kmsg.ConfigResourceTypeBroker, "-1", 42},
		{kmsg.ConfigResourceTypeBroker, "4294967297", 42}, // not 1
		{kmsg.ConfigResourceTypeBroker, "one", 42},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", 42},
		{kmsg.ConfigResourceTypeClientMetrics, "", 42},
		{kmsg.ConfigResourceTypeGroupConfig, "", 42},
		{kmsg.ConfigResourceTypeUnknown, "x", 42},
		{1, "x", 42},
		{-5, "x", 42},
	} {
		versions(t, &describeConfigsAPI, func(t *testing.T, v int16) {
			got := describe(t, configsStub(), v, c.kind, c.name, nil, true, true)
			if got.ErrorCode != c.code || (got.ErrorMessage != nil) != (c.code != 0 && c.code != 3) || len(got.Configs) != 0 {
				t.Errorf("type %d name %q: %+v", c.kind, c.name, got)
			}
		})
	}

	b := configsStub()
	b.topicErr = errStore
	got := describe(t, b, 4, kmsg.ConfigResourceTypeTopic, "orders", nil, true, true)
	if got.ErrorCode != 56 || *got.ErrorMessage != kerr.KafkaStorageError.Description {
		t.Errorf("store away: %d %q", got.ErrorCode, *got.ErrorMessage)
	}
}

// Groups and subscriptions have configs, whether they exist or not.
func TestDescribeConfigsOthers(t *testing.T) {
	versions(t, &describeConfigsAPI, func(t *testing.T, v int16) {
		for kind, want := range map[kmsg.ConfigResourceType]string{kmsg.ConfigResourceTypeClientMetrics: "of.metrics=x 7", kmsg.ConfigResourceTypeGroupConfig: "of.group=x 8"} {
			got := describe(t, configsStub(), v, kind, "x", nil, true, true)
			if got.ErrorCode != 0 || len(got.Configs) != 1 {
				t.Fatalf("%+v", got)
			}
			if c := got.Configs[0]; fmt.Sprintf("%s=%s %d", c.Name, *c.Value, c.Source) != want {
				t.Errorf("%+v, want %s", c, want)
			}
		}
	})
}

// One bad resource does not spoil the others.
func TestC09DescribeConfigsMany(t *testing.T) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range []string{"gone", "orders"} {
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, name
		req.Resources = append(req.Resources, rr)
	}
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType = 7
	req.Resources = append(req.Resources, rr)
	resp := asked[*kmsg.DescribeConfigsResponse](t, configsStub(), &describeConfigsAPI, 4, req)
	var codes []int16
	for _, r := range resp.Resources {
		codes = append(codes, r.ErrorCode)
	}
	same(t, "codes", codes, []int16{3, 0, 42})
	if n := len(resp.Resources[1].Configs); n != 4 {
		t.Errorf("%d configs", n)
	}
}
