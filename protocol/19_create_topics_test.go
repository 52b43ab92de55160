package protocol

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

func createRequest(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = topics, 10_000
	return req
}

func createTopic(name string) kmsg.CreateTopicsRequestTopic {
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, -1, -1
	return rt
}

// Each topic is checked whole and answered alone.
func TestC09CreateTopics(t *testing.T) {
	versions(t, &createTopicsAPI, func(t *testing.T, v int16) {
		for _, validate := range []bool{false, true} {
			var specs []topic.Spec
			b := &stub{configs: []topic.ConfigValue{
				{Name: "cleanup.policy", Value: "compact", Source: topic.FromTopic, Type: 7},
				{Name: "retention.ms", Value: "604800000", Source: topic.FromDefault, Type: 5},
			}}
			b.create = func(_ context.Context, s topic.Spec) (*topic.Topic, error) {
				specs = append(specs, s)
				switch s.Name {
				case "exists":
					return nil, kerr.TopicAlreadyExists
				case "bad":
					return nil, fmt.Errorf("config no.such: %w", kerr.InvalidConfig)
				case "away":
					return nil, errStore
				}
				n := s.Partitions
				if n == -1 {
					n = 4
				}
				return stubTopic(3, s.Name, n), nil
			}
			full := createTopic("full")
			full.NumPartitions, full.ReplicationFactor = 6, 3
			full.Configs = []kmsg.CreateTopicsRequestTopicConfig{
				{Name: "cleanup.policy", Value: ptr("zzz")},
				{Name: "cleanup.policy", Value: ptr("compact")}, // the last counts
				{Name: "retention.ms"},
			}
			assigned := createTopic("assigned")
			assigned.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}, {Partition: 1, Replicas: []int32{1}}}
			req := createRequest(createTopic("twice"), full, createTopic("exists"), createTopic("twice"), createTopic("bad"),
				assigned, createTopic("away"), createTopic("twice"), createTopic("__cluster_metadata"))
			req.ValidateOnly = validate
			resp := asked[*kmsg.CreateTopicsResponse](t, b, &createTopicsAPI, v, req)

			same(t, "specs", specs, []topic.Spec{
				{Name: "full", Partitions: 6, Replicas: 3, ValidateOnly: validate,
					Configs: map[string]*string{"cleanup.policy": ptr("compact"), "retention.ms": nil}},
				{Name: "exists", Partitions: -1, Replicas: -1, ValidateOnly: validate},
				{Name: "bad", Partitions: -1, Replicas: -1, ValidateOnly: validate},
				{Name: "assigned", Partitions: -1, Replicas: -1, ValidateOnly: validate, Assignments: map[int32][]int32{0: {1}, 1: {1}}},
				{Name: "away", Partitions: -1, Replicas: -1, ValidateOnly: validate},
			})

			want := make([]kmsg.CreateTopicsResponseTopic, 7)
			for i, c := range []struct {
				name       string
				code       int16
				text       string
				partitions int32
			}{
				{"twice", 42, "Duplicate topic name.", -1},
				{"full", 0, "", 6},
				{"exists", 36, kerr.TopicAlreadyExists.Description, -1},
				{"bad", 40, "config no.such: INVALID_CONFIG: " + kerr.InvalidConfig.Description, -1},
				{"assigned", 0, "", 4},
				{"away", 56, kerr.KafkaStorageError.Description, -1},
				{"__cluster_metadata", 42, "Creation of internal topic __cluster_metadata is prohibited.", -1},
			} {
				st := kmsg.NewCreateTopicsResponseTopic()
				st.Topic, st.ErrorCode = c.name, c.code
				if c.code != 0 {
					st.ErrorMessage = &c.text
				}
				if v >= 5 {
					st.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
				}
				if c.code == 0 && v >= 5 {
					st.NumPartitions, st.ReplicationFactor = c.partitions, 1
					st.Configs = []kmsg.CreateTopicsResponseTopicConfig{
						{Name: "cleanup.policy", Value: ptr("compact"), Source: 1},
						{Name: "retention.ms", Value: ptr("604800000"), Source: 5},
					}
				}
				if c.code == 0 && v >= 7 {
					st.TopicID = stubTopic(3, "", 0).ID
				}
				want[i] = st
			}
			same(t, "topics", resp.Topics, want)
		}
	})
}

// A manual assignment that says two things at once creates nothing (the stub
// would panic).
func TestC09CreateTopicsAssignment(t *testing.T) {
	one := []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}}
	for name, c := range map[string]struct {
		change func(rt *kmsg.CreateTopicsRequestTopic)
		code   int16
	}{
		"partitions too":      {func(rt *kmsg.CreateTopicsRequestTopic) { rt.NumPartitions = 1 }, 42},
		"replication too":     {func(rt *kmsg.CreateTopicsRequestTopic) { rt.ReplicationFactor = 1 }, 42},
		"one partition twice": {func(rt *kmsg.CreateTopicsRequestTopic) { rt.ReplicaAssignment = append(rt.ReplicaAssignment, one...) }, 39},
	} {
		rt := createTopic("t")
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, one...)
		c.change(&rt)
		st := asked[*kmsg.CreateTopicsResponse](t, &stub{}, &createTopicsAPI, 7, createRequest(rt)).Topics[0]
		if st.ErrorCode != c.code || st.ErrorMessage == nil {
			t.Errorf("%s: %+v", name, st)
		}
	}
}

// The client's timeout ends a creation; without one the connection's holds.
func TestCreateTopicsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &stub{create: func(ctx context.Context, s topic.Spec) (*topic.Topic, error) {
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("create stream: %w", ctx.Err())
			case <-time.After(time.Minute):
				return stubTopic(1, s.Name, 1), nil
			}
		}}
		for _, c := range []struct {
			millis int32
			code   int16
			took   time.Duration
		}{{1500, 7, 1500 * time.Millisecond}, {0, 0, time.Minute}, {-1, 0, time.Minute}} {
			req := createRequest(createTopic("t"))
			req.TimeoutMillis = c.millis
			start := time.Now()
			st := asked[*kmsg.CreateTopicsResponse](t, b, &createTopicsAPI, 7, req).Topics[0]
			if st.ErrorCode != c.code || time.Since(start) != c.took {
				t.Errorf("timeout %d: code %d after %v", c.millis, st.ErrorCode, time.Since(start))
			}
		}
	})
}
