package serde

import (
	"bufio"
	"fmt"
	"io"
	"math"
)

// Scan goes over the records of one batch as they come out of a reader, so that
// what a batch decompresses to is never in memory as a whole. It checks what Records
// checks and keeps next to nothing (Kafka's PartialDefaultRecord):
//
//	s := serde.NewScan(r, batch.Count())
//	for s.Next() { use(s.OffsetDelta) }
//	if err := s.Err(); err != nil { … }
type Scan struct {
	TimestampDelta int64
	OffsetDelta    int32
	NullKey        bool

	r    *bufio.Reader
	left int32 // records
	n    int   // bytes of the present record that are left
	err  error
}

// NewScan goes over count records in r, which is not compressed (any more).
func NewScan(r io.Reader, count int32) *Scan {
	return &Scan{r: bufio.NewReaderSize(r, 16<<10), left: count}
}

// Next reads the next record. It returns false at the end and on the first record
// that is malformed, or that cannot be read; Err tells which.
func (s *Scan) Next() bool {
	if s.err != nil {
		return false
	}
	if s.left <= 0 {
		switch _, err := s.r.ReadByte(); {
		case err == nil:
			s.err = fmt.Errorf("%w: bytes after the last record", ErrMalformed)
		case err != io.EOF: //nolint:errorlint // a wrapped EOF is a stream that was cut
			s.err = err
		}
		return false
	}
	s.left--
	s.next()
	return s.err == nil
}

// Err is nil when all records were read and nothing followed them.
func (s *Scan) Err() error { return s.err }

func (s *Scan) next() {
	s.n = math.MaxInt
	n := s.varint()
	if s.err == nil && n < 0 {
		s.fail("record of %d bytes", n)
	}
	s.n = int(n)
	s.byte() // attributes
	s.TimestampDelta = s.varlong()
	s.OffsetDelta = s.varint()
	s.NullKey = s.skip()
	s.skip()
	count := s.varint()
	if s.err == nil && (count < 0 || int64(count)*2 > int64(s.n)) { // a header takes at least two bytes
		s.fail("%d headers", count)
	}
	for i := int32(0); i < count && s.err == nil; i++ {
		if s.skip() {
			s.fail("header key")
		}
		s.skip()
	}
	if s.err == nil && s.n > 0 {
		s.fail("%d bytes left in a record", s.n)
	}
}

func (s *Scan) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

// cut says that the bytes are at their end too early, or why they cannot be read.
func (s *Scan) cut(err error) {
	if err == io.EOF { //nolint:errorlint // see Next
		s.fail("a record is cut short")
	} else if s.err == nil {
		s.err = err
	}
}

func (s *Scan) byte() byte {
	if s.err != nil {
		return 0
	}
	if s.n <= 0 {
		s.fail("a record is cut short")
		return 0
	}
	s.n--
	b, err := s.r.ReadByte()
	if err != nil {
		s.cut(err)
	}
	return b
}

func (s *Scan) varint() int32 {
	u := s.uvarint(5)
	if s.err == nil && u > math.MaxUint32 {
		s.fail("varint")
	}
	return int32(uint32(u)>>1) ^ -int32(u&1)
}

func (s *Scan) varlong() int64 {
	u := s.uvarint(10)
	return int64(u>>1) ^ -int64(u&1)
}

func (s *Scan) uvarint(most int) (u uint64) {
	for i := range most {
		b := s.byte()
		if s.err != nil {
			return 0
		}
		if i == 9 && b > 1 {
			break
		}
		if u |= uint64(b&0x7f) << (7 * i); b < 0x80 {
			return u
		}
	}
	s.fail("varint")
	return 0
}

// skip goes over a length and as many bytes; it reports null.
func (s *Scan) skip() (null bool) {
	n := s.varint()
	switch {
	case s.err != nil || n < 0:
		return n < 0
	case int(n) > s.n:
		s.fail("%d bytes where %d are left", n, s.n)
		return false
	}
	s.n -= int(n)
	if _, err := s.r.Discard(int(n)); err != nil {
		s.cut(err)
	}
	return false
}
