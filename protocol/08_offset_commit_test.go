package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// commitRequest commits partitions 0, 1, 2 and −1 of orders, which has two, and
// partition 0 of a topic that does not exist.
func commitRequest() *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = "g", 3, "m", ptr("i")
	for _, c := range []struct {
		id         byte
		name       string
		partitions []int32
	}{{9, "gone", []int32{0}}, {1, "orders", []int32{1, 2, 0, -1}}} {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID = c.name, types.TopicID{c.id, 15: 1}
		for _, p := range c.partitions {
			rp := kmsg.NewOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = p, int64(100+p), 5
			if p == 0 {
				rp.Metadata, rp.LeaderEpoch = ptr("note"), -1
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// commitCodes lists the codes of an answer in order.
func commitCodes(resp *kmsg.OffsetCommitResponse) (codes []int16) {
	for _, st := range resp.Topics {
		for _, sp := range st.Partitions {
			codes = append(codes, sp.ErrorCode)
		}
	}
	return codes
}

func TestOffsetCommit(t *testing.T) {
	orders := stubTopic(1, "orders", 2)
	versions(t, &offsetCommitAPI, func(t *testing.T, v int16) {
		var got group.CommitRequest
		b := &stub{topics: []*topic.Topic{orders}}
		b.groups.commit = func(r group.CommitRequest) group.CommitResponse {
			got = r
			return group.CommitResponse{Partitions: []error{nil, kerr.OffsetMetadataTooLarge}}
		}
		resp := asked[*kmsg.OffsetCommitResponse](t, b, &offsetCommitAPI, v, commitRequest())

		unknown := kerr.UnknownTopicOrPartition.Code
		if v >= 10 {
			unknown = kerr.UnknownTopicID.Code
		}
		same(t, "codes", commitCodes(resp), []int16{unknown, 0, 3, 12, 3})
		for i, name := range []string{"gone", "orders"} {
			st := resp.Topics[i]
			id := types.TopicID{[]byte{9, 1}[i], 15: 1}
			if v >= 10 {
				name = ""
			} else {
				id = types.TopicID{}
			}
			if st.Topic != name || types.TopicID(st.TopicID) != id {
				t.Errorf("topic %d is %q %v", i, st.Topic, st.TopicID)
			}
		}

		want := group.CommitRequest{
			Caller:     group.Caller{ClientID: "me", Host: "/10.1.2.3"},
			Membership: group.Membership{Group: "g", Member: "m", Generation: 3},
			V9:         v >= 9,
			Partitions: []group.CommitPartition{
				{TopicPartition: types.TopicPartition{Topic: "orders", Partition: 1}, TopicID: orders.ID, Offset: 101, LeaderEpoch: -1},
				{TopicPartition: types.TopicPartition{Topic: "orders", Partition: 0}, TopicID: orders.ID, Offset: 100, LeaderEpoch: -1, Metadata: ptr("note")},
			},
		}
		if v >= 6 {
			want.Partitions[0].LeaderEpoch = 5
		}
		if v >= 7 {
			want.Instance = ptr("i")
		}
		same(t, "request", got, want)
	})
}

// An error of the group stands on every partition that reached it, beside what
// was decided before.
func TestOffsetCommitGroupError(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int16
	}{
		{kerr.IllegalGeneration, 22},
		{kerr.UnknownMemberID, 25},
		{kerr.RebalanceInProgress, 27},
		{kerr.GroupIDNotFound, 69},
		{errStore, 15},
	} {
		b := &stub{topics: []*topic.Topic{stubTopic(1, "orders", 2)}}
		b.groups.commit = func(group.CommitRequest) group.CommitResponse { return group.CommitResponse{Err: c.err} }
		resp := asked[*kmsg.OffsetCommitResponse](t, b, &offsetCommitAPI, 8, commitRequest())
		same(t, c.err.Error(), commitCodes(resp), []int16{3, c.code, 3, c.code, 3})
	}
}

// With no partition left the group is not asked (the stub would panic).
func TestOffsetCommitNothingLeft(t *testing.T) {
	resp := asked[*kmsg.OffsetCommitResponse](t, &stub{}, &offsetCommitAPI, 8, commitRequest())
	same(t, "unknown topics", commitCodes(resp), []int16{3, 3, 3, 3, 3})

	resp = asked[*kmsg.OffsetCommitResponse](t, &stub{topicErr: errStore}, &offsetCommitAPI, 8, commitRequest())
	same(t, "store away", commitCodes(resp), []int16{15, 15, 15, 15, 15})

	req := commitRequest()
	for i := range req.Topics {
		req.Topics[i].TopicID = types.TopicID{}
	}
	resp = asked[*kmsg.OffsetCommitResponse](t, &stub{}, &offsetCommitAPI, 10, req)
	same(t, "zero id", commitCodes(resp), []int16{100, 100, 100, 100, 100})

	resp = asked[*kmsg.OffsetCommitResponse](t, &stub{}, &offsetCommitAPI, 8, kmsg.NewPtrOffsetCommitRequest())
	if len(resp.Topics) != 0 {
		t.Errorf("no topics asked, %d answered", len(resp.Topics))
	}
}
