package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/testkit"
)

// peer speaks to one gateway, without retries: a test sees every code.
type peer struct {
	t    *testing.T
	addr string
	b    *kgo.Broker
}

// connect makes a peer. Requests name topics, not ids.
func connect(t *testing.T, addr string) *peer {
	t.Helper()
	return connectAs(t, addr, kversion.V3_0_0())
}

// connectAs is connect for one whose requests have at most these versions.
func connectAs(t *testing.T, addr string, versions *kversion.Versions) *peer {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MaxVersions(versions), kgo.DialTimeout(2*time.Second), kgo.RequestTimeoutOverhead(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &peer{t, addr, cl.SeedBrokers()[0]}
}

// ask sends a request; the error is that of the connection.
func ask[R kmsg.Response](p *peer, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	resp, err := p.b.Request(ctx, req)
	if err != nil {
		var none R
		return none, err
	}
	return resp.(R), nil
}

// lost is ask for a request whose answer a dying gateway must not give.
func lost(p *peer, req kmsg.Request) {
	p.t.Helper()
	if resp, err := p.b.Request(p.t.Context(), req); err == nil {
		p.t.Fatalf("a gateway that was to die has answered %T: %+v", resp, resp)
	}
}

// must is ask where an answer is expected.
func must[R kmsg.Response](p *peer, req kmsg.Request) R {
	p.t.Helper()
	resp, err := ask[R](p, req)
	if err != nil {
		p.t.Fatalf("%T: %v", req, err)
	}
	return resp
}

// code turns a code into an error, nil for none.
func code(c int16) error { return kerr.ErrorForCode(c) }

func topicRequest(name string, partitions int32, configs ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 20_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, -1
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		rt.Configs = append(rt.Configs, c)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func deleteRequest(name string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 20_000
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.Topic = &name
	req.Topics = append(req.Topics, rt) // version 6
	return req
}

func growRequest(name string, partitions int32) *kmsg.CreatePartitionsRequest {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 20_000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = name, partitions
	req.Topics = append(req.Topics, rt)
	return req
}

// deleteRecordsRequest is about partition 0.
func deleteRecordsRequest(name string, offset int64) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 20_000
	rt, rp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Offset = offset
	rt.Topic, rt.Partitions = name, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func alterRequest(name string, configs ...string) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, name
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		rr.Configs = append(rr.Configs, c)
	}
	req.Resources = append(req.Resources, rr)
	return req
}

// create makes a topic, and waits until a creation before it that failed is gone.
func (p *peer) create(name string, partitions int32, configs ...string) {
	p.t.Helper()
	unknown := false // what became of an earlier attempt
	testkit.Poll(p.t, 30*time.Second, "create "+name, func() error {
		r, err := ask[*kmsg.CreateTopicsResponse](p, topicRequest(name, partitions, configs...))
		if err == nil {
			err = code(r.Topics[0].ErrorCode)
		}
		if unknown && errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		unknown = unknown || !errors.As(err, new(*kerr.Error)) || errors.Is(err, kerr.RequestTimedOut)
		return err
	})
}

// metadata is what a gateway says of a topic.
func (p *peer) metadata(name string) (id [16]byte, partitions int, err error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &name
	req.Topics = append(req.Topics, rt)
	r, err := ask[*kmsg.MetadataResponse](p, req)
	if err != nil {
		return id, 0, err
	}
	return r.Topics[0].TopicID, len(r.Topics[0].Partitions), code(r.Topics[0].ErrorCode)
}

// batch is one of a producer.
type batch struct {
	producer int64 // -1 is none
	epoch    int16
	first    int32 // sequence of the first record
	values   []string
	key      string // of all of them; "" is none
}

func (b batch) bytes() serde.Batch {
	f := serde.BatchFields{ProducerID: b.producer, ProducerEpoch: b.epoch, BaseSequence: b.first}
	if b.producer < 0 {
		f.ProducerEpoch, f.BaseSequence = -1, -1
	}
	var rs []serde.NewRecord
	for _, v := range b.values {
		r := serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Value: []byte(v)}
		if b.key != "" {
			r.Key = []byte(b.key)
		}
		rs = append(rs, r)
	}
	return serde.Build(f, rs)
}

