package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/topic"
)

func TestListConfigResources(t *testing.T) {
	type found struct {
		Type int8
		Name string
	}
	all := []found{{2, "a"}, {2, "b"}, {4, "1"}, {16, "m"}, {32, "g1"}, {32, "g2"}}
	for _, c := range []struct {
		v     int16
		types []int8
		code  int16
		want  []found
	}{
		{0, nil, 0, all[3:4]},
		{1, nil, 0, all},
		{1, []int8{}, 0, all},
		{1, []int8{2}, 0, all[:2]},
		{1, []int8{4, 4}, 0, all[2:3]},
		{1, []int8{8, 16, 32}, 0, all[3:]},
		{1, []int8{2, 4, 16, 32}, 0, all},
		{1, []int8{2, 99}, 35, nil},
		{1, []int8{0}, 35, nil},
		{1, []int8{-2}, 35, nil},
	} {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = c.types
		b := newWorld()
		b.topics = []*topic.Topic{stubTopic(1, "a", 1), stubTopic(2, "b", 1)}
		resp := asked[*kmsg.ListConfigResourcesResponse](t, b, &listConfigResourcesAPI, c.v, req)
		var got []found
		for _, r := range resp.ConfigResources {
			if c.v == 0 {
				r.Type = 16
			}
			got = append(got, found{r.Type, r.Name})
		}
		if resp.ErrorCode != c.code {
			t.Errorf("%v: code %d", c.types, resp.ErrorCode)
		}
		same(t, "resources", got, c.want)
	}
	b := newWorld()
	b.topicErr = errStore
	req := kmsg.NewPtrListConfigResourcesRequest()
	if resp := asked[*kmsg.ListConfigResourcesResponse](t, b, &listConfigResourcesAPI, 1, req); resp.ErrorCode != 56 || len(resp.ConfigResources) != 0 {
		t.Errorf("store away: %+v", resp)
	}
}
