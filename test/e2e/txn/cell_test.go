package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/e2e/raw"
	"github.com/hanzoai/stream/test/testkit"
)

// cell is one transactional id, brought into a state and asked one thing.
type cell struct {
	bench *bench
	state *state
	conn  *raw.Conn
	id    string
	group string
	// What the client of the state holds.
	pid   int64
	epoch int16
	// wrote is the epoch in which the client wrote to partition a, next the
	// sequence that follows; seq -1: never.
	wrote int16
	next  int32

	row  *row
	base int64        // base offset of the first batch that was stored, plus 1
	sent kmsg.Request // the row's
	// What came back.
	first, second, after, log string
}

// fail ends a cell; it is recovered by the bench.
type fail struct{ err error }

func (c *cell) fatalf(format string, args ...any) {
	panic(fail{fmt.Errorf("%s, %s v%d: "+format, append([]any{c.state.name, c.row.name, c.row.version}, args...)...)})
}

var errClosed = errors.New("closed")

// do asks; a connection that the broker closes is errClosed.
func (c *cell) do(version int16, req kmsg.Request) (kmsg.Response, error) {
	if c.conn == nil {
		conn, err := raw.Dial(c.bench.addr)
		if err != nil {
			c.fatalf("%v", err)
		}
		c.conn = conn
	}
	if key := req.Key(); key == 0 || key == 28 {
		if req == c.sent && c.row.alone() {
			c.bench.verify.Lock()
			defer c.bench.verify.Unlock()
		} else {
			c.bench.verify.RLock()
			defer c.bench.verify.RUnlock()
		}
	}
	resp, err := c.conn.Do(version, req)
	if err != nil {
		c.conn.Close()
		c.conn = nil
		return nil, fmt.Errorf("%w: %v", errClosed, err)
	}
	return resp, nil
}

// must asks until the answer is neither 51 nor one of those that clients wait
// out at the start, and fails if it is an error.
func must[R kmsg.Response](c *cell, version int16, req kmsg.Request, code func(R) int16) (r R) {
	var fatal error
	err := testkit.Within(time.Minute, pause, func() error {
		resp, err := c.do(version, req)
		if err != nil {
			fatal = err
			return nil
		}
		r = resp.(R)
		if got := code(r); got != 0 {
			err = fmt.Errorf("%s v%d while making the state: code %d", kmsg.NameForKey(req.Key()), version, got)
			if !again(got) {
				fatal, err = err, nil
			}
		}
		return err
	})
	if err = errors.Join(err, fatal); err != nil {
		c.fatalf("%v", err)
	}
	return r
}

// pause is between two tries.
const pause = 5 * time.Millisecond

// again: CONCURRENT_TRANSACTIONS, and a coordinator that is not ready yet.
func again(code int16) bool { return code == 51 || code == 14 || code == 15 || code == 16 }

// coordinator waits until there is one for a group (0) or transactional id (1).
func (c *cell) coordinator(kind int8, key string) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey = kind, key
	must(c, 2, req, func(r *kmsg.FindCoordinatorResponse) int16 { return r.ErrorCode })
}

// init asks for a producer id and holds it.
func (c *cell) init(timeout time.Duration) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &c.id, int32(timeout.Milliseconds())
	r := must(c, 4, req, func(r *kmsg.InitProducerIDResponse) int16 { return r.ErrorCode })
	c.pid, c.epoch = r.ProducerID, r.ProducerEpoch
}

