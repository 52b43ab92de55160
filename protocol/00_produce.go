package protocol

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// Produce (key 0, v0–v13) appends one record batch to each of its partitions.
//
//   - v0–v2 carry message formats that are not stored. Kafka 4 lists them for
//     old clients' sake and closes the connection; here each partition answers
//     UNSUPPORTED_VERSION in that version's shape.
//   - acks is −1, 0 or 1, else INVALID_REQUIRED_ACKS on each partition. 1 means
//     what −1 means. With 0 nothing is answered; if anything failed, the
//     connection is closed, so that the client notices.
//   - Partitions succeed and fail each for itself. Where one is named twice, its
//     last batch counts and is answered once, as in Kafka 4.3.
//   - Topics are never created. Kafka's internal topics are INVALID_TOPIC_EXCEPTION.
//   - Refusals carry base offset −1.
//   - Batches of a transaction without a transactional id make the whole request
//     TRANSACTIONAL_ID_AUTHORIZATION_FAILED; others of a transaction are verified
//     with its coordinator, see verify.
//
// v1 throttle time; v2 log append time; v3 record batches, transactional id;
// v5 log start offset; v7 zstd; v8 record errors and a message; v9 flexible;
// v10 leader hints (tags, never sent); v12 adds partitions to the transaction, and
// holds a producer that a partition does not know to sequence 0 (KIP-890); v13 topic ids, no names (KIP-516).
//
// Left out: the timeout (an append ends by the store's own rules),
// conversion of message formats 0 and 1.
var produceAPI = api{key: 0, min: 0, max: 13, lends: true, submit: (*handler).produce}

// produceCall is one produce request whose batches are on their way.
type produceCall struct {
	conn    *conn
	acks    int16
	resp    *kmsg.ProduceResponse
	h       *handler
	results []produceResult
	left    atomic.Int32 // batches without a result, and 1 until all are submitted
	done    chan struct{}
}

// produceResult connects a partition's answer with its place in the response.
type produceResult struct {
	to     *kmsg.ProduceResponseTopicPartition
	result partition.AppendResult
}

func (h *handler) produce(ctx context.Context, r *request) (func() (kmsg.Response, error), error) {
	req := r.Request.(*kmsg.ProduceRequest)
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	p := &produceCall{conn: r.conn, acks: req.Acks, resp: resp, h: h, done: make(chan struct{})}
	p.left.Store(1)

	// The places of all answers first: results point at them.
	n := 0
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	p.results = make([]produceResult, 0, n)
	places := make([]kmsg.ProduceResponseTopicPartition, n)
	dup := lastOf(req, n)
	refusal := h.mayProduce(req)
	for i := range req.Topics {
		rt, st := &req.Topics[i], &resp.Topics[i]
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		st.Partitions, places = places[:0:len(rt.Partitions)], places[len(rt.Partitions):]

		var t *topic.Topic
		err := refusal
		if err == nil && req.Version < 13 && topic.Internal(rt.Topic) {
			err = kerr.InvalidTopicException
		}
		allowed := err == nil
		if allowed {
			t, err = h.topicOf(ctx, rt.Topic, rt.TopicID, req.Version >= 13)
		}
		if err == nil && req.Version >= 13 && topic.Internal(t.Name) {
			err = kerr.InvalidTopicException
		}
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			key := produceKey{rt.Topic, rt.TopicID, rp.Partition}
			if dup != nil && dup[key] != rp {
				continue // a later batch for the same partition counts
			}
			st.Partitions = append(st.Partitions, kmsg.NewProduceResponseTopicPartition())
			sp := &st.Partitions[len(st.Partitions)-1]
			sp.Partition = rp.Partition
			perr := err
			var to Partition
			if perr == nil {
				to, perr = h.backend.Partition(ctx, t, rp.Partition)
			}
			p.results = append(p.results, produceResult{to: sp})
			out := &p.results[len(p.results)-1]
			if perr != nil {
				if allowed {
					h.missed.note(key, rp.Records, time.Now())
				}
				out.result = partition.AppendResult{Err: perr}
				continue
			}
			p.left.Add(1)
			if r.frame != nil {
				// The batch lies in the frame: its buffer stays until then,
				// whatever becomes of the connection.
				r.frame.retain()
			}
			f := r.frame
			to.Submit(partition.AppendRequest{
				Records:       rp.Records,
				NoZstd:        req.Version < 7,
				Transactional: req.TransactionID != nil,
				AcksAll:       req.Acks == -1,
				Verify:        h.verify(req, t, rp.Partition, rp.Records),
				FromZero:      req.Version >= 12 && req.TransactionID != nil,
				Missed:        h.missed.take(key, rp.Records, time.Now()),
			}, func(res partition.AppendResult) {
				out.result = res
				if f != nil {
					f.release()
				}
				if res.Delay > 0 {
					time.AfterFunc(res.Delay, p.finish)
					return
				}
				p.finish()
			})
		}
	}
	p.finish()
	r.ready = p.isDone
	return p.wait, nil
}

// finish counts down; the last one wakes the waiter.
func (p *produceCall) finish() {
	if p.left.Add(-1) == 0 {
		close(p.done)
	}
}

func (p *produceCall) isDone() bool { return p.left.Load() == 0 }

// wait gives the answer when every partition has one.
func (p *produceCall) wait() (kmsg.Response, error) {
	select {
	case <-p.done:
	case <-p.conn.cut():
		return nil, errCut
	}
	var failed error
	for i := range p.results {
		to, res := p.results[i].to, &p.results[i].result
		if res.Err == nil {
			to.BaseOffset, to.LogStartOffset, to.LogAppendTime = int64(res.BaseOffset), int64(res.LogStart), res.AppendTime
			continue
		}
		failed = res.Err
		to.ErrorCode = p.h.backend.Code(res.Err, false)
		to.BaseOffset, to.LogStartOffset, to.LogAppendTime = int64(types.NoOffset), int64(types.NoOffset), -1
		if res.Message != "" {
			to.ErrorMessage = &res.Message
		}
		for _, e := range res.Records {
			re := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			re.RelativeOffset = e.Index
			if e.Message != "" {
				re.ErrorMessage = &e.Message
			}
			to.ErrorRecords = append(to.ErrorRecords, re)
		}
	}
	if p.acks != 0 {
		return p.resp, nil
	}
	if failed != nil {
		return nil, fmt.Errorf("produce without acks: %w", failed)
	}
	return nil, nil
}

// errCut: the connection was cut while a request of it was being answered.
var errCut = errors.New("connection was cut")

// mayProduce refuses a whole request.
func (h *handler) mayProduce(req *kmsg.ProduceRequest) error {
	switch {
	case req.Version < 3:
		return kerr.UnsupportedVersion
	case req.Acks < -1 || req.Acks > 1:
		return kerr.InvalidRequiredAcks
	}
	return mayTransact(req)
}

// produceKey is a partition as a request names it.
type produceKey struct {
	name      string
	id        types.TopicID
	partition int32
}

// lastOf tells which batch counts for each partition; nil if none is named
// twice, which is nearly always so.
func lastOf(req *kmsg.ProduceRequest, n int) map[produceKey]*kmsg.ProduceRequestTopicPartition {
	if n < 2 {
		return nil
	}
	last := make(map[produceKey]*kmsg.ProduceRequestTopicPartition, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			last[produceKey{t.Topic, t.TopicID, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	if len(last) == n {
		return nil
	}
	return last
}
