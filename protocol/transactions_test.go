package protocol

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/group"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/broker/txn"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// fencedSince is the code for a producer of the past in a version.
func fencedSince(first, version int16) int16 {
	if version < first {
		return kerr.InvalidProducerEpoch.Code
	}
	return kerr.ProducerFenced.Code
}

// TestInitTransactionalID: what goes to the coordinator, and what comes back.
func TestInitTransactionalID(t *testing.T) {
	versions(t, &initProducerIDAPI, func(t *testing.T, v int16) {
		var got txn.InitRequest
		answer := txn.InitResponse{Producer: txn.Producer{ID: 70, Epoch: 4}}
		b := &stub{txns: stubTransactions{init: func(r txn.InitRequest) txn.InitResponse { got = r; return answer }}}
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = ptr("tx"), 1500, 70, 3
		resp := asked[*kmsg.InitProducerIDResponse](t, b, &initProducerIDAPI, v, req)
		want := txn.InitRequest{TransactionalID: "tx", Timeout: 1500 * time.Millisecond, Producer: txn.NoProducer}
		if v >= 3 {
			want.Producer = txn.Producer{ID: 70, Epoch: 3}
		}
		same(t, "request", got, want)
		if resp.ErrorCode != 0 || resp.ProducerID != 70 || resp.ProducerEpoch != 4 {
			t.Errorf("%+v", resp)
		}
		for err, code := range map[error]int16{
			kerr.ProducerFenced: fencedSince(4, v), kerr.ConcurrentTransactions: 51, kerr.InvalidTransactionTimeout: 50,
			kerr.NotCoordinator: 16, errStore: 15,
		} {
			answer.Err = err
			if resp := asked[*kmsg.InitProducerIDResponse](t, b, &initProducerIDAPI, v, req); resp.ErrorCode != code || resp.ProducerID != -1 || resp.ProducerEpoch != -1 {
				t.Errorf("%v: %+v, want %d", err, resp, code)
			}
		}
	})
}

// partitionsOf is a request for some partitions of topics, in the form of its
// version, and reads its answer.
func partitionsOf(t *testing.T, b Backend, v int16, verify bool, topics ...string) (codes [][]int16) {
	t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	numbers := func(name string) []int32 {
		if name == "t1" {
			return []int32{2, 0}
		}
		return []int32{0}
	}
	if v < 4 {
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = "tx", 70, 3
		for _, name := range topics {
			req.Topics = append(req.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: name, Partitions: numbers(name)})
		}
		resp := asked[*kmsg.AddPartitionsToTxnResponse](t, b, &addPartitionsToTxnAPI, v, req)
		for i, st := range resp.Topics {
			var of []int16
			for j, sp := range st.Partitions {
				if st.Topic != topics[i] || sp.Partition != numbers(st.Topic)[j] {
					t.Errorf("%+v", resp)
				}
				of = append(of, sp.ErrorCode)
			}
			codes = append(codes, of)
		}
		return codes
	}
	rt := kmsg.NewAddPartitionsToTxnRequestTransaction()
	rt.TransactionalID, rt.ProducerID, rt.ProducerEpoch, rt.VerifyOnly = "tx", 70, 3, verify
	for _, name := range topics {
		rt.Topics = append(rt.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: name, Partitions: numbers(name)})
	}
	req.Transactions = append(req.Transactions, rt)
	resp := asked[*kmsg.AddPartitionsToTxnResponse](t, b, &addPartitionsToTxnAPI, v, req)
	if resp.ErrorCode != 0 || len(resp.Transactions) != 1 || resp.Transactions[0].TransactionalID != "tx" {
		t.Fatalf("%+v", resp)
	}
	for _, st := range resp.Transactions[0].Topics {
		var of []int16
		for _, sp := range st.Partitions {
			of = append(of, sp.ErrorCode)
		}
		codes = append(codes, of)
	}
	return codes
}

