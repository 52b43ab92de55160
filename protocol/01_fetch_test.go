package protocol

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// TestC19FetchNothing: each version, every field of the answer.
func TestC19FetchNothing(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.log("t1", 2).fail = errStore
	s := startServer(t, w, nil)
	p := s.dial(t)
	versions(t, &fetchAPI, func(t *testing.T, v int16) {
		for _, level := range []int8{0, 1} {
			for name, c := range map[string]struct {
				topic     string
				offset    int64
				partition int32
				epoch     int32
				code      int16
			}{
				"end": {"t0", 0, 0, -1, 0}, "beyond": {"t0", 1, 0, -1, 1}, "negative": {"t0", -5, 0, 0, 1}, "partition": {"t0", 0, 7, -1, 3},
				"topic": {"nosuch", 0, 0, -1, map[bool]int16{false: 3, true: 100}[v >= 13]}, "store": {"t1", 0, 2, -1, 56},
				"epoch": {"t0", 0, 0, 1, map[bool]int16{false: 0, true: 75}[v >= 9]}, "epoch 0": {"t0", 0, 0, 0, 0},
			} {
				r := recordsOf(w, c.topic, c.offset, c.partition)
				r.IsolationLevel = level
				r.Topics[0].Partitions[0].CurrentLeaderEpoch = c.epoch
				resp := ask[*kmsg.FetchResponse](p, v, r)
				want := kmsg.NewFetchResponseTopicPartition()
				want.Partition, want.ErrorCode = c.partition, c.code
				want.RecordBatches = []byte{}
				switch {
				case c.code == 0:
					want.LastStableOffset = 0
					if v >= 5 {
						want.LogStartOffset = 0
					}
					if level == 1 {
						want.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
					}
				default:
					want.HighWatermark, want.LastStableOffset, want.LogStartOffset = -1, -1, -1
				}
				if len(resp.Topics) != 1 || resp.ErrorCode != 0 || resp.SessionID != 0 {
					t.Fatalf("%s: %+v", name, resp)
				}
				same(t, name, resp.Topics[0].Partitions, []kmsg.FetchResponseTopicPartition{want})
			}
		}
	})
}

// TestC20FetchLargerThanEveryLimit: the first batch passes whole, the rest fit
// what is left of the limits.
func TestC20FetchLargerThanEveryLimit(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b := batch(1, 900_000)
	for n := range int32(3) {
		w.log("t1", n).append(bytes.Clone(b))
	}
	s := startServer(t, w, nil)
	p := s.dial(t)
	for _, v := range []int16{4, 11, 12, 18} {
		for _, limit := range []int32{1024, 1_000_000} {
			for _, each := range []int32{1024, 1_000_000, 0} {
				for _, wait := range []int32{0, 500} {
					r := recordsOf(w, "t1", 0, 2, 0, 1)
					r.MaxBytes, r.MaxWaitMillis = limit, wait
					for i := range r.Topics[0].Partitions {
						r.Topics[0].Partitions[i].PartitionMaxBytes = each
					}
					if each == 0 && wait > 0 {
						continue // nothing counts as there: it waits
					}
					got := ask[*kmsg.FetchResponse](p, v, r).Topics[0].Partitions
					if len(got) != 3 || got[0].Partition != 2 || len(got[0].RecordBatches) != len(b) || len(got[1].RecordBatches)+len(got[2].RecordBatches) != 0 ||
						got[1].ErrorCode != 0 || got[1].HighWatermark != 1 || got[2].HighWatermark != 1 {
						t.Errorf("v%d max %d, each %d, wait %d: %d, %d, %d bytes", v, limit, each, wait, len(got[0].RecordBatches), len(got[1].RecordBatches), len(got[2].RecordBatches))
					}
				}
			}
		}
	}
	// The server's own cap, with a request that has none.
	s2 := startServer(t, w, func(c *Config) { c.FetchMaxBytes = 1_900_000 })
	r := recordsOf(w, "t1", 0, 2, 0, 1)
	r.MaxBytes = 1<<31 - 1
	r.Topics[0].Partitions[2].PartitionMaxBytes = 1<<31 - 1
	got := ask[*kmsg.FetchResponse](s2.dial(t), 12, r).Topics[0].Partitions
	if len(got[0].RecordBatches) != len(b) || len(got[1].RecordBatches) != len(b) || len(got[2].RecordBatches) != 0 {
		t.Errorf("beyond the server's cap: %d, %d, %d bytes", len(got[0].RecordBatches), len(got[1].RecordBatches), len(got[2].RecordBatches))
	}
}

