package protocol

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/types"
)

func TestC13ProduceEveryVersion(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, nil)
	p := s.dial(t)
	stored := int64(0)
	versions(t, &produceAPI, func(t *testing.T, v int16) {
		r := ask[*kmsg.ProduceResponse](p, v, produceOf(w, "t1", -1, batch(1, 100), []byte("garbage"), nil))
		if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 3 {
			t.Fatalf("%+v", r)
		}
		for i, sp := range r.Topics[0].Partitions {
			want := kmsg.NewProduceResponseTopicPartition()
			want.Partition, want.BaseOffset = int32(i), -1
			switch {
			case v < 3:
				want.ErrorCode = kerr.UnsupportedVersion.Code
			case i > 0:
				want.ErrorCode = kerr.InvalidRecord.Code
				if v >= 8 {
					want.ErrorMessage = ptr("one batch, please")
					want.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 1, ErrorMessage: ptr("bad")}}
				}
			default:
				want.BaseOffset = stored
				if v >= 5 {
					want.LogStartOffset = 0
				}
			}
			same(t, "partition", sp, want)
		}
		if v >= 3 {
			stored++
		}
	})
}

func TestProduceRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, nil)
	p := s.dial(t)
	code := func(v int16, topic string, acks int16) int16 {
		r := produceOf(w, topic, acks, batch(1, 1))
		resp := ask[*kmsg.ProduceResponse](p, v, r)
		if sp := resp.Topics[0].Partitions[0]; sp.ErrorCode != 0 && sp.BaseOffset != -1 {
			t.Errorf("%s: refused with base offset %d", topic, sp.BaseOffset)
		}
		return resp.Topics[0].Partitions[0].ErrorCode
	}
	for _, v := range []int16{3, 9, 12} {
		for _, c := range []struct {
			topic string
			acks  int16
			want  *kerr.Error
		}{
			{"t0", 2, kerr.InvalidRequiredAcks}, {"t0", -2, kerr.InvalidRequiredAcks}, {"nosuch", 1, kerr.UnknownTopicOrPartition},
			{"__consumer_offsets", 1, kerr.InvalidTopicException}, {"__transaction_state", -1, kerr.InvalidTopicException},
		} {
			if got := code(v, c.topic, c.acks); got != c.want.Code {
				t.Errorf("v%d %s acks %d: %d, want %v", v, c.topic, c.acks, got, c.want)
			}
		}
	}
	if got := code(13, "nosuch", 1); got != kerr.UnknownTopicID.Code { // the zero id
		t.Errorf("v13 zero id: %d", got)
	}
	r := produceOf(w, "t0", 1, batch(1, 1))
	r.Topics[0].TopicID = types.TopicID{9}
	if resp := ask[*kmsg.ProduceResponse](p, 13, r); resp.Topics[0].Partitions[0].ErrorCode != kerr.UnknownTopicID.Code || resp.Topics[0].TopicID != (types.TopicID{9}) {
		t.Errorf("v13 unknown id: %+v", resp)
	}
	for _, n := range []int32{-1, 1, 1<<31 - 1} {
		r := produceOf(w, "t0", 1, batch(1, 1))
		r.Topics[0].Partitions[0].Partition = n
		if sp := ask[*kmsg.ProduceResponse](p, 9, r).Topics[0].Partitions[0]; sp.ErrorCode != kerr.UnknownTopicOrPartition.Code || sp.Partition != n {
			t.Errorf("partition %d: %+v", n, sp)
		}
	}
	w.log("t1", 0).fail = errStore
	resp := ask[*kmsg.ProduceResponse](p, 9, produceOf(w, "t1", 1, batch(1, 1), batch(1, 1)))
	if sp := resp.Topics[0].Partitions; sp[0].ErrorCode != kerr.KafkaStorageError.Code || sp[0].BaseOffset != -1 || sp[1].ErrorCode != 0 {
		t.Errorf("a partition that fails beside one that does not: %+v", sp)
	}
	if resp := ask[*kmsg.ProduceResponse](p, 9, &kmsg.ProduceRequest{Acks: 1}); len(resp.Topics) != 0 {
		t.Errorf("nothing to produce: %+v", resp)
	}
}

// TestProduceTwice: of two batches for one partition the last counts and is
// answered once, as in 4.3.1.
func TestProduceTwice(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, nil)
	r := produceOf(w, "t1", 1, batch(1, 10), batch(1, 20), batch(1, 30))
	r.Topics[0].Partitions[2].Partition = 0
	resp := ask[*kmsg.ProduceResponse](s.dial(t), 9, r)
	if sp := resp.Topics[0].Partitions; len(sp) != 2 || sp[0].Partition != 1 || sp[1].Partition != 0 || sp[1].ErrorCode != 0 || sp[1].BaseOffset != 0 {
		t.Errorf("%+v", resp.Topics[0].Partitions)
	}
	if l := w.log("t1", 0); len(l.batches) != 1 || len(l.batches[0]) != len(batch(1, 30)) {
		t.Error("the wrong batch was stored")
	}
}

func TestC11ProduceTellsThePartition(t *testing.T) {
	t.Parallel()
	w := newWorld()
	got := make(chan partition.AppendRequest, 1)
	w.log("t0", 0).onSubmit = func(r partition.AppendRequest, done func(partition.AppendResult)) bool {
		r.Records = bytes.Clone(r.Records)
		got <- r
		done(partition.AppendResult{BaseOffset: 3, LogStart: 2, AppendTime: 77})
		return true
	}
	s := startServer(t, w, nil)
	p := s.dial(t)
	for _, v := range []int16{3, 6, 7, 11, 12, 13} {
		for _, txn := range []*string{nil, ptr(""), ptr("x")} {
			acks := int16(-1)
			if v == 6 {
				acks = 1
			}
			r := produceOf(w, "t0", acks, batch(1, 5))
			r.TransactionID = txn
			resp := ask[*kmsg.ProduceResponse](p, v, r)
			same(t, "request", <-got, partition.AppendRequest{Records: batch(1, 5), NoZstd: v < 7, Transactional: txn != nil, AcksAll: acks == -1, FromZero: txn != nil && v >= 12})
			if sp := resp.Topics[0].Partitions[0]; sp.BaseOffset != 3 || sp.LogAppendTime != 77 || v >= 5 && sp.LogStartOffset != 2 {
				t.Errorf("%+v", sp)
			}
		}
	}
}

// BenchmarkProduceSmall counts what one small request costs between socket and
// partition, the client included.
func BenchmarkProduceSmall(b *testing.B) {
	w := newWorld()
	w.log("t0", 0).onSubmit = func(_ partition.AppendRequest, done func(partition.AppendResult)) bool {
		done(partition.AppendResult{BaseOffset: 1})
		return true
	}
	s := New(DefaultConfig(), w, discard, nil)
	r := produceOf(w, "t0", -1, batch(1, 1000))
	r.SetVersion(9)
	raw := requestBytes(r, 1, ptr("client"), 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := treat(s, raw); err != nil {
			b.Fatal(err)
		}
	}
}
