package serde

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

func noHold(int) error { return nil }

func frame(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestFramesInAnyPieces(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	var stream []byte
	var want [][]byte
	for _, n := range []int{8, 9, 4091, 4092, 4096, 5000, 65536, 70000, 8, 200_000, 1 << 20, 12} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		want = append(want, b)
		stream = append(stream, frame(b)...)
	}
	for name, in := range map[string]io.Reader{
		"whole": bytes.NewReader(stream), "bytes": iotest.OneByteReader(bytes.NewReader(stream)),
		"halves": iotest.HalfReader(bytes.NewReader(stream)), "data with EOF": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		fr := NewFrameReader(in, 2<<20)
		var buf []byte
		for i, w := range want {
			n, err := fr.Length()
			if err != nil {
				t.Fatalf("%s: frame %d: %v", name, i, err)
			}
			held := 0
			got, err := fr.Body(buf[:0], n, func(n int) error { held += n; return nil })
			if err != nil || !bytes.Equal(got, w) {
				t.Fatalf("%s: frame %d of %d bytes: %v", name, i, len(w), err)
			}
			if held != n {
				t.Errorf("%s: held %d of %d bytes", name, held, n)
			}
			if i%2 == 0 {
				buf = got
			}
		}
		if _, err := fr.Length(); err != io.EOF { //nolint:errorlint // must be bare
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

// TestC05Row01FrameLengths: a length is compared with the limit before anything
// is allocated.
func TestC05Row01FrameLengths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		head []byte
		hint bool
	}{
		{[]byte{0x16, 3, 1, 0, 0x80, 1}, true}, {[]byte("GET / HTTP/1.1\r\n"), true}, {[]byte{0, 0, 0, 0}, false},
		{[]byte{0xff, 0xff, 0xff, 0xff}, false}, {[]byte{0, 0, 0, 1}, false}, {[]byte{0, 0, 0, 7}, false},
		{[]byte{0x06, 0x40, 0, 1}, false}, {[]byte{0x7f, 0xff, 0xff, 0xff}, false}, {[]byte{0x80, 0, 0, 0}, false},
	} {
		_, err := NewFrameReader(bytes.NewReader(c.head), 16<<20).Length()
		var le *LengthError
		if !errors.As(err, &le) || (le.Hint() != "") != c.hint {
			t.Errorf("% x: %v", c.head, err)
		}
	}
}

func TestFrameCutAndSilent(t *testing.T) {
	t.Parallel()
	whole := frame(make([]byte, 300))
	for i := range whole {
		fr := NewFrameReader(bytes.NewReader(whole[:i]), 1<<20)
		n, err := fr.Length()
		if err == nil {
			_, err = fr.Body(nil, n, noHold)
		}
		if want := map[bool]error{true: io.EOF, false: io.ErrUnexpectedEOF}[i == 0]; !errors.Is(err, want) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	// Much announced, little sent: little memory.
	fr := NewFrameReader(bytes.NewReader(append([]byte{0, 0xff, 0, 0}, make([]byte, 100)...)), 16<<20)
	n, err := fr.Length()
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	b, err := fr.Body(nil, n, func(n int) error { held += n; return nil })
	if err == nil || cap(b) > FrameStep || held > FrameStep {
		t.Errorf("%v: %d bytes of buffer, %d held", err, cap(b), held)
	}
	refused := errors.New("no")
	if _, err := NewFrameReader(bytes.NewReader(whole[4:]), 1<<20).Body(nil, 300, func(int) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("hold's error is lost: %v", err)
	}
}

func TestRequestHeader(t *testing.T) {
	t.Parallel()
	head := []byte{0, 18, 0, 3, 0, 0, 0, 7}
	for _, c := range []struct {
		name     string
		rest     []byte
		flexible bool
		id       string
		null     bool
		body     int // -1: error
	}{
		{"null", []byte{0xff, 0xff, 1, 2}, false, "", true, 2},
		{"empty", []byte{0, 0, 1, 2}, false, "", false, 2},
		{"x", []byte{0, 1, 'x', 9}, false, "x", false, 1},
		{"null, no tags", []byte{0xff, 0xff, 0, 1}, true, "", true, 1},
		{"two tags", []byte{0, 1, 'x', 2, 0, 1, 0xaa, 0x80, 1, 2, 0xbb, 0xbb, 5}, true, "x", false, 1},
		{"length -2", []byte{0xff, 0xfe, 0, 0}, false, "", false, -1},
		{"too long", []byte{0, 9, 'x'}, false, "", false, -1},
		{"nothing", nil, false, "", false, -1},
		{"tag section missing", []byte{0, 1, 'x'}, true, "", false, -1},
		{"2^32-1 tags", []byte{0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, true, "", false, -1},
		{"tag count of six bytes", []byte{0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0}, true, "", false, -1},
		{"tag longer than the rest", []byte{0, 0, 1, 0, 200, 1, 1}, true, "", false, -1},
	} {
		h, rest, err := ParseRequestHeader(append(bytes.Clone(head), c.rest...))
		if err != nil || h != (RequestHeader{18, 3, 7}) {
			t.Fatalf("%s: %+v %v", c.name, h, err)
		}
		id, body, err := ParseClientID(rest, c.flexible)
		if (err != nil) != (c.body < 0) {
			t.Errorf("%s: %v", c.name, err)
		} else if err == nil && (string(id) != c.id || (id == nil) != c.null || len(body) != c.body) {
			t.Errorf("%s: id %q, %d bytes of body", c.name, id, len(body))
		}
	}
	if _, _, err := ParseRequestHeader(head[:7]); err == nil {
		t.Error("7 bytes make no header")
	}
	tags := func(n int) []byte { return append([]byte{0, 0, byte(n)}, bytes.Repeat([]byte{1, 0}, n)...) }
	if _, _, err := ParseClientID(tags(MaxHeaderTags), true); err != nil {
		t.Errorf("%d tags: %v", MaxHeaderTags, err)
	}
	if _, _, err := ParseClientID(tags(MaxHeaderTags+1), true); err == nil {
		t.Error("one tag too many was taken")
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(frame([]byte{0, 18, 0, 3, 0, 0, 0, 7, 0, 1, 'x', 0, 0}))
	f.Add(append(frame(make([]byte, 8)), frame(make([]byte, 100))...))
	f.Add([]byte{0x16, 3, 1, 0, 0x80, 1})
	f.Add([]byte{0, 0, 0, 12, 0, 18, 0, 3, 0, 0, 0, 7, 0, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, p []byte) {
		fr := NewFrameReader(iotest.HalfReader(bytes.NewReader(p)), 1<<20)
		for {
			n, err := fr.Length()
			if err != nil {
				return
			}
			b, err := fr.Body(nil, n, noHold)
			if cap(b) > 2*len(p)+FrameStep {
				t.Fatalf("%d bytes of buffer for %d of input", cap(b), len(p))
			}
			if err != nil {
				return
			}
			_, rest, err := ParseRequestHeader(b)
			if err != nil {
				t.Fatal(err) // a frame is at least a header
			}
			for _, flexible := range []bool{false, true} {
				if id, body, err := ParseClientID(rest, flexible); err == nil && len(id)+len(body) > len(rest) {
					t.Fatal("more bytes than there were")
				}
			}
		}
	})
}