// TestC22FetchWhenAnswered: at once, or at max_wait, and why.
func TestC22FetchWhenAnswered(t *testing.T) {
	t.Parallel()
	const wait = 300
	for _, c := range []struct {
		name       string
		data       bool // 1 kB there
		minBytes   int32
		maxWait    int32
		partitions []int32
		offset     int64
		waits      bool
		bytes      bool
	}{
		{"empty, no wait", false, 1, 0, []int32{0}, 0, false, false},
		{"empty, no minimum", false, 0, wait, []int32{0}, 0, false, false},
		{"empty", false, 1, wait, []int32{0}, 0, true, false},
		{"empty, much wanted", false, 1 << 20, wait, []int32{0, 1}, 0, true, false},
		{"data", true, 1, wait, []int32{0}, 0, false, true},
		{"data in the second", true, 1, wait, []int32{1, 0}, 0, false, true},
		{"data, more wanted", true, 1 << 20, wait, []int32{0}, 0, true, true},
		{"no partitions", false, 1, wait, nil, 0, false, false},
		{"one out of range", false, 1, wait, []int32{1, 0}, 5, false, false},
		{"one unknown", false, 1, wait, []int32{0, 9}, 0, false, false},
		{"negative wait", false, 1, -1, []int32{0}, 0, false, false},
		{"negative minimum", false, -1, wait, []int32{0}, 0, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			if c.data {
				w.log("t1", 0).append(batch(1, 1000))
			}
			s := startServer(t, w, nil)
			p := s.dial(t)
			r := recordsOf(w, "t1", c.offset, c.partitions...)
			r.MinBytes, r.MaxWaitMillis = c.minBytes, c.maxWait
			began := time.Now()
			resp := ask[*kmsg.FetchResponse](p, 12, r)
			took := time.Since(began)
			if waited := took >= (wait-20)*time.Millisecond; waited != c.waits {
				t.Errorf("answered after %v", took)
			}
			n := 0
			for _, sp := range resp.Topics[0].Partitions {
				n += len(sp.RecordBatches)
				if sp.ErrorCode == kerr.RequestTimedOut.Code {
					t.Error("a timeout became an error")
				}
			}
			if (n > 0) != c.bytes {
				t.Errorf("%d bytes", n)
			}
			for i := range int32(3) {
				if w.log("t1", i).waiting() != 0 {
					t.Error("a waiter is left")
				}
			}
		})
	}
}

// TestC22FetchWakes: data, or an error, that comes later ends the wait; less than
// min_bytes does not.
func TestC22FetchWakes(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, nil)
	p := s.dial(t)
	l := w.log("t1", 2)
	start := func(minBytes int32, offset int64) {
		r := recordsOf(w, "t1", offset, 2)
		r.MinBytes, r.MaxWaitMillis = minBytes, 50_000
		p.send(13, r)
		eventually(t, "it waits", func() bool { return l.waiting() == 1 })
	}
	start(1500, 0)
	l.append(batch(1, 1000))
	if l.waiting() != 1 {
		t.Fatal("too little ended the wait")
	}
	l.append(batch(1, 1000))
	_, resp := p.recv()
	if n := len(resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches); n != 2*len(batch(1, 1000)) {
		t.Errorf("%d bytes", n)
	}
	start(1, 2)
	l.mu.Lock()
	l.fail = errStore
	for ch := range l.waiters {
		signal2(ch)
	}
	l.mu.Unlock()
	if _, resp = p.recv(); resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode != kerr.KafkaStorageError.Code {
		t.Errorf("%+v", resp)
	}
}

// TestFetchIsNeverTimedOut: consumers of Java end at REQUEST_TIMED_OUT.
func TestFetchIsNeverTimedOut(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, nil)
	p := s.dial(t)
	l := w.log("t1", 2)
	l.mu.Lock()
	l.fail = fmt.Errorf("ask: %w", context.DeadlineExceeded)
	l.mu.Unlock()
	for _, v := range []int16{4, 12, 13} {
		if sp := ask[*kmsg.FetchResponse](p, v, recordsOf(w, "t1", 0, 2)).Topics[0].Partitions[0]; sp.ErrorCode != kerr.KafkaStorageError.Code {
			t.Errorf("v%d: code %d", v, sp.ErrorCode)
		}
	}
}

// TestRow29FetchWaitIsCapped: no client waits longer than the server allows.
func TestRow29FetchWaitIsCapped(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, func(c *Config) { c.FetchMaxWait = 50 * time.Millisecond })
	p := s.dial(t)
	r := recordsOf(w, "t0", 0, 0)
	r.MaxWaitMillis, r.MaxBytes, r.MinBytes = 1<<31-1, 1<<31-1, 1<<31-1
	if sp := ask[*kmsg.FetchResponse](p, 12, r).Topics[0].Partitions[0]; sp.ErrorCode != 0 {
		t.Errorf("%+v", sp)
	}
}

func TestFetchSessions(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.log("t0", 0).append(batch(1, 10))
	s := startServer(t, w, nil)
	p := s.dial(t)
	for v := int16(7); v <= fetchAPI.max; v++ {
		for epoch, code := range map[int32]int16{-1: 0, 0: 0, 1: 70, 1<<31 - 1: 70, -2: 70} {
			r := recordsOf(w, "t0", 0, 0)
			r.SessionID, r.SessionEpoch = 5, epoch
			resp := ask[*kmsg.FetchResponse](p, v, r)
			if resp.ErrorCode != code || (resp.SessionID != 0) != (epoch == 0) || (len(resp.Topics) == 1) != (code == 0) {
				t.Errorf("v%d epoch %d: %+v", v, epoch, resp)
			}
		}
	}
}

