package protocol

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// alteredResources are what the tests of keys 33 and 44 name, with the code that
// each is answered with.
var alteredResources = []struct {
	kind kmsg.ConfigResourceType
	name string
	code int16
}{
	{2, "orders", 0}, {2, "bad", 40}, {2, "gone", 3}, {2, "", 42}, {2, "away", 56}, {2, "twice", 42}, {2, "twice", 42},
	{4, "", 0}, {4, "1", 0}, {4, "01", 0}, {4, "2", 42}, {4, "-1", 42}, {4, "4294967297", 42}, {4, "one", 42},
	{8, "1", 42}, {16, "m", 0}, {16, "", 42}, {32, "g", 0}, {32, "away", 56}, {0, "x", 42}, {1, "x", 42}, {-5, "x", 42},
}

func alteringStub(done *[]string) *stub {
	b := &stub{
		nodes:  []Node{{ID: 1}},
		topics: []*topic.Topic{stubTopic(1, "orders", 1), stubTopic(2, "bad", 1), stubTopic(3, "away", 1), stubTopic(4, "twice", 1)},
	}
	note := func(what string, a topic.Alteration) {
		for _, c := range a.Changes {
			v := "null"
			if c.Value != nil {
				v = *c.Value
			}
			what += fmt.Sprintf(" %d:%s=%s", c.Op, c.Name, v)
		}
		*done = append(*done, fmt.Sprintf("%s replace %v check %v", what, a.Replace, a.ValidateOnly))
	}
	b.alterTopic = func(t *topic.Topic, a topic.Alteration) error {
		switch t.Name {
		case "bad":
			return kerr.InvalidConfig
		case "away":
			return errStore
		}
		note(t.Name, a)
		return nil
	}
	b.alterBroker = func(id string, a topic.Alteration) error {
		note("broker "+id, a)
		return nil
	}
	b.alterMetric = func(name string, a topic.Alteration) error {
		if name == "" {
			return kerr.InvalidRequest
		}
		note("metrics "+name, a)
		return nil
	}
	b.alterGroup = func(name string, a topic.Alteration) error {
		if name == "away" {
			return errStore
		}
		note("group "+name, a)
		return nil
	}
	return b
}

// Each resource is changed whole and answered alone.
func TestIncrementalAlterConfigs(t *testing.T) {
	versions(t, &incrementalAlterConfigsAPI, func(t *testing.T, v int16) {
		for _, check := range []bool{false, true} {
			var done []string
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			req.ValidateOnly = check
			for _, r := range alteredResources {
				rr := kmsg.NewIncrementalAlterConfigsRequestResource()
				rr.ResourceType, rr.ResourceName = r.kind, r.name
				for op, v := range []*string{ptr("5"), nil, ptr(""), ptr("x")} {
					c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
					c.Name, c.Op, c.Value = fmt.Sprint("k", op), kmsg.IncrementalAlterConfigOp(op), v
					rr.Configs = append(rr.Configs, c)
				}
				req.Resources = append(req.Resources, rr)
			}
			resp := asked[*kmsg.IncrementalAlterConfigsResponse](t, alteringStub(&done), &incrementalAlterConfigsAPI, v, req)
			if len(resp.Resources) != len(alteredResources) {
				t.Fatalf("%d answers", len(resp.Resources))
			}
			for i, r := range resp.Resources {
				if want := alteredResources[i]; r.ResourceType != want.kind || r.ResourceName != want.name || r.ErrorCode != want.code || (r.ErrorMessage != nil) != (want.code != 0) {
					t.Errorf("%+v, want %+v", r, want)
				}
			}
			tail := fmt.Sprintf(" 0:k0=5 1:k1=null 2:k2= 3:k3=x replace false check %v", check)
			same(t, "done", done, []string{"orders" + tail, "broker " + tail, "broker 1" + tail, "broker 1" + tail, "metrics m" + tail, "group g" + tail})
		}
	})
}

func TestAlterConfigs(t *testing.T) {
	versions(t, &alterConfigsAPI, func(t *testing.T, v int16) {
		for _, check := range []bool{false, true} {
			var done []string
			req := kmsg.NewPtrAlterConfigsRequest()
			req.ValidateOnly = check
			for _, r := range alteredResources {
				rr := kmsg.NewAlterConfigsRequestResource()
				rr.ResourceType, rr.ResourceName = r.kind, r.name
				for i, v := range []*string{ptr("5"), nil} {
					c := kmsg.NewAlterConfigsRequestResourceConfig()
					c.Name, c.Value = fmt.Sprint("k", i), v
					rr.Configs = append(rr.Configs, c)
				}
				req.Resources = append(req.Resources, rr)
			}
			resp := asked[*kmsg.AlterConfigsResponse](t, alteringStub(&done), &alterConfigsAPI, v, req)
			if len(resp.Resources) != len(alteredResources) {
				t.Fatalf("%d answers", len(resp.Resources))
			}
			for i, r := range resp.Resources {
				if want := alteredResources[i]; r.ResourceType != want.kind || r.ResourceName != want.name || r.ErrorCode != want.code || (r.ErrorMessage != nil) != (want.code != 0) {
					t.Errorf("%+v, want %+v", r, want)
				}
			}
			tail := fmt.Sprintf(" 0:k0=5 0:k1=null replace true check %v", check)
			same(t, "done", done, []string{"orders" + tail, "broker " + tail, "broker 1" + tail, "broker 1" + tail, "metrics m" + tail, "group g" + tail})
		}
	})
}
