package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/testkit"
)

// transactional is a producer with a transactional id, by hand.
type transactional struct {
	id    string
	pid   int64
	epoch int16
}

// connectNew makes a peer that speaks the second version of transactions
// (KIP-890): partitions and groups join by being written to, and each end gives
// another epoch.
func connectNew(t *testing.T, addr string) *peer {
	t.Helper()
	versions := kversion.V4_0_0()
	versions.SetMaxKeyVersion(int16(kmsg.Fetch), 12) // topics by name
	return connectAs(t, addr, versions)
}

// until asks peers in turn until one gives an answer that is not retriable, nil
// mostly.
func until(t testing.TB, peers []*peer, what string, f func(p *peer) error) (err error) {
	t.Helper()
	n := 0
	testkit.Poll(t, 30*time.Second, what, func() error {
		n++
		err = f(peers[n%len(peers)])
		var ke *kerr.Error
		// To come again is what clients do on 51 as well.
		if errors.As(err, &ke) && !kerr.IsRetriable(err) && !errors.Is(err, kerr.ConcurrentTransactions) {
			return nil
		}
		return err
	})
	return err
}

// init asks for the producer of a transactional id.
func (p *peer) init(id string, timeout time.Duration, before *transactional) (transactional, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, int32(timeout.Milliseconds())
	if before != nil {
		req.ProducerID, req.ProducerEpoch = before.pid, before.epoch
	}
	r, err := ask[*kmsg.InitProducerIDResponse](p, req)
	if err != nil {
		return transactional{}, err
	}
	return transactional{id, r.ProducerID, r.ProducerEpoch}, code(r.ErrorCode)
}

// begin is init, asked of several until there is a producer.
func begin(t testing.TB, peers []*peer, id string, timeout time.Duration) (x transactional) {
	t.Helper()
	if err := until(t, peers, "a producer of "+id, func(p *peer) (err error) {
		x, err = p.init(id, timeout, nil)
		return err
	}); err != nil {
		t.Fatalf("a producer of %s: %v", id, err)
	}
	return x
}

// write sends one transactional batch, once.
func (p *peer) write(x transactional, topic string, partition, first int32, values ...string) error {
	f := serde.BatchFields{ProducerID: x.pid, ProducerEpoch: x.epoch, BaseSequence: first, Attributes: 0x10}
	var rs []serde.NewRecord
	for _, v := range values {
		rs = append(rs, serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Value: []byte(v)})
	}
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &x.id, -1, 20_000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, serde.Build(f, rs)
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	r, err := ask[*kmsg.ProduceResponse](p, req)
	if err != nil {
		return err
	}
	return code(r.Topics[0].Partitions[0].ErrorCode)
}

// written sends a batch until it is acknowledged.
func written(t testing.TB, peers []*peer, x transactional, topic string, partition, first int32, values ...string) {
	t.Helper()
	if err := until(t, peers, fmt.Sprintf("write %v", values), func(p *peer) error { return p.write(x, topic, partition, first, values...) }); err != nil {
		t.Fatalf("write %v: %v", values, err)
	}
}

