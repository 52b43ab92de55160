package protocol

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestOffsetForLeaderEpoch: epoch 0 ends at the log's end, nothing else is known.
func TestOffsetForLeaderEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for range 5 {
		w.log("t1", 0).append(batch(1, 1))
	}
	w.log("t1", 2).fail = errStore
	p := startServer(t, w, nil).dial(t)
	unknown := kerr.UnknownTopicOrPartition.Code
	versions(t, &offsetForLeaderEpochAPI, func(t *testing.T, v int16) {
		for _, c := range []struct {
			topic          string
			partition      int32
			current, asked int32
			code           int16
			epoch          int32
			end            int64
		}{
			{topic: "t1", current: -1, asked: 0, epoch: 0, end: 5},
			{topic: "t1", current: 0, asked: 0, epoch: 0, end: 5},
			{topic: "t1", partition: 1, current: 0, asked: 0, epoch: 0, end: 0},
			{topic: "t1", current: 0, asked: 1, epoch: -1, end: -1},
			{topic: "t1", current: 0, asked: -1, epoch: -1, end: -1},
			{topic: "t1", current: 0, asked: -5, epoch: -5, end: 0},
			{topic: "t1", current: 1, asked: 0, code: kerr.UnknownLeaderEpoch.Code, epoch: -1, end: -1},
			{topic: "t1", current: -2, asked: 0, code: kerr.FencedLeaderEpoch.Code, epoch: -1, end: -1},
			{topic: "t1", partition: 2, current: 0, asked: 0, code: kerr.KafkaStorageError.Code, epoch: -1, end: -1},
			{topic: "t1", partition: 3, current: 0, asked: 0, code: unknown, epoch: -1, end: -1},
			{topic: "t1", partition: -1, current: 0, asked: 0, code: unknown, epoch: -1, end: -1},
			{topic: "nosuch", current: 9, asked: 0, code: unknown, epoch: -1, end: -1},
		} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			rt, rp := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = c.partition, c.current, c.asked
			rt.Topic, rt.Partitions = c.topic, append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			want := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			want.Partition, want.ErrorCode, want.LeaderEpoch, want.EndOffset = c.partition, c.code, c.epoch, c.end
			same(t, fmt.Sprintf("%+v", c), ask[*kmsg.OffsetForLeaderEpochResponse](p, v, req).Topics[0].Partitions[0], want)
		}
	})
}
