package protocol

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
)

// TestDescribeProducers: what a partition knows.
func TestDescribeProducers(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.log("t1", 0).producers = []partition.ProducerState{{ID: 7, Epoch: 3, LastSequence: 41, LastTime: 1700000000000, CoordinatorEpoch: -1, TxnStart: -1}, {ID: 9, LastSequence: -1, LastTime: 5, CoordinatorEpoch: 2, TxnStart: 77}}
	w.log("t1", 2).fail = errStore
	p := startServer(t, w, nil).dial(t)
	versions(t, &describeProducersAPI, func(t *testing.T, v int16) {
		req := kmsg.NewPtrDescribeProducersRequest()
		add := func(name string, partitions ...int32) {
			rt := kmsg.NewDescribeProducersRequestTopic()
			rt.Topic, rt.Partitions = name, partitions
			req.Topics = append(req.Topics, rt)
		}
		add("t1", 0, 1, 0, 2, 3)
		add("nosuch", 0)
		resp := ask[*kmsg.DescribeProducersResponse](p, v, req)
		ps := resp.Topics[0].Partitions
		if len(ps) != 4 {
			t.Fatalf("%+v", resp)
		}
		active := func(id int64, epoch, last int32, at int64, coordinator int32, start int64) kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
			a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
			a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp, a.CoordinatorEpoch, a.CurrentTxnStartOffset = id, epoch, last, at, coordinator, start
			return a
		}
		same(t, "producers", ps[0].ActiveProducers, []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{active(7, 3, 41, 1700000000000, -1, -1), active(9, 0, -1, 5, 2, 77)})
		for i, code := range []int16{0, 0, kerr.KafkaStorageError.Code, kerr.UnknownTopicOrPartition.Code} {
			if ps[i].Partition != int32(i) || ps[i].ErrorCode != code || (ps[i].ErrorMessage != nil) != (code == kerr.KafkaStorageError.Code) {
				t.Errorf("partition %d: %+v, want %d", i, ps[i], code)
			}
			if i > 0 && len(ps[i].ActiveProducers) != 0 {
				t.Errorf("partition %d: %+v", i, ps[i])
			}
		}
		if sp := resp.Topics[1].Partitions[0]; sp.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("unknown topic: %+v", sp)
		}
	})
}
