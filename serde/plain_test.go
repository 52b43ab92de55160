package serde

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestPlainBatchReadByKmsg(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, {}, []byte("key")} {
		for _, value := range [][]byte{nil, {}, bytes.Repeat([]byte("v"), 300)} {
			p := PlainBatch(1<<40, 1700000000123, key, value, []RecordHeader{{"a", nil}, {"a", []byte{}}, {"", []byte("x")}})
			b, rest, err := ParseBatch(p)
			if err != nil || len(rest) != 0 {
				t.Fatalf("ParseBatch: %v, %d bytes left", err, len(rest))
			}
			if !b.ChecksumOK() {
				t.Error("checksum is wrong")
			}
			var k kmsg.RecordBatch
			if err := k.ReadFrom(p); err != nil {
				t.Fatalf("kmsg: %v", err)
			}
			if k.FirstOffset != 1<<40 || k.MaxTimestamp != 1700000000123 || k.FirstTimestamp != k.MaxTimestamp || k.NumRecords != 1 ||
				k.ProducerID != -1 || k.ProducerEpoch != -1 || k.FirstSequence != -1 || k.PartitionLeaderEpoch != 0 || k.LastOffsetDelta != 0 {
				t.Errorf("header %+v", k)
			}
			var r kmsg.Record
			if err := r.ReadFrom(k.Records); err != nil {
				t.Fatalf("kmsg record: %v", err)
			}
			same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
			if !same(r.Key, key) || !same(r.Value, value) {
				t.Errorf("key %q value %q", r.Key, r.Value)
			}
			if len(r.Headers) != 3 || r.Headers[0].Value != nil || r.Headers[1].Value == nil || string(r.Headers[2].Value) != "x" {
				t.Errorf("headers %+v", r.Headers)
			}
		}
	}
}
