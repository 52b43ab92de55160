package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// manyBrokers is a world with several brokers and with copies.
type manyBrokers struct {
	*world
	brokers []int32
	copies  partition.Copies
}

func (m manyBrokers) Brokers() Brokers {
	b := Brokers{Self: m.brokers[0], Controller: m.brokers[0], Replicas: func(_ types.TopicID, _ int32, copies int) []int32 {
		return append([]int32{}, m.brokers[:min(max(copies, 1), len(m.brokers))]...)
	}}
	for _, id := range m.brokers {
		b.Nodes = append(b.Nodes, Node{ID: id, Host: "h", Port: 1})
	}
	return b
}

func (m manyBrokers) Copies(*topic.Topic, int32) partition.Copies { return m.copies }

// TestReplicas: tools count replicas, in-sync and offline ones, so there are as
// many as the stream has; they begin with brokers, the leader first, and ids that
// fill up are no broker's. Metadata and DescribeTopicPartitions tell the same.
func TestReplicas(t *testing.T) {
	t.Parallel()
	three := partition.Copies{Replicas: 3, InSync: 3}
	for _, c := range []struct {
		brokers []int32
		copies  partition.Copies
		want    string // replicas, in sync, offline
	}{
		{[]int32{1}, partition.Copies{Replicas: 1, InSync: 1}, "[1] [1] []"},
		{[]int32{1}, three, "[1 2 3] [1 2 3] []"}, // one address for all
		{[]int32{1}, partition.Copies{Replicas: 3, InSync: 2, Offline: 1}, "[1 2 3] [1 2] [3]"},
		{[]int32{1}, partition.Copies{Replicas: 3, InSync: 1}, "[1 2 3] [1] []"}, // behind, not away
		{[]int32{1}, partition.Copies{Replicas: 3, InSync: 0, Offline: 3}, "[1 2 3] [1] [2 3]"},
		{[]int32{1}, partition.Copies{Replicas: 3, InSync: 3, Silent: true}, "[1 2 3] [1] []"},
		{[]int32{2, 3, 1}, three, "[2 3 1] [2 3 1] []"},
		{[]int32{2, 3, 1, 4, 5}, three, "[2 3 1] [2 3 1] []"},
		{[]int32{3, 1}, partition.Copies{Replicas: 3, InSync: 2, Offline: 1}, "[3 1 2] [3 1] [2]"}, // node 2 is down
		{[]int32{7, 2}, partition.Copies{Replicas: 5, InSync: 5}, "[7 2 1 3 4] [7 2 1 3 4] []"},
	} {
		m := manyBrokers{newWorld(), c.brokers, c.copies}
		p := startServer(t, m, nil).dial(t)
		versions(t, &metadataAPI, func(t *testing.T, v int16) {
			sp := ask[*kmsg.MetadataResponse](p, v, &kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: ptr("t0")}}}).Topics[0].Partitions[0]
			got := fmt.Sprint(sp.Replicas, " ", sp.ISR, " ")
			if v >= 5 {
				got += fmt.Sprint(sp.OfflineReplicas)
			}
			if !strings.HasPrefix(c.want, got) || v >= 5 && got != c.want || sp.Leader != c.brokers[0] {
				t.Errorf("brokers %v, %+v: leader %d, %s, want %s", c.brokers, c.copies, sp.Leader, got, c.want)
			}
		})
		dp := ask[*kmsg.DescribeTopicPartitionsResponse](p, 0, &kmsg.DescribeTopicPartitionsRequest{
			Topics: []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "t0"}}, ResponsePartitionLimit: 10}).Topics[0].Partitions[0]
		if got := fmt.Sprint(dp.Replicas, dp.ISR, dp.OfflineReplicas); got != c.want || dp.LeaderID != c.brokers[0] {
			t.Errorf("DescribeTopicPartitions: brokers %v, %+v: leader %d, %s, want %s", c.brokers, c.copies, dp.LeaderID, got, c.want)
		}
		// What is so already can be asked for.
		r := ask[*kmsg.AlterPartitionAssignmentsResponse](p, 0, &kmsg.AlterPartitionAssignmentsRequest{TimeoutMillis: 1000, Topics: []kmsg.AlterPartitionAssignmentsRequestTopic{
			{Topic: "t0", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0, Replicas: dp.Replicas}}}}})
		if code := r.Topics[0].Partitions[0].ErrorCode; code != 0 {
			t.Errorf("brokers %v, %+v: assignment %v as it is: code %d", c.brokers, c.copies, dp.Replicas, code)
		}
	}
}
