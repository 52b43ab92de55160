package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeProducers (key 61, v0) lists the producer ids that a partition knows:
// those that wrote to it within a day, or have a transaction open there.
//
//   - Their last timestamp is the largest one of their last batch.
//   - Without a marker yet the coordinator epoch is −1, with nothing open the start
//     of the transaction.
//   - An unknown topic or partition is UNKNOWN_TOPIC_OR_PARTITION, the latter without
//     a text, and what can be no topic INVALID_TOPIC_EXCEPTION.
//   - A partition named twice is answered once.
var describeProducersAPI = api{key: 61, min: 0, max: 0, lends: true, large: true, serve: (*handler).describeProducers}

func (h *handler) describeProducers(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	find := h.finder(ctx)
	work := newTogether()
	seen := map[partitionKey]bool{}
	resp.Topics = make([]kmsg.DescribeProducersResponseTopic, len(req.Topics))
	for i := range req.Topics {
		rt, st := &req.Topics[i], &resp.Topics[i]
		*st = kmsg.NewDescribeProducersResponseTopic()
		st.Topic = rt.Topic
		st.Partitions = make([]kmsg.DescribeProducersResponseTopicPartition, 0, len(rt.Partitions))
		for _, n := range rt.Partitions {
			if k := (partitionKey{rt.Topic, n}); seen[k] {
				continue
			} else {
				seen[k] = true
			}
			st.Partitions = append(st.Partitions, kmsg.NewDescribeProducersResponseTopicPartition())
			sp := &st.Partitions[len(st.Partitions)-1]
			sp.Partition = n
			t, err := find(rt.Topic)
			if err != nil {
				sp.ErrorCode, sp.ErrorMessage = h.refusal(err, false)
				continue
			}
			p, err := h.backend.Partition(ctx, t, n)
			if err != nil {
				sp.ErrorCode = h.backend.Code(err, false)
				continue
			}
			work.add(func() {
				ps, err := p.Producers(ctx)
				sp.ErrorCode, sp.ErrorMessage = h.refusal(err, false)
				for _, s := range ps {
					a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
					a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp = s.ID, int32(s.Epoch), s.LastSequence, s.LastTime
					a.CoordinatorEpoch, a.CurrentTxnStartOffset = s.CoordinatorEpoch, int64(s.TxnStart)
					sp.ActiveProducers = append(sp.ActiveProducers, a)
				}
			})
		}
	}
	work.wait()
	return resp, nil
}
