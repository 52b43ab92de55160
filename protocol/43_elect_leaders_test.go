package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestElectLeaders(t *testing.T) {
	versions(t, &electLeadersAPI, func(t *testing.T, v int16) {
		w := newWorld()
		req := kmsg.NewPtrElectLeadersRequest()
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t1", Partitions: []int32{2, 3}}, {Topic: "x", Partitions: []int32{0}}, {Topic: "t0"}}
		resp := asked[*kmsg.ElectLeadersResponse](t, w, &electLeadersAPI, v, req)
		want := kmsg.NewElectLeadersResponse()
		want.Version = v
		type part = kmsg.ElectLeadersResponseTopicPartition
		want.Topics = []kmsg.ElectLeadersResponseTopic{
			{Topic: "t1", Partitions: []part{
				{Partition: 2, ErrorCode: 84, ErrorMessage: ptr("Leader election not needed for topic partition.")},
				{Partition: 3, ErrorCode: 3, ErrorMessage: ptr("No such partition as t1-3")}}},
			{Topic: "x", Partitions: []part{{Partition: 0, ErrorCode: 3, ErrorMessage: ptr("No such topic as x")}}},
			{Topic: "t0"},
		}
		same(t, "some", resp, &want)

		req.Topics = nil
		resp = asked[*kmsg.ElectLeadersResponse](t, w, &electLeadersAPI, v, req)
		want.Topics = []kmsg.ElectLeadersResponseTopic{{Topic: "t0"}, {Topic: "t1"}}
		same(t, "all", resp, &want)
	})
}

func TestElectLeadersRefused(t *testing.T) {
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType = 2
	req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t0", Partitions: []int32{0}}}
	resp := asked[*kmsg.ElectLeadersResponse](t, &stub{}, &electLeadersAPI, 2, req)
	if resp.ErrorCode != 42 || resp.Topics[0].Partitions[0].ErrorCode != 42 || *resp.Topics[0].Partitions[0].ErrorMessage != "Unknown election type 2" {
		t.Errorf("no such type: %+v", resp)
	}
	// A store that does not answer is never "nothing to elect".
	w := newWorld()
	w.topicErr = errStore
	req.ElectionType = 0
	resp = asked[*kmsg.ElectLeadersResponse](t, w, &electLeadersAPI, 2, req)
	if c := resp.Topics[0].Partitions[0].ErrorCode; c != 56 {
		t.Errorf("store away: code %d", c)
	}
	req.Topics = nil
	if resp = asked[*kmsg.ElectLeadersResponse](t, w, &electLeadersAPI, 2, req); resp.ErrorCode != 56 {
		t.Errorf("store away, all topics: %+v", resp)
	}
	req.SetVersion(0)
	h := &handler{backend: w}
	if got, err := h.electLeaders(t.Context(), &request{Request: req}); err == nil {
		t.Errorf("v0, store away, all topics: %+v", got)
	}
}

// A topic that is named a thousand times is looked up once.
func TestFinderAsksOnce(t *testing.T) {
	n := 0
	w := newWorld()
	h := &handler{backend: countingTopics{w, &n}}
	find := h.finder(t.Context())
	for range 3 {
		_, _ = find("t0")
		_, _ = find("x")
	}
	if n != 2 {
		t.Errorf("%d look-ups", n)
	}
}