func (b batch) request(topic string, partition int32) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 20_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, b.bytes()
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// produce sends a batch until it gets an answer that is not retriable.
func (p *peer) produce(topic string, partition int32, b batch) (base, appendTime int64) {
	p.t.Helper()
	testkit.Poll(p.t, 30*time.Second, fmt.Sprintf("produce %v", b.values), func() error {
		r, err := ask[*kmsg.ProduceResponse](p, b.request(topic, partition))
		if err != nil {
			return err
		}
		sp := r.Topics[0].Partitions[0]
		err = code(sp.ErrorCode)
		if err != nil && !kerr.IsRetriable(err) {
			p.t.Fatalf("produce %v: %v", b.values, err)
		}
		base, appendTime = sp.BaseOffset, sp.LogAppendTime
		return err
	})
	return base, appendTime
}

// producer asks for a producer id.
func (p *peer) producer() int64 {
	p.t.Helper()
	var id int64
	testkit.Poll(p.t, 30*time.Second, "a producer id", func() error {
		req := kmsg.NewPtrInitProducerIDRequest()
		r, err := ask[*kmsg.InitProducerIDResponse](p, req)
		if err != nil {
			return err
		}
		id = r.ProducerID
		return code(r.ErrorCode)
	})
	return id
}

// Where to look for an offset.
const (
	earliest = -2
	latest   = -1
)

func (p *peer) offset(topic string, partition int32, at int64) int64 {
	p.t.Helper()
	var o int64
	testkit.Poll(p.t, 30*time.Second, "list offsets", func() error {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, at, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		r, err := ask[*kmsg.ListOffsetsResponse](p, req)
		if err != nil {
			return err
		}
		o = r.Topics[0].Partitions[0].Offset
		return code(r.Topics[0].Partitions[0].ErrorCode)
	})
	return o
}

// stored is one record that was read.
type stored struct {
	offset  int64
	value   string
	maxTime int64 // of its batch
}

// fetch asks once for what is at an offset and behind it.
func (p *peer) fetch(topic string, partition int32, from int64, wait time.Duration) ([]stored, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, int32(wait.Milliseconds()), 1, 4<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = partition, from, 1<<20, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	r, err := ask[*kmsg.FetchResponse](p, req)
	if err != nil {
		return nil, err
	}
	if err := code(r.ErrorCode); err != nil {
		return nil, err
	}
	sp := r.Topics[0].Partitions[0]
	if err := code(sp.ErrorCode); err != nil {
		return nil, err
	}
	var all []stored
	for data := sp.RecordBatches; len(data) > 0; {
		b, rest, err := serde.ParseBatch(data)
		if err != nil {
			break // cut at the limit
		}
		if !b.ChecksumOK() {
			return nil, fmt.Errorf("batch at %d: checksum", b.BaseOffset())
		}
		it := serde.NewRecords(b.Records(), b.Count())
		for it.Next() {
			if o := b.BaseOffset() + int64(it.Record.OffsetDelta); o >= from {
				all = append(all, stored{o, string(it.Record.Value), b.MaxTimestamp()})
			}
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
		data = rest
	}
	return all, nil
}

// read reads a partition to its end and checks that there is no gap.
func (p *peer) read(topic string, partition int32) []stored {
	p.t.Helper()
	return p.readAll(topic, partition, false)
}

// readAll is read for a log that may have gaps, because it was compacted.
func (p *peer) readAll(topic string, partition int32, gaps bool) []stored {
	p.t.Helper()
	at, end := p.offset(topic, partition, earliest), p.offset(topic, partition, latest)
	var all []stored
	for at < end {
		testkit.Poll(p.t, 30*time.Second, "read to the end", func() error {
			got, err := p.fetch(topic, partition, at, 0)
			if err == nil && len(got) == 0 {
				err = fmt.Errorf("nothing at %d of %d", at, end)
			}
			if err != nil {
				return err
			}
			for _, s := range got {
				if s.offset != at && !(gaps && s.offset > at) {
					p.t.Fatalf("offset %d follows %d", s.offset, at-1)
				}
				at = s.offset + 1
			}
			all = append(all, got...)
			return nil
		})
	}
	return all
}

// values are what a partition holds.
func (p *peer) values(topic string, partition int32) []string {
	p.t.Helper()
	vs := []string{}
	for _, s := range p.read(topic, partition) {
		vs = append(vs, s.value)
	}
	return vs
}