// TestAddPartitionsToTxn: all or none, and codes per version.
func TestAddPartitionsToTxn(t *testing.T) {
	w := newWorld()
	t0, t1 := txn.Partition{Topic: w.topics[0].ID}, w.topics[1].ID
	var got []txn.AddPartitionsRequest
	var answer txn.AddPartitionsResponse
	w.txns.addPartitions = func(r txn.AddPartitionsRequest) txn.AddPartitionsResponse { got = append(got, r); return answer }
	versions(t, &addPartitionsToTxnAPI, func(t *testing.T, v int16) {
		got, answer = nil, txn.AddPartitionsResponse{N: 3}
		same(t, "added", partitionsOf(t, w, v, false, "t0", "t1"), [][]int16{{0}, {0, 0}})
		same(t, "asked", got, []txn.AddPartitionsRequest{{
			TransactionalID: "tx", Producer: txn.Producer{ID: 70, Epoch: 3}, Partitions: []txn.Partition{t0, {Topic: t1, N: 2}, {Topic: t1}},
		}})
		got = nil
		same(t, "unknown", partitionsOf(t, w, v, false, "t0", "nosuch", "t1"), [][]int16{{55}, {3}, {55, 55}})
		if len(got) != 0 {
			t.Errorf("the coordinator was asked: %+v", got)
		}
		if v < 4 {
			same(t, "internal", partitionsOf(t, w, v, false, "t0", committedOffsets), [][]int16{{55}, {29}})
		}
		for err, code := range map[error]int16{
			kerr.ProducerFenced: fencedSince(2, v), kerr.InvalidProducerIDMapping: 49, kerr.ConcurrentTransactions: 51, errStore: 15,
		} {
			answer = txn.AddPartitionsResponse{Err: err}
			same(t, err.Error(), partitionsOf(t, w, v, false, "t0", "t1"), [][]int16{{code}, {code, code}})
		}
		if v >= 4 {
			got, answer = nil, txn.AddPartitionsResponse{N: 3, Missing: []txn.Partition{{Topic: t1, N: 2}}}
			same(t, "verified", partitionsOf(t, w, v, true, "t0", "t1"), [][]int16{{0}, {120, 0}})
			if len(got) != 1 || !got[0].VerifyOnly {
				t.Errorf("asked %+v", got)
			}
		}
	})
}

// TestAddPartitionsToManyTxns: each for itself, in order.
func TestAddPartitionsToManyTxns(t *testing.T) {
	w := newWorld()
	w.txns.addPartitions = func(r txn.AddPartitionsRequest) txn.AddPartitionsResponse {
		if r.TransactionalID == "bad" {
			return txn.AddPartitionsResponse{Err: kerr.ProducerFenced}
		}
		return txn.AddPartitionsResponse{N: 1}
	}
	for v := int16(4); v <= 5; v++ {
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		for _, c := range [][2]string{{"a", "t0"}, {"bad", "t0"}, {"b", "nosuch"}, {"c", "t1"}} {
			rt := kmsg.NewAddPartitionsToTxnRequestTransaction()
			rt.TransactionalID = c[0]
			rt.Topics = append(rt.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: c[1], Partitions: []int32{0}})
			req.Transactions = append(req.Transactions, rt)
		}
		resp := asked[*kmsg.AddPartitionsToTxnResponse](t, w, &addPartitionsToTxnAPI, v, req)
		var got []int16
		for _, st := range resp.Transactions {
			got = append(got, st.Topics[0].Partitions[0].ErrorCode)
		}
		same(t, "codes", got, []int16{0, 90, 3, 0})
	}
}

func TestAddOffsetsToTxn(t *testing.T) {
	versions(t, &addOffsetsToTxnAPI, func(t *testing.T, v int16) {
		var got txn.AddOffsetsRequest
		var answer txn.AddOffsetsResponse
		b := &stub{txns: stubTransactions{addOffsets: func(r txn.AddOffsetsRequest) txn.AddOffsetsResponse { got = r; return answer }}}
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = "tx", 70, 3, "g"
		for err, code := range map[error]int16{nil: 0, kerr.ProducerFenced: fencedSince(2, v), kerr.ConcurrentTransactions: 51, errStore: 15} {
			answer.Err = err
			if resp := asked[*kmsg.AddOffsetsToTxnResponse](t, b, &addOffsetsToTxnAPI, v, req); resp.ErrorCode != code {
				t.Errorf("%v: %d, want %d", err, resp.ErrorCode, code)
			}
		}
		same(t, "asked", got, txn.AddOffsetsRequest{TransactionalID: "tx", Producer: txn.Producer{ID: 70, Epoch: 3}, Group: "g"})
	})
}