func (c *cell) add(topic string, partitions ...int32) {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = c.id, c.pid, c.epoch
	rt := kmsg.NewAddPartitionsToTxnRequestTopic()
	rt.Topic, rt.Partitions = topic, partitions
	req.Topics = append(req.Topics, rt)
	must(c, 3, req, func(r *kmsg.AddPartitionsToTxnResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
}

func (c *cell) addGroup() {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = c.id, c.pid, c.epoch, c.group
	must(c, 3, req, func(r *kmsg.AddOffsetsToTxnResponse) int16 { return r.ErrorCode })
}

func (c *cell) produce(version int16) {
	must(c, version, c.batch(version, c.state.a, c.pid, c.epoch, 0, true, &c.id), produced)
	c.wrote, c.next = c.epoch, 1
}

// commitOffset adds the group and an offset of it in one, as from version 5 on.
func (c *cell) commitOffset() {
	must(c, 5, c.offset(5, c.pid, c.epoch), func(r *kmsg.TxnOffsetCommitResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
}

// offset is a TxnOffsetCommit of nobody's generation.
func (c *cell) offset(version int16, pid int64, epoch int16) kmsg.Request {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = c.id, c.group, pid, epoch
	rt, rp := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset = 0, 50
	rt.Topic, rt.Partitions = c.state.a, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// plain asks for a producer id without a transactional id.
func (c *cell) plain() {
	r := must(c, 4, kmsg.NewPtrInitProducerIDRequest(), func(r *kmsg.InitProducerIDResponse) int16 { return r.ErrorCode })
	c.pid, c.epoch = r.ProducerID, r.ProducerEpoch
}

func (c *cell) end(version int16, commit bool) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = c.id, c.pid, c.epoch, commit
	r := must(c, version, req, func(r *kmsg.EndTxnResponse) int16 { return r.ErrorCode })
	if version >= 5 {
		c.pid, c.epoch = r.ProducerID, r.ProducerEpoch
	}
}

// describe is what DescribeTransactions says now.
func (c *cell) describe() kmsg.DescribeTransactionsResponseTransactionState {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{c.id}
	resp, err := c.do(0, req)
	if err != nil {
		c.fatalf("%v", err)
	}
	return resp.(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
}

func preparing(s string) bool { return strings.HasPrefix(s, "Prepare") }

// settled is what DescribeTransactions says once nothing is prepared any more.
func (c *cell) settled() (s kmsg.DescribeTransactionsResponseTransactionState) {
	err := testkit.Within(time.Minute, pause, func() error {
		if s = c.describe(); preparing(s.State) || again(s.ErrorCode) {
			return fmt.Errorf("%s, code %d", s.State, s.ErrorCode)
		}
		return nil
	})
	if err != nil {
		c.fatalf("for a minute: %v", err)
	}
	return s
}

// transaction is one line about a transaction.
func (c *cell) transaction(s kmsg.DescribeTransactionsResponseTransactionState) string {
	if s.ErrorCode != 0 {
		return fmt.Sprintf("code %d", s.ErrorCode)
	}
	var parts []string
	for _, t := range s.Topics {
		if strings.HasPrefix(t.Topic, "__") {
			parts = append(parts, "group")
			continue
		}
		for _, p := range t.Partitions {
			parts = append(parts, fmt.Sprintf("%s-%d", c.short(t.Topic), p))
		}
	}
	sort.Strings(parts)
	started := "not started"
	if s.StartTimestamp > 0 {
		started = "started"
	}
	return fmt.Sprintf("%s %s %s [%s]", s.State, c.producer(s.ProducerID, s.ProducerEpoch), started, strings.Join(parts, " "))
}

func (c *cell) short(topic string) string {
	return topic[strings.LastIndexByte(topic, '-')+1:]
}

// producer is an id with its epoch beside those of the client.
func (c *cell) producer(pid int64, epoch int16) string {
	switch {
	case pid == -1:
		return fmt.Sprintf("none %d", epoch)
	case pid == c.pid:
		return fmt.Sprintf("same e%+d", epoch-c.epoch)
	case pid == c.bench.other:
		return fmt.Sprintf("other %d", epoch)
	}
	return fmt.Sprintf("new %d", epoch)
}

// partition is what DescribeProducers says of the client on a partition.
func (c *cell) partition(topic string) string {
	resp, err := c.do(0, producers(topic))
	if err != nil {
		c.fatalf("%v", err)
	}
	p := resp.(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return fmt.Sprintf("code %d", p.ErrorCode)
	}
	for _, a := range p.ActiveProducers {
		if a.ProducerID != c.pid {
			continue
		}
		open, coordinator := "closed", "coordinator 0"
		if a.CurrentTxnStartOffset >= 0 {
			open = "open"
		}
		if a.CoordinatorEpoch < 0 {
			coordinator = "no coordinator"
		} else if a.CoordinatorEpoch > 0 {
			coordinator = fmt.Sprintf("coordinator %d", a.CoordinatorEpoch)
		}
		return fmt.Sprintf("e%+d sequence %d %s %s", a.ProducerEpoch-int32(c.epoch), a.LastSequence, coordinator, open)
	}
	return "unknown"
}

// sequence is the one that comes next on partition a in an epoch.
func (c *cell) sequence(topic string, epoch int16) int32 {
	if topic == c.state.a && epoch == c.wrote {
		return c.next
	}
	return 0
}

// batch is a Produce request with one record.
func (c *cell) batch(version int16, topic string, pid int64, epoch int16, sequence int32, transactional bool, id *string) kmsg.Request {
	value := []byte("v")
	r := kmsg.Record{Key: nil, Value: value}
	r.Length = int32(len(r.AppendTo(nil)) - 1)
	b := kmsg.RecordBatch{Magic: 2, PartitionLeaderEpoch: -1, ProducerID: pid, ProducerEpoch: epoch, FirstSequence: sequence,
		NumRecords: 1, Records: r.AppendTo(nil), FirstTimestamp: time.Now().UnixMilli(), MaxTimestamp: time.Now().UnixMilli()}
	if transactional {
		b.Attributes = 1 << 4
	}
	bytes := b.AppendTo(nil)
	binary.BigEndian.PutUint32(bytes[8:], uint32(len(bytes)-12))
	binary.BigEndian.PutUint32(bytes[17:], crc32.Checksum(bytes[21:], crc32.MakeTable(crc32.Castagnoli)))
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = id, -1, 30_000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rt.Topic, rp.Records = topic, bytes
	if version >= 13 {
		rt.Topic, rt.TopicID = "", c.bench.topics[topic]
	}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func produced(r *kmsg.ProduceResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode }
