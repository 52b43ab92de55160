package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/testkit"
)

// TestRetention writes much more than the topics keep, 64 MB where 8 MB are kept by
// size and where two seconds are kept by time (with STREAM_RETENTION=full: 1 GB and
// 100 MB), through two gateways, one of which is killed again and again while
// records go. The log start moves within a minute of the last record; no offset is
// given twice, none that is kept is lost; no stream is ever empty; the stream itself
// agrees.
func TestRetention(t *testing.T) {
	t.Parallel()
	total, keep := 64<<20, 8<<20
	if os.Getenv("STREAM_RETENTION") == "full" {
		total, keep = 1<<30, 100<<20
	}
	server := testkit.StartNATS(t, testkit.NATSOptions{})
	js := jetStream(t, server.URL)
	// The one with the lowest node id cleans: it is the one that is killed.
	doer := testkit.Start(t, testkit.Options{PubsubURL: server.URL})
	other := testkit.Start(t, testkit.Options{PubsubURL: server.URL})
	createWith(t, other.Addr, "by-size", 1, map[string]string{"retention.bytes": strconv.Itoa(keep), "retention.ms": "-1"})
	createWith(t, other.Addr, "by-time", 1, map[string]string{"retention.ms": "2000"})
	topics := []string{"by-size", "by-time"}

	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan error, len(topics))
	for _, topic := range topics {
		go func() { watched <- watch(ctx, js, other.Addr, topic) }()
	}
	var written atomic.Int64 // bytes of all topics
	wrote := make(chan error, len(topics))
	next := make([]int64, len(topics)) // offset after the last one
	for i, topic := range topics {
		go func() {
			var err error
			next[i], err = fill(t.Context(), other.Addr, topic, total, &written)
			wrote <- err
		}()
	}
	began := time.Now()
	for n := range 2 {
		testkit.Poll(t, 5*time.Minute, "records are written", func() error {
			if w := written.Load(); w < int64(2*total*(n+1)/3) {
				return fmt.Errorf("%d bytes", w)
			}
			return nil
		})
		doer.Kill(t)
		doer.Restart(t)
	}
	for range topics {
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	}
	last := time.Now()
	// The moment the first message goes both gateways are killed, one after the
	// other: what a purge has left is done by whoever comes next.
	first := make([]uint64, len(topics))
	testkit.Poll(t, time.Minute, "retention begins", func() error {
		for i, topic := range topics {
			si, err := js.StreamInfo("kafka-" + topic + "-0")
			if err != nil {
				return err
			}
			if first[i] != 0 && si.State.FirstSeq != first[i] {
				return nil
			}
			first[i] = si.State.FirstSeq
		}
		return fmt.Errorf("the streams begin at %v", first)
	})
	for _, s := range []*testkit.Stream{doer, other} {
		s.Kill(t)
		s.Restart(t)
	}
	testkit.Poll(t, time.Until(last.Add(time.Minute)), "the log starts move", func() error {
		for i, topic := range topics {
			si, err := js.StreamInfo("kafka-" + topic + "-0")
			if err != nil {
				return err
			}
			start, end, err := ends(t.Context(), other.Addr, topic)
			if err != nil {
				return err
			}
			if end != next[i] {
				t.Fatalf("%s ends at %d, %d was acknowledged before", topic, end, next[i]-1)
			}
			if topic == "by-time" && (start != end || si.State.Msgs != 1) {
				return fmt.Errorf("%s: offsets %d to %d, %d messages", topic, start, end, si.State.Msgs)
			}
			if held := int(si.State.Bytes); topic == "by-size" && (held > keep+2<<20) {
				return fmt.Errorf("%s: %d bytes in the stream", topic, held)
			}
		}
		return nil
	})
	t.Logf("%d MB to each topic in %v, 4 kills; retained %v later", total>>20, last.Sub(began).Round(time.Millisecond), time.Since(last).Round(time.Millisecond))
	stop()
	for range topics {
		if err := <-watched; err != nil {
			t.Error(err)
		}
	}

	// The stream and both gateways agree; all that is kept can be read.
	began = time.Now()
	for i, topic := range topics {
		for _, addr := range []string{doer.Addr, other.Addr} {
			si, err := js.StreamInfo("kafka-" + topic + "-0")
			if err != nil {
				t.Fatal(err)
			}
			start, end, err := ends(t.Context(), addr, topic)
			if err != nil {
				t.Fatal(err)
			}
			bytes, err := read(t.Context(), addr, topic, start, end)
			if err != nil {
				t.Errorf("%s: %v", topic, err)
			}
			if topic == "by-size" && (int(si.State.Bytes) < keep || bytes < keep-1<<20) {
				t.Errorf("%s: %d bytes in the stream, %d read, %d are to be kept", topic, si.State.Bytes, bytes, keep)
			}
			c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic))
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.ProduceSync(t.Context(), &kgo.Record{Value: []byte("last")}).First()
			c.Close()
			if err != nil || r.Offset != next[i] {
				t.Errorf("%s: the next record is at %d, %v, want %d", topic, r.Offset, err, next[i])
			}
			next[i]++
		}
	}
	t.Logf("read in %v", time.Since(began).Round(time.Millisecond))
	alive(t, doer)
	alive(t, other)
}

