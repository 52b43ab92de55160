package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/types"
)

func offsetDeletion(topics ...types.TopicPartition) *kmsg.OffsetDeleteRequest {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = "g"
	for _, tp := range topics {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			req.Topics = append(req.Topics, kmsg.OffsetDeleteRequestTopic{Topic: tp.Topic})
		}
		if tp.Partition == 99 { // no partition
			continue
		}
		rt := &req.Topics[len(req.Topics)-1]
		rt.Partitions = append(rt.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: tp.Partition})
	}
	return req
}

func TestOffsetDelete(t *testing.T) {
	w := newWorld()
	var got []types.TopicPartition
	w.groups.forget = func(name string, tps []types.TopicPartition) group.DeleteOffsetsResponse {
		if name != "g" {
			t.Errorf("group %q", name)
		}
		got = tps
		r := group.DeleteOffsetsResponse{Partitions: make([]error, len(tps))}
		for i, tp := range tps {
			switch tp.Partition {
			case 1:
				r.Partitions[i] = kerr.GroupSubscribedToTopic
			case 2:
				r.Partitions[i] = errStore
			}
		}
		return r
	}
	type tps = []types.TopicPartition
	tp := func(topic string, n int32) types.TopicPartition {
		return types.TopicPartition{Topic: topic, Partition: n}
	}
	type parts = []kmsg.OffsetDeleteResponseTopicPartition
	part := func(n int32, code int16) kmsg.OffsetDeleteResponseTopicPartition {
		return kmsg.OffsetDeleteResponseTopicPartition{Partition: n, ErrorCode: code}
	}
	type answer = []kmsg.OffsetDeleteResponseTopic
	for _, c := range []struct {
		name        string
		ask, passed tps
		want        answer
	}{
		{"known", tps{tp("t1", 2), tp("t1", 0), tp("t0", 0), tp("t1", 1)}, tps{tp("t1", 2), tp("t1", 0), tp("t0", 0), tp("t1", 1)},
			answer{{Topic: "t1", Partitions: parts{part(2, 15), part(0, 0)}}, {Topic: "t0", Partitions: parts{part(0, 0)}}, {Topic: "t1", Partitions: parts{part(1, 86)}}}},
		{"unknown beside known", tps{tp("t0", 0), tp("t1", 1), tp("t1", 3), tp("x", 0), tp("t1", -1), tp("t1", 0)}, tps{tp("t0", 0), tp("t1", 1), tp("t1", 0)},
			answer{{Topic: "t1", Partitions: parts{part(3, 3), part(-1, 3), part(1, 86), part(0, 0)}}, {Topic: "x", Partitions: parts{part(0, 3)}}, {Topic: "t0", Partitions: parts{part(0, 0)}}}},
		{"no partitions", tps{tp("t0", 99), tp("x", 99)}, nil, answer{{Topic: "x"}}},
		{"nothing", nil, nil, nil},
	} {
		resp := asked[*kmsg.OffsetDeleteResponse](t, w, &offsetDeleteAPI, 0, offsetDeletion(c.ask...))
		want := kmsg.NewOffsetDeleteResponse()
		want.Topics = c.want
		same(t, c.name, resp, &want)
		same(t, c.name+": passed on", got, c.passed)
	}
}

// What the group says comes alone, also beside unknown topics.
func TestOffsetDeleteRefused(t *testing.T) {
	w := newWorld()
	for err, code := range map[error]int16{kerr.GroupIDNotFound: 69, kerr.NonEmptyGroup: 68, kerr.InvalidGroupID: 24, kerr.NotCoordinator: 16, errStore: 15} {
		w.groups.forget = func(string, []types.TopicPartition) group.DeleteOffsetsResponse {
			return group.DeleteOffsetsResponse{Err: err}
		}
		resp := asked[*kmsg.OffsetDeleteResponse](t, w, &offsetDeleteAPI, 0, offsetDeletion(types.TopicPartition{Topic: "t0"}, types.TopicPartition{Topic: "x"}))
		if resp.ErrorCode != code || resp.Topics != nil {
			t.Errorf("%v: %+v", err, resp)
		}
	}
	// A topic that cannot be looked up is not unknown.
	w.topicErr = errStore
	w.groups.forget = func(_ string, tps []types.TopicPartition) group.DeleteOffsetsResponse {
		return group.DeleteOffsetsResponse{}
	}
	resp := asked[*kmsg.OffsetDeleteResponse](t, w, &offsetDeleteAPI, 0, offsetDeletion(types.TopicPartition{Topic: "t0"}))
	if resp.Topics[0].Partitions[0].ErrorCode != 15 {
		t.Errorf("store away: %+v", resp)
	}
}
