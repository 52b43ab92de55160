package partition

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
)

// compressed makes a batch of three records as a producer with this codec does.
func compressed(t testing.TB, c compress.Codec, pid int64, seq int32) []byte {
	now := time.Now().UnixMilli()
	return batchSpec{
		pid: pid, seq: seq, times: []int64{now, now + 1, now + 2}, attrs: int16(c), nilKeys: []int{1},
		values: [][]byte{bytes.Repeat([]byte("abc"), 300), nil, []byte("z")},
		body: func(b []byte) []byte {
			z, err := compress.Encode(nil, c, b)
			if err != nil {
				t.Fatal(err)
			}
			return z
		},
	}.bytes()
}

// TestRecode: what is stored is compressed as the topic says, whatever the
// producer did; all else of the batch stays. A change counts from the next batch.
func TestRecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		names := map[string]compress.Codec{"": -1, "producer": -1, "uncompressed": compress.None, "gzip": compress.Gzip, "snappy": compress.Snappy, "lz4": compress.LZ4, "zstd": compress.Zstd}
		seq := int32(0)
		for name, want := range names {
			for source := compress.None; source <= compress.Zstd; source++ {
				for _, logAppend := range []bool{false, true} {
					what := fmt.Sprintf("%q, sent as %s, log append time %v", name, source, logAppend)
					g.configure(func(c *Config) { c.Compression, c.CompressionLevel, c.LogAppendTime = name, -1, logAppend })
					sent := compressed(t, source, 7, seq)
					before, _, err := serde.ParseBatch(bytes.Clone(sent))
					if err != nil {
						t.Fatal(err)
					}
					o := g.mustProduce(sent)
					got := g.read(o)[0]
					codec := want
					if want < 0 {
						codec = source
					}
					if compress.Codec(got.Codec()) != codec || got.LogAppendTime() != logAppend {
						t.Errorf("%s: stored with attributes %x", what, got.Attributes())
					}
					if codec == source && !logAppend && !bytes.Equal(got[21:], before[21:]) {
						t.Errorf("%s: the bytes are not the producer's", what)
					}
					if got.Count() != 3 || got.LastOffsetDelta() != 2 || got.ProducerID() != 7 || got.BaseSequence() != seq || got.BaseTimestamp() != before.BaseTimestamp() || !logAppend && got.MaxTimestamp() != before.MaxTimestamp() {
						t.Errorf("%s: the header is not the producer's", what)
					}
					a, err := plainRecords(before, 1<<20)
					if err != nil {
						t.Fatal(err)
					}
					if b, err := plainRecords(got, 1<<20); err != nil || !bytes.Equal(a, b) {
						t.Errorf("%s: records differ, %v", what, err)
					}
					// Sent again it is a duplicate.
					if again := g.mustProduce(compressed(t, source, 7, seq)); again != o {
						t.Errorf("%s: stored again at %d", what, again)
					}
					seq += 3
				}
			}
		}
		// And a new gateway finds it all in order.
		if bs := split(t, must(w.gateway(memory.Faults{}).p.Read(t.Context(), ReadRequest{MaxBytes: 1 << 24}))); len(bs) != int(seq)/3 {
			t.Errorf("%d batches, %d were sent", len(bs), seq/3)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestRecodeRefuses: what cannot be compressed anew is not stored.
func TestRecodeRefuses(t *testing.T) {
	w := newWorld(t, memory.Config{})
	g := w.gateway(memory.Faults{})
	squeezed := func(body func([]byte) []byte, values ...[]byte) []byte {
		return batchSpec{times: make([]int64, max(1, len(values))), values: values, attrs: int16(compress.Gzip), body: body}.bytes()
	}
	gzip := func(b []byte) []byte { return must(compress.Encode(nil, compress.Gzip, b)) }
	for name, c := range map[string]struct {
		batch  []byte
		target string
		limit  int
		want   *kerr.Error
	}{
		"larger than the topic takes": {squeezed(gzip, make([]byte, 5000)), "uncompressed", 3000, kerr.MessageTooLarge},
		"just as large":               {squeezed(gzip, make([]byte, 2900)), "uncompressed", 3000, nil},
		"a bomb":                      {squeezed(gzip, make([]byte, 10<<20)), "zstd", 1 << 20, kerr.MessageTooLarge},
		"garbage":                     {squeezed(func(b []byte) []byte { return []byte("no gzip at all") }), "zstd", 1 << 20, kerr.InvalidRecord},
		"no records":                  {squeezed(func(b []byte) []byte { return gzip([]byte("xyz")) }), "zstd", 1 << 20, kerr.InvalidRecord},
		"not touched":                 {squeezed(func(b []byte) []byte { return []byte("no gzip at all") }), "gzip", 1 << 20, nil},
	} {
		g.configure(func(x *Config) { x.Compression, x.MaxMessageBytes, x.MaxBehindMillis = c.target, c.limit, 1<<63-1 })
		a := g.produce(AppendRequest{Records: c.batch})
		if c.want == nil && a.Err != nil || c.want != nil && !errors.Is(a.Err, c.want) {
			t.Errorf("%s: %v (%s), want %v", name, a.Err, a.Message, c.want)
		}
	}
}

// TestTimestampsRefused: each record outside of what the topic allows is named,
// with Kafka's words, and nothing is stored.
func TestTimestampsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		now := time.Now().UnixMilli()
		g.configure(func(c *Config) { c.MaxBehindMillis, c.MaxAheadMillis = 1000, 2000 })
		send := func(ts ...int64) AppendResult { return g.produce(AppendRequest{Records: at(ts...)}) }
		a := send(now, now-1001, now+2000, now+2001, now-1000, -1)
		if !errors.Is(a.Err, kerr.InvalidTimestamp) || len(a.Records) != 2 || a.Records[0].Index != 1 || a.Records[1].Index != 3 {
			t.Fatalf("%+v", a)
		}
		if want := fmt.Sprintf("Timestamp %d of message with offset 1 is out of range. The timestamp should be within [%d, %d]", now-1001, now-1000, now+2000); a.Records[0].Message != want {
			t.Errorf("%q, want %q", a.Records[0].Message, want)
		}
		if !strings.HasPrefix(a.Message, "One or more records have been rejected") {
			t.Errorf("%q", a.Message)
		}
		if a := send(now-1000, now+2000); a.Err != nil || a.BaseOffset != 0 {
			t.Errorf("at the limits: %+v", a)
		}
		// A change counts at once, in both directions; a topic that stamps takes all.
		g.configure(func(c *Config) { c.MaxBehindMillis = 999 })
		if a := send(now - 1000); !errors.Is(a.Err, kerr.InvalidTimestamp) {
			t.Errorf("after the change: %+v", a)
		}
		g.configure(func(c *Config) { c.LogAppendTime = true })
		if a := send(5); a.Err != nil || a.AppendTime != now {
			t.Errorf("log append time: %+v", a)
		}
		g.configure(func(c *Config) { c.LogAppendTime, c.MaxBehindMillis = false, 1<<63-1 })
		if a := send(5); a.Err != nil || a.AppendTime != -1 {
			t.Errorf("no limit: %+v", a)
		}
	})
}

