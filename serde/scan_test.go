package serde

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// TestScanAgreesWithRecords: a scan sees of records what Records sees, whole, cut at
// any byte and with any byte changed, and refuses what it refuses.
func TestScanAgreesWithRecords(t *testing.T) {
	t.Parallel()
	agree := func(p []byte, n int32) {
		t.Helper()
		it, s := NewRecords(p, n), NewScan(iotest.HalfReader(bytes.NewReader(p)), n)
		for i := 0; ; i++ {
			a, b := it.Next(), s.Next()
			if a != b {
				t.Fatalf("record %d of %x: %v (%v), scanned %v (%v)", i, p, a, it.Err(), b, s.Err())
			}
			if !a {
				break
			}
			if r := it.Record; r.TimestampDelta != s.TimestampDelta || r.OffsetDelta != s.OffsetDelta || (r.Key == nil) != s.NullKey {
				t.Fatalf("record %d: %+v, scanned %+v", i, r, s)
			}
		}
		if (it.Err() == nil) != (s.Err() == nil) || s.Err() != nil && !errors.Is(s.Err(), ErrMalformed) {
			t.Fatalf("%x: %v, scanned %v", p, it.Err(), s.Err())
		}
	}
	const n = 12
	p := records(n)
	agree(p, n)
	agree(append(bytes.Clone(p), 0), n)
	for i := range p {
		agree(p[:i], n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		b := bytes.Clone(p)
		for range 1 + r.IntN(3) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		agree(b, n)
	}
}

// TestScanKeepsTheReadersError: what a reader says of its bytes is not taken for
// their end.
func TestScanKeepsTheReadersError(t *testing.T) {
	t.Parallel()
	p, bad := records(5), errors.New("bad block")
	for i := range len(p) + 1 {
		s := NewScan(io.MultiReader(bytes.NewReader(p[:i]), iotest.ErrReader(bad)), 5)
		for s.Next() {
		}
		if !errors.Is(s.Err(), bad) {
			t.Fatalf("cut at %d: %v", i, s.Err())
		}
	}
}
