package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/testkit"
)

// keysOf is how many keys the compacted topic has.
const keysOf = 40

// last are the newest acknowledged values of all keys.
type last struct {
	mu sync.Mutex // guards: of
	of map[string]int
}

func (l *last) set(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[key] = max(l.of[key], n)
}

func (l *last) all() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.of)
}

// TestCompactionUnderKills: one topic is written, compacted once a second, and read
// from its start to its end again and again, by plain and by committed readers,
// while the gateway that compacts is killed in the middle of its runs. Readers see no
// error that is not retriable, no offset twice or out of order, no key whose value
// goes back; none stalls; each finds of every key at least what was acknowledged
// before it began. In the end the last values are all there, and of the siblings that
// runs have begun one.
func TestCompactionUnderKills(t *testing.T) {
	t.Parallel()
	server := testkit.StartNATS(t, testkit.NATSOptions{})
	js := jetStream(t, server.URL)
	// A part of a core only, so that runs last.
	args := []string{"--log-cleaner-backoff-ms", "1s", "--compaction-cpu-percent", "10"}
	gs := []*testkit.Stream{
		testkit.Start(t, testkit.Options{PubsubURL: server.URL, Args: args}),
		testkit.Start(t, testkit.Options{PubsubURL: server.URL, Args: args}),
	}
	addrs := gs[1].Addr + "," + gs[0].Addr
	const topic = "compacted"
	createWith(t, gs[0].Addr, topic, 1, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"})

	writing, stopWriting := context.WithCancel(t.Context())
	acked := &last{of: map[string]int{}}
	wrote := make(chan error, 1)
	written := 0
	go func() {
		var err error
		written, err = overwrite(writing, addrs, topic, acked)
		wrote <- err
	}()
	reading, stopReading := context.WithCancel(t.Context())
	read, loops := replayers(reading, addrs, topic, acked)

	began := time.Now()
	kills, upto := 2, int64(0)
	if os.Getenv("STREAM_COMPACTION") == "full" {
		kills = 30
	}
	for range kills {
		var doer *testkit.Stream
		testkit.Poll(t, 90*time.Second, "a gateway compacts", func() error {
			select {
			case err := <-read:
				t.Fatal(err)
			default:
			}
			// Some run has come to its end since the last kill, and another one is
			// under way.
			switch c, err := topicCompaction(t.Context(), gs[0], topic); {
			case err != nil:
				return err
			case c.CompactedTo <= upto:
				return fmt.Errorf("compacted to %d as before", upto)
			}
			for _, g := range gs {
				if s, err := compactionOf(t.Context(), g); err == nil && s.Here && s.State == "running" && s.Running.Done > 0 {
					doer = g
					return nil
				}
			}
			return errors.New("nobody does")
		})
		doer.Kill(t)
		doer.Restart(t)
		c, err := topicCompaction(t.Context(), gs[1], topic)
		if err != nil {
			t.Fatal(err)
		}
		upto = c.CompactedTo
	}
	stopWriting()
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	stopReading()
	for range loops {
		if err := <-read; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d records to %d keys, %d kills in %v, read %d and %d times", written, keysOf, kills, time.Since(began).Round(time.Millisecond), loops[0], loops[1])

	// Compacted as a whole it has one record of each key, and the last message.
	asked := compactNow(t, gs[0], topic)
	testkit.Poll(t, time.Minute, "all is compacted", func() error {
		s, err := topicCompaction(t.Context(), gs[1], topic)
		if err == nil && s.CompactedTo < asked {
			err = fmt.Errorf("compacted to %d, asked for %d", s.CompactedTo, asked)
		}
		return err
	})
	for i, g := range gs {
		c := &client{addr: g.Addr}
		got, err := replay(t.Context(), c, topic, int8(i), acked)
		c.close()
		if err != nil {
			t.Errorf("gateway %d: %v", i, err)
			continue
		}
		if want := acked.all(); fmt.Sprint(got.values) != fmt.Sprint(want) {
			t.Errorf("gateway %d: last values\n%v\nwant\n%v", i, got.values, want)
		}
		if got.records > 10*keysOf || got.records >= written/4 {
			t.Errorf("gateway %d: %d records are left of %d", i, got.records, written)
		}
	}
	t.Logf("compacted and read after %v", time.Since(began).Round(time.Millisecond))
	testkit.Poll(t, 30*time.Second, "one sibling is left", func() error {
		names, err := streamNames(js)
		if err != nil {
			return err
		}
		siblings := slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, "=k") })
		if len(siblings) != 1 {
			return fmt.Errorf("siblings %q", siblings)
		}
		return nil
	})
	for _, g := range gs {
		alive(t, g)
	}
}

