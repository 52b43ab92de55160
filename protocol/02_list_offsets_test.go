package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func offsetsOf(topic string, epoch int32, at ...int64) *kmsg.ListOffsetsRequest {
	r := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for i, ts := range at {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = int32(i), ts, epoch
		rt.Partitions = append(rt.Partitions, rp)
	}
	r.Topics = append(r.Topics, rt)
	return r
}

// TestC24ListOffsets: the table of protocol §7 in each version.
func TestC24ListOffsets(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for _, ts := range []int64{5000, 1000, 9000, 3000} {
		w.log("t1", 0).append(batch(ts, 1))
	}
	w.log("t1", 2).fail = errStore
	s := startServer(t, w, nil)
	p := s.dial(t)
	unsupported := kerr.UnsupportedVersion.Code
	versions(t, &listOffsetsAPI, func(t *testing.T, v int16) {
		for _, c := range []struct {
			at                int64
			since             int16
			offset, timestamp int64
			epoch             int32
		}{
			{-1, 1, 4, -1, 0}, {-2, 1, 0, -1, 0}, {-3, 7, 2, 9000, 0}, {-4, 8, 0, -1, 0}, {-5, 9, -1, -1, -1}, {-6, 11, -1, -1, -1},
			{-7, 99, 0, 0, 0}, {-1 << 63, 99, 0, 0, 0}, {0, 1, 0, 5000, 0}, {6000, 1, 2, 9000, 0}, {9001, 1, -1, -1, -1},
		} {
			sp := ask[*kmsg.ListOffsetsResponse](p, v, offsetsOf("t1", -1, c.at)).Topics[0].Partitions[0]
			want := kmsg.NewListOffsetsResponseTopicPartition()
			want.Offset, want.Timestamp = c.offset, c.timestamp
			if v >= 4 {
				want.LeaderEpoch = c.epoch
			}
			if v < c.since {
				want.ErrorCode, want.Offset, want.Timestamp, want.LeaderEpoch = unsupported, -1, -1, -1
			}
			same(t, "answer", sp, want)
		}
		got := ask[*kmsg.ListOffsetsResponse](p, v, offsetsOf("t1", -1, -1, -1, -1, -1)).Topics[0].Partitions
		if got[0].ErrorCode != 0 || got[1].Offset != 0 || got[2].ErrorCode != kerr.KafkaStorageError.Code || got[2].Offset != -1 || got[3].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("side by side: %+v", got)
		}
		if sp := ask[*kmsg.ListOffsetsResponse](p, v, offsetsOf("nosuch", -1, -1)).Topics[0].Partitions[0]; sp.ErrorCode != kerr.UnknownTopicOrPartition.Code || sp.Offset != -1 {
			t.Errorf("unknown topic: %+v", sp)
		}
		twice := offsetsOf("t1", -1, -1, -1, -2)
		twice.Topics[0].Partitions[2].Partition = 0
		got = ask[*kmsg.ListOffsetsResponse](p, v, twice).Topics[0].Partitions
		if got[0].ErrorCode != 42 || got[1].ErrorCode != 0 || got[2].ErrorCode != 42 {
			t.Errorf("a partition twice: %+v", got)
		}
		if v >= 4 {
			for epoch, code := range map[int32]int16{-1: 0, 0: 0, 1: kerr.UnknownLeaderEpoch.Code, -2: kerr.FencedLeaderEpoch.Code} {
				if sp := ask[*kmsg.ListOffsetsResponse](p, v, offsetsOf("t1", epoch, -1)).Topics[0].Partitions[0]; sp.ErrorCode != code {
					t.Errorf("epoch %d: %+v", epoch, sp)
				}
			}
		}
	})
}
