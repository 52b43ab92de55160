package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/hanzoai/stream/serde"
)

// A decoded request takes 8 to 40 times its bytes, and the decoder makes room
// for an array before it reads it. So a request's arrays and tagged fields are
// counted first, by a walk over its shape that allocates nothing. It is a second
// reading of every schema, and shape_test.go compares it with kmsg's.

// shapes hold each request's layout, one letter a field: b 1 byte, h 2, i 4,
// l 8, u 16 (a UUID), s string, y bytes, (x) an array of a plain x, […] an array
// of structs, {…} a struct that may be null. "3+" and "0-12" after a field are the versions that have it, all
// without. Every struct, the request itself included, ends with a tag section
// in flexible versions. Fields that exist only as tags are left out.
var shapes = parseShapes(map[int16]string{
	0:  "s3+ h i [s0-12 u13+ [i y]]",
	1:  "i0-14 i i i3+ b4+ i7+ i7+ [s0-12 u13+ [i i9+ l i12+ l5+ i]] [s7-12 u13+ (i)]7+ s11+",
	2:  "i b2+ [s [i i4+ l i0-0]] i10+",
	3:  "[u10+ s] b4+ b8-10 b8+",
	8:  "s i1+ s1+ s7+ l2-4 [s0-9 u10+ [i l l1-1 i6+ s]]",
	9:  "s0-7 [s (i)]0-7 [s s9+ i9+ [s8-9 u10+ (i)]]8+ b7+",
	10: "s0-3 b1+ (s)4+",
	11: "s i i1+ s s5+ s [s y] s8+",
	12: "s i s s3+",
	13: "s s0-2 [s s s5+]3+",
	14: "s i s s3+ s5+ s5+ [s y]",
	15: "(s) b3+",
	16: "(s)4+ (s)5+",
	18: "s3+ s3+",
	19: "[s i h [i (i)] [s s]] i b1+",
	20: "(s)0-5 [s u]6+ i",
	21: "[s [i l]] i",
	22: "s i l3+ h3+",
	23: "i3+ [s [i i i]]",
	24: "[s l h b [s (i)]]4+ s0-3 l0-3 h0-3 [s (i)]0-3",
	25: "s l h s",
	26: "s l h b",
	27: "[l h b [s (i)] i b2+]",
	28: "s s l h i3+ s3+ s3+ [s [i l i2+ s]]",
	32: "[b s (s)] b1+ b3+",
	33: "[b s [s s]] b",
	35: "[s (i)]",
	37: "[s i [(i)]] i b",
	42: "(s)",
	43: "b1+ [s (i)] i",
	44: "[b s [s b s]] b",
	45: "i b1+ [s [i (i)]]",
	46: "i [s (i)]",
	47: "s [s [i]]",
	60: "b b1+ b2+",
	61: "[s (i)]",
	65: "(s)",
	66: "(s) (l) l1+ s2+",
	74: "(b)1+",
	75: "[s] i {s i}",
})

// field is one field of a shape. For an array, of holds the element's fields
// and plain tells that the element is no struct; for a struct, of holds its own.
type field struct {
	kind     byte
	min, max int16
	plain    bool
	of       []field
}

// errElements: more elements than one request may have.
var errElements = errors.New("more array elements than allowed")

// measure walks over a body and returns how many bytes follow it, and how many
// array elements and tagged fields it has: at most limit are allowed.
func measure(shape []field, version int16, flexible bool, body []byte, limit int) (trailing, elements int, err error) {
	w := walker{p: body, version: version, flexible: flexible, left: limit}
	if err := w.fields(shape, true); err != nil {
		return 0, 0, err
	}
	return len(w.p), limit - w.left, nil
}

type walker struct {
	p        []byte
	version  int16
	flexible bool
	left     int // elements still allowed
}

func (w *walker) fields(fs []field, tags bool) error {
	for i := range fs {
		f := &fs[i]
		if w.version < f.min || w.version > f.max {
			continue
		}
		if err := w.field(f); err != nil {
			return err
		}
	}
	if tags && w.flexible {
		return w.tags()
	}
	return nil
}

