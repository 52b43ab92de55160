package protocol

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// several are three brokers, of which this server is the second; partition n has
// broker n+1 and the next ones.
type several struct{ *world }

func (s several) Brokers() Brokers {
	return Brokers{
		Nodes: []Node{{ID: 1, Host: "a", Port: 1}, {ID: 2, Host: "b", Port: 2}, {ID: 3, Host: "c", Port: 3}}, Self: 2, Controller: 1,
		Replicas: func(_ types.TopicID, n int32, copies int) (ids []int32) {
			for i := range max(1, min(copies, 3)) {
				ids = append(ids, (n+int32(i))%3+1)
			}
			return ids
		},
	}
}

func (s several) Copies(t *topic.Topic, _ int32) partition.Copies {
	return partition.Copies{Replicas: t.Replicas, InSync: t.Replicas}
}

// TestC38SeveralBrokers: what is a broker's own is told by that broker alone, and
// what names brokers names as many as there are copies.
func TestC38SeveralBrokers(t *testing.T) {
	w := several{newWorld()}
	two := stubTopic(1, "two", 4)
	two.Replicas = 2
	w.topics = []*topic.Topic{two}
	w.coordinator = func(g string) int32 { return map[string]int32{"g1": 1, "g2": 2, "g3": 3, "g0": -1}[g] }
	w.groups.list = func(_, _ []string) (all []group.Listing, err error) {
		for _, g := range []string{"g0", "g1", "g2", "g3"} {
			all = append(all, group.Listing{Group: g})
		}
		return all, nil
	}

	versions(t, &listGroupsAPI, func(t *testing.T, v int16) {
		resp := asked[*kmsg.ListGroupsResponse](t, w, &listGroupsAPI, v, kmsg.NewPtrListGroupsRequest())
		if resp.ErrorCode != 0 || len(resp.Groups) != 1 || resp.Groups[0].Group != "g2" {
			t.Errorf("groups: %+v", resp)
		}
	})
	versions(t, &describeLogDirsAPI, func(t *testing.T, v int16) {
		resp := asked[*kmsg.DescribeLogDirsResponse](t, w, &describeLogDirsAPI, v, kmsg.NewPtrDescribeLogDirsRequest())
		var ns []int32
		for _, p := range resp.Dirs[0].Topics[0].Partitions {
			ns = append(ns, p.Partition)
		}
		if !slices.Equal(ns, []int32{0, 1, 3}) {
			t.Errorf("partitions with a copy here: %v", ns)
		}
	})
	resp := asked[*kmsg.DescribeTopicPartitionsResponse](t, w, &describeTopicPartitionsAPI, 0, &kmsg.DescribeTopicPartitionsRequest{ResponsePartitionLimit: 10})
	for _, p := range resp.Topics[0].Partitions {
		want := []int32{p.Partition%3 + 1, (p.Partition+1)%3 + 1}
		if p.LeaderID != want[0] || !slices.Equal(p.Replicas, want) || !slices.Equal(p.ISR, want) {
			t.Errorf("%+v", p)
		}
	}
	versions(t, &findCoordinatorAPI, func(t *testing.T, v int16) {
		for g, code := range map[string]int16{"g3": 0, "g0": 15} { // g0: it cannot be known now
			resp := asked[*kmsg.FindCoordinatorResponse](t, w, &findCoordinatorAPI, v, &kmsg.FindCoordinatorRequest{CoordinatorKey: g, CoordinatorKeys: []string{g}})
			c := kmsg.FindCoordinatorResponseCoordinator{ErrorCode: resp.ErrorCode, NodeID: resp.NodeID, Port: resp.Port}
			if v >= 4 {
				c = resp.Coordinators[0]
			}
			if c.ErrorCode != code || (c.NodeID == 3) != (code == 0) || (c.Port == 3) != (code == 0) {
				t.Errorf("coordinator of %s: %+v", g, c)
			}
		}
	})
	for name, code := range map[string]int16{"1": 0, "2": 0, "3": 0, "4": 42, "0": 42} {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: name}}
		if r := asked[*kmsg.DescribeConfigsResponse](t, w, &describeConfigsAPI, 4, req).Resources[0]; r.ErrorCode != code {
			t.Errorf("configs of broker %s: %d", name, r.ErrorCode)
		}
	}
}