// TestMinInsync: a write is refused while an acknowledgement stands for fewer
// replicas than the topic asks for; what counts is the stream as it is.
func TestMinInsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 3})
		g := w.gateway(memory.Faults{})
		for n, want := range map[int]error{0: nil, 1: nil, 2: nil, 3: kerr.NotEnoughReplicas, 9: kerr.NotEnoughReplicas} {
			g.configure(func(c *Config) { c.MinInsync = n })
			a := g.produce(AppendRequest{Records: batch(1), AcksAll: true})
			if !errors.Is(a.Err, want) || a.Message != "" {
				t.Errorf("min.insync.replicas %d on 3 replicas: %v, %q", n, a.Err, a.Message)
			}
			// Who does not ask for all replicas is not held to their number.
			if a := g.produce(AppendRequest{Records: batch(1)}); a.Err != nil {
				t.Errorf("min.insync.replicas %d on 3 replicas, acks=1: %v", n, a.Err)
			}
		}
		if n := len(w.server.Messages(testLog)); n != 3+5 {
			t.Errorf("%d messages are stored", n)
		}
	})
	// More than there are means all of them.
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{MaxReplicas: 1})
		g := w.gateway(memory.Faults{})
		g.configure(func(c *Config) { c.MinInsync = 2 })
		if a := g.produce(AppendRequest{Records: batch(1), AcksAll: true}); a.Err != nil {
			t.Errorf("min.insync.replicas 2 on 1 replica: %v", a.Err)
		}
	})
}
