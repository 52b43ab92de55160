package compress

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// payload is half random, half text, so that no codec finds it trivial.
func payload(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		if i/64%2 == 0 {
			b[i] = byte(r.Uint32())
		} else {
			b[i] = byte('a' + i%7)
		}
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, c := range codecs {
		for _, n := range []int{0, 1, 100, 40_000, 200_000, 3 << 20} {
			p := payload(n)
			z, err := Encode([]byte("before"), c, p)
			if err != nil || !bytes.HasPrefix(z, []byte("before")) {
				t.Fatalf("%s %d: encode: %v", c, n, err)
			}
			got, err := Decode([]byte("x"), c, z[6:], n)
			if err != nil || !bytes.Equal(got[1:], p) || got[0] != 'x' {
				t.Fatalf("%s %d: decode: %v, %d bytes", c, n, err, len(got))
			}
		}
	}
}

// TestVirtualTime: what one bubble of virtual time has made is used in no other, and
// not outside: that would end the process.
func TestVirtualTime(t *testing.T) {
	p := payload(10_000)
	use := func(t *testing.T) {
		for _, c := range codecs {
			z, err := Encode(nil, c, p)
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			if got, err := Decode(nil, c, z, len(p)); err != nil || !bytes.Equal(got, p) {
				t.Fatalf("%s: %v", c, err)
			}
		}
	}
	for range 10 {
		use(t)
		synctest.Test(t, use)
	}
}

func TestC15SnappyForms(t *testing.T) {
	t.Parallel()
	p := payload(100_000)
	framed, err := Encode(nil, Snappy, p)
	if err != nil {
		t.Fatal(err)
	}
	if want := append([]byte("\x82SNAPPY\x00"), 0, 0, 0, 1, 0, 0, 0, 1); !bytes.HasPrefix(framed, want) {
		t.Errorf("header % x, want % x as Java writes it", framed[:16], want)
	}
	for name, src := range map[string][]byte{"framed": framed, "raw": snappy.Encode(nil, p)} {
		if got, err := Decode(nil, Snappy, src, 0); err != nil || !bytes.Equal(got, p) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGzipMembers: several members one after the other are one stream, as for
// Java's GZIPInputStream.
func TestGzipMembers(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, s := range []string{"one ", "two"} {
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(s))
		_ = w.Close()
	}
	if got, err := Decode(nil, Gzip, b.Bytes(), 100); err != nil || string(got) != "one two" {
		t.Errorf("%q, %v", got, err)
	}
}

func bombs(t testing.TB, n int) map[string]struct {
	c   Codec
	src []byte
} {
	t.Helper()
	zeros := make([]byte, 1<<20)
	type bomb = struct {
		c   Codec
		src []byte
	}
	out := map[string]bomb{}
	var g, l, z bytes.Buffer
	gw, lw := gzip.NewWriter(&g), lz4.NewWriter(&l)
	zw, err := zstd.NewWriter(&z, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		_, _ = gw.Write(zeros)
		_, _ = lw.Write(zeros)
		_, _ = zw.Write(zeros)
	}
	_, _, _ = gw.Close(), lw.Close(), zw.Close()
	out["gzip"], out["lz4"], out["zstd"] = bomb{Gzip, g.Bytes()}, bomb{LZ4, l.Bytes()}, bomb{Zstd, z.Bytes()}
	out["snappy raw"] = bomb{Snappy, snappy.Encode(nil, make([]byte, n<<20))}
	framed := append([]byte("\x82SNAPPY\x00"), 0, 0, 0, 1, 0, 0, 0, 1)
	block := snappy.Encode(nil, zeros)
	for range n {
		framed = binary.BigEndian.AppendUint32(framed, uint32(len(block)))
		framed = append(framed, block...)
	}
	out["snappy framed"] = bomb{Snappy, framed}
	// A few bytes that announce 4 GiB less one.
	out["snappy announces"] = bomb{Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1, 2}}
	// A frame header with a window of 2 GiB and no content size.
	out["zstd window"] = bomb{Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00}}
	return out
}

