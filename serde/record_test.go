package serde

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// records encodes n records with growing deltas, headers on every third.
func records(n int) []byte {
	var p []byte
	for i := range n {
		var hs []RecordHeader
		if i%3 == 0 {
			hs = []RecordHeader{{"h", []byte{byte(i)}}, {"h", nil}}
		}
		key := []byte{byte(i)}
		if i%5 == 0 {
			key = nil
		}
		value := bytes.Repeat([]byte("v"), i)
		p = binary.AppendVarint(p, int64(recordBodySize(int64(i)*1000, int32(i), key, value, hs)))
		p = appendRecordBody(p, int64(i)*1000, int32(i), key, value, hs)
	}
	return p
}

func TestRecordsAgreeWithKmsg(t *testing.T) {
	t.Parallel()
	const n = 200
	p := records(n)
	var want []kmsg.Record
	for rest := p; len(rest) > 0; {
		size, m := binary.Varint(rest)
		var r kmsg.Record
		if err := r.ReadFrom(rest[:m+int(size)]); err != nil {
			t.Fatal(err)
		}
		want, rest = append(want, r), rest[m+int(size):]
	}
	it := NewRecords(p, n)
	for i := 0; it.Next(); i++ {
		r, w := it.Record, want[i]
		if r.TimestampDelta != w.TimestampDelta64 || r.OffsetDelta != w.OffsetDelta || !bytes.Equal(r.Key, w.Key) || (r.Key == nil) != (w.Key == nil) ||
			!bytes.Equal(r.Value, w.Value) || r.HeaderCount != len(w.Headers) {
			t.Fatalf("record %d: %+v, want %+v", i, r, w)
		}
		j := 0
		for k, v := range r.Headers() {
			if string(k) != w.Headers[j].Key || !bytes.Equal(v, w.Headers[j].Value) || (v == nil) != (w.Headers[j].Value == nil) {
				t.Fatalf("record %d header %d: %q %q", i, j, k, v)
			}
			j++
		}
		want[i].Length = -1
	}
	if it.Err() != nil || want[n-1].Length != -1 {
		t.Errorf("not all records were read: %v", it.Err())
	}
}

