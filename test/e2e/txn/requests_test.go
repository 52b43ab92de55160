package txn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// row is one request in one version.
type row struct {
	name    string // without the version
	variant string
	version int16
	make    func(c *cell) kmsg.Request
	// log is the topic whose partition is looked at afterwards; "": none.
	log func(c *cell) string
}

// who are the senders of a request, beside the one that the state knows.
var who = []struct {
	name string
	of   func(c *cell) (int64, int16)
}{
	{"current", func(c *cell) (int64, int16) { return c.pid, c.epoch }},
	{"previous", func(c *cell) (int64, int16) { return c.pid, c.epoch - 1 }},
	{"next", func(c *cell) (int64, int16) { return c.pid, c.epoch + 1 }},
	{"other", func(c *cell) (int64, int16) { return c.bench.other, 0 }},
}

// passing says that what comes of it while markers are written depends on whether
// that of partition a is among those that are. (And Apache Kafka never ends a
// transaction whose own marker is refused because of one of these.)
func (r *row) passing() bool {
	return r.name == "WriteTxnMarkers" && strings.Contains(r.variant, "internal") ||
		(r.name == "WriteTxnMarkers" || r.name == "Produce") && strings.Contains(r.variant, " a")
}

// alone says that nothing that is verified with the coordinator may go on at the
// same time: Apache Kafka verifies some together, and then gives all of them the
// code of one version (48 or 120).
func (r *row) alone() bool {
	return r.name == "Produce" && r.version <= 11 || r.name == "TxnOffsetCommit" && r.version <= 4
}

// waits says that the broker itself waits a while for what is under way to end.
func (r *row) waits() bool { return r.name == "Produce" && r.version >= 12 }