func (w *walker) field(f *field) error {
	switch f.kind {
	case 'b':
		return w.skip(1)
	case 'h':
		return w.skip(2)
	case 'i':
		return w.skip(4)
	case 'l':
		return w.skip(8)
	case 'u':
		return w.skip(16)
	case 's':
		n, err := w.length(2)
		if err != nil {
			return err
		}
		if n > math.MaxInt16 { // a compact length could say more; Kafka's generated readers refuse it
			return fmt.Errorf("%w: string of %d bytes", serde.ErrMalformed, n)
		}
		return w.skip(max(n, 0))
	case 'y':
		n, err := w.length(4)
		if err != nil {
			return err
		}
		return w.skip(max(n, 0))
	case '{':
		if len(w.p) == 0 {
			return w.skip(1)
		}
		null := int8(w.p[0]) == -1
		w.p = w.p[1:]
		if null {
			return nil
		}
		return w.fields(f.of, true)
	}
	n, err := w.length(4)
	if err != nil {
		return err
	}
	if n > len(w.p) { // an element has at least one byte
		return fmt.Errorf("%w: array of %d in %d bytes", serde.ErrMalformed, n, len(w.p))
	}
	if w.left -= max(n, 0); w.left < 0 {
		return errElements
	}
	for range n {
		if err := w.fields(f.of, !f.plain); err != nil {
			return err
		}
	}
	return nil
}

// length reads a length: compact in flexible versions, else of size bytes. -1
// is null.
func (w *walker) length(size int) (int, error) {
	if w.flexible {
		n, rest, err := serde.Uvarint(w.p)
		w.p = rest
		return int(n) - 1, err
	}
	if len(w.p) < size {
		return 0, fmt.Errorf("%w: length cut short", serde.ErrMalformed)
	}
	n := int(int32(binary.BigEndian.Uint16(w.p)))
	if size == 4 {
		n = int(int32(binary.BigEndian.Uint32(w.p)))
	} else {
		n = int(int16(n))
	}
	w.p = w.p[size:]
	if n < -1 {
		return 0, fmt.Errorf("%w: length %d", serde.ErrMalformed, n)
	}
	return n, nil
}

func (w *walker) skip(n int) error {
	if n > len(w.p) {
		return fmt.Errorf("%w: field of %d bytes, %d there", serde.ErrMalformed, n, len(w.p))
	}
	w.p = w.p[n:]
	return nil
}

// maxBodyTags is the most tagged fields in one section of a body: known ones,
// and as many unknown ones as a header may carry.
const maxBodyTags = 2 * serde.MaxHeaderTags

// tags skips a section; kmsg keeps unknown ones in a map, so they count.
func (w *walker) tags() error {
	if len(w.p) > 0 && w.p[0] == 0 {
		w.p = w.p[1:]
		return nil
	}
	n, _, err := serde.Uvarint(w.p)
	if err != nil {
		return err
	}
	if w.left -= int(min(n, maxBodyTags)); w.left < 0 {
		return errElements
	}
	w.p, err = serde.SkipTags(w.p, maxBodyTags)
	return err
}

func parseShapes(texts map[int16]string) map[int16][]field {
	m := make(map[int16][]field, len(texts))
	for key, text := range texts {
		fs, rest := parseShape(text)
		if rest != "" {
			panic(fmt.Sprintf("protocol: shape of key %d: %q is left", key, rest))
		}
		m[key] = fs
	}
	return m
}

func parseShape(s string) (fs []field, rest string) {
	for s = strings.TrimLeft(s, " "); s != "" && strings.IndexByte("])}", s[0]) < 0; s = strings.TrimLeft(s, " ") {
		f := field{kind: s[0], max: 1<<15 - 1}
		s = s[1:]
		if f.kind == '[' || f.kind == '(' || f.kind == '{' {
			f.plain = f.kind == '('
			f.of, s = parseShape(s)
			s = s[1:] // the closing bracket
		}
		end := strings.IndexAny(s, " ])}")
		if end < 0 {
			end = len(s)
		}
		switch versions := s[:end]; {
		case versions == "":
		case strings.HasSuffix(versions, "+"):
			scan(versions, "%d+", &f.min)
		default:
			scan(versions, "%d-%d", &f.min, &f.max)
		}
		fs, s = append(fs, f), s[end:]
	}
	return fs, s
}

func scan(s, format string, into ...any) {
	if _, err := fmt.Sscanf(s, format, into...); err != nil {
		panic(fmt.Sprintf("protocol: shape: versions %q: %v", s, err))
	}
}