func TestRecordsMalformed(t *testing.T) {
	t.Parallel()
	p := records(4)
	read := func(p []byte, n int32) (int, error) {
		it := NewRecords(p, n)
		i := 0
		for it.Next() {
			i++
		}
		return i, it.Err()
	}
	for i := range p {
		if n, err := read(p[:i], 4); err == nil {
			t.Errorf("cut at %d: %d records and no error", i, n)
		}
	}
	if _, err := read(p, 3); err == nil {
		t.Error("a record too many is no error")
	}
	if _, err := read(p, 5); err == nil {
		t.Error("a record too few is no error")
	}
	if n, err := read(nil, -1); n != 0 || err != nil {
		t.Errorf("negative count: %d, %v", n, err)
	}
	for name, p := range map[string]string{
		"length beyond": "7f00", "length negative": "0100", "varint of six bytes": "808080808000", "varint above 32 bits": "ffffffff7f",
		"header count": "0e0000000101fefefe7f", "header key null": "1000000001010201" + "01", "bytes left": "0e00000001010000",
	} {
		b, err := hex.DecodeString(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(b, 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRecordsDoNotAllocate(t *testing.T) {
	p := records(100)
	if n := testing.AllocsPerRun(100, func() {
		it := NewRecords(p, 100)
		for it.Next() {
			for k, v := range it.Record.Headers() {
				_, _ = k, v
			}
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}); n != 0 {
		t.Errorf("%v allocations per batch", n)
	}
}

// TestControlBatch: the bytes of a commit marker as Kafka 4.3.1 writes them
// (protocol.md §12).
func TestControlBatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind ControlType
		tail string // record: length, attributes, deltas, key, value, headers
	}{
		{ControlCommit, "20000000" + "08" + "00000001" + "0c" + "000000000005" + "00"},
		{ControlAbort, "20000000" + "08" + "00000000" + "0c" + "000000000005" + "00"},
	} {
		b := ControlBatch(42, 1700000000000, 9, 3, c.kind, 5)
		if len(b) != ControlBatchSize || !b.ChecksumOK() || b.Attributes() != 0x30 || b.Count() != 1 || b.BaseSequence() != -1 ||
			b.ProducerID() != 9 || b.ProducerEpoch() != 3 || b.BaseOffset() != 42 || b.LastOffsetDelta() != 0 || b.MaxTimestamp() != 1700000000000 {
			t.Errorf("%d: % x", c.kind, b)
		}
		if got := hex.EncodeToString(b.Records()); got != c.tail {
			t.Errorf("%d: record %s, want %s", c.kind, got, c.tail)
		}
		kind, epoch, err := ParseControl(b)
		if err != nil || kind != c.kind || epoch != 5 {
			t.Errorf("parsed %d, %d, %v", kind, epoch, err)
		}
	}
	if _, _, err := ParseControl(PlainBatch(0, 0, nil, nil, nil)); err == nil {
		t.Error("a data batch is no control batch")
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	rs := []NewRecord{{TimestampMillis: 1000, Key: []byte("a")}, {TimestampMillis: 3000, Value: []byte("b")}, {TimestampMillis: 2000, Headers: []RecordHeader{{"k", nil}}}}
	b := Build(BatchFields{BaseOffset: 7, ProducerID: 5, ProducerEpoch: 1, BaseSequence: 10}, rs)
	if !b.ChecksumOK() || b.Count() != 3 || b.LastOffset() != 9 || b.MaxTimestamp() != 3000 || b.BaseTimestamp() != 1000 || b.ProducerID() != 5 || b.BaseSequence() != 10 {
		t.Errorf("% x", b)
	}
	it := NewRecords(b.Records(), b.Count())
	var deltas []int64
	for it.Next() {
		deltas = append(deltas, it.Record.TimestampDelta)
	}
	if it.Err() != nil || len(deltas) != 3 || deltas[1] != 2000 {
		t.Errorf("%v %v", deltas, it.Err())
	}
	z := BuildEncoded(BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Attributes: 1}, rs, []byte("zip"))
	if z.Codec() != 1 || string(z.Records()) != "zip" || !z.ChecksumOK() || z.MaxTimestamp() != 3000 {
		t.Errorf("% x", z)
	}
	if one := Build(BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, []NewRecord{{TimestampMillis: 5, Value: []byte("x")}}); !bytes.Equal(one, PlainBatch(0, 5, nil, []byte("x"), nil)) {
		t.Error("Build and PlainBatch differ")
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(records(5), int32(5))
	f.Add(records(5)[:20], int32(5))
	f.Add([]byte(strings.Repeat("\xff", 12)), int32(1<<31-1))
	f.Fuzz(func(t *testing.T, p []byte, count int32) {
		it := NewRecords(p, count)
		var again []byte
		n := int32(0)
		for it.Next() {
			n++
			r := it.Record
			var hs []RecordHeader
			for k, v := range r.Headers() {
				hs = append(hs, RecordHeader{string(k), v})
			}
			if len(hs) != r.HeaderCount {
				t.Fatalf("%d headers of %d", len(hs), r.HeaderCount)
			}
			size := recordBodySize(r.TimestampDelta, r.OffsetDelta, r.Key, r.Value, hs)
			body := appendRecordBody(nil, r.TimestampDelta, r.OffsetDelta, r.Key, r.Value, hs)
			if size != len(body) {
				t.Fatalf("size %d, body %d", size, len(body))
			}
			again = append(binary.AppendVarint(again, int64(size)), body...)
		}
		if it.Err() != nil {
			return
		}
		if n != max(count, 0) {
			t.Fatalf("%d records of %d", n, count)
		}
		it = NewRecords(again, n)
		for it.Next() {
		}
		if it.Err() != nil {
			t.Fatalf("what was written cannot be read: %v", it.Err())
		}
	})
}

func FuzzBatch(f *testing.F) {
	f.Add([]byte(PlainBatch(1, 2, []byte("k"), []byte("v"), nil)))
	f.Add([]byte(ControlBatch(1, 2, 3, 4, ControlAbort, 5)))
	f.Add(append([]byte(PlainBatch(1, 2, nil, nil, nil)), ControlBatch(1, 2, 3, 4, ControlCommit, 5)...))
	f.Fuzz(func(t *testing.T, p []byte) {
		for total := len(p); ; {
			b, rest, err := ParseBatch(p)
			if err != nil {
				return
			}
			if total -= len(b); len(b) < BatchHeaderSize || total != len(rest) {
				t.Fatalf("batch of %d bytes, %d of %d left", len(b), len(rest), total)
			}
			_, _, _ = ParseControl(b)
			b.ChecksumOK()
			b = bytes.Clone(b)
			b.Stamp(1, 2)
			b.SetTimes(3, true)
			if !b.ChecksumOK() || b.BaseOffset() != 1 || b.LeaderEpoch() != 2 || b.MaxTimestamp() != 3 || !b.LogAppendTime() {
				t.Fatal("stamping went wrong")
			}
			it := NewRecords(b.Records(), b.Count())
			for it.Next() {
			}
			p = rest
		}
	})
}
