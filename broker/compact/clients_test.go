package compact

import (
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/serde"
)

// TestFranzReads: franz-go reads compacted batches, empty ones and markers
// included, as what they hold, and goes on behind the last one.
func TestFranzReads(t *testing.T) {
	t.Parallel()
	empty := 0
	for seed := range uint64(50) {
		h := newHistory(t, rand.New(rand.NewPCG(seed, 9)))
		c := &compacted{h: h}
		for range 3 {
			c.write(20)
			c.run(h.stable(), &Env{Now: h.now, DeleteRetention: 1 << 40, Budget: 1 << 20, Aborted: h.aborted, LastOf: h.lastOf}, NewKeys(1<<16))
		}
		var p []byte
		for _, b := range c.log[:len(c.log)-1] {
			if p = append(p, b...); serde.Batch(b).Count() == 0 {
				empty++
			}
		}
		last := serde.Batch(c.log[len(c.log)-1])
		p = append(p, last...)
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.RecordBatches = p
		got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{KeepControlRecords: true, Topic: "t"}, &rp, kgo.DefaultDecompressor(), nil)
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		if next != last.LastOffset()+1 {
			t.Errorf("goes on at %d, want %d", next, last.LastOffset()+1)
		}
		want := records(t, p)
		if len(got.Records) != len(want) {
			t.Fatalf("%d records, want %d", len(got.Records), len(want))
		}
		for i, r := range got.Records {
			if w := want[i]; r.Offset != w.offset || r.Timestamp.UnixMilli() != w.time || text(r.Key) != w.key || text(r.Value) != w.value {
				t.Errorf("%+v, want %+v", r, w)
			}
		}
	}
	if empty == 0 {
		t.Error("no batch without records was read")
	}
}
