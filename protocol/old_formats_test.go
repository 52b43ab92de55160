package protocol

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/compress"
)

// oldMessage is a message of magic 0 or 1 with its own checksum.
func oldMessage(magic int8, offset int64, attributes int8, value []byte) []byte {
	var b []byte
	if magic == 0 {
		m := kmsg.MessageV0{Offset: offset, Attributes: attributes, Key: []byte("k"), Value: value}
		b = m.AppendTo(nil)
	} else {
		m := kmsg.MessageV1{Offset: offset, Magic: magic, Attributes: attributes, Timestamp: 1_700_000_000_000, Key: []byte("k"), Value: value}
		b = m.AppendTo(nil)
	}
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return b
}

// TestC16OldFormats: messages of magic 0 and 1, one by one and wrapped, are
// refused on each partition in the form that their sender can read; nothing is
// stored, and the connection goes on. Nobody converts them yet.
func TestC16OldFormats(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for n := range int32(3) {
		w.log("t1", n).onSubmit = func(partition.AppendRequest, func(partition.AppendResult)) bool {
			t.Error("records of an old format came to a partition")
			return false
		}
	}
	s := startServer(t, w, nil)
	p := s.dial(t)
	for magic := range int8(2) {
		var plain []byte
		for i := range int64(3) {
			plain = append(plain, oldMessage(magic, i, 0, fmt.Appendf(nil, "value %d", i))...)
		}
		zipped, err := compress.Encode(nil, compress.Gzip, plain)
		if err != nil {
			t.Fatal(err)
		}
		for v := int16(0); v <= 2; v++ {
			resp := ask[*kmsg.ProduceResponse](p, v, produceOf(w, "t1", -1, plain, oldMessage(magic, 2, 1, zipped), nil))
			if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 3 {
				t.Fatalf("v%d: %+v", v, resp)
			}
			for i, sp := range resp.Topics[0].Partitions {
				want := kmsg.NewProduceResponseTopicPartition()
				want.Partition, want.ErrorCode, want.BaseOffset = int32(i), kerr.UnsupportedVersion.Code, -1
				same(t, fmt.Sprintf("v%d magic %d", v, magic), sp, want)
			}
			// Without acknowledgement the connection is the only answer.
			q := s.dial(t)
			q.send(v, produceOf(w, "t1", 0, plain))
			q.closed("acks=0")
		}
	}
	for _, v := range []int16{4, 11, 12} {
		for offset, code := range []int16{0, kerr.OffsetOutOfRange.Code, kerr.OffsetOutOfRange.Code} {
			sp := ask[*kmsg.FetchResponse](p, v, recordsOf(w, "t1", int64(offset), 0)).Topics[0].Partitions[0]
			if sp.ErrorCode != code || sp.RecordBatches == nil || len(sp.RecordBatches) > 0 {
				t.Errorf("fetch v%d at %d: %+v", v, offset, sp)
			}
		}
	}
}
