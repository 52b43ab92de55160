package protocol

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/types"
)

// Fetch (key 1, v4–v18) returns stored batches, byte for byte, from the one that
// contains the offset asked for.
//
//   - Answered at once if max_wait or min_bytes is not above 0, if there are no
//     partitions, if min_bytes are there, or if any partition is in error; else
//     when min_bytes have come or max_wait (at most fetch.max.wait) is over,
//     then without error. A draining server answers at once.
//   - The first partition with records, in request order, gives at least one
//     whole batch; all else fits into what the request's and the server's limits
//     (fetch.max.bytes) leave.
//   - Sessions (fetch_session.go): epoch 0 begins one, if there is room, −1 has
//     none, both with a full answer; they end the session they name. Any other
//     epoch must be the session's next (INVALID_FETCH_SESSION_EPOCH) and in the
//     session's form of topics (FETCH_SESSION_TOPIC_ID_ERROR); a session that is
//     not known here is FETCH_SESSION_ID_NOT_FOUND.
//   - Isolation level 1 ends before the last stable offset and lists aborted
//     transactions; level 0 has a null list.
//   - An error concerns its partition only and comes with −1 in the offsets.
//     Records are empty, never null. zstd (KIP-110, v10) goes out in any
//     version, as Apache Kafka 4 sends it: there are clients that ask in an older
//     one and know it. A leader epoch above 0 is UNKNOWN_LEADER_EPOCH. Replicas are not served: CLUSTER_AUTHORIZATION_FAILED.
//
// v5 log start offset; v7 sessions; v9 current leader epoch; v10 zstd; v11 rack;
// v12 flexible, last fetched epoch; v13 topic ids, no names; v15 replica state;
// v16 node endpoints (tags, never sent); v17 and v18 are for replicas.
//
// Left out: diverging epochs (nothing is ever truncated), preferred
// read replicas.
var fetchAPI = api{key: 1, min: 4, max: 18, lends: true, serve: (*handler).fetch}

// maxMisses is how many partitions of one fetch may be read in vain, because
// their next batch is larger than what is left: finding that out can take a read
// from the store, and a request can name thousands.
const maxMisses = 16

// slot is one partition of a fetch.
type slot struct {
	req *kmsg.FetchRequestTopicPartition
	to  *kmsg.FetchResponseTopicPartition
	p   Partition
	err error
}

func (h *handler) fetch(ctx context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.FetchRequest)
	resp := &fetchResponse{h: h}
	resp.FetchResponse = *req.ResponseKind().(*kmsg.FetchResponse)
	resp.SessionID = 0
	session, req, refused := h.sessions.begin(req)
	if refused != nil {
		resp.ErrorCode = h.backend.Code(refused, false)
		return resp, nil
	}
	if session != nil {
		defer h.sessions.done(session)
	}
	answered := false
	defer func() {
		if !answered { // an error, or a panic
			resp.release()
		}
	}()
	slots := h.fetchSlots(ctx, req, resp)
	committed := req.IsolationLevel == 1
	budget := int(max(req.MaxBytes, 0))
	if budget > h.config.FetchMaxBytes {
		budget = h.config.FetchMaxBytes
		h.limits.hit(limitFetchMax)
	}

	there, left, err := h.await(ctx, r, req, slots, committed, budget)
	if err != nil {
		return nil, err
	}
	if left { // nobody will read it
		budget, there = 0, 0
	} else if there >= 0 {
		// Of the shared budget, no more is reserved than can be needed: what
		// is there, and room for what comes meanwhile.
		budget = min(budget, max(2*there, 4<<20))
	}
	asked := budget
	budget = resp.reserve(budget)
	if asked > 0 && budget == 0 && (there < 0 || there > smallFetch) {
		// Its first batch goes beyond what all answers may hold.
		select {
		case h.answers.beyond <- struct{}{}:
			resp.beyond = true
		case <-r.conn.left():
			left = true
		case <-ctx.Done():
			return nil, errCut
		}
	}
	whole := !left
	n, misses := 0, 0
	for i := range slots {
		s := &slots[i]
		if s.err == nil {
			s.err = h.read(ctx, s, resp, i, committed, budget-n, whole)
		}
		if s.err != nil {
			if ctx.Err() != nil {
				return nil, errCut
			}
			s.fail(readCode(h.backend.Code(s.err, false)))
			continue
		}
		if got := resp.bytes(i); got > 0 {
			n += got
			whole = false
		} else if s.to.HighWatermark > s.req.FetchOffset {
			if misses++; misses == maxMisses {
				budget = n // the rest is answered without records
			}
		}
	}
	resp.settle(n)
	if session != nil && !left {
		h.sessions.answer(session, slots, resp)
	}
	answered = true
	return resp, nil
}