// TestRow16Bombs: snappy cannot shrink further than 1:21, so
// its whole bombs are caught by the caller's limit, not by the ratio.
func TestRow16Bombs(t *testing.T) {
	for name, b := range bombs(t, 24) {
		limit := 1 << 20
		if len(b.src)*ratio > 32<<20 {
			t.Logf("%s: %d bytes are no bomb", name, len(b.src))
			continue
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		out, err := Decode(nil, b.c, b.src, limit)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrLimit) && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %d bytes in, %d out, %v", name, len(b.src), len(out), err)
		}
		// The buffer doubles: less than four times the limit in all, and the
		// codec's own tables.
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(4*max(limit, ratio*len(b.src)))+24<<20 {
			t.Errorf("%s: %d bytes allocated for a limit of %d", name, used, limit)
		}
	}
}

func TestLimitIsExact(t *testing.T) {
	t.Parallel()
	p := make([]byte, 1<<20)
	for _, c := range codecs[1:] {
		z, err := Encode(nil, c, p)
		if err != nil {
			t.Fatal(err)
		}
		if len(z)*ratio >= len(p) {
			t.Fatalf("%s: %d bytes are too many for this test", c, len(z))
		}
		if _, err := Decode(nil, c, z, len(p)); err != nil {
			t.Errorf("%s at the limit: %v", c, err)
		}
		if _, err := Decode(nil, c, z, len(p)-1); !errors.Is(err, ErrLimit) {
			t.Errorf("%s one above the limit: %v", c, err)
		}
	}
}

func TestCutAndUnknown(t *testing.T) {
	t.Parallel()
	p := payload(700)
	for _, c := range codecs[1:] {
		z, _ := Encode(nil, c, p)
		for i := range z {
			if got, err := Decode(nil, c, z[:i], 1<<20); err == nil && bytes.Equal(got, p) && c != LZ4 {
				t.Fatalf("%s: whole result from %d of %d bytes", c, i, len(z))
			}
		}
	}
	for _, c := range []Codec{5, 6, 7, -1} {
		if _, err := Decode(nil, c, p, 1<<20); !errors.Is(err, ErrCodec) {
			t.Errorf("decode %s: %v", c, err)
		}
		if _, err := Encode(nil, c, p); !errors.Is(err, ErrCodec) {
			t.Errorf("encode %s: %v", c, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range codecs {
		z, err := Encode(nil, c, payload(300))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(int8(c), z)
		f.Add(int8(c), z[:len(z)/2])
	}
	f.Add(int8(Snappy), snappy.Encode(nil, payload(300)))
	f.Add(int8(Snappy), []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1, 2})
	f.Add(int8(Zstd), []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00})
	f.Fuzz(func(t *testing.T, c int8, src []byte) {
		const limit = 1 << 16
		out, err := Decode(nil, Codec(c), src, limit)
		if err != nil {
			return
		}
		if len(out) > max(limit, ratio*len(src)) {
			t.Fatalf("%d bytes from %d", len(out), len(src))
		}
		z, err := Encode(nil, Codec(c), out)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(nil, Codec(c), z, len(out))
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("round trip: %v", err)
		}
	})
}

// TestLevels: every level of Kafka's configs gives what can be read, a higher one
// is not larger.
func TestLevels(t *testing.T) {
	t.Parallel()
	text := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog; "), 50)
	for i := range text {
		text[i] += byte(i / 700)
	}
	p := append(text, payload(20_000)...)
	for c, all := range map[Codec][]int{
		Gzip: {-1, 1, 5, 9}, LZ4: {1, 3, 9, 17}, Zstd: {-131072, -1, 0, 1, 3, 7, 22}, Snappy: {0}, None: {0},
	} {
		sizes := map[int]int{}
		for _, level := range all {
			z, err := EncodeLevel([]byte("x"), c, p, level)
			if err != nil {
				t.Fatalf("%s level %d: %v", c, level, err)
			}
			if got, err := Decode(nil, c, z[1:], len(p)); err != nil || !bytes.Equal(got, p) {
				t.Errorf("%s level %d: %v", c, level, err)
			}
			sizes[level] = len(z)
		}
		if low, high := sizes[all[min(1, len(all)-1)]], sizes[all[len(all)-1]]; high > low {
			t.Errorf("%s: sizes by level %v", c, sizes)
		}
	}
	if _, err := EncodeLevel(nil, 5, p, 1); !errors.Is(err, ErrCodec) {
		t.Errorf("codec 5: %v", err)
	}
}
