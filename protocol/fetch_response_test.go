package protocol

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestFetchEncodingEqualsKmsg: the encoder that copies no records writes what
// kmsg writes, in every version.
func TestFetchEncodingEqualsKmsg(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		for v := fetchAPI.min; v <= fetchAPI.max; v++ {
			f := newFiller(seed*100 + uint64(v))
			want := kmsg.NewPtrFetchResponse()
			f.fill(want)
			want.Version = v
			want.Brokers = nil // tags that are never sent
			got := &fetchResponse{h: &handler{}}
			for i := range want.Topics {
				for j := range want.Topics[i].Partitions {
					p := &want.Topics[i].Partitions[j]
					fresh := kmsg.NewFetchResponseTopicPartition()
					p.DivergingEpoch, p.CurrentLeader, p.SnapshotID = fresh.DivergingEpoch, fresh.CurrentLeader, fresh.SnapshotID
					switch f.IntN(4) {
					case 0:
						p.AbortedTransactions = nil
					case 1:
						p.AbortedTransactions = p.AbortedTransactions[:0]
					}
					p.RecordBatches = []byte{}
					var pieces [][]byte
					for range f.IntN(4) {
						piece := bytes.Repeat([]byte{byte(f.Uint32())}, f.IntN(2*smallRecords))
						pieces = append(pieces, piece)
						p.RecordBatches = append(p.RecordBatches, piece...)
					}
					got.records = append(got.records, pieces)
				}
			}
			got.FetchResponse = *want

			head := []byte("answers before it....")
			start := len(head)
			pieces, buf := got.encode(append(bytes.Clone(head), 0, 0, 0, 0, 9, 9, 9, 9), start)
			all := bytes.Join(pieces, nil)
			body := want.AppendTo(nil)
			if !bytes.Equal(all[:start], head) || !bytes.Equal(all[start+8:], body) {
				t.Fatalf("seed %d v%d differ:\n% x\n% x", seed, v, all[start+8:], body)
			}
			if n := binary.BigEndian.Uint32(all[start:]); int(n) != 4+len(body) {
				t.Fatalf("seed %d v%d: frame length %d, want %d", seed, v, n, 4+len(body))
			}
			if !bytes.Equal(buf[:start], head) {
				t.Fatal("the buffer is not the one given")
			}
		}
	}
}
