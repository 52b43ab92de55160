package protocol

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// TestLateChange: a change that names a topic is one of the topic that had the name
// when the gateway was last known to live. One that stood still over it does nothing
// to the topic that was made of the same name meanwhile; one that only had the topic
// before in memory does.
func TestLateChange(t *testing.T) {
	t.Parallel()
	ask := map[string]func(t *testing.T, b *stub) int16{
		"DeleteTopics": func(t *testing.T, b *stub) int16 {
			req := kmsg.NewPtrDeleteTopicsRequest()
			rt, name := kmsg.NewDeleteTopicsRequestTopic(), "t"
			rt.Topic = &name
			req.Topics = append(req.Topics, rt)
			return asked[*kmsg.DeleteTopicsResponse](t, b, &deleteTopicsAPI, 6, req).Topics[0].ErrorCode
		},
		"CreatePartitions": func(t *testing.T, b *stub) int16 {
			req := kmsg.NewPtrCreatePartitionsRequest()
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = "t", 3
			req.Topics = append(req.Topics, rt)
			return asked[*kmsg.CreatePartitionsResponse](t, b, &createPartitionsAPI, 3, req).Topics[0].ErrorCode
		},
		"IncrementalAlterConfigs": func(t *testing.T, b *stub) int16 {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			rr, c, value := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewIncrementalAlterConfigsRequestResourceConfig(), "1000"
			c.Name, c.Value = "retention.ms", &value
			rr.ResourceType, rr.ResourceName, rr.Configs = kmsg.ConfigResourceTypeTopic, "t", append(rr.Configs, c)
			req.Resources = append(req.Resources, rr)
			return asked[*kmsg.IncrementalAlterConfigsResponse](t, b, &incrementalAlterConfigsAPI, 1, req).Resources[0].ErrorCode
		},
	}
	for name, ask := range ask {
		for what, c := range map[string]struct {
			before, during bool // it stood still before it looked, and while it changed
			want           int16
			changed        []types.TopicID
		}{
			"it lives on":               {false, false, 0, []types.TopicID{{1}, {2}}},
			"it stands still":           {false, true, kerr.RequestTimedOut.Code, []types.TopicID{{1}}},
			"it has stood still before": {true, true, kerr.RequestTimedOut.Code, nil},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				late := c.before
				var changed []types.TopicID
				b := &stub{topics: []*topic.Topic{{Name: "t", ID: types.TopicID{1}, Partitions: 1}}, late: func() bool { return late }}
				change := func(to *topic.Topic) error {
					changed = append(changed, to.ID)
					if to.ID == (types.TopicID{2}) {
						return nil
					}
					b.topics[0] = &topic.Topic{Name: "t", ID: types.TopicID{2}, Partitions: 1}
					late = c.during
					return kerr.UnknownTopicOrPartition
				}
				b.delete = func(_ context.Context, t *topic.Topic) error { return change(t) }
				b.grow = func(t *topic.Topic, _ topic.Growth) error { return change(t) }
				b.alterTopic = func(t *topic.Topic, _ topic.Alteration) error { return change(t) }
				if code := ask(t, b); code != c.want {
					t.Errorf("answered with %v, want %v", kerr.ErrorForCode(code), kerr.ErrorForCode(c.want))
				}
				same(t, "changed", changed, c.changed)
			})
		}
	}
}

// TestLateDeleteRecords: so it is with the records of a topic.
func TestLateDeleteRecords(t *testing.T) {
	t.Parallel()
	w := newWorld()
	late := false
	w.late = func() bool { return late }
	for range 10 {
		w.log("t1", 0).append(batch(1, 1))
	}
	p := startServer(t, w, nil).dial(t)
	for _, late = range []bool{true, false} {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Topics = append(req.Topics, deletionOf("t1", 0, 4))
		sp := ask[*kmsg.DeleteRecordsResponse](p, 2, req).Topics[0].Partitions[0]
		want, low := int16(0), int64(4)
		if late {
			want, low = kerr.RequestTimedOut.Code, -1
		}
		if sp.ErrorCode != want || sp.LowWatermark != low {
			t.Errorf("late is %v: %v, log start %d", late, kerr.ErrorForCode(sp.ErrorCode), sp.LowWatermark)
		}
	}
}
