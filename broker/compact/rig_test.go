package compact

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Attribute bits of the batches that tests write.
const (
	logAppendTime = 0x08
	transactional = 0x10
)

// data says what a test's batch holds. Records are "key=value": "k=" has an empty
// value, "k" none, "=v" no key. Record i has timestamp time+i.
type data struct {
	base    int64
	records []string
	time    int64
	pid     int64 // 0: none
	epoch   int16
	seq     int32
	attrs   int16
	codec   compress.Codec
}

func (d data) bytes(t testing.TB) []byte {
	t.Helper()
	var rs []serde.NewRecord
	for i, s := range d.records {
		r := serde.NewRecord{TimestampMillis: d.time + int64(i), Headers: []serde.RecordHeader{{Key: "h", Value: []byte{byte(i)}}}}
		k, v, ok := strings.Cut(s, "=")
		if k != "" {
			r.Key = []byte(k)
		}
		if ok {
			r.Value = []byte(v)
		}
		rs = append(rs, r)
	}
	f := serde.BatchFields{BaseOffset: d.base, Attributes: d.attrs | int16(d.codec), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	if d.pid != 0 {
		f.ProducerID, f.ProducerEpoch, f.BaseSequence = d.pid, d.epoch, d.seq
	}
	encoded, err := compress.Encode(nil, d.codec, serde.EncodeRecords(rs))
	if err != nil {
		t.Fatal(err)
	}
	b := serde.BuildEncoded(f, rs, encoded)
	b.Stamp(d.base, 7)
	return b
}

// marker is a batch that ends a transaction.
func marker(offset, time, pid int64, commit bool) []byte {
	kind := serde.ControlAbort
	if commit {
		kind = serde.ControlCommit
	}
	return serde.ControlBatch(offset, time, pid, 0, kind, 1)
}

// one is a record as a reader sees it.
type one struct {
	offset, time int64
	key, value   string // "<null>"
	headers      string
}

// batches cuts bytes into batches and checks each one.
func batches(t testing.TB, p []byte) (bs []serde.Batch) {
	t.Helper()
	for len(p) > 0 {
		b, rest, err := serde.ParseBatch(p)
		if err != nil {
			t.Fatal(err)
		}
		if !b.ChecksumOK() {
			t.Fatalf("checksum of the batch at %d", b.BaseOffset())
		}
		bs, p = append(bs, b), rest
	}
	return bs
}

// records reads all records of all batches.
func records(t testing.TB, p []byte) (rs []one) {
	t.Helper()
	for _, b := range batches(t, p) {
		body, err := compress.Decode(nil, compress.Codec(b.Codec()), b.Records(), 1<<26)
		if err != nil {
			t.Fatal(err)
		}
		it := serde.NewRecords(body, b.Count())
		for it.Next() {
			r := it.Record
			o := one{offset: b.BaseOffset() + int64(r.OffsetDelta), time: b.BaseTimestamp() + r.TimestampDelta, key: text(r.Key), value: text(r.Value)}
			if b.LogAppendTime() {
				o.time = b.MaxTimestamp()
			}
			for k, v := range r.Headers() {
				o.headers += fmt.Sprintf("%s=%x ", k, v)
			}
			rs = append(rs, o)
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}
	return rs
}

func text(p []byte) string {
	if p == nil {
		return "<null>"
	}
	return string(p)
}

// brief is offsets and key=value, as in data.
func brief(rs []one) string {
	var s []string
	for _, r := range rs {
		x := fmt.Sprintf("%d:", r.offset)
		if r.key != "<null>" {
			x += r.key
		}
		if r.value != "<null>" {
			x += "=" + r.value
		}
		s = append(s, x)
	}
	return strings.Join(s, " ")
}

// pass runs one whole pass over a log.
func pass(t testing.TB, k *Keys, e *Env, log [][]byte) (out [][]byte, all Stats, horizon int64) {
	t.Helper()
	k.Reset()
	e.Restart()
	for _, b := range log {
		full, err := Index(k, e, b)
		if err != nil {
			t.Fatal(err)
		}
		if full {
			break
		}
	}
	e.Upto = k.Upto()
	for _, b := range log {
		o, s, h, err := Filter(k, e, b)
		if err != nil {
			t.Fatal(err)
		}
		all.Add(s)
		if h > 0 && (horizon == 0 || h < horizon) {
			horizon = h
		}
		for _, x := range batches(t, o) {
			out = append(out, x)
		}
	}
	return out, all, horizon
}

func join(log [][]byte) (p []byte) {
	for _, b := range log {
		p = append(p, b...)
	}
	return p
}

// offsets makes a LastOf of a table.
func lastOf(m map[int64]types.Offset) func(int64, int16) (types.Offset, bool) {
	return func(pid int64, _ int16) (types.Offset, bool) { o, ok := m[pid]; return o, ok }
}
