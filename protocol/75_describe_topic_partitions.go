package protocol

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// DescribeTopicPartitions (key 75, v0) describes topics page by page (KIP-966).
// The Java admin client prefers it to Metadata.
//
//   - No topics means all. Topics are answered in the order of their names, each
//     once, from the cursor on; unknown ones are UNKNOWN_TOPIC_OR_PARTITION or
//     INVALID_TOPIC_EXCEPTION.
//   - A page has as many partitions as the request allows, at least 1 and at most
//     2000 (max.request.partition.size.limit), and topics without partitions
//     count for nothing. The next cursor, if there is more, is the first
//     partition that is not there.
//   - A cursor before partition 0, or of a topic that is not in the request's
//     list, is INVALID_REQUEST on every topic of that list.
//   - Leader epoch 0; replicas, in-sync and offline ones as in Metadata; no
//     eligible leader replicas.
var describeTopicPartitionsAPI = api{key: 75, min: 0, max: 0, large: true, serve: (*handler).describeTopicPartitions}

// describePatience is how long an answer waits for news of copies: people ask.
const describePatience = 2 * time.Second

// maxPagePartitions is Kafka's max.request.partition.size.limit by default.
const maxPagePartitions = 2000

func (h *handler) describeTopicPartitions(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	cursor := kmsg.NewDescribeTopicPartitionsRequestCursor()
	if req.Cursor != nil {
		cursor = *req.Cursor
	}
	names := make([]string, 0, len(req.Topics))
	for _, rt := range req.Topics {
		names = append(names, rt.Topic)
	}
	if cursor.Partition < 0 || req.Cursor != nil && len(names) > 0 && !slices.Contains(names, cursor.Topic) {
		for _, name := range once(names) {
			st := describedTopic(name)
			st.ErrorCode, st.AuthorizedOperations = kerr.InvalidRequest.Code, notAsked
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil
	}
	brokers := h.backend.Brokers()
	find := h.finder(ctx)
	if len(names) == 0 {
		all, err := h.backend.Topics(ctx)
		if err != nil {
			// No place for a code, and no topics would be a lie.
			_ = h.backend.Code(err, false)
			return nil, err
		}
		for _, t := range all {
			names = append(names, t.Name)
		}
		find = func(name string) (*topic.Topic, error) {
			i, _ := slices.BinarySearchFunc(all, name, func(t *topic.Topic, name string) int { return strings.Compare(t.Name, name) })
			return all[i], nil
		}
	}
	slices.Sort(names)
	fresh, cancel := context.WithTimeout(ctx, describePatience)
	defer cancel()
	left := min(max(req.ResponsePartitionLimit, 1), maxPagePartitions)
	for _, name := range slices.Compact(names) {
		if name < cursor.Topic {
			continue
		}
		if left == 0 {
			resp.NextCursor = nextCursor(name, 0)
			return resp, nil
		}
		st := describedTopic(name)
		t, err := find(name)
		if err != nil {
			st.ErrorCode = h.backend.Code(err, false)
			resp.Topics = append(resp.Topics, st)
			continue
		}
		first := int32(0)
		if name == cursor.Topic {
			first = min(cursor.Partition, t.Partitions)
		}
		end := min(first+left, t.Partitions)
		h.backend.RefreshCopies(fresh, t)
		h.describePartitions(&st, t, first, end, brokers)
		resp.Topics = append(resp.Topics, st)
		left -= end - first
		if end < t.Partitions {
			resp.NextCursor = nextCursor(name, end)
			return resp, nil
		}
	}
	return resp, nil
}

func describedTopic(name string) kmsg.DescribeTopicPartitionsResponseTopic {
	st := kmsg.NewDescribeTopicPartitionsResponseTopic()
	st.Topic, st.AuthorizedOperations = &name, topicOperations
	return st
}

// describePartitions fills in what is known of t and its partitions from first
// to before end.
func (h *handler) describePartitions(st *kmsg.DescribeTopicPartitionsResponseTopic, t *topic.Topic, first, end int32, brokers Brokers) {
	st.TopicID, st.IsInternal = t.ID, topic.Internal(t.Name)
	st.Partitions = make([]kmsg.DescribeTopicPartitionsResponseTopicPartition, end-first)
	none := []int32{}
	for i := range st.Partitions {
		p := &st.Partitions[i]
		*p = kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		p.Partition, p.LeaderEpoch = first+int32(i), 0
		p.Replicas, p.ISR, p.OfflineReplicas = h.replicas(brokers, t, p.Partition)
		p.LeaderID = p.Replicas[0]
		p.EligibleLeaderReplicas, p.LastKnownELR = none, none
	}
}

func nextCursor(name string, n int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = name, n
	return &c
}