// fill writes so many bytes of values that do not compress, each with its offset
// in it, and returns the offset after the last one.
func fill(ctx context.Context, addr, topic string, total int, written *atomic.Int64) (next int64, err error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(2000))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	filler := make([]byte, 8<<10)
	for i := range filler {
		filler[i] = byte(rand.Uint32())
	}
	var failed atomic.Pointer[error]
	var expect int64 // of the promise, which come in order
	n := int64(0)
	for sent := 0; sent < total && failed.Load() == nil; n++ {
		v := append([]byte(strconv.FormatInt(n, 10)+"."), filler...)
		sent += len(v)
		c.Produce(ctx, &kgo.Record{Value: v}, func(r *kgo.Record, err error) {
			if err == nil && r.Offset != expect {
				err = fmt.Errorf("record %d of %s is at %d", expect, topic, r.Offset)
			}
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
			expect++
			written.Add(int64(len(r.Value)))
		})
	}
	if err := c.Flush(ctx); err != nil {
		return 0, err
	}
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return n, nil
}

// watch looks at a topic until ctx ends: start and end never go back, and the
// stream, once written, is never empty.
func watch(ctx context.Context, js nats.JetStreamContext, addr, topic string) error {
	var start, end int64
	var last uint64
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s, e, err := ends(ctx, addr, topic)
		if err != nil {
			continue // for a moment the gateway may not answer
		}
		if s < start || e < end || s > e {
			return fmt.Errorf("%s: offsets %d to %d, before %d to %d", topic, s, e, start, end)
		}
		start, end = s, e
		si, err := js.StreamInfo("kafka-" + topic + "-0")
		if err != nil {
			continue
		}
		if end > 0 && si.State.Msgs == 0 || si.State.LastSeq < last {
			return fmt.Errorf("%s: the stream has %d messages up to %d, before up to %d", topic, si.State.Msgs, si.State.LastSeq, last)
		}
		last = si.State.LastSeq
	}
}

// ends asks for start and end of a topic's partition 0.
func ends(ctx context.Context, addr, topic string) (start, end int64, err error) {
	c := &client{addr: addr}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var at [2]int64
	for i, when := range []int64{-2, -1} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.SetVersion(5)
		rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		rp.Timestamp = when
		rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := c.do(ctx, req)
		if err != nil {
			return 0, 0, err
		}
		sp := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if sp.ErrorCode != 0 {
			return 0, 0, codeError(sp.ErrorCode)
		}
		at[i] = sp.Offset
	}
	return at[0], at[1], nil
}

// read reads everything from start to end, each record at its offset, and sums
// the values.
func read(ctx context.Context, addr, topic string, start, end int64) (bytes int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(start)}}))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for next := start; next < end; {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return bytes, err
		}
		var wrong error
		fs.EachRecord(func(r *kgo.Record) {
			if want := strconv.FormatInt(next, 10) + "."; wrong == nil && (r.Offset != next || len(r.Value) > 100 && string(r.Value[:len(want)]) != want) {
				wrong = fmt.Errorf("at %d: offset %d, value %.10q", next, r.Offset, r.Value)
			}
			next++
			bytes += len(r.Value)
		})
		if wrong != nil {
			return bytes, wrong
		}
	}
	return bytes, nil
}
