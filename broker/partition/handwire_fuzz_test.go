package partition

import (
	"bytes"
	"testing"
	"time"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// FuzzHandOver: whoever may publish under the prefix can send batches for others.
// What can be read is whole batches, no more than one message may hold, and is
// encoded to what reads the same.
func FuzzHandOver(f *testing.F) {
	data := batch(3)
	b, _, err := serde.ParseBatch(data)
	if err != nil {
		f.Fatal(err)
	}
	id := types.NewTopicID()
	f.Add(encodeHandOver(handOver{kind: handTell, id: id, n: 3}))
	f.Add(encodeHandOver(handOver{kind: handBatches, id: id, n: 1<<31 - 1, members: []handedBatch{
		{batch: b, acksAll: true, after: -1}, {batch: b, logAppendTime: true, after: 7, txn: 3, fromZero: true}}}))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := decodeHandOver(in)
		if err != nil {
			return
		}
		if len(h.members) > maxBatches || h.n < 0 || (h.kind == handBatches) != (len(h.members) > 0) && h.kind != handTell {
			t.Fatalf("kind %d, partition %d, %d batches", h.kind, h.n, len(h.members))
		}
		again := encodeHandOver(h)
		o, err := decodeHandOver(again)
		if err != nil || !bytes.Equal(encodeHandOver(o), again) || len(o.members) != len(h.members) {
			t.Fatalf("%+v became %+v, %v", h, o, err)
		}
		for i := range h.members {
			if !bytes.Equal(o.members[i].batch, h.members[i].batch) || len(h.members[i].batch) == 0 {
				t.Fatalf("batch %d has %d bytes, then %d", i, len(h.members[i].batch), len(o.members[i].batch))
			}
		}
	})
}

// FuzzHandAnswer: an answer has one verdict per batch, or cannot be read.
func FuzzHandAnswer(f *testing.F) {
	f.Add(encodeHandAnswer(handAnswer{end: -1}), 0)
	f.Add(encodeHandAnswer(handAnswer{quiet: time.Second, end: 9, verdicts: []handVerdict{
		{kind: handStored, base: 5, start: 1, time: -1}, {kind: handRefused, code: 45, text: "why"}, {kind: handDeclined}, {kind: handUnknown}}}), 4)
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		n = max(0, min(n, maxBatches))
		a, err := decodeHandAnswer(in, n)
		if err != nil {
			return
		}
		if len(a.verdicts) != n || a.quiet < 0 {
			t.Fatalf("%d verdicts about %d batches, quiet for %v", len(a.verdicts), n, a.quiet)
		}
		again := encodeHandAnswer(a)
		if o, err := decodeHandAnswer(again, n); err != nil || !bytes.Equal(encodeHandAnswer(o), again) {
			t.Fatalf("%+v became %+v, %v", a, o, err)
		}
		for i := range a.verdicts {
			_ = a.verdicts[i].refusal()
		}
	})
}
