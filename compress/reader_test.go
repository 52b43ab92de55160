package compress

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// TestReaderAgreesWithDecode: what is read is what Decode gives, of every codec; at
// the limit it ends, and what is cut or changed is an error where it is one there.
func TestReaderAgreesWithDecode(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	p := bytes.Repeat([]byte("some text, some text, some more. "), 500)
	for i := range 300 {
		p[r.IntN(len(p))] = byte(i)
	}
	read := func(c Codec, z []byte, limit int) ([]byte, error) {
		rd := NewReader(c, z, limit)
		out, err := io.ReadAll(rd)
		if cerr := rd.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		if _, err := rd.Read(make([]byte, 1)); err == nil {
			t.Error("a closed reader reads")
		}
		return out, err
	}
	for _, c := range []Codec{None, Gzip, Snappy, LZ4, Zstd} {
		z, err := Encode(nil, c, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := iotest.TestReader(NewReader(c, z, len(p)), p); err != nil {
			t.Errorf("%s: %v", c, err)
		}
		if out, err := read(c, z, len(p)); err != nil || !bytes.Equal(out, p) {
			t.Errorf("%s: %d bytes, %v", c, len(out), err)
		}
		if out, err := read(c, z, len(p)-1); !errors.Is(err, ErrLimit) || len(out) > len(p) {
			t.Errorf("%s, a byte too many: %d bytes, %v", c, len(out), err)
		}
		if c == None {
			continue
		}
		for range 100 {
			bad := bytes.Clone(z)
			if bad[r.IntN(len(bad))] ^= 1 << r.IntN(8); r.IntN(2) == 0 {
				bad = bad[:r.IntN(len(bad))]
			}
			want, derr := Decode(nil, c, bad, len(p))
			out, err := read(c, bad, max(len(p), ratio*len(bad)))
			if (err == nil) != (derr == nil) || err == nil && !bytes.Equal(out, want) {
				t.Fatalf("%s: %d bytes, %v; Decode: %d, %v", c, len(out), err, len(want), derr)
			}
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrLimit) {
				t.Fatalf("%s: %v", c, err)
			}
		}
	}
	if _, err := read(5, p, 1<<20); !errors.Is(err, ErrCodec) {
		t.Error(err)
	}
}
