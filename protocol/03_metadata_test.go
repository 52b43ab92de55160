package protocol

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// TestC06MetadataWhichTopics: all, none, some, and those that do not exist.
func TestC06MetadataWhichTopics(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, nil)
	p := s.dial(t)
	versions(t, &metadataAPI, func(t *testing.T, v int16) {
		get := func(topics []kmsg.MetadataRequestTopic) *kmsg.MetadataResponse {
			return ask[*kmsg.MetadataResponse](p, v, &kmsg.MetadataRequest{Topics: topics, AllowAutoTopicCreation: true})
		}
		if r := get([]kmsg.MetadataRequestTopic{}); len(r.Topics) != map[bool]int{true: 2}[v == 0] || len(r.Brokers) != 1 {
			t.Errorf("empty list: %+v", r)
		}
		if v > 0 {
			if r := get(nil); len(r.Topics) != 2 || r.ControllerID != 1 {
				t.Errorf("null: %+v", r)
			}
		}
		r := get([]kmsg.MetadataRequestTopic{{Topic: ptr("t1")}, {Topic: ptr("nosuch")}, {Topic: ptr("t1")}})
		if len(r.Topics) != 2 || r.Topics[0].ErrorCode != 0 || r.Topics[1].ErrorCode != kerr.UnknownTopicOrPartition.Code || *r.Topics[1].Topic != "nosuch" {
			t.Fatalf("by name: %+v", r.Topics)
		}
		for i, sp := range r.Topics[0].Partitions {
			want := kmsg.NewMetadataResponseTopicPartition()
			want.Partition, want.Leader, want.Replicas, want.ISR = int32(i), 1, []int32{1}, []int32{1}
			if v >= 7 {
				want.LeaderEpoch = 0
			}
			same(t, "partition", sp, want)
		}
		if len(r.Topics[0].Partitions) != 3 {
			t.Errorf("%d partitions", len(r.Topics[0].Partitions))
		}
		if got := r.Topics[0].TopicID; (got == w.topics[1].ID) != (v >= 10) {
			t.Errorf("id %v", got)
		}
		if r.Topics[0].AuthorizedOperations != notAsked || r.AuthorizedOperations != notAsked {
			t.Errorf("operations: %d, %d", r.Topics[0].AuthorizedOperations, r.AuthorizedOperations)
		}
		if v < 10 {
			return
		}
		// By id, known and unknown, and a null name with no id.
		for i, c := range []struct {
			name    *string
			id      types.TopicID
			v12, v1 int16
		}{{nil, w.topics[0].ID, 0, 42}, {nil, types.TopicID{7}, 100, 42}, {nil, types.TopicID{}, 42, 42}, {ptr("t0"), w.topics[0].ID, 0, 42}} {
			r := get([]kmsg.MetadataRequestTopic{{Topic: c.name, TopicID: c.id}})
			want := c.v1
			if v >= 12 {
				want = c.v12
			}
			if len(r.Topics) != 1 || r.Topics[0].ErrorCode != want || r.Topics[0].TopicID != c.id {
				t.Errorf("case %d: %+v", i, r.Topics)
				continue
			}
			if want == 100 && r.Topics[0].Topic != nil {
				t.Errorf("unknown id with name %q", *r.Topics[0].Topic)
			}
			if want == 0 && *r.Topics[0].Topic != "t0" {
				t.Errorf("%+v", r.Topics[0])
			}
		}
	})
	if len(w.topics) != 2 {
		t.Error("a topic was made")
	}
}

func TestMetadataOperations(t *testing.T) {
	t.Parallel()
	s := startServer(t, newWorld(), nil)
	p := s.dial(t)
	for v := int16(8); v <= metadataAPI.max; v++ {
		r := ask[*kmsg.MetadataResponse](p, v, &kmsg.MetadataRequest{IncludeTopicAuthorizedOperations: true, IncludeClusterAuthorizedOperations: true})
		cluster := map[bool]int32{true: 8096, false: notAsked}[v <= 10]
		if r.AuthorizedOperations != cluster || r.Topics[0].AuthorizedOperations != 3576 {
			t.Errorf("v%d: %d, %d", v, r.AuthorizedOperations, r.Topics[0].AuthorizedOperations)
		}
	}
}