func TestEndTxn(t *testing.T) {
	versions(t, &endTxnAPI, func(t *testing.T, v int16) {
		var got txn.EndRequest
		answer := txn.EndResponse{Producer: txn.NoProducer}
		if v >= 5 {
			answer.Producer = txn.Producer{ID: 71, Epoch: 0}
		}
		b := &stub{txns: stubTransactions{end: func(r txn.EndRequest) txn.EndResponse { got = r; return answer }}}
		for _, commit := range []bool{true, false} {
			req := kmsg.NewPtrEndTxnRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = "tx", 70, 3, commit
			for err, code := range map[error]int16{nil: 0, kerr.ProducerFenced: fencedSince(2, v), kerr.InvalidTxnState: 48, errStore: 15} {
				answer.Err = err
				resp := asked[*kmsg.EndTxnResponse](t, b, &endTxnAPI, v, req)
				want := txn.NoProducer
				if err == nil {
					want = answer.Producer
				}
				if resp.ErrorCode != code || resp.ProducerID != want.ID || resp.ProducerEpoch != want.Epoch {
					t.Errorf("%v: %+v, want %d, %+v", err, resp, code, want)
				}
			}
			same(t, "asked", got, txn.EndRequest{TransactionalID: "tx", Producer: txn.Producer{ID: 70, Epoch: 3}, Commit: commit, Bump: v >= 5})
		}
	})
}

func TestWriteTxnMarkers(t *testing.T) {
	versions(t, &writeTxnMarkersAPI, func(t *testing.T, v int16) {
		w := newWorld()
		w.log("t1", 1).fail = errStore
		w.log("t1", 2).producers = []partition.ProducerState{{ID: 70, Epoch: 3, TxnStart: 5}}
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		for _, version := range []int8{0, 2} {
			m := kmsg.NewWriteTxnMarkersRequestMarker()
			m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch, m.TransactionVersion = 70, 3, true, 8, version
			m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "t1", Partitions: []int32{0, 1, 2, 3}}, {Topic: "nosuch", Partitions: []int32{0}}}
			req.Markers = append(req.Markers, m)
		}
		resp := asked[*kmsg.WriteTxnMarkersResponse](t, w, &writeTxnMarkersAPI, v, req)
		var codes [][]int16
		for _, m := range resp.Markers {
			var of []int16
			for _, st := range m.Topics {
				for _, sp := range st.Partitions {
					of = append(of, sp.ErrorCode)
				}
			}
			codes = append(codes, of)
		}
		want := [][]int16{{0, 56, 0, 3, 3}, {0, 56, 0, 3, 3}}
		written := 2
		if v >= 2 { // which says that the epoch must be newer
			want[1][2], written = 47, 1
		}
		same(t, "codes", codes, want)
		marker := partition.Marker{ProducerID: 70, Epoch: 3, Commit: true, CoordinatorEpoch: 8}
		same(t, "markers", w.log("t1", 0).markers, []partition.Marker{marker, marker})
		same(t, "markers where one is open", w.log("t1", 2).markers, slices.Repeat([]partition.Marker{marker}, written))
	})
}

