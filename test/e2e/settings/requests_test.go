package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commands are the requests that a script can make.
var commands = map[string]func(r *asked, words []string) ([]string, error){
	"create":      create,      // name partitions [key=value …]
	"remove":      remove,      // name …
	"incremental": incremental, // kind:name set:key=value|delete:key|append:…|subtract:… …
	"alter":       alter,       // kind:name key=value …
	"describe":    describe,    // kind:name [key …], -set: only what is no default, -topic: only what the topic has
	"list":        list,        // kind …
	"grow":        grow,        // name=count[=broker,broker;broker,broker] …
	"partitions":  partitions,  // name …
}

var kinds = map[string]kmsg.ConfigResourceType{
	"topic": kmsg.ConfigResourceTypeTopic, "broker": kmsg.ConfigResourceTypeBroker, "logger": kmsg.ConfigResourceTypeBrokerLogger,
	"metrics": kmsg.ConfigResourceTypeClientMetrics, "group": kmsg.ConfigResourceTypeGroupConfig, "none": 0, "any": 99,
}

func kindOf(t kmsg.ConfigResourceType) string {
	for name, k := range kinds {
		if k == t {
			return name
		}
	}
	return strconv.Itoa(int(t))
}

// resource is one resource of a request with the words that belong to it.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
	rest []string
}

func resources(words []string) (all []resource) {
	for _, w := range words {
		kind, name, ok := strings.Cut(w, ":")
		if k, known := kinds[kind]; ok && known {
			all = append(all, resource{kind: k, name: name})
		} else {
			all[len(all)-1].rest = append(all[len(all)-1].rest, w)
		}
	}
	return all
}

// value splits key=value; without a "=" the value is null.
func value(w string) (string, *string) {
	k, v, ok := strings.Cut(w, "=")
	if !ok {
		return k, nil
	}
	return k, &v
}

func outcome(code int16, message *string) string {
	if message != nil && *message == "" {
		message = nil // Apache Kafka has both
	}
	if code == 0 && message == nil {
		return "ok"
	}
	name := "NONE"
	if err := kerr.TypedErrorForCode(code); err != nil {
		name = err.Message
	}
	return fmt.Sprintf("%d %s %s", code, name, text(message))
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return strconv.Quote(*s)
}

func ask1[T kmsg.Response](r *asked, req kmsg.Request, set func(version int16)) (T, error) {
	v := req.MaxVersion()
	if r.version >= 0 {
		v = r.version
	}
	set(v)
	resp, err := r.cl.Broker(1).Request(r.ctx, fixed{req, v})
	if err != nil {
		var none T
		return none, err
	}
	return resp.(T), nil
}

// fixed is a request that is sent in one version, whatever the broker offers.
type fixed struct {
	kmsg.Request
	version int16
}

func (f fixed) MaxVersion() int16 { return f.version }

func create(r *asked, words []string) ([]string, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	n, err := strconv.Atoi(words[1])
	if err != nil {
		return nil, err
	}
	t.Topic, t.NumPartitions, t.ReplicationFactor = words[0], int32(n), -1
	for _, w := range words[2:] {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = value(w)
		t.Configs = append(t.Configs, c)
	}
	req.Topics, req.ValidateOnly, req.TimeoutMillis = append(req.Topics, t), r.validate, 30_000
	resp, err := ask1[*kmsg.CreateTopicsResponse](r, req, func(int16) {})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range resp.Topics {
		out = append(out, fmt.Sprintf("%s: %s", t.Topic, outcome(t.ErrorCode, t.ErrorMessage)))
	}
	return out, nil
}

func remove(r *asked, words []string) ([]string, error) {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 30_000
	for _, w := range words {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &w
		req.Topics = append(req.Topics, t)
	}
	resp, err := ask1[*kmsg.DeleteTopicsResponse](r, req, func(int16) {})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range resp.Topics {
		out = append(out, fmt.Sprintf("%s: %s", *t.Topic, outcome(t.ErrorCode, t.ErrorMessage)))
	}
	return out, nil
}

var operations = map[string]kmsg.IncrementalAlterConfigOp{"set": 0, "delete": 1, "append": 2, "subtract": 3, "op9": 9}

func incremental(r *asked, words []string) ([]string, error) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = r.validate
	for _, res := range resources(words) {
		rr := kmsg.NewIncrementalAlterConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = res.kind, res.name
		for _, w := range res.rest {
			op, w, _ := strings.Cut(w, ":")
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Op = operations[op]
			c.Name, c.Value = value(w)
			rr.Configs = append(rr.Configs, c)
		}
		req.Resources = append(req.Resources, rr)
	}
	resp, err := ask1[*kmsg.IncrementalAlterConfigsResponse](r, req, func(int16) {})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, res := range resp.Resources {
		out = append(out, fmt.Sprintf("%s:%s: %s", kindOf(res.ResourceType), res.ResourceName, outcome(res.ErrorCode, res.ErrorMessage)))
	}
	slices.Sort(out)
	return out, nil
}