// TestC07MetadataAutoCreate: only who names the topic with the flag set creates it.
func TestC07MetadataAutoCreate(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		w := newWorld()
		w.autoCreate = on
		s := startServer(t, w, nil)
		p := s.dial(t)
		versions(t, &metadataAPI, func(t *testing.T, v int16) {
			for _, allow := range []bool{false, true} {
				before := len(w.topics)
				name := string(rune('a'+v)) + map[bool]string{true: "yes", false: "no"}[allow]
				r := ask[*kmsg.MetadataResponse](p, v, &kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: &name}}, AllowAutoTopicCreation: allow})
				made := on && (allow || v < 4)
				if len(w.topics)-before != map[bool]int{true: 1}[made] {
					t.Errorf("config %t, flag %t: %d topics made", on, allow, len(w.topics)-before)
				}
				if want := map[bool]int16{true: 0, false: 3}[made]; r.Topics[0].ErrorCode != want {
					t.Errorf("config %t, flag %t: code %d", on, allow, r.Topics[0].ErrorCode)
				}
				internal := ask[*kmsg.MetadataResponse](p, v, &kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: ptr("__consumer_offsets")}}, AllowAutoTopicCreation: allow})
				if internal.Topics[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
					t.Errorf("internal topic: %+v", internal.Topics[0])
				}
			}
		})
	}
}

// TestMetadataCreateRace: somebody else makes the topic first.
func TestMetadataCreateRace(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.autoCreate = true
	seen := false
	w.create = func(_ context.Context, s topic.Spec) (*topic.Topic, error) {
		if seen {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.topics = append(w.topics, stubTopic(8, s.Name, 2))
		}
		return nil, refuse(kerr.TopicAlreadyExists, "it is there")
	}
	s := startServer(t, w, nil)
	p := s.dial(t)
	req := &kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: ptr("new")}}, AllowAutoTopicCreation: true}
	if r := ask[*kmsg.MetadataResponse](p, 9, req); r.Topics[0].ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Errorf("%+v", r.Topics[0])
	}
	seen = true
	if r := ask[*kmsg.MetadataResponse](p, 9, req); r.Topics[0].ErrorCode != 0 || len(r.Topics[0].Partitions) != 2 {
		t.Errorf("%+v", r.Topics[0])
	}
}

// TestMetadataCreateCollides: as in Kafka, a topic that cannot be made because of
// another's name stays unknown.
func TestMetadataCreateCollides(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.autoCreate = true
	w.create = func(context.Context, topic.Spec) (*topic.Topic, error) {
		return nil, refuse(kerr.InvalidTopicException, "it collides")
	}
	p := startServer(t, w, nil).dial(t)
	req := &kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: ptr("a.b")}}, AllowAutoTopicCreation: true}
	if r := ask[*kmsg.MetadataResponse](p, 9, req); r.Topics[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("%+v", r.Topics[0])
	}
}

// TestC41MetadataStoreFails: never an empty list that would mean "no topics".
func TestC41MetadataStoreFails(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.topicErr = errStore
	s := startServer(t, w, nil)
	versions(t, &metadataAPI, func(t *testing.T, v int16) {
		p := s.dial(t)
		named := ask[*kmsg.MetadataResponse](p, v, &kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: ptr("t0")}}})
		if named.Topics[0].ErrorCode != kerr.KafkaStorageError.Code {
			t.Errorf("%+v", named.Topics[0])
		}
		p.send(v, kmsg.NewPtrMetadataRequest())
		if v < 13 {
			p.closed("all topics")
			return
		}
		if _, r := p.recv(); r.(*kmsg.MetadataResponse).ErrorCode != kerr.KafkaStorageError.Code {
			t.Errorf("%+v", r)
		}
	})
}
