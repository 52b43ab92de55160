package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deletionOf asks for partitions of a topic: pairs of partition and offset.
func deletionOf(topic string, pairs ...int64) kmsg.DeleteRecordsRequestTopic {
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	for i := 0; i < len(pairs); i += 2 {
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Partition, rp.Offset = int32(pairs[i]), pairs[i+1]
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}

// Each partition is answered alone and once, in each version.
func TestC44DeleteRecords(t *testing.T) {
	t.Parallel()
	versions(t, &deleteRecordsAPI, func(t *testing.T, v int16) {
		w := newWorld()
		w.topics = append(w.topics, stubTopic(9, "__consumer_offsets", 1))
		for range 10 {
			w.log("t1", 0).append(batch(1, 1))
			w.log("t1", 1).append(batch(1, 1))
		}
		w.log("t1", 2).fail = errStore
		p := startServer(t, w, nil).dial(t)
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Topics = []kmsg.DeleteRecordsRequestTopic{
			deletionOf("t1", 0, 4, 1, -1, 2, 0, 3, 0),
			deletionOf("nosuch", 0, 0),
			deletionOf("t0", 0, 1, 0, -2, 0, 0),
			deletionOf("t1", 1, 11, 0, 7),
			deletionOf("__consumer_offsets", 0, -1),
			deletionOf("bad name!", 0, 0),
		}
		resp := ask[*kmsg.DeleteRecordsResponse](p, v, req)
		type answer struct {
			topic     string
			partition int32
			low       int64
			code      int16
		}
		var got []answer
		for _, st := range resp.Topics {
			for _, sp := range st.Partitions {
				got = append(got, answer{st.Topic, sp.Partition, sp.LowWatermark, sp.ErrorCode})
			}
		}
		same(t, "answers", got, []answer{
			{"t1", 0, 7, 0},
			{"t1", 1, -1, kerr.OffsetOutOfRange.Code},
			{"t1", 2, -1, kerr.KafkaStorageError.Code},
			{"t1", 3, -1, kerr.UnknownTopicOrPartition.Code},
			{"nosuch", 0, -1, kerr.UnknownTopicOrPartition.Code},
			{"t0", 0, 0, 0},
			{"__consumer_offsets", 0, -1, kerr.InvalidTopicException.Code},
			{"bad name!", 0, -1, kerr.UnknownTopicOrPartition.Code},
		})
		req.Topics = []kmsg.DeleteRecordsRequestTopic{deletionOf("t1", 0, 3, 1, -1)}
		st := ask[*kmsg.DeleteRecordsResponse](p, v, req).Topics[0].Partitions
		if st[0].LowWatermark != 7 || st[1].LowWatermark != 10 || st[0].ErrorCode != 0 || st[1].ErrorCode != 0 {
			t.Errorf("below the start, and all: %+v", st)
		}
		req.Topics = nil
		if resp := ask[*kmsg.DeleteRecordsResponse](p, v, req); len(resp.Topics) != 0 {
			t.Errorf("nothing: %+v", resp)
		}
	})
}
