package protocol

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// countingTopics counts look-ups by name.
type countingTopics struct {
	*world
	n *int
}

func (c countingTopics) Topic(ctx context.Context, name string) (*topic.Topic, error) {
	*c.n++
	if strings.Contains(name, " ") {
		return nil, kerr.InvalidTopicException
	}
	return c.world.Topic(ctx, name)
}

// shortPage is an answer in short: topic:first-last or topic!code, then the cursor.
func shortPage(resp *kmsg.DescribeTopicPartitionsResponse) string {
	var out []string
	for _, st := range resp.Topics {
		switch {
		case st.ErrorCode != 0:
			out = append(out, fmt.Sprintf("%s!%d", *st.Topic, st.ErrorCode))
		case len(st.Partitions) == 0:
			out = append(out, *st.Topic+":")
		default:
			out = append(out, fmt.Sprintf("%s:%d-%d", *st.Topic, st.Partitions[0].Partition, st.Partitions[len(st.Partitions)-1].Partition))
		}
	}
	if c := resp.NextCursor; c != nil {
		out = append(out, fmt.Sprintf(">%s:%d", c.Topic, c.Partition))
	}
	return strings.Join(out, " ")
}

func TestDescribeTopicPartitionsPages(t *testing.T) {
	for _, c := range []struct {
		name   string
		topics []string
		limit  int32
		cursor string
		at     int32
		want   string
	}{
		{"all", nil, 10, "", 0, "a:0-0 b:0-2 c:0-3999"},
		{"all by pages", nil, 3, "", 0, "a:0-0 b:0-1 >b:2"},
		{"next page", nil, 3, "b", 2, "b:2-2 c:0-1 >c:2"},
		{"page ends with its topic", nil, 4, "", 0, "a:0-0 b:0-2 >c:0"},
		{"from a topic that was deleted", nil, 1, "ab", 5, "b:0-0 >b:1"},
		{"behind all", nil, 1, "d", 0, ""},
		{"at least one", nil, -7, "", 0, "a:0-0 >b:0"},
		{"at most 2000", nil, 1 << 30, "c", 7, "c:7-2006 >c:2007"},
		{"sorted, once", []string{"b", "a", "b"}, 10, "", 0, "a:0-0 b:0-2"},
		{"unknown take no room", []string{"x", "b", "aa", "a a"}, 3, "", 0, "a a!17 aa!3 b:0-2 >x:0"},
		{"cursor at an unknown one", []string{"x", "b"}, 3, "x", 3, "x!3"},
		{"cursor behind its topic", []string{"b", "c"}, 1, "b", 9, "b: c:0-0 >c:1"},
		{"cursor at the end of its topic", []string{"b"}, 1, "b", 3, "b:"},
		{"cursor below 0", []string{"b", "a"}, 1, "b", -1, "b!42 a!42"},
		{"cursor below 0, all", nil, 1, "b", -1, ""},
		{"cursor of another topic", []string{"b", "a"}, 1, "aa", 0, "b!42 a!42"},
	} {
		w := newWorld()
		w.topics = []*topic.Topic{stubTopic(1, "a", 1), stubTopic(2, "b", 3), stubTopic(3, "c", 4000)}
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = c.limit
		if c.name == "all" {
			req.ResponsePartitionLimit = 2000
			w.topics[2].Partitions = 1500
			c.want = "a:0-0 b:0-2 c:0-1499"
		}
		for _, name := range c.topics {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		if c.cursor != "" {
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: c.cursor, Partition: c.at}
		}
		n := 0
		resp := asked[*kmsg.DescribeTopicPartitionsResponse](t, countingTopics{w, &n}, &describeTopicPartitionsAPI, 0, req)
		if got := shortPage(resp); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestDescribeTopicPartitions(t *testing.T) {
	w := newWorld()
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "t0"}, {Topic: "x"}}
	resp := asked[*kmsg.DescribeTopicPartitionsResponse](t, w, &describeTopicPartitionsAPI, 0, req)
	want := kmsg.NewDescribeTopicPartitionsResponse()
	want.Topics = []kmsg.DescribeTopicPartitionsResponseTopic{
		{Topic: ptr("t0"), TopicID: w.topics[0].ID, AuthorizedOperations: 3576, Partitions: []kmsg.DescribeTopicPartitionsResponseTopicPartition{{
			LeaderID: 1, Replicas: []int32{1}, ISR: []int32{1}, EligibleLeaderReplicas: []int32{}, LastKnownELR: []int32{}}}},
		{Topic: ptr("x"), ErrorCode: 3, AuthorizedOperations: 3576},
	}
	same(t, "answer", resp, &want)

	// The store away: never "no topics".
	w.topicErr = errStore
	resp = asked[*kmsg.DescribeTopicPartitionsResponse](t, w, &describeTopicPartitionsAPI, 0, req)
	if got := shortPage(resp); got != "t0!56 x!56" {
		t.Errorf("store away: %s", got)
	}
	h := &handler{backend: w}
	if got, err := h.describeTopicPartitions(t.Context(), &request{Request: kmsg.NewPtrDescribeTopicPartitionsRequest()}); err == nil {
		t.Errorf("store away, all topics: %+v", got)
	}
}