// rows is every request; see answer_test.go for what is told of the answers.
func rows() (all []*row) {
	add := func(key int16, from, to int16, variant string, log func(c *cell) string, make func(c *cell, v int16) kmsg.Request) {
		for v := from; v <= to; v++ {
			all = append(all, &row{kmsg.NameForKey(key), variant, v, func(c *cell) kmsg.Request { return make(c, v) }, log})
		}
	}
	a := func(c *cell) string { return c.state.a }
	b := func(c *cell) string { return c.state.b }

	init := func(variant string, from int16, of func(c *cell) (int64, int16)) {
		add(22, from, 5, variant, nil, func(c *cell, _ int16) kmsg.Request {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis = &c.id, int32(long.Milliseconds())
			req.ProducerID, req.ProducerEpoch = of(c)
			return req
		})
	}
	init("none", 0, func(*cell) (int64, int16) { return -1, -1 })
	for _, w := range who {
		init(w.name, 3, w.of)
	}
	init("older", 3, func(c *cell) (int64, int16) { return c.pid, c.epoch - 2 })
	init("only the id", 3, func(c *cell) (int64, int16) { return c.pid, -1 })
	init("only the epoch", 3, func(c *cell) (int64, int16) { return -1, c.epoch })

	partitions := func(variant string, from, to int16, verify bool, of func(c *cell) (int64, int16), topics ...func(c *cell) string) {
		add(24, from, to, variant, nil, func(c *cell, v int16) kmsg.Request {
			req := kmsg.NewPtrAddPartitionsToTxnRequest()
			pid, epoch := of(c)
			if v <= 3 {
				req.TransactionalID, req.ProducerID, req.ProducerEpoch = c.id, pid, epoch
				for _, topic := range topics {
					rt := kmsg.NewAddPartitionsToTxnRequestTopic()
					rt.Topic, rt.Partitions = topic(c), []int32{0}
					req.Topics = append(req.Topics, rt)
				}
				return req
			}
			t := kmsg.NewAddPartitionsToTxnRequestTransaction()
			t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = c.id, pid, epoch, verify
			for _, topic := range topics {
				rt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
				rt.Topic, rt.Partitions = topic(c), []int32{0}
				t.Topics = append(t.Topics, rt)
			}
			req.Transactions = append(req.Transactions, t)
			return req
		})
	}
	unknown := func(*cell) string { return "txn-unknown" }
	for _, w := range who {
		partitions("b, "+w.name, 0, 5, false, w.of, b)
	}
	current := who[0].of
	partitions("a, current", 0, 5, false, current, a)
	partitions("a and unknown, current", 0, 5, false, current, a, unknown)
	partitions("a and unknown, previous", 0, 5, false, who[1].of, a, unknown)
	for _, w := range who {
		partitions("verify a, "+w.name, 4, 5, true, w.of, a)
	}
	partitions("verify b, current", 4, 5, true, current, b)
	partitions("verify a and b, current", 4, 5, true, current, a, b)

	partitions("internal, current", 0, 5, false, current, func(*cell) string { return "__consumer_offsets" })
	partitions("none, current", 0, 5, false, current)
	partitions("a twice, current", 0, 5, false, current, a, a)
	add(24, 0, 3, "partition 1 of a, current", nil, func(c *cell, _ int16) kmsg.Request {
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = c.id, c.pid, c.epoch
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = c.state.a, []int32{1, 0, -1}
		req.Topics = append(req.Topics, rt)
		return req
	})
	add(24, 4, 5, "two transactions and none", nil, func(c *cell, _ int16) kmsg.Request {
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		for _, id := range []string{c.id, c.id + "other", ""} {
			t, rt := kmsg.NewAddPartitionsToTxnRequestTransaction(), kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
			t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = id, c.pid, c.epoch, true
			rt.Topic, rt.Partitions = c.state.a, []int32{0}
			t.Topics = append(t.Topics, rt)
			req.Transactions = append(req.Transactions, t)
		}
		return req
	})

	for _, w := range who {
		add(25, 0, 4, w.name, nil, func(c *cell, _ int16) kmsg.Request {
			req := kmsg.NewPtrAddOffsetsToTxnRequest()
			req.TransactionalID, req.Group = c.id, c.group
			req.ProducerID, req.ProducerEpoch = w.of(c)
			return req
		})
	}
	add(25, 0, 4, "no group, current", nil, func(c *cell, _ int16) kmsg.Request {
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = c.id, c.pid, c.epoch
		return req
	})
	for _, commit := range []bool{true, false} {
		for _, w := range who {
			how := "abort"
			if commit {
				how = "commit"
			}
			add(26, 0, 5, how+", "+w.name, a, func(c *cell, _ int16) kmsg.Request {
				req := kmsg.NewPtrEndTxnRequest()
				req.TransactionalID, req.Commit = c.id, commit
				req.ProducerID, req.ProducerEpoch = w.of(c)
				return req
			})
		}
	}
	for _, w := range who {
		add(28, 0, 5, w.name, nil, func(c *cell, v int16) kmsg.Request {
			pid, epoch := w.of(c)
			return c.offset(v, pid, epoch)
		})
	}
	offset := func(variant string, from, to int16, set func(c *cell, r *kmsg.TxnOffsetCommitRequest)) {
		add(28, from, to, variant, nil, func(c *cell, v int16) kmsg.Request {
			req := c.offset(v, c.pid, c.epoch).(*kmsg.TxnOffsetCommitRequest)
			set(c, req)
			return req
		})
	}
	offset("no group", 0, 5, func(_ *cell, r *kmsg.TxnOffsetCommitRequest) { r.Group = "" })
	offset("unknown topic", 0, 5, func(_ *cell, r *kmsg.TxnOffsetCommitRequest) { r.Topics[0].Topic = "txn-unknown" })
	offset("generation 5", 3, 5, func(_ *cell, r *kmsg.TxnOffsetCommitRequest) { r.Generation = 5 })
	offset("generation 5, previous", 3, 5, func(_ *cell, r *kmsg.TxnOffsetCommitRequest) { r.Generation, r.ProducerEpoch = 5, r.ProducerEpoch-1 })
	offset("member", 3, 5, func(_ *cell, r *kmsg.TxnOffsetCommitRequest) { r.MemberID = "m" })
	offset("long metadata", 0, 5, func(_ *cell, r *kmsg.TxnOffsetCommitRequest) {
		r.Topics[0].Partitions[0].Metadata = ptr(strings.Repeat("m", 4097))
	})

	// The empty transactional id. (With it Apache Kafka answers Produce and
	// TxnOffsetCommit now so, now so.)
	add(22, 0, 5, "empty id", nil, func(c *cell, _ int16) kmsg.Request {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = ptr(""), 1000
		return req
	})
	for _, timeout := range []int32{0, -1, 900_000, 900_001} {
		add(22, 4, 4, fmt.Sprintf("timeout %d", timeout), nil, func(c *cell, _ int16) kmsg.Request {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis = &c.id, timeout
			return req
		})
	}
	add(24, 0, 3, "empty id", nil, func(c *cell, _ int16) kmsg.Request {
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.ProducerID, req.ProducerEpoch = c.pid, c.epoch
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = c.state.a, []int32{0}
		req.Topics = append(req.Topics, rt)
		return req
	})
	add(25, 0, 4, "empty id", nil, func(c *cell, _ int16) kmsg.Request {
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.ProducerID, req.ProducerEpoch, req.Group = c.pid, c.epoch, c.group
		return req
	})
	add(26, 0, 5, "empty id", nil, func(c *cell, _ int16) kmsg.Request {
		req := kmsg.NewPtrEndTxnRequest()
		req.ProducerID, req.ProducerEpoch = c.pid, c.epoch
		return req
	})
	for _, topic := range []struct {
		name string
		of   func(c *cell) string
	}{{"a", a}, {"b", b}} {
		for _, w := range who {
			add(0, 9, 13, "to "+topic.name+", "+w.name, topic.of, func(c *cell, v int16) kmsg.Request {
				pid, epoch := w.of(c)
				return c.batch(v, topic.of(c), pid, epoch, c.sequence(topic.of(c), epoch), true, &c.id)
			})
		}
		for _, w := range who[:3] {
			add(0, 9, 13, "plain to "+topic.name+", "+w.name, topic.of, func(c *cell, v int16) kmsg.Request {
				pid, epoch := w.of(c)
				return c.batch(v, topic.of(c), pid, epoch, c.sequence(topic.of(c), epoch), false, nil)
			})
		}
	}
	add(0, 9, 13, "to a without transactional id", a, func(c *cell, v int16) kmsg.Request {
		return c.batch(v, c.state.a, c.pid, c.epoch, c.sequence(c.state.a, c.epoch), true, nil)
	})
	add(0, 9, 13, "plain to a with transactional id", a, func(c *cell, v int16) kmsg.Request {
		return c.batch(v, c.state.a, c.pid, c.epoch, c.sequence(c.state.a, c.epoch), false, &c.id)
	})
	for _, commit := range []bool{true, false} {
		for _, w := range who {
			how := "abort"
			if commit {
				how = "commit"
			}
			add(27, 1, 2, how+" a, "+w.name, a, func(c *cell, _ int16) kmsg.Request {
				pid, epoch := w.of(c)
				return marker(c.state.a, pid, epoch, 0, commit)
			})
		}
	}
	add(27, 1, 2, "abort b, current", b, func(c *cell, _ int16) kmsg.Request { return marker(c.state.b, c.pid, c.epoch, 0, false) })
	add(27, 1, 2, "abort a, current, coordinator epoch -1", a, func(c *cell, _ int16) kmsg.Request { return marker(c.state.a, c.pid, c.epoch, -1, false) })
	add(27, 1, 2, "abort a, current, coordinator epoch 7", a, func(c *cell, _ int16) kmsg.Request { return marker(c.state.a, c.pid, c.epoch, 7, false) })
	add(27, 1, 2, "abort internal, current", nil, func(c *cell, _ int16) kmsg.Request { return marker("__consumer_offsets", c.pid, c.epoch, 0, false) })
	for _, w := range who[:3] {
		add(27, 2, 2, "version 2, abort a, "+w.name, a, func(c *cell, _ int16) kmsg.Request {
			pid, epoch := w.of(c)
			req := marker(c.state.a, pid, epoch, 0, false).(*kmsg.WriteTxnMarkersRequest)
			req.Markers[0].TransactionVersion = 2
			return req
		})
	}
	add(27, 1, 2, "abort unknown, current", nil, func(c *cell, _ int16) kmsg.Request { return marker("txn-unknown", c.pid, c.epoch, 0, false) })

	listing := func(variant string, from int16, set func(c *cell, r *kmsg.ListTransactionsRequest)) {
		add(66, from, 2, variant, nil, func(c *cell, _ int16) kmsg.Request {
			req := kmsg.NewPtrListTransactionsRequest()
			req.ProducerIDFilters = []int64{c.pid, c.bench.other}
			set(c, req)
			return req
		})
	}
	listing("by producer", 0, func(*cell, *kmsg.ListTransactionsRequest) {})
	listing("by state", 0, func(_ *cell, r *kmsg.ListTransactionsRequest) {
		r.StateFilters = []string{"Ongoing", "CompleteAbort", "ongoing", "Gone"}
	})
	listing("by states that there are not", 0, func(_ *cell, r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"ongoing", "Gone"} })
	listing("by bad pattern", 2, func(_ *cell, r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = ptr("(") })
	listing("by no pattern", 2, func(_ *cell, r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = ptr("") })
	listing("longer than nothing", 1, func(c *cell, r *kmsg.ListTransactionsRequest) {
		// Longer is more than 0 ms: what began in this millisecond is not.
		now := time.Now().UnixMilli()
		if err := testkit.Within(time.Minute, time.Millisecond, func() error {
			if time.Now().UnixMilli() == now {
				return errors.New("the clock stands still")
			}
			return nil
		}); err != nil {
			c.fatalf("%v", err)
		}
		r.DurationFilterMillis = 0
	})
	listing("longer than an hour", 1, func(_ *cell, r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 3_600_000 })
	listing("by pattern", 2, func(c *cell, r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = &c.id })
	listing("by part of a pattern", 2, func(c *cell, r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = ptr(c.id[1:]) })
	add(61, 0, 0, "a", a, func(c *cell, _ int16) kmsg.Request { return producers(c.state.a) })
	add(65, 0, 0, "this and nobody", nil, func(c *cell, _ int16) kmsg.Request {
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{c.id, "txn nobody"}
		return req
	})
	add(65, 0, 0, "this and the empty id", nil, func(c *cell, _ int16) kmsg.Request {
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{c.id, ""}
		return req
	})
	return all
}

