package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestC43ChangesUnderLoad: the largest size changes and the topic grows, through
// one gateway and the other, while producers write to both and a group reads. What
// was acknowledged is there once, where it was said to be, whatever was refused
// beside it; the group reads it all, partitions that came meanwhile included.
func TestC43ChangesUnderLoad(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.nodes[0], w.nodes[1]
	const topic, small, large, last = "load", 100, 5000, 10
	a.mustCreate(topic, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	reader, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumerGroup("load"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMaxAge(200*time.Millisecond), kgo.MetadataMinAge(50*time.Millisecond), kgo.HeartbeatInterval(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()

	var (
		mu      sync.Mutex
		acked   = map[string]string{} // value's name: partition/offset
		refused int
		count   = int32(1)
	)
	write := func(n *node, name string, p int32, size int) {
		rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
		rt.Topic, rp.Partition, rp.Records = topic, p, records(-1, -1, 1, name+strings.Repeat(".", size))
		rt.Partitions = append(rt.Partitions, rp)
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis, req.Topics = -1, 10_000, append(req.Topics, rt)
		sp := ask[*kmsg.ProduceResponse](n, 9, req).Topics[0].Partitions[0]
		mu.Lock()
		defer mu.Unlock()
		switch {
		case sp.ErrorCode == 0:
			acked[name] = fmt.Sprint(p, "/", sp.BaseOffset)
		case sp.ErrorCode == 10 && size == large:
			refused++
		default:
			t.Errorf("%d bytes to partition %d: %d", size, p, sp.ErrorCode)
		}
	}
	stop := make(chan struct{})
	var producers sync.WaitGroup
	for i := range 6 {
		n := []*node{a, b}[i%2]
		conn, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		n = &node{t: t, addr: n.addr, conn: conn}
		producers.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-stop:
					return
				default:
				}
				mu.Lock()
				p := int32(j) % count
				mu.Unlock()
				write(n, fmt.Sprintf("%d-%d", i, j), p, []int{small, large}[j/7%2])
			}
		})
	}
	for i := range int32(20) {
		by := w.nodes[i%2]
		by.incremental(topic, "max.message.bytes", strconv.Itoa([]int{1000, 1_000_000}[i%2]), 0)
		if i%2 == 0 {
			continue
		}
		req := kmsg.NewPtrCreatePartitionsRequest()
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = topic, i/2+2
		req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
		if i/2+2 > last {
			req.ValidateOnly = true // no effect at all
		}
		if resp := ask[*kmsg.CreatePartitionsResponse](by, 3, req); resp.Topics[0].ErrorCode != 0 {
			t.Fatalf("grow to %d: %d", rt.Count, resp.Topics[0].ErrorCode)
		}
		mu.Lock()
		count = min(rt.Count, last) // from now on it is there for everybody
		mu.Unlock()
	}
	close(stop)
	producers.Wait()
	for p := range int32(last) { // however little the others came to
		write(w.nodes[p%2], fmt.Sprint("last-", p), p, small)
	}
	a.incremental(topic, "max.message.bytes", "1000", 0)
	write(a, "refused", 0, large)
	if refused == 0 || len(acked) < last {
		t.Errorf("%d acknowledged, %d refused: nothing was shown", len(acked), refused)
	}

	got := map[string]string{}
	ends := map[int32]int64{}
	for len(got) < len(acked) {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d: %v", len(got), len(acked), err)
		}
		for _, r := range fetches.Records() {
			name, _, _ := strings.Cut(string(r.Value), ".")
			if at, again := got[name]; again {
				t.Errorf("%s at %s and %d/%d", name, at, r.Partition, r.Offset)
			}
			if got[name] = fmt.Sprint(r.Partition, "/", r.Offset); r.Offset != ends[r.Partition] {
				t.Errorf("partition %d: offset %d after %d records", r.Partition, r.Offset, ends[r.Partition])
			}
			ends[r.Partition]++
		}
	}
	if !maps.Equal(got, acked) {
		t.Error("what is read is not what was acknowledged")
	}
	if parts := slices.Sorted(maps.Keys(ends)); len(parts) != last {
		t.Errorf("records in partitions %v", parts)
	}
	if n := len(a.metadata(12, topic, false)[0].Partitions); n != last {
		t.Errorf("%d partitions", n)
	}
	t.Logf("%d acknowledged, %d refused", len(acked), refused)
}