// replayers read the topic from its start again and again until ctx ends, one with
// each isolation level; loops are how many times, to be looked at when both have sent
// how they ended.
func replayers(ctx context.Context, addrs, topic string, acked *last) (ended <-chan error, loops []int) {
	read := make(chan error, 2)
	loops = make([]int, 2)
	for i := range loops {
		go func() {
			c := &client{addr: addrs}
			defer c.close()
			for ctx.Err() == nil {
				if _, err := replay(ctx, c, topic, int8(i), acked); err != nil && ctx.Err() == nil {
					read <- fmt.Errorf("isolation %d, time %d: %w", i, loops[i]+1, err)
					return
				}
				loops[i]++
			}
			read <- nil
		}()
	}
	return read, loops
}

// overwrite writes growing numbers to random keys until ctx ends, and waits until
// all are acknowledged.
func overwrite(ctx context.Context, addrs, topic string, acked *last) (n int, err error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addrs, ",")...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(500), kgo.RecordRetries(1<<20), kgo.DialTimeout(2*time.Second))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var mu sync.Mutex // guards: failed
	var failed error
	filler := strings.Repeat(".", 100)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for n = 1; ctx.Err() == nil; n++ {
		key, value := strconv.Itoa(rand.IntN(keysOf)), n
		c.Produce(context.WithoutCancel(ctx), &kgo.Record{Key: []byte(key), Value: []byte(strconv.Itoa(n) + filler)}, func(_ *kgo.Record, err error) {
			if err == nil {
				acked.set(key, value)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			failed = err
		})
		if n%4 == 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	if err := c.Flush(flush); err != nil {
		return n, err
	}
	mu.Lock()
	defer mu.Unlock()
	return n, failed
}

// replayed is what a reader has found.
type replayed struct {
	values  map[string]int // the last of each key
	records int
}

// stall is how long a reader may be without an answer that moves it on: that of a
// gateway that is killed and started again.
const stall = 30 * time.Second

// replay reads a topic from its start to what is its end when it begins.
func replay(ctx context.Context, c *client, topic string, isolation int8, acked *last) (replayed, error) {
	r := replayed{values: map[string]int{}}
	want := acked.all()
	start, end := int64(-1), int64(-1)
	for at, moved := int64(0), time.Now(); end < 0 || at < end; {
		if time.Since(moved) > stall {
			return r, fmt.Errorf("no step from %d to %d in %v", at, end, stall)
		}
		if end < 0 { // all that was acknowledged is below it
			var err error
			if start, end, err = ends(ctx, firstOf(c), topic); err != nil {
				if end = -1; ctx.Err() != nil {
					return r, ctx.Err()
				}
				c.turn()
				continue
			}
			at = start
		}
		req := kmsg.NewPtrFetchRequest()
		req.SetVersion(11)
		req.MaxWaitMillis, req.MaxBytes, req.IsolationLevel = 500, 64<<10, isolation
		rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		rp.FetchOffset, rp.PartitionMaxBytes = at, 64<<10
		rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := c.do(ctx, req)
		if err != nil {
			if ctx.Err() != nil {
				return r, ctx.Err()
			}
			continue // killed
		}
		sp := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(sp.ErrorCode); err != nil {
			if !kerr.IsRetriable(err) {
				return r, fmt.Errorf("at %d of %d: %w", at, end, err)
			}
			continue
		}
		if sp.LogStartOffset != start {
			return r, fmt.Errorf("the log start moved from %d to %d", start, sp.LogStartOffset)
		}
		for rest := sp.RecordBatches; len(rest) > 0; {
			var b serde.Batch
			if b, rest, err = serde.ParseBatch(rest); err != nil || !b.ChecksumOK() {
				return r, fmt.Errorf("at %d: a batch that cannot be read: %w", at, err)
			}
			if b.LastOffset() < at {
				return r, fmt.Errorf("at %d: a batch from %d to %d", at, b.BaseOffset(), b.LastOffset())
			}
			it, next := serde.NewRecords(b.Records(), b.Count()), at
			for it.Next() {
				o := b.BaseOffset() + int64(it.Record.OffsetDelta)
				if o < at {
					continue
				}
				if o < next || o > b.LastOffset() {
					return r, fmt.Errorf("offset %d in a batch from %d to %d, read from %d", o, b.BaseOffset(), b.LastOffset(), next)
				}
				next = o + 1
				digits, _, _ := strings.Cut(string(it.Record.Value), ".")
				n, err := strconv.Atoi(digits)
				if key := string(it.Record.Key); err != nil || n <= r.values[key] {
					return r, fmt.Errorf("key %s at %d: %q after %d", key, o, digits, r.values[key])
				} else {
					r.values[key] = n
					r.records++
				}
			}
			if err := it.Err(); err != nil {
				return r, err
			}
			at, moved = b.LastOffset()+1, time.Now()
		}
	}
	for key, n := range want {
		if r.values[key] < n {
			return r, fmt.Errorf("key %s has %d at the end, %d was acknowledged", key, r.values[key], n)
		}
	}
	return r, nil
}

func firstOf(c *client) string {
	first, _, _ := strings.Cut(c.addr, ",")
	return first
}

// gatewayCompaction is what /v1/stream/status says of compaction.
type gatewayCompaction struct {
	State   string `json:"state"`
	Gateway int32  `json:"gateway"` // that does it
	Here    bool   `json:"-"`       // it is the one that was asked
	Running *struct {
		Done int64 `json:"done_bytes"`
	} `json:"running"`
}

func compactionOf(ctx context.Context, s *testkit.Stream) (gatewayCompaction, error) {
	var st struct {
		NodeID     int32             `json:"node_id"`
		Compaction gatewayCompaction `json:"compaction"`
	}
	err := testkit.Document(ctx, http.MethodGet, s.Admin+"/v1/stream/status", &st)
	st.Compaction.Here = st.NodeID == st.Compaction.Gateway
	return st.Compaction, err
}

type partitionCompaction struct {
	CompactedTo int64 `json:"compacted_to"`
	Wanted      int64 `json:"wanted"`
}

func topicCompaction(ctx context.Context, s *testkit.Stream, topic string) (partitionCompaction, error) {
	return askCompaction(ctx, s, topic, http.MethodGet)
}

// compactNow asks for compaction and returns up to where.
func compactNow(t *testing.T, s *testkit.Stream, topic string) int64 {
	t.Helper()
	c, err := askCompaction(t.Context(), s, topic, http.MethodPost)
	if err != nil {
		t.Fatal(err)
	}
	return c.Wanted
}

func askCompaction(ctx context.Context, s *testkit.Stream, topic, method string) (partitionCompaction, error) {
	var d struct {
		Partitions []partitionCompaction `json:"partitions"`
	}
	if err := testkit.Document(ctx, method, s.Admin+"/v1/stream/topics/"+topic+"/compaction", &d); err != nil {
		return partitionCompaction{}, err
	}
	return d.Partitions[0], nil
}
