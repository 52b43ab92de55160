package protocol

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// deletedTopic is one line of an answer, in short.
type deletedTopic struct {
	name *string
	id   byte // first byte
	code int16
}

func deletedTopics(t *testing.T, resp *kmsg.DeleteTopicsResponse) (all []deletedTopic) {
	t.Helper()
	for _, st := range resp.Topics {
		all = append(all, deletedTopic{st.Topic, st.TopicID[0], st.ErrorCode})
		if resp.Version >= 5 && (st.ErrorMessage != nil) != (st.ErrorCode != 0) {
			t.Errorf("code %d with text %v", st.ErrorCode, st.ErrorMessage)
		}
	}
	return all
}

func TestC09DeleteTopics(t *testing.T) {
	versions(t, &deleteTopicsAPI, func(t *testing.T, v int16) {
		var deleted []string
		b := &stub{topics: []*topic.Topic{stubTopic(1, "one", 1), stubTopic(2, "two", 1), stubTopic(3, "three", 1)}}
		b.delete = func(_ context.Context, d *topic.Topic) error {
			deleted = append(deleted, d.Name)
			if d.Name == "three" {
				return errStore
			}
			return nil
		}
		req := kmsg.NewPtrDeleteTopicsRequest()
		for _, name := range []string{"one", "gone", "two", "three", "two", ""} {
			req.TopicNames = append(req.TopicNames, name)
			rt := kmsg.NewDeleteTopicsRequestTopic()
			rt.Topic = &name
			req.Topics = append(req.Topics, rt)
		}
		resp := asked[*kmsg.DeleteTopicsResponse](t, b, &deleteTopicsAPI, v, req)
		same(t, "deleted", deleted, []string{"one", "three"})
		want := []deletedTopic{{ptr("one"), 1, 0}, {ptr("gone"), 0, 3}, {ptr("two"), 0, 42}, {ptr("three"), 3, 56}, {ptr(""), 0, 3}}
		if v < 6 {
			for i := range want {
				want[i].id = 0
			}
		}
		same(t, "topics", deletedTopics(t, resp), want)
	})
}

// v6: by id, and all that can be wrong with two ways to name a topic.
func TestDeleteTopicsByID(t *testing.T) {
	for _, c := range []struct {
		name    string
		asked   []deletedTopic // code unused
		want    []deletedTopic
		deleted []string
	}{
		{"by id", []deletedTopic{{nil, 1, 0}, {nil, 9, 0}}, []deletedTopic{{ptr("one"), 1, 0}, {nil, 9, 100}}, []string{"one"}},
		{"neither", []deletedTopic{{nil, 0, 0}, {nil, 1, 0}}, []deletedTopic{{nil, 0, 42}, {ptr("one"), 1, 0}}, []string{"one"}},
		{"both", []deletedTopic{{ptr("one"), 1, 0}, {ptr("two"), 0, 0}}, []deletedTopic{{ptr("one"), 1, 42}, {ptr("two"), 2, 0}}, []string{"two"}},
		{"id twice", []deletedTopic{{nil, 1, 0}, {nil, 2, 0}, {nil, 1, 0}, {nil, 1, 0}}, []deletedTopic{{nil, 1, 42}, {ptr("two"), 2, 0}}, []string{"two"}},
		{"name, and its id", []deletedTopic{{ptr("one"), 0, 0}, {nil, 1, 0}}, []deletedTopic{{ptr("one"), 1, 42}, {ptr("one"), 1, 42}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var deleted []string
			b := &stub{topics: []*topic.Topic{stubTopic(1, "one", 1), stubTopic(2, "two", 1)}}
			b.delete = func(_ context.Context, d *topic.Topic) error { deleted = append(deleted, d.Name); return nil }
			req := kmsg.NewPtrDeleteTopicsRequest()
			for _, a := range c.asked {
				rt := kmsg.NewDeleteTopicsRequestTopic()
				rt.Topic = a.name
				if a.id != 0 {
					rt.TopicID = types.TopicID{a.id, 15: 1}
				}
				req.Topics = append(req.Topics, rt)
			}
			resp := asked[*kmsg.DeleteTopicsResponse](t, b, &deleteTopicsAPI, 6, req)
			same(t, "topics", deletedTopics(t, resp), c.want)
			same(t, "deleted", deleted, c.deleted)
		})
	}
}