// fetchSlots resolves the request's partitions and makes their places.
func (h *handler) fetchSlots(ctx context.Context, req *kmsg.FetchRequest, resp *fetchResponse) []slot {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if n > manyElements { // a session may hold many that the request does not name
		ctx = topic.ForMany(ctx)
	}
	slots := make([]slot, 0, n)
	resp.records = make([][][]byte, n)
	resp.Topics = make([]kmsg.FetchResponseTopic, len(req.Topics))
	places := make([]kmsg.FetchResponseTopicPartition, n)
	replica := req.ReplicaID
	if req.Version >= 15 {
		replica = req.ReplicaState.ID
	}
	for i := range req.Topics {
		rt, st := &req.Topics[i], &resp.Topics[i]
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		st.Partitions, places = places[:len(rt.Partitions):len(rt.Partitions)], places[len(rt.Partitions):]
		t, err := h.topicOf(ctx, rt.Topic, rt.TopicID, req.Version >= 13)
		for j := range rt.Partitions {
			s := slot{req: &rt.Partitions[j], to: &st.Partitions[j], err: err}
			*s.to = kmsg.NewFetchResponseTopicPartition()
			s.to.Partition = s.req.Partition
			s.to.RecordBatches = []byte{}
			switch {
			case replica >= 0:
				s.err = kerr.ClusterAuthorizationFailed
			case err != nil:
			default:
				if s.p, s.err = h.backend.Partition(ctx, t, s.req.Partition); s.err == nil {
					s.err = currentEpoch(s.req.CurrentLeaderEpoch)
				}
			}
			slots = append(slots, s)
		}
	}
	return slots
}

// await returns when the request is to be answered, with an estimate of the
// bytes there are (-1: not asked). left says that the client is gone.
func (h *handler) await(ctx context.Context, r *request, req *kmsg.FetchRequest, slots []slot, committed bool, budget int) (there int, left bool, err error) {
	wait := time.Duration(req.MaxWaitMillis) * time.Millisecond
	if wait > h.config.FetchMaxWait {
		wait = h.config.FetchMaxWait
		h.limits.hit(limitFetchWait)
	}
	if wait <= 0 || req.MinBytes <= 0 || len(slots) == 0 {
		return -1, false, nil
	}
	enough := min(int(req.MinBytes), max(budget, 1))
	there, failed := estimate(ctx, slots, committed)
	if failed || there >= enough {
		return there, false, nil
	}
	// Ask for news first and look again: what came in between is not missed.
	news := make(chan struct{}, 1)
	for i := range slots {
		defer slots[i].p.Notify(news)()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		if there, failed = estimate(ctx, slots, committed); failed || there >= enough {
			return there, false, nil
		}
		select {
		case <-news:
		case <-t.C:
			return there, false, nil
		case <-h.draining:
			return there, false, nil
		case <-r.conn.left():
			return there, true, nil
		case <-ctx.Done():
			return 0, false, errCut
		}
	}
}

// estimate sums up what could be read, without reading. failed: a partition is
// in error, which is told at once.
func estimate(ctx context.Context, slots []slot, committed bool) (there int, failed bool) {
	for i := range slots {
		s := &slots[i]
		if s.err == nil {
			var n int
			if n, s.err = s.p.Available(ctx, types.Offset(s.req.FetchOffset), committed); s.err == nil {
				there += min(n, int(max(s.req.PartitionMaxBytes, 0)))
				continue
			}
		}
		failed = true
	}
	return there, failed
}

// read fills one partition's answer, within what is left of the budget.
func (h *handler) read(ctx context.Context, s *slot, resp *fetchResponse, i int, committed bool, left int, whole bool) error {
	limit := max(min(int(s.req.PartitionMaxBytes), left), 0)
	if whole {
		limit = max(limit, 1)
	}
	res, err := s.p.Read(ctx, partition.ReadRequest{Offset: types.Offset(s.req.FetchOffset), MaxBytes: limit, Whole: whole, Committed: committed})
	if err != nil {
		return err
	}
	resp.lent = append(resp.lent, res.Release...)
	s.to.HighWatermark, s.to.LastStableOffset, s.to.LogStartOffset = int64(res.HighWatermark), int64(res.LastStable), int64(res.LogStart)
	if committed {
		s.to.AbortedTransactions = make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, len(res.Aborted))
		for j, a := range res.Aborted {
			to := &s.to.AbortedTransactions[j]
			*to = kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			to.ProducerID, to.FirstOffset = a.ProducerID, int64(a.First)
		}
	}
	resp.records[i] = res.Batches
	return nil
}

// fail is the answer of a partition in error.
func (s *slot) fail(code int16) {
	s.to.ErrorCode = code
	s.to.HighWatermark, s.to.LastStableOffset, s.to.LogStartOffset = -1, -1, -1
}

// readCode is a code that every consumer takes as a reason to ask again. Java's
// ends at REQUEST_TIMED_OUT, which a Fetch of Kafka never answers
// (org.apache.kafka.clients.consumer.internals.FetchCollector).
func readCode(code int16) int16 {
	if code == kerr.RequestTimedOut.Code {
		return kerr.KafkaStorageError.Code
	}
	return code
}
