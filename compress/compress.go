package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	xerial "github.com/eapache/go-xerial-snappy"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is the number in a batch's attributes (org.apache.kafka.common.record.CompressionType).
type Codec int8

// The codecs that exist.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String gives the codec's name as in compression.type.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", int8(c))
}

// Errors of Decode and Encode; anything else that is wrong with the bytes is
// ErrCorrupt too.
var (
	// ErrLimit: the output would be larger than allowed. How much larger is not
	// known, decoding stopped there.
	ErrLimit = errors.New("decompresses to more than allowed")
	// ErrCorrupt: not what the codec makes.
	ErrCorrupt = errors.New("compressed data is corrupt")
	// ErrCodec: a number that means no codec.
	ErrCodec = errors.New("unknown compression codec")
)

const (
	// ratio: whatever the caller's limit, this many times the input is allowed.
	ratio = 8
	// window is the largest zstd window: what zstd needs up to level 19 and
	// Kafka's clients ever use. A frame that announces more is refused before
	// memory is made for it.
	window = 8 << 20
)

// Decode decompresses src and appends the result to dst. The result is at most
// the larger of limit and eight times src; beyond that the error is ErrLimit.
// With None the bytes are copied under the same limit. Memory grows with the
// output made, never with a size that src announces.
func Decode(dst []byte, c Codec, src []byte, limit int) ([]byte, error) {
	limit = max(limit, ratio*len(src))
	switch c {
	case None:
		return append(dst, src...), nil // len(src) <= limit
	case Gzip:
		z := gzipReaders.Get().(*gzip.Reader)
		defer gzipReaders.Put(z)
		if err := z.Reset(bytes.NewReader(src)); err != nil {
			return dst, fmt.Errorf("%w: gzip: %w", ErrCorrupt, err)
		}
		return drain(dst, z, limit, c)
	case Snappy:
		return decodeSnappy(dst, src, limit)
	case LZ4:
		z := lz4Readers.Get().(*lz4.Reader)
		defer lz4Readers.Put(z)
		z.Reset(bytes.NewReader(src))
		return drain(dst, z, limit, c)
	case Zstd:
		z := zstdReaders.Get().(*zstd.Decoder)
		defer keep(&zstdReaders, z)
		if err := z.Reset(bytes.NewReader(src)); err != nil {
			return dst, fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
		}
		return drain(dst, z, limit, c)
	}
	return dst, fmt.Errorf("%w: %d", ErrCodec, c)
}

// Encode compresses src at the codec's usual level and appends the result to dst,
// in the form that the Java client writes (snappy: xerial frames with big-endian
// version fields).
func Encode(dst []byte, c Codec, src []byte) ([]byte, error) {
	switch c {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return encodeGzip(dst, src, gzip.DefaultCompression)
	case Snappy:
		return append(dst, xerial.EncodeStream(nil, src)...), nil
	case LZ4:
		return encodeLZ4(dst, src, lz4.Fast)
	case Zstd:
		return encodeZstd(dst, src, zstd.SpeedDefault)
	}
	return dst, fmt.Errorf("%w: %d", ErrCodec, c)
}

// EncodeLevel is Encode at a level as in Kafka's compression.gzip.level,
// compression.lz4.level and compression.zstd.level; the other codecs have none. A
// level is brought to the nearest that there is here: 1 to 9 for gzip (−1 its
// default) and lz4, four steps for zstd.
func EncodeLevel(dst []byte, c Codec, src []byte, level int) ([]byte, error) {
	switch c {
	case Gzip:
		if level != gzip.DefaultCompression {
			level = min(max(level, gzip.BestSpeed), gzip.BestCompression)
		}
		return encodeGzip(dst, src, level)
	case LZ4:
		return encodeLZ4(dst, src, lz4.Level1<<(min(max(level, 1), 9)-1))
	case Zstd:
		return encodeZstd(dst, src, zstd.EncoderLevelFromZstd(level))
	}
	return Encode(dst, c, src)
}

func encodeGzip(dst, src []byte, level int) ([]byte, error) {
	p := gzipWriters.of(level, func() any {
		z, err := gzip.NewWriterLevel(nil, level)
		must(err)
		return z
	})
	z := p.Get().(*gzip.Writer)
	defer p.Put(z)
	w := appender{dst}
	z.Reset(&w)
	return finish(&w, z, src, Gzip)
}

func encodeLZ4(dst, src []byte, level lz4.CompressionLevel) ([]byte, error) {
	p := lz4Writers.of(int(level), func() any {
		z := lz4.NewWriter(nil)
		must(z.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1), lz4.CompressionLevelOption(level)))
		return z
	})
	z := p.Get().(*lz4.Writer)
	defer p.Put(z)
	w := appender{dst}
	z.Reset(&w)
	return finish(&w, z, src, LZ4)
}