// TestTxnOffsetCommit: the transaction first, then the group.
func TestTxnOffsetCommit(t *testing.T) {
	versions(t, &txnOffsetCommitAPI, func(t *testing.T, v int16) {
		w := newWorld()
		var got txn.AddOffsetsRequest
		var committed []group.CommitRequest
		answer := txn.AddOffsetsResponse{N: 9}
		w.txns.addOffsets = func(r txn.AddOffsetsRequest) txn.AddOffsetsResponse { got = r; return answer }
		w.groups.commit = func(r group.CommitRequest) group.CommitResponse {
			committed = append(committed, r)
			return group.CommitResponse{Partitions: []error{nil, kerr.OffsetMetadataTooLarge}}
		}
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = "tx", "g", 70, 3
		req.Generation, req.MemberID, req.InstanceID = 5, "m", ptr("i")
		offset := func(n int32, at int64) kmsg.TxnOffsetCommitRequestTopicPartition {
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = n, at, 4, ptr("x")
			return p
		}
		req.Topics = []kmsg.TxnOffsetCommitRequestTopic{
			{Topic: "t1", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{offset(2, 50), offset(3, 1), offset(0, 51)}},
			{Topic: "nosuch", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{offset(0, 1)}},
		}
		codes := func() (all []int16) {
			for _, st := range asked[*kmsg.TxnOffsetCommitResponse](t, w, &txnOffsetCommitAPI, v, req).Topics {
				for _, sp := range st.Partitions {
					all = append(all, sp.ErrorCode)
				}
			}
			return all
		}
		same(t, "codes", codes(), []int16{0, 3, 12, 3})
		same(t, "asked", got, txn.AddOffsetsRequest{TransactionalID: "tx", Producer: txn.Producer{ID: 70, Epoch: 3}, Group: "g", VerifyOnly: v < 5, Implicit: v >= 5})
		epoch, member := int32(-1), group.Membership{Group: "g", Generation: -1}
		if v >= 2 {
			epoch = 4
		}
		if v >= 3 {
			member = group.Membership{Group: "g", Member: "m", Instance: ptr("i"), Generation: 5}
		}
		place := func(n int32, at types.Offset) group.CommitPartition {
			return group.CommitPartition{TopicPartition: types.TopicPartition{Topic: "t1", Partition: n}, TopicID: w.topics[1].ID, Offset: at, LeaderEpoch: epoch, Metadata: ptr("x")}
		}
		same(t, "committed", committed, []group.CommitRequest{{
			Caller: group.Caller{ClientID: "me", Host: "/10.1.2.3"}, Membership: member, Partitions: []group.CommitPartition{place(2, 50), place(0, 51)},
			Txn: &group.TxnCommit{TransactionalID: "tx", ProducerID: 70, Epoch: 3, N: 9},
		}})

		committed = nil
		absent := kerr.InvalidTxnState.Code
		if v >= 4 {
			absent = kerr.TransactionAbortable.Code
		}
		for _, c := range []struct {
			answer txn.AddOffsetsResponse
			code   int16
		}{
			{txn.AddOffsetsResponse{Missing: true}, absent},
			{txn.AddOffsetsResponse{Err: kerr.ProducerFenced}, kerr.InvalidProducerEpoch.Code},
			{txn.AddOffsetsResponse{Err: kerr.InvalidProducerIDMapping}, 49},
			{txn.AddOffsetsResponse{Err: errStore}, 15},
		} {
			answer = c.answer
			same(t, "codes", codes(), []int16{c.code, 3, c.code, 3})
		}
		if len(committed) != 0 {
			t.Errorf("committed all the same: %+v", committed)
		}
		req.Group = ""
		same(t, "codes without a group", codes(), []int16{24, 3, 24, 3})
		req.Group = "g"
		req.Topics, got = req.Topics[1:], txn.AddOffsetsRequest{}
		same(t, "codes", codes(), []int16{3})
		if got.TransactionalID != "" {
			t.Errorf("asked of nothing: %+v", got)
		}
	})
}

