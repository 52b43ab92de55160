package protocol

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

// DescribeLogDirs (key 35, v1–v5) tells how much is stored of which partition.
//
//   - One folder: that of the embedded store, or "jetstream".
//   - A partition's size is what its stream holds, payloads, headers and the
//     store's overhead, of one replica. Lag 0, never a future replica.
//   - With an address per gateway each broker has the partitions that Metadata
//     names it for: tools add up what all of them say.
//   - null means all topics. Unknown topics and partitions are left out, topics
//     without partitions too.
//   - If the store does not answer, the folder is KAFKA_STORAGE_ERROR (or what
//     else it was) without topics, as a failed disk is in Kafka.
//   - v4 total and usable bytes: of the disk of the embedded store (usable above
//     the reserve below which writes are refused), or of the account's limit; −1
//     if there is none.
//
// v2 flexible; v3 top-level error; v4 bytes (KIP-827); v5 cordoned (KIP-1066),
// which a folder here never is.
var describeLogDirsAPI = api{key: 35, min: 1, max: 5, large: true, serve: (*handler).describeLogDirs}

func (h *handler) describeLogDirs(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	space, err := h.backend.Space(ctx)
	dir.Dir = space.Dir
	if err == nil {
		dir.Topics, err = h.logDirTopics(ctx, req)
	}
	if err != nil {
		// Beside an error the sizes are unknown, as in Kafka.
		dir.ErrorCode, dir.Topics, dir.TotalBytes, dir.UsableBytes = h.backend.Code(err, false), nil, -1, -1
	} else {
		dir.TotalBytes, dir.UsableBytes = space.Total, space.Usable
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp, nil
}

// logDirTopics are the sizes that a request asks for, by topic and partition.
func (h *handler) logDirTopics(ctx context.Context, req *kmsg.DescribeLogDirsRequest) ([]kmsg.DescribeLogDirsResponseDirTopic, error) {
	var topics []*topic.Topic
	wanted := map[string]map[int32]bool{} // nil: all partitions
	if req.Topics == nil {
		var err error
		if topics, err = h.backend.Topics(ctx); err != nil {
			return nil, err
		}
	}
	for _, rt := range req.Topics {
		if len(rt.Partitions) == 0 {
			continue
		}
		w := wanted[rt.Topic]
		if w == nil {
			t, err := h.backend.Topic(ctx, rt.Topic)
			switch {
			case notThere(err):
				continue
			case err != nil:
				return nil, err
			}
			w = map[int32]bool{}
			wanted[rt.Topic] = w
			topics = append(topics, t)
		}
		for _, n := range rt.Partitions {
			w[n] = true
		}
	}
	sizes, err := h.backend.Sizes(ctx, topics)
	if err != nil {
		return nil, err
	}
	brokers := h.backend.Brokers()
	var out []kmsg.DescribeLogDirsResponseDirTopic
	for i, t := range topics {
		st := kmsg.NewDescribeLogDirsResponseDirTopic()
		st.Topic = t.Name
		for n, size := range sizes[i] {
			if w := wanted[t.Name]; w != nil && !w[int32(n)] {
				continue
			}
			if !slices.Contains(brokers.Replicas(t.ID, int32(n), t.Replicas), brokers.Self) {
				continue
			}
			sp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			sp.Partition, sp.Size = int32(n), size
			st.Partitions = append(st.Partitions, sp)
		}
		if len(st.Partitions) > 0 {
			out = append(out, st)
		}
	}
	slices.SortFunc(out, func(a, b kmsg.DescribeLogDirsResponseDirTopic) int { return strings.Compare(a.Topic, b.Topic) })
	return out, nil
}
