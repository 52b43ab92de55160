package compact

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// FuzzFilter: whatever the bytes, there is an error, or batches that can be read,
// that hold no offset that was not there and cover what was covered.
func FuzzFilter(f *testing.F) {
	for _, codec := range []compress.Codec{0, 1, 2, 3, 4} {
		f.Add(data{base: 5, records: []string{"a=1", "b", "=x", "a=2", "c"}, time: 1000, codec: codec}.bytes(f), int64(7), int64(2000), uint16(1), true, uint16(0))
		f.Add(data{base: 5, records: []string{"a=1", "b", "=x", "a=2"}, pid: 3, attrs: transactional, codec: codec}.bytes(f), int64(100), int64(2000), uint16(3), false, uint16(9))
	}
	f.Add(marker(9, 10, 3, true), int64(9), int64(20), uint16(0), true, uint16(1))
	f.Add(marker(9, 10, 3, false), int64(9), int64(20), uint16(4), true, uint16(1))
	f.Add([]byte(serde.Batch(marker(9, 10, 3, false)).Emptied()), int64(9), int64(20), uint16(4), true, uint16(1))
	f.Fuzz(func(t *testing.T, p []byte, upto, now int64, how uint16, right bool, maxBatch uint16) {
		if right && len(p) >= serde.BatchHeaderSize { // length, magic and checksum are set right, to get further
			p = bytes.Clone(p)
			binary.BigEndian.PutUint32(p[8:], uint32(len(p)-12))
			p[16] = 2
			binary.BigEndian.PutUint32(p[17:], crc32.Checksum(p[21:], crc32.MakeTable(crc32.Castagnoli)))
		}
		e := Env{Now: now, DeleteRetention: int64(how), Upto: types.Offset(upto), MaxBatch: int(maxBatch), Budget: 1 << 16}
		if how&1 != 0 {
			e.Aborted = func(int64, types.Offset) bool { return true }
		}
		if how&2 != 0 {
			e.LastOf = func(int64, int16) (types.Offset, bool) { return types.Offset(binary.BigEndian.Uint64(p)), true }
		}
		k := NewKeys(1 << 10)
		if _, err := Index(k, &e, p); err != nil && !errors.Is(err, ErrUnreadable) {
			t.Fatal(err)
		}
		if how&4 != 0 {
			k.Add([]byte("a"), 1<<60)
		}
		out, s, horizon, err := Filter(k, &e, p)
		if err != nil {
			if !errors.Is(err, ErrUnreadable) || out != nil {
				t.Fatal(err, out)
			}
			return
		}
		if out == nil {
			if s.Out != 0 || horizon != 0 {
				t.Fatalf("%+v, %d", s, horizon)
			}
			return
		}
		old := serde.Batch(p)
		if s.In != int64(old.Count()) || s.BytesOut != int64(len(out)) || s.Out > s.In || s.In-s.Out != s.Superseded+s.Tombstones+s.Aborted+s.Keyless+s.Markers {
			t.Fatalf("%+v", s)
		}
		if bytes.Equal(out, p) {
			if s.Out != s.In || &out[0] != &p[0] {
				t.Fatalf("%+v", s)
			}
			return
		}
		before := map[int64]one{}
		if s.Out > 0 { // nobody reads what is aborted
			for _, r := range records(t, p) {
				before[r.offset] = r
			}
		}
		next, n := old.BaseOffset(), int64(0)
		for _, b := range batches(t, out) {
			if b.BaseOffset() != next || b.ProducerID() != old.ProducerID() || b.ProducerEpoch() != old.ProducerEpoch() || b.Control() != old.Control() || b.Transactional() != old.Transactional() || b.LeaderEpoch() != old.LeaderEpoch() {
				t.Fatalf("% x became % x", p, out)
			}
			for _, r := range records(t, b) {
				if r != before[r.offset] || r.offset < next || r.offset > b.LastOffset() {
					t.Fatalf("%+v, was %+v", r, before[r.offset])
				}
				next = r.offset + 1
				n++
			}
			next = b.LastOffset() + 1
		}
		if next != old.LastOffset()+1 || n != s.Out {
			t.Fatalf("ends at %d of %d, %d records, %+v", next-1, old.LastOffset(), n, s)
		}
		// Once more: the same.
		for _, b := range batches(t, out) {
			e.Restart()
			again, _, _, err := Filter(k, &e, b)
			if err != nil {
				t.Fatal(err)
			}
			if e.DeleteRetention > 0 && e.LastOf == nil && b.Count() > 0 && !bytes.Equal(again, b) {
				t.Fatalf("% x became % x", b, again)
			}
		}
	})
}
