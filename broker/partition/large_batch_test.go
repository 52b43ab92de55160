package partition

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// dense are records that compress to next to nothing: of so many keys, 200 kB each.
func dense(n int, keyless ...int) (rs []serde.NewRecord) {
	value := []byte(strings.Repeat("0123456789", 20_000))
	for i := range n {
		rs = append(rs, serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Key: []byte{byte(i), byte(i >> 8)}, Value: value})
	}
	for _, i := range keyless {
		rs[i].Key = nil
	}
	return rs
}

// TestC13DenseBatches: a small batch may decompress to far more than
// max.message.bytes, as in Kafka: it is stored in a compacted topic, its records
// are checked, and it can be compacted. What could not be compacted is not admitted;
// whatever it decompresses to, checking it takes next to no memory.
func TestC13DenseBatches(t *testing.T) {
	none := serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	for _, codec := range []compress.Codec{compress.Gzip, compress.LZ4, compress.Snappy, compress.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := compacted(t)
				g := w.gateway(memory.Faults{})
				small := 45 // 9 MB
				g.mustProduce(keyed(none, codec, dense(small)))
				a := g.produce(AppendRequest{Records: keyed(none, codec, dense(small, 3, 44))})
				if !errors.Is(a.Err, kerr.InvalidRecord) || len(a.Records) != 2 || a.Records[0].Index != 3 || a.Records[1].Index != 44 {
					t.Errorf("two records without a key: %v, %s, %v", a.Err, a.Message, a.Records)
				}
				huge := keyed(none, codec, dense(400)) // 80 MB
				if len(huge) > w.config.MaxMessageBytes {
					huge = nil // snappy: too large for its size already
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if huge != nil {
					if a := g.produce(AppendRequest{Records: huge}); !errors.Is(a.Err, kerr.InvalidRecord) {
						t.Errorf("80 MB: %v, %s", a.Err, a.Message)
					}
				}
				runtime.ReadMemStats(&after)
				if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
					t.Errorf("refusing it took %d MiB", n>>20)
				}
				g.mustProduce(keyed(none, codec, dense(small-1))) // all but one key again
				g.put(0, "end=1")
				g.mustCompact(CompactOptions{Force: true})
				shown := g.shows()
				if len(shown) != small+1 || !strings.HasPrefix(shown[0], "44:") {
					t.Errorf("%d records after compaction", len(shown))
				}
			})
		})
	}
}

// TestC13BothErrors: a record is refused for its first fault, a batch with a wrong
// timestamp anywhere for that, whatever else is wrong, and every record with a fault
// is named (checked on Apache Kafka 4.3.1).
func TestC13BothErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := compacted(t)
		g := w.gateway(memory.Faults{})
		now := time.Now().UnixMilli()
		far := now + 2*3_600_000
		for _, x := range []struct {
			name    string
			times   []int64
			nilKeys []int
			err     error
			records []RecordError
		}{
			{"keyless, and another's time", []int64{now, far, now}, []int{0}, kerr.InvalidTimestamp, []RecordError{{0, "Compacted topic cannot"}, {1, "Timestamp "}}},
			{"time, and another keyless", []int64{far, now, now}, []int{2}, kerr.InvalidTimestamp, []RecordError{{0, "Timestamp "}, {2, "Compacted topic cannot"}}},
			{"both of one record", []int64{far, now}, []int{0}, kerr.InvalidRecord, []RecordError{{0, "Compacted topic cannot"}}},
		} {
			a := g.produce(AppendRequest{Records: batchSpec{times: x.times, nilKeys: x.nilKeys}.bytes()})
			ok := errors.Is(a.Err, x.err) && len(a.Records) == len(x.records)
			for i := range x.records {
				ok = ok && a.Records[i].Index == x.records[i].Index && strings.HasPrefix(a.Records[i].Message, x.records[i].Message)
			}
			if !ok {
				t.Errorf("%s: %v, %v", x.name, a.Err, a.Records)
			}
		}
		if end, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); err != nil || end.Offset != types.Offset(0) {
			t.Errorf("the log ends at %d, %v", end.Offset, err)
		}
	})
}