func TestDescribeTransactions(t *testing.T) {
	w := newWorld()
	w.txns.describe = func(id string) txn.Description {
		switch id {
		case "open":
			return txn.Description{TransactionalID: id, State: txn.Ongoing, Timeout: time.Minute, Start: 12, Producer: txn.Producer{ID: 70, Epoch: 3}, Groups: []string{"g", "h"},
				Partitions: []txn.Partition{{Topic: w.topics[1].ID, N: 2}, {Topic: w.topics[0].ID}, {Topic: w.topics[1].ID}, {Topic: types.TopicID{99}}}}
		case "away":
			return txn.Description{Err: errStore, State: txn.Ongoing}
		}
		return txn.Description{Err: kerr.TransactionalIDNotFound}
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{"open", "nosuch", "away", "open"}
	resp := asked[*kmsg.DescribeTransactionsResponse](t, w, &describeTransactionsAPI, 0, req)
	state := func(id string, code int16) kmsg.DescribeTransactionsResponseTransactionState {
		st := kmsg.NewDescribeTransactionsResponseTransactionState()
		st.TransactionalID, st.ErrorCode = id, code
		return st
	}
	open := state("open", 0)
	open.State, open.TimeoutMillis, open.StartTimestamp, open.ProducerID, open.ProducerEpoch = "Ongoing", 60_000, 12, 70, 3
	open.Topics = []kmsg.DescribeTransactionsResponseTransactionStateTopic{
		{Topic: "__consumer_offsets", Partitions: []int32{0}}, {Topic: "t0", Partitions: []int32{0}}, {Topic: "t1", Partitions: []int32{0, 2}},
	}
	same(t, "answer", resp.TransactionStates, []kmsg.DescribeTransactionsResponseTransactionState{open, state("nosuch", 105), state("away", 15)})
}

func TestListTransactions(t *testing.T) {
	versions(t, &listTransactionsAPI, func(t *testing.T, v int16) {
		var got txn.ListRequest
		b := &stub{nodes: []Node{{ID: 1}, {ID: 2}}, txns: stubTransactions{list: func(r txn.ListRequest) ([]txn.Listing, error) {
			got = r
			return []txn.Listing{{TransactionalID: "a", ProducerID: 7, State: txn.Ongoing}, {TransactionalID: "b", ProducerID: 8, State: txn.Empty}}, nil
		}}}
		b.coordinator = func(id string) int32 { return map[string]int32{"txn a": 1, "txn b": 2}[id] }
		req := kmsg.NewPtrListTransactionsRequest()
		req.StateFilters, req.ProducerIDFilters = []string{"Ongoing", "ongoing", "Gone", "Gone"}, []int64{7, 8}
		req.DurationFilterMillis, req.TransactionalIDPattern = 2000, ptr("a.*")
		resp := asked[*kmsg.ListTransactionsResponse](t, b, &listTransactionsAPI, v, req)
		want := txn.ListRequest{States: req.StateFilters, ProducerIDs: req.ProducerIDFilters, Duration: -time.Millisecond}
		if v >= 1 {
			want.Duration = 2 * time.Second
		}
		if v >= 2 {
			want.Pattern = "a.*"
		}
		same(t, "asked", got, want)
		same(t, "unknown", resp.UnknownStateFilters, []string{"ongoing", "Gone"})
		same(t, "listed", resp.TransactionStates, []kmsg.ListTransactionsResponseTransactionState{{TransactionalID: "a", ProducerID: 7, TransactionState: "Ongoing"}})

		req.DurationFilterMillis = math.MaxInt64
		asked[*kmsg.ListTransactionsResponse](t, b, &listTransactionsAPI, v, req)
		if v >= 1 && got.Duration < 100*365*24*time.Hour {
			t.Errorf("longer than anything became longer than %v", got.Duration)
		}

		b.txns.list = func(txn.ListRequest) ([]txn.Listing, error) { return nil, kerr.InvalidRegularExpression }
		if resp := asked[*kmsg.ListTransactionsResponse](t, b, &listTransactionsAPI, v, req); resp.ErrorCode != 128 || len(resp.TransactionStates) != 0 {
			t.Errorf("%+v", resp)
		}
	})
}

// txnBatch is a batch of a producer's transaction.
func txnBatch(id int64, epoch int16) []byte {
	b := serde.ControlBatch(0, 1, id, epoch, serde.ControlAbort, 0)
	b[22] &^= 0x20 // no control batch, but of a transaction
	return b
}

// TestProduceVerifies: what a batch of a transaction asks of its coordinator, and
// what the coordinator's answer means to a producer.
func TestProduceVerifies(t *testing.T) {
	for v := int16(3); v <= produceAPI.max; v++ {
		w := newWorld()
		var asks []txn.AddPartitionsRequest
		var answers []txn.AddPartitionsResponse
		w.txns.addPartitions = func(r txn.AddPartitionsRequest) txn.AddPartitionsResponse {
			asks = append(asks, r)
			a := answers[0]
			if len(answers) > 1 {
				answers = answers[1:]
			}
			return a
		}
		var verified error
		var n int64
		w.log("t0", 0).onSubmit = func(r partition.AppendRequest, done func(partition.AppendResult)) bool {
			if r.Verify == nil || !r.Transactional {
				t.Errorf("v%d: nothing to verify", v)
			} else {
				n, verified = r.Verify(context.Background())
			}
			done(partition.AppendResult{Err: verified, BaseOffset: -1, LogStart: -1})
			return true
		}
		p := startServer(t, w, nil).dial(t)
		produce := func(a ...txn.AddPartitionsResponse) int16 {
			asks, answers = nil, a
			req := produceOf(w, "t0", -1, txnBatch(70, 3))
			req.TransactionID = ptr("tx")
			return ask[*kmsg.ProduceResponse](p, v, req).Topics[0].Partitions[0].ErrorCode
		}
		if code := produce(txn.AddPartitionsResponse{N: 12}); code != 0 || n != 12 {
			t.Errorf("v%d: code %d, number %d", v, code, n)
		}
		same(t, "asked", asks, []txn.AddPartitionsRequest{{
			TransactionalID: "tx", Producer: txn.Producer{ID: 70, Epoch: 3}, Partitions: []txn.Partition{{Topic: w.topics[0].ID}}, VerifyOnly: v < 12, Implicit: v >= 12,
		}})
		absent, busy := kerr.InvalidTxnState.Code, kerr.NotEnoughReplicas.Code
		if v >= 11 {
			absent = kerr.TransactionAbortable.Code
		}
		if v >= 12 {
			busy = kerr.ConcurrentTransactions.Code
		} else if code := produce(txn.AddPartitionsResponse{N: 12, Missing: []txn.Partition{{}}}); code != absent {
			t.Errorf("v%d, not added: %d, want %d", v, code, absent)
		}
		for err, code := range map[error]int16{
			kerr.ProducerFenced: 47, kerr.InvalidProducerIDMapping: 49, kerr.ConcurrentTransactions: busy,
			kerr.NotCoordinator: 19, kerr.CoordinatorLoadInProgress: 19, errStore: 19,
		} {
			if got := produce(txn.AddPartitionsResponse{Err: err}); got != code {
				t.Errorf("v%d, %v: %d, want %d", v, err, got, code)
			}
		}
		// The last one is about to end.
		again := produce(txn.AddPartitionsResponse{Err: kerr.ConcurrentTransactions}, txn.AddPartitionsResponse{N: 13})
		if v >= 12 && (again != 0 || n != 13 || len(asks) != 2) || v < 12 && (again != busy || len(asks) != 1) {
			t.Errorf("v%d: %d, number %d, asked %d times", v, again, n, len(asks))
		}
	}
}

// TestProduceOfNoTransaction: a request without transactional id must not have
// batches of transactions, one with it may have others.
func TestProduceOfNoTransaction(t *testing.T) {
	for v := int16(3); v <= produceAPI.max; v++ {
		w := newWorld()
		p := startServer(t, w, nil).dial(t)
		req := produceOf(w, "t1", -1, batch(1, 5), txnBatch(70, 3))
		for _, sp := range ask[*kmsg.ProduceResponse](p, v, req).Topics[0].Partitions {
			if sp.ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code || sp.BaseOffset != -1 {
				t.Errorf("v%d: %+v", v, sp)
			}
		}
		w.log("t0", 0).onSubmit = func(r partition.AppendRequest, _ func(partition.AppendResult)) bool {
			if r.Verify != nil {
				t.Errorf("v%d: a plain batch is verified", v)
			}
			return false
		}
		req = produceOf(w, "t0", -1, batch(1, 5))
		req.TransactionID = ptr("tx")
		if sp := ask[*kmsg.ProduceResponse](p, v, req).Topics[0].Partitions[0]; sp.ErrorCode != 0 {
			t.Errorf("v%d: %+v", v, sp)
		}
	}
}

// TestVerifyEnds with its partition's context.
func TestVerifyEnds(t *testing.T) {
	w := newWorld()
	w.txns.addPartitions = func(txn.AddPartitionsRequest) txn.AddPartitionsResponse {
		return txn.AddPartitionsResponse{Err: kerr.ConcurrentTransactions}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.TransactionID = 12, ptr("tx")
	h := &handler{backend: w}
	if _, err := h.verify(req, &topic.Topic{}, 0, txnBatch(1, 0))(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
