package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAlterPartitionReassignments(t *testing.T) {
	type part = kmsg.AlterPartitionAssignmentsRequestTopicPartition
	versions(t, &alterReassignmentsAPI, func(t *testing.T, v int16) {
		w := newWorld()
		w.nodes = append(w.nodes, Node{ID: 2}, Node{ID: 5})
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.AllowReplicationFactorChange = false
		req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{
			{Topic: "t1", Partitions: []part{{Partition: 0, Replicas: []int32{1}}, {Partition: 1}, {Partition: 3, Replicas: []int32{1}}, {Partition: -1}}},
			{Topic: "t1", Partitions: []part{
				{Partition: 0, Replicas: []int32{}}, {Partition: 0, Replicas: []int32{2}}, {Partition: 1, Replicas: []int32{2, 1}},
				{Partition: 2, Replicas: []int32{2, 1, 2}}, {Partition: 2, Replicas: []int32{7, 4, 1}}, {Partition: 2, Replicas: []int32{9, 9}}}},
			{Topic: "x", Partitions: []part{{Partition: 0, Replicas: []int32{1}}}},
		}
		resp := asked[*kmsg.AlterPartitionAssignmentsResponse](t, w, &alterReassignmentsAPI, v, req)
		if resp.AllowReplicationFactorChange != (v == 0) || resp.ErrorCode != 0 || resp.ErrorMessage != nil {
			t.Errorf("answer: %+v", resp)
		}
		const stores = "The store places replicas: they cannot be assigned to brokers."
		want := []struct {
			code int16
			text string
		}{
			{0, ""}, {85, ""}, {3, "Unable to find partition t1:3."}, {3, "Unable to find partition t1:-1."},
			{39, "The manual partition assignment includes an empty replica list."}, {39, stores}, {39, stores},
			{39, "The manual partition assignment includes the broker 2 more than once."},
			{39, "The manual partition assignment includes broker 4, but no such broker is registered."},
			{39, "The manual partition assignment includes broker 9, but no such broker is registered."},
			{3, "Unable to find a topic named x."},
		}
		i := 0
		for _, st := range resp.Topics {
			for _, p := range st.Partitions {
				text := ""
				if p.ErrorMessage != nil {
					text = *p.ErrorMessage
				}
				if p.ErrorCode != want[i].code || text != want[i].text {
					t.Errorf("%s-%d (number %d): %d %q, want %d %q", st.Topic, p.Partition, i, p.ErrorCode, text, want[i].code, want[i].text)
				}
				i++
			}
		}
		if i != len(want) {
			t.Errorf("%d partitions answered", i)
		}
	})
}

func TestListPartitionReassignments(t *testing.T) {
	for _, topics := range [][]kmsg.ListPartitionReassignmentsRequestTopic{nil, {}, {{Topic: "t0", Partitions: []int32{0}}, {Topic: "x"}}} {
		req := kmsg.NewPtrListPartitionReassignmentsRequest()
		req.Topics = topics
		resp := asked[*kmsg.ListPartitionReassignmentsResponse](t, &stub{}, &listReassignmentsAPI, 0, req)
		want := kmsg.NewListPartitionReassignmentsResponse()
		same(t, "none", resp, &want)
	}
}