func encodeZstd(dst, src []byte, level zstd.EncoderLevel) ([]byte, error) {
	p := zstdWriters.of(int(level), func() any {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level), zstd.WithWindowSize(window))
		must(err)
		return z
	})
	z := p.Get().(*zstd.Encoder)
	defer keep(p, z)
	return z.EncodeAll(src, dst), nil
}

// keep puts a zstd encoder or decoder back. Each has a channel of its own, and one
// that was made in virtual time (testing/synctest) may be used in that one test
// only: such a one is not kept. Virtual times have no monotonic reading.
func keep(p *sync.Pool, z any) {
	if t := time.Now(); t != t.Round(0) {
		p.Put(z)
	}
}

// levels are pools of one codec's writers, by level.
type levels struct{ pools sync.Map }

func (l *levels) of(level int, make func() any) *sync.Pool {
	if p, ok := l.pools.Load(level); ok {
		return p.(*sync.Pool)
	}
	p, _ := l.pools.LoadOrStore(level, &sync.Pool{New: make})
	return p.(*sync.Pool)
}

// Codec states are large, so they are reused. A reader that met an error is
// fine after its next Reset.
var (
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	gzipWriters levels
	lz4Readers  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	lz4Writers  levels
	zstdReaders = sync.Pool{New: func() any {
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
		must(err)
		return z
	}}
	zstdWriters levels
)

// must is for options that are constant.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// drain reads r to its end, at most limit bytes.
func drain(dst []byte, r io.Reader, limit int, c Codec) ([]byte, error) {
	start := len(dst)
	for {
		if cap(dst)-len(dst) < 512 {
			dst = grow(dst, max(512, len(dst)-start))
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if len(dst)-start > limit {
			return dst[:start], fmt.Errorf("%w: %s, limit %d bytes", ErrLimit, c, limit)
		}
		if err == io.EOF { //nolint:errorlint // a wrapped EOF is a stream that was cut
			return dst, nil
		}
		if err != nil {
			if errors.Is(err, zstd.ErrWindowSizeExceeded) {
				return dst[:start], fmt.Errorf("%w: zstd window above %d bytes", ErrLimit, window)
			}
			return dst[:start], fmt.Errorf("%w: %s: %w", ErrCorrupt, c, err)
		}
	}
}

func grow(b []byte, n int) []byte {
	g := make([]byte, len(b), len(b)+n)
	copy(g, b)
	return g
}

// xerialMagic starts the framed form of snappy that the Java client writes; 8
// bytes of versions follow, then blocks with an int32 length each.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

// decodeSnappy takes both forms. A block announces its decoded size, so the
// limit is checked before memory is made; a block cannot decode to more than it
// announces.
func decodeSnappy(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < xerialHeader || !bytes.HasPrefix(src, xerialMagic) {
		return decodeBlock(dst, src, limit)
	}
	start := len(dst)
	for p := src[xerialHeader:]; len(p) > 0; {
		if len(p) < 4 {
			return dst[:start], fmt.Errorf("%w: snappy: frame ends in a block length", ErrCorrupt)
		}
		n := int64(int32(binary.BigEndian.Uint32(p)))
		p = p[4:]
		if n < 0 || n > int64(len(p)) {
			return dst[:start], fmt.Errorf("%w: snappy: block of %d bytes, %d there", ErrCorrupt, n, len(p))
		}
		var err error
		if dst, err = decodeBlock(dst, p[:n], limit-(len(dst)-start)); err != nil {
			return dst[:start], err
		}
		p = p[n:]
	}
	return dst, nil
}

func decodeBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return dst, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	}
	if n > limit {
		return dst, fmt.Errorf("%w: snappy, limit %d bytes", ErrLimit, limit)
	}
	// The densest block is a run of three-byte copies of 64 bytes each; one
	// that announces more than that lies, and gets no memory.
	if n > 64*len(src) {
		return dst, fmt.Errorf("%w: snappy: %d bytes announce %d", ErrCorrupt, len(src), n)
	}
	if cap(dst)-len(dst) < n {
		dst = grow(dst, max(n, len(dst)))
	}
	out, err := snappy.Decode(dst[len(dst):len(dst)+n], src)
	if err != nil {
		return dst, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	}
	return dst[:len(dst)+len(out)], nil
}

// appender is an io.Writer over a slice.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

func finish(w *appender, z io.WriteCloser, src []byte, c Codec) ([]byte, error) {
	n := len(w.b)
	_, err := z.Write(src)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return w.b[:n], fmt.Errorf("compress with %s: %w", c, err)
	}
	return w.b, nil
}
