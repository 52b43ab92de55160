package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// NewReader decompresses src while it is read: unlike Decode it needs no memory for
// the whole, only a codec's window or one block of snappy (ErrLimit if that is more
// than a megabyte and eight times its size). More than limit bytes end it with
// ErrLimit. Close gives back what it holds; src must not change before. Errors of
// Read, beside io.EOF: ErrLimit, ErrCorrupt, ErrCodec.
func NewReader(c Codec, src []byte, limit int) io.ReadCloser {
	r := &reader{codec: c, left: limit}
	switch c {
	case None:
		r.r = bytes.NewReader(src)
	case Gzip:
		z := gzipReaders.Get().(*gzip.Reader)
		r.r, r.back = z, func() { gzipReaders.Put(z) }
		r.err = z.Reset(bytes.NewReader(src))
	case Snappy:
		r.r = &blocks{src: src, limit: limit}
		if bytes.HasPrefix(src, xerialMagic) && len(src) >= xerialHeader {
			r.r = &blocks{src: src[xerialHeader:], limit: limit, framed: true}
		}
	case LZ4:
		z := lz4Readers.Get().(*lz4.Reader)
		z.Reset(bytes.NewReader(src))
		r.r, r.back = z, func() { lz4Readers.Put(z) }
	case Zstd:
		z := zstdReaders.Get().(*zstd.Decoder)
		r.r, r.back = z, func() { keep(&zstdReaders, z) }
		r.err = z.Reset(bytes.NewReader(src))
	default:
		r.err = fmt.Errorf("%w: %d", ErrCodec, c)
	}
	return r
}

type reader struct {
	codec Codec
	r     io.Reader
	left  int
	err   error
	back  func()
}

func (r *reader) Read(p []byte) (n int, err error) {
	if r.err == nil {
		n, r.err = r.r.Read(p)
		if r.left -= n; r.left < 0 {
			r.err = fmt.Errorf("%w: %s", ErrLimit, r.codec)
		}
	}
	switch {
	case r.err == nil || r.err == io.EOF: //nolint:errorlint // a wrapped EOF is a stream that was cut
	case errors.Is(r.err, ErrLimit), errors.Is(r.err, ErrCorrupt), errors.Is(r.err, ErrCodec):
	case errors.Is(r.err, zstd.ErrWindowSizeExceeded):
		r.err = fmt.Errorf("%w: zstd window above %d bytes", ErrLimit, window)
	default:
		r.err = fmt.Errorf("%w: %s: %w", ErrCorrupt, r.codec, r.err)
	}
	return n, r.err
}

func (r *reader) Close() error {
	if r.back != nil {
		r.back()
		r.back = nil
	}
	r.err = errClosed
	return nil
}

var errClosed = fmt.Errorf("%w: the reader is closed", ErrCorrupt)

// largestBlock is what a block of snappy may decompress to, which is in memory as a
// whole; eight times its size is always allowed. Java's have 32 KiB.
const largestBlock = 1 << 20

// blocks reads snappy, in Java's frames or bare, a block at a time.
type blocks struct {
	src    []byte
	limit  int
	framed bool
	buf    []byte
	out    []byte // of buf, not read yet
}

func (b *blocks) Read(p []byte) (int, error) {
	for len(b.out) == 0 {
		if len(b.src) == 0 {
			return 0, io.EOF
		}
		block := b.src
		if b.framed {
			if len(block) < 4 {
				return 0, fmt.Errorf("%w: snappy: frame ends in a block length", ErrCorrupt)
			}
			n := int64(int32(binary.BigEndian.Uint32(block)))
			if block = block[4:]; n < 0 || n > int64(len(block)) {
				return 0, fmt.Errorf("%w: snappy: block of %d bytes, %d there", ErrCorrupt, n, len(block))
			}
			block = block[:n]
		}
		b.src = b.src[len(block):]
		if b.framed {
			b.src = b.src[4:]
		}
		var err error
		if b.buf, err = decodeBlock(b.buf[:0], block, min(b.limit, max(largestBlock, ratio*len(block)))); err != nil {
			return 0, err
		}
		b.out = b.buf
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	return n, nil
}