// named is a topic, with a partition that is not the first.
func named(topic string, partition int32) string {
	if partition == 0 {
		return topic
	}
	return fmt.Sprintf("%s partition %d", topic, partition)
}

func ptr[T any](v T) *T { return &v }

func marker(topic string, pid int64, epoch int16, coordinator int32, commit bool) kmsg.Request {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m, mt := kmsg.NewWriteTxnMarkersRequestMarker(), kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	mt.Topic, mt.Partitions = topic, []int32{0}
	m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch, m.Topics = pid, epoch, commit, coordinator, append(m.Topics, mt)
	req.Markers = append(req.Markers, m)
	return req
}

func producers(topic string) kmsg.Request {
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, rt)
	return req
}

// tell is what an answer says, and its code.
func (c *cell) tell(resp kmsg.Response) (text string, code int16) {
	switch r := resp.(type) {
	case *kmsg.InitProducerIDResponse:
		return fmt.Sprintf("%d %s", r.ErrorCode, c.producer(r.ProducerID, r.ProducerEpoch)), r.ErrorCode
	case *kmsg.AddPartitionsToTxnResponse:
		var parts []string
		partition := func(topic string, of int16) {
			parts = append(parts, fmt.Sprintf("%s %d", c.short(topic), of))
			code = max(code, of)
			if of == 51 || code == 51 {
				code = 51
			}
		}
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				partition(named(t.Topic, p.Partition), p.ErrorCode)
			}
		}
		for _, tx := range r.Transactions {
			for _, t := range tx.Topics {
				for _, p := range t.Partitions {
					partition(t.Topic, p.ErrorCode)
				}
			}
		}
		slices.Sort(parts) // Kafka: the order of a hash table
		if r.Version >= 4 {
			parts = append(parts, fmt.Sprintf("top %d", r.ErrorCode))
		}
		return strings.Join(parts, ", "), code
	case *kmsg.AddOffsetsToTxnResponse:
		return fmt.Sprint(r.ErrorCode), r.ErrorCode
	case *kmsg.EndTxnResponse:
		if r.Version < 5 {
			return fmt.Sprint(r.ErrorCode), r.ErrorCode
		}
		return fmt.Sprintf("%d %s", r.ErrorCode, c.producer(r.ProducerID, r.ProducerEpoch)), r.ErrorCode
	case *kmsg.TxnOffsetCommitResponse:
		code := r.Topics[0].Partitions[0].ErrorCode
		return fmt.Sprint(code), code
	case *kmsg.ProduceResponse:
		p := r.Topics[0].Partitions[0]
		switch {
		case p.ErrorCode == 0 && c.base == 0:
			c.base = p.BaseOffset + 1
			return "0 stored", 0
		case p.ErrorCode == 0 && c.base == p.BaseOffset+1:
			return "0 the same", 0
		case p.ErrorCode == 0:
			return "0 stored again", 0
		}
		return fmt.Sprintf("%d %d", p.ErrorCode, p.BaseOffset), p.ErrorCode
	case *kmsg.WriteTxnMarkersResponse:
		code := r.Markers[0].Topics[0].Partitions[0].ErrorCode
		return fmt.Sprint(code), code
	case *kmsg.ListTransactionsResponse:
		text := fmt.Sprintf("%d %d unknown", r.ErrorCode, len(r.UnknownStateFilters))
		for _, s := range r.TransactionStates {
			mine := "another"
			if s.TransactionalID == c.id && s.ProducerID == c.pid {
				mine = "this"
			}
			text += " " + mine + " " + s.TransactionState
		}
		return text, r.ErrorCode
	case *kmsg.DescribeProducersResponse:
		code := r.Topics[0].Partitions[0].ErrorCode
		return fmt.Sprint(code), code
	case *kmsg.DescribeTransactionsResponse:
		this, nobody := r.TransactionStates[0], r.TransactionStates[1]
		return fmt.Sprintf("%s timeout %d; %d %q %d %d %d %d %d", c.transaction(this), this.TimeoutMillis,
			nobody.ErrorCode, nobody.State, nobody.TimeoutMillis, nobody.StartTimestamp, nobody.ProducerID, nobody.ProducerEpoch, len(nobody.Topics)), 0
	}
	panic(fmt.Sprintf("%T", resp))
}