func TestRow29FetchReplica(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, nil)
	p := s.dial(t)
	versions(t, &fetchAPI, func(t *testing.T, v int16) {
		r := recordsOf(w, "t0", 0, 0)
		r.ReplicaID, r.ReplicaState.ID = 5, 5
		if sp := ask[*kmsg.FetchResponse](p, v, r).Topics[0].Partitions[0]; sp.ErrorCode != kerr.ClusterAuthorizationFailed.Code || sp.HighWatermark != -1 {
			t.Errorf("%+v", sp)
		}
	})
}

// TestC15FetchZstd: a version that came before zstd is no reason to refuse it, as
// Apache Kafka 4.3.1 shows for Fetch 4 to 9.
func TestC15FetchZstd(t *testing.T) {
	t.Parallel()
	w := newWorld()
	z := serde.BuildEncoded(serde.BatchFields{Attributes: 4, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, []serde.NewRecord{{TimestampMillis: 1}}, []byte("zzzz"))
	w.log("t1", 0).append(bytes.Clone(z))
	w.log("t1", 1).append(batch(1, 10))
	s := startServer(t, w, nil)
	p := s.dial(t)
	versions(t, &fetchAPI, func(t *testing.T, v int16) {
		got := ask[*kmsg.FetchResponse](p, v, recordsOf(w, "t1", 0, 0, 1)).Topics[0].Partitions
		if got[0].ErrorCode != 0 || len(got[0].RecordBatches) != len(z) || got[1].ErrorCode != 0 || len(got[1].RecordBatches) == 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestFetchCommitted(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.log("t0", 0)
	l.append(batch(1, 10))
	l.aborted = []partition.Aborted{{ProducerID: 8, First: 0}, {ProducerID: 9, First: 4}}
	var asked []partition.ReadRequest
	l.onRead = func(r partition.ReadRequest) { asked = append(asked, r) }
	s := startServer(t, w, nil)
	r := recordsOf(w, "t0", 0, 0)
	r.IsolationLevel = 1
	sp := ask[*kmsg.FetchResponse](s.dial(t), 12, r).Topics[0].Partitions[0]
	same(t, "aborted", sp.AbortedTransactions, []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 8, FirstOffset: 0}, {ProducerID: 9, FirstOffset: 4}})
	same(t, "read", asked, []partition.ReadRequest{{Offset: 0, MaxBytes: 1 << 20, Whole: true, Committed: true}})
}

// TestFetchManyPartitions: ten thousand in one request, no goroutine for each.
func TestFetchManyPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.topics = append(w.topics, stubTopic(9, "wide", 10_000))
	s := startServer(t, w, nil)
	p := s.dial(t)
	all := make([]int32, 10_000)
	for i := range all {
		all[i] = int32(i)
	}
	r := recordsOf(w, "wide", 0, all...)
	r.MaxWaitMillis = 50_000
	p.send(12, r)
	eventually(t, "it waits", func() bool { return w.log("wide", 9999).waiting() == 1 })
	w.log("wide", 5000).append(batch(1, 10))
	_, resp := p.recv()
	for i, sp := range resp.(*kmsg.FetchResponse).Topics[0].Partitions {
		if (len(sp.RecordBatches) > 0) != (i == 5000) || sp.Partition != int32(i) {
			t.Fatalf("partition %d: %+v", i, sp)
		}
	}
}

func TestC02FetchOffsetsAndIDs(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 3 {
		w.log("t0", 0).append(batch(int64(i), 10))
	}
	s := startServer(t, w, nil)
	p := s.dial(t)
	for _, v := range []int16{4, 12, 13, 18} {
		for offset := range int64(3) {
			got := ask[*kmsg.FetchResponse](p, v, recordsOf(w, "t0", offset, 0)).Topics[0]
			b, _, err := serde.ParseBatch(got.Partitions[0].RecordBatches)
			if err != nil || b.BaseOffset() != offset || !b.ChecksumOK() {
				t.Errorf("v%d offset %d: %v", v, offset, err)
			}
			if v >= 13 && got.TopicID == (types.TopicID{}) || v < 13 && got.Topic != "t0" {
				t.Errorf("v%d: topic %q, id %v", v, got.Topic, got.TopicID)
			}
		}
	}
}

func BenchmarkFetchOneMiB(b *testing.B) {
	w := newWorld()
	w.log("t0", 0).append(batch(1, 1<<20-200))
	s := New(DefaultConfig(), w, discard, nil)
	r := recordsOf(w, "t0", 0, 0)
	r.SetVersion(12)
	raw := requestBytes(r, 1, ptr("client"), 0)
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := treat(s, raw)
		if err != nil {
			b.Fatal(err)
		}
		f := resp.(*fetchResponse)
		pieces, _ := f.encode(buf[:8], 0)
		if len(pieces) != 3 {
			b.Fatal(fmt.Sprint(len(pieces), " pieces"))
		}
		f.release()
	}
}