// add has partitions join the transaction, as clients did before they joined by
// being written to.
func (p *peer) add(x transactional, topic string, partitions ...int32) error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = x.id, x.pid, x.epoch
	rt := kmsg.NewAddPartitionsToTxnRequestTopic()
	rt.Topic, rt.Partitions = topic, partitions
	req.Topics = append(req.Topics, rt)
	r, err := ask[*kmsg.AddPartitionsToTxnResponse](p, req)
	if err != nil {
		return err
	}
	for _, sp := range r.Topics[0].Partitions {
		if err := code(sp.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// offsetRequest commits an offset of partition 0 of topic kill within a
// transaction, for a group without members.
func (x transactional) offsetRequest(offset int64) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = x.id, groupName, x.pid, x.epoch, -1
	rt, rp := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset, rp.LeaderEpoch = offset, -1
	rt.Topic, rt.Partitions = "kill", append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (p *peer) offset1(x transactional, offset int64) error {
	r, err := ask[*kmsg.TxnOffsetCommitResponse](p, x.offsetRequest(offset))
	if err != nil {
		return err
	}
	return code(r.Topics[0].Partitions[0].ErrorCode)
}

func (x transactional) endRequest(commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = x.id, x.pid, x.epoch, commit
	return req
}

// end ends a transaction, and returns the producer to go on with.
func (p *peer) end(x transactional, commit bool) (transactional, error) {
	r, err := ask[*kmsg.EndTxnResponse](p, x.endRequest(commit))
	if err != nil {
		return x, err
	}
	if r.Version >= 5 && r.ErrorCode == 0 {
		x.pid, x.epoch = r.ProducerID, r.ProducerEpoch
	}
	return x, code(r.ErrorCode)
}

// ended is end, asked of several until it is done.
func ended(t testing.TB, peers []*peer, x transactional, commit bool) (next transactional) {
	t.Helper()
	if err := until(t, peers, "the end of the transaction", func(p *peer) (err error) {
		next, err = p.end(x, commit)
		return err
	}); err != nil {
		t.Fatalf("the end of the transaction: %v", err)
	}
	return next
}

// bounds are the last stable offset and the end of a partition.
func (p *peer) bounds(topic string, partition int32) (stable, end int64, err error) {
	for isolation, into := range map[int8]*int64{1: &stable, 0: &end} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID, req.IsolationLevel = -1, isolation
		rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, latest, -1
		rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		r, err := ask[*kmsg.ListOffsetsResponse](p, req)
		if err == nil {
			err = code(r.Topics[0].Partitions[0].ErrorCode)
		}
		if err != nil {
			return 0, 0, err
		}
		*into = r.Topics[0].Partitions[0].Offset
	}
	return stable, end, nil
}

// settled waits until no transaction is open on partitions of a topic.
func settled(t testing.TB, p *peer, topic string, partitions int32, limit time.Duration) {
	t.Helper()
	for n := range partitions {
		testkit.Poll(t, limit, fmt.Sprintf("partition %d is stable", n), func() error {
			stable, end, err := p.bounds(topic, n)
			if err == nil && stable != end {
				err = fmt.Errorf("up to %d of %d", stable, end)
			}
			return err
		})
	}
}

// scanned is a log as a reader of either kind sees it: values, and for the one who
// reads everything "commit" and "abort" for markers.
func (p *peer) scanned(topic string, partition int32, committed bool) (all []string) {
	p.t.Helper()
	testkit.Poll(p.t, 30*time.Second, "read everything", func() (err error) {
		all, err = p.scan(topic, partition, committed)
		return err
	})
	return all
}

func (p *peer) scan(topic string, partition int32, committed bool) ([]string, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxBytes, req.SessionEpoch = -1, 4<<20, -1
	if committed {
		req.IsolationLevel = 1
	}
	rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = partition, 4<<20, -1
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	_, end, err := p.bounds(topic, partition)
	if err != nil {
		return nil, err
	}
	r, err := ask[*kmsg.FetchResponse](p, req)
	if err == nil {
		err = cmpErr(code(r.ErrorCode), code(r.Topics[0].Partitions[0].ErrorCode))
	}
	if err != nil {
		return nil, err
	}
	sp := r.Topics[0].Partitions[0]
	if sp.HighWatermark < end {
		return nil, fmt.Errorf("it ends at %d of %d", sp.HighWatermark, end)
	}
	type aborted struct{ pid, first int64 }
	var gone []aborted
	for _, a := range sp.AbortedTransactions {
		gone = append(gone, aborted{a.ProducerID, a.FirstOffset})
	}
	open := map[int64]bool{} // producers whose aborted transaction is being read
	all := []string{}
	for data := sp.RecordBatches; len(data) > 0; {
		b, rest, err := serde.ParseBatch(data)
		if err != nil {
			return nil, fmt.Errorf("at the end of the answer: %w", err)
		}
		data = rest
		for _, a := range gone {
			if a.pid == b.ProducerID() && a.first <= b.BaseOffset() && a.first >= 0 {
				open[a.pid] = true
			}
		}
		control := b.Attributes()&0x20 != 0
		it := serde.NewRecords(b.Records(), b.Count())
		for it.Next() {
			switch {
			case !control && committed && open[b.ProducerID()] && b.Attributes()&0x10 != 0:
			case !control:
				all = append(all, string(it.Record.Value))
			case len(it.Record.Key) == 4 && it.Record.Key[3] == 1:
				if !committed {
					all = append(all, "commit")
				}
			default:
				if !committed {
					all = append(all, "abort")
				}
				delete(open, b.ProducerID())
				gone = slices.DeleteFunc(gone, func(a aborted) bool { return a.pid == b.ProducerID() && a.first <= b.BaseOffset() })
			}
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// wantLog checks what a partition holds for who reads everything, and for who reads
// what is committed.
func (p *peer) wantLog(topic string, partition int32, all, committed string) {
	p.t.Helper()
	if got := fmt.Sprint(p.scanned(topic, partition, false)); got != "["+all+"]" {
		p.t.Errorf("partition %d at %s: %s, want [%s]", partition, p.addr, got, all)
	}
	if got := fmt.Sprint(p.scanned(topic, partition, true)); got != "["+committed+"]" {
		p.t.Errorf("partition %d at %s: %s is committed, want [%s]", partition, p.addr, got, committed)
	}
}

// committedOffset is what the group of offsetRequest has committed, −1 if nothing;
// UNSTABLE_OFFSET_COMMIT while a transaction is open.
func (p *peer) committedOffset() (int64, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g, gt := kmsg.NewOffsetFetchRequestGroup(), kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.Partitions = "kill", []int32{0}
	g.Group, g.Topics = groupName, append(g.Topics, gt)
	req.Groups = append(req.Groups, g)
	r, err := ask[*kmsg.OffsetFetchResponse](p, req)
	if err != nil {
		return 0, err
	}
	if err := code(r.Groups[0].ErrorCode); err != nil {
		return 0, err
	}
	sp := r.Groups[0].Topics[0].Partitions[0]
	return sp.Offset, code(sp.ErrorCode)
}

// wantOffset waits until the group's offset is stable, and compares it.
func wantOffset(t testing.TB, peers []*peer, want int64) {
	t.Helper()
	var got int64
	if err := until(t, peers, "a stable offset", func(p *peer) (err error) {
		got, err = p.committedOffset()
		return err
	}); err != nil || got != want {
		t.Errorf("%d is committed, want %d: %v", got, want, err)
	}
}

// eventually asks in the background, for an answer that comes when it comes.
func eventually[T any](ctx context.Context, f func() T) <-chan T {
	c := make(chan T, 1)
	go func() {
		select {
		case c <- f():
		case <-ctx.Done():
		}
	}()
	return c
}