func alter(r *asked, words []string) ([]string, error) {
	req := kmsg.NewPtrAlterConfigsRequest()
	req.ValidateOnly = r.validate
	for _, res := range resources(words) {
		rr := kmsg.NewAlterConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = res.kind, res.name
		for _, w := range res.rest {
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			c.Name, c.Value = value(w)
			rr.Configs = append(rr.Configs, c)
		}
		req.Resources = append(req.Resources, rr)
	}
	resp, err := ask1[*kmsg.AlterConfigsResponse](r, req, func(int16) {})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, res := range resp.Resources {
		out = append(out, fmt.Sprintf("%s:%s: %s", kindOf(res.ResourceType), res.ResourceName, outcome(res.ErrorCode, res.ErrorMessage)))
	}
	slices.Sort(out)
	return out, nil
}

func describe(r *asked, words []string) ([]string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	set, own := slices.Contains(words, "-set"), slices.Contains(words, "-topic")
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "-set" || w == "-topic" })
	for _, res := range resources(words) {
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName, rr.ConfigNames = res.kind, res.name, res.rest
		req.Resources = append(req.Resources, rr)
	}
	resp, err := ask1[*kmsg.DescribeConfigsResponse](r, req, func(int16) {})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, res := range resp.Resources {
		out = append(out, fmt.Sprintf("%s:%s: %s", kindOf(res.ResourceType), res.ResourceName, outcome(res.ErrorCode, res.ErrorMessage)))
		slices.SortFunc(res.Configs, func(a, b kmsg.DescribeConfigsResponseResourceConfig) int { return strings.Compare(a.Name, b.Name) })
		for _, c := range res.Configs {
			if set && c.Source == kmsg.ConfigSourceDefaultConfig || own && c.Source != kmsg.ConfigSourceDynamicTopicConfig {
				continue
			}
			l := fmt.Sprintf("  %s=%s source=%s type=%d", c.Name, text(c.Value), source(c.Source), c.ConfigType)
			if c.ReadOnly {
				l += " read-only"
			}
			if c.IsSensitive {
				l += " sensitive"
			}
			for _, s := range c.ConfigSynonyms {
				l += fmt.Sprintf(" (%s=%s %s)", s.Name, text(s.Value), source(s.Source))
			}
			out = append(out, l)
		}
	}
	return out, nil
}

func source(s kmsg.ConfigSource) string {
	switch s {
	case kmsg.ConfigSourceDynamicTopicConfig:
		return "topic"
	case kmsg.ConfigSourceDynamicBrokerConfig:
		return "broker"
	case kmsg.ConfigSourceDynamicDefaultBrokerConfig:
		return "cluster"
	case kmsg.ConfigSourceStaticBrokerConfig:
		return "static"
	case kmsg.ConfigSourceDefaultConfig:
		return "default"
	}
	return strconv.Itoa(int(s))
}

func list(r *asked, words []string) ([]string, error) {
	req := kmsg.NewPtrListConfigResourcesRequest()
	for _, w := range words {
		k, ok := kinds[w]
		if !ok {
			return nil, fmt.Errorf("no kind %q", w)
		}
		req.ResourceTypes = append(req.ResourceTypes, int8(k))
	}
	resp, err := ask1[*kmsg.ListConfigResourcesResponse](r, req, func(int16) {})
	if err != nil {
		return nil, err
	}
	out := []string{outcome(resp.ErrorCode, nil)}
	for _, c := range resp.ConfigResources {
		out = append(out, fmt.Sprintf("  %s:%s", kindOf(kmsg.ConfigResourceType(c.Type)), c.Name))
	}
	slices.Sort(out[1:])
	return out, nil
}

func grow(r *asked, words []string) ([]string, error) {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis, req.ValidateOnly = 30_000, r.validate
	for _, w := range words {
		f := strings.Split(w, "=")
		t := kmsg.NewCreatePartitionsRequestTopic()
		n, err := strconv.Atoi(f[1])
		if err != nil {
			return nil, err
		}
		t.Topic, t.Count = f[0], int32(n)
		if len(f) > 2 {
			t.Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{}
			for _, a := range strings.Split(f[2], ";") {
				if f[2] == "" {
					break
				}
				ra := kmsg.NewCreatePartitionsRequestTopicAssignment()
				for _, b := range strings.Split(a, ",") {
					if a == "" {
						break
					}
					id, err := strconv.Atoi(b)
					if err != nil {
						return nil, err
					}
					ra.Replicas = append(ra.Replicas, int32(id))
				}
				t.Assignment = append(t.Assignment, ra)
			}
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := ask1[*kmsg.CreatePartitionsResponse](r, req, func(int16) {})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range resp.Topics {
		out = append(out, fmt.Sprintf("%s: %s", t.Topic, outcome(t.ErrorCode, t.ErrorMessage)))
	}
	slices.Sort(out)
	return out, nil
}

func partitions(r *asked, words []string) ([]string, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, w := range words {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &w
		req.Topics = append(req.Topics, t)
	}
	resp, err := ask1[*kmsg.MetadataResponse](r, req, func(int16) {})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range resp.Topics {
		out = append(out, fmt.Sprintf("%s: %d, error %d", *t.Topic, len(t.Partitions), t.ErrorCode))
	}
	slices.Sort(out)
	return out, nil
}
