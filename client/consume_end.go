package client

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// done says that everything assigned has been read up to where it ended when
// the command began.
func (x *consumer) done() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.joined {
		return false
	}
	for id := range x.assigned {
		start, known := x.starts[id]
		if !known {
			continue // a partition that came later
		}
		if next, ok := x.next[id]; start.next > start.first && (!ok || next < start.next) {
			return false
		}
	}
	return true
}

// look finds out why nothing comes from partitions that are not read to the
// end: a group has read them before, or the last offsets have no records, as
// after a compaction. It fails if nobody answers.
func (x *consumer) look(ctx context.Context, c *conn) error {
	ctx, cancel := context.WithTimeout(ctx, x.o.timeout)
	defer cancel()
	var open []partitionID
	unknown := false
	x.mu.Lock()
	for id := range x.assigned {
		if next, ok := x.next[id]; next < x.starts[id].next {
			open = append(open, id)
			unknown = unknown || !ok
		}
	}
	x.mu.Unlock()
	if len(open) == 0 {
		return c.cl.Ping(ctx) // the group has assigned nothing yet
	}
	var committed kadm.OffsetResponses
	if unknown {
		var err error
		if committed, err = c.adm.FetchOffsets(ctx, x.group); err != nil {
			return err
		}
	}
	for _, id := range open {
		x.mu.Lock()
		at, ok := x.next[id]
		x.mu.Unlock()
		if !ok {
			at = x.starts[id].at
			if o, ok := committed.Lookup(id.topic, id.partition); ok && o.Err == nil && o.At >= 0 {
				at = o.At
			}
		}
		if at < x.starts[id].next {
			empty, err := c.nothingFrom(ctx, id, at)
			if err != nil {
				return err
			}
			if empty {
				at = x.starts[id].next
			}
		}
		x.mu.Lock()
		if x.assigned[id] {
			x.next[id] = at
		}
		x.mu.Unlock()
	}
	return nil
}

// nothingFrom asks whether a partition has no record at or after an offset.
func (c *conn) nothingFrom(ctx context.Context, id partitionID, at int64) (bool, error) {
	topics, err := c.adm.ListTopics(ctx, id.topic)
	if err != nil {
		return false, err
	}
	t := topics[id.topic]
	p, ok := t.Partitions[id.partition]
	if !ok || p.Leader < 0 {
		return false, nil
	}
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxBytes = 0, 1<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = id.topic, t.ID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = id.partition, at, 1<<20, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := c.cl.Broker(int(p.Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return false, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		return false, kerr.ErrorForCode(resp.ErrorCode)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			return p.ErrorCode == 0 && len(p.RecordBatches) == 0 && p.HighWatermark > at, kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return false, nil
}
