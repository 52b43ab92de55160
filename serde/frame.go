package serde

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Sizes of the frame reader.
const (
	// readAhead is the buffer each connection owns: small requests that were
	// pipelined cost one read together, large ones go past it.
	readAhead = 4 << 10
	// FrameStep is the least by which a frame's buffer grows. No buffer is ever
	// larger than twice the bytes received plus one step.
	FrameStep = 64 << 10
	// minFrame is the shortest request: key, version, correlation id.
	minFrame = 8
)

// LengthError is a frame length that no request can have. Head holds the four
// bytes as they came, for a guess at what the peer speaks.
type LengthError struct {
	Length int32
	Max    int
	Head   [4]byte
}

func (e *LengthError) Error() string {
	if hint := e.Hint(); hint != "" {
		return fmt.Sprintf("frame length %d is not within %d and %d: %s", e.Length, minFrame, e.Max, hint)
	}
	return fmt.Sprintf("frame length %d is not within %d and %d", e.Length, minFrame, e.Max)
}

// Hint names the protocol that starts with these bytes, "" if none is known.
func (e *LengthError) Hint() string {
	switch h := string(e.Head[:]); {
	case e.Head[0] == 0x16 && e.Head[1] == 0x03:
		return "the peer speaks TLS, this listener does not"
	case h == "GET ", h == "POST", h == "PUT ", h == "HEAD", h == "DELE", h == "OPTI", h == "PRI ", h == "CONN":
		return "the peer speaks HTTP, this is the Kafka port"
	case h == "SSH-":
		return "the peer speaks SSH, this is the Kafka port"
	case h == "INFO", h == "PING":
		return "the peer speaks NATS, this is the Kafka port"
	}
	return ""
}

// FrameReader cuts a byte stream into frames: a signed int32 length and that
// many bytes. Not safe for concurrent use.
type FrameReader struct {
	r      io.Reader
	max    int
	lo, hi int
	buf    [readAhead]byte
}

// NewFrameReader reads frames of at most max bytes from r.
func NewFrameReader(r io.Reader, max int) *FrameReader { return &FrameReader{r: r, max: max} }

// Buffered is the number of bytes received that belong to no frame yet.
func (f *FrameReader) Buffered() int { return f.hi - f.lo }

// Length reads the next frame's length. io.EOF means that the stream ended
// between two frames, io.ErrUnexpectedEOF within one, *LengthError that what
// follows cannot be a request.
func (f *FrameReader) Length() (int, error) {
	for f.hi-f.lo < 4 {
		if f.lo > 0 {
			f.hi = copy(f.buf[:], f.buf[f.lo:f.hi])
			f.lo = 0
		}
		n, err := f.r.Read(f.buf[f.hi:])
		f.hi += n
		if f.hi-f.lo >= 4 {
			break
		}
		if err != nil {
			if errors.Is(err, io.EOF) && f.hi > f.lo {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
	head := f.buf[f.lo : f.lo+4]
	n := int32(binary.BigEndian.Uint32(head))
	if n < minFrame || int64(n) > int64(f.max) {
		return 0, &LengthError{Length: n, Max: f.max, Head: [4]byte(head)}
	}
	f.lo += 4
	return int(n), nil
}

// Body reads the n bytes that Length announced. It appends to dst, which has
// length 0 and whose capacity is used first; beyond that the buffer grows with
// the bytes received. hold is called with the number of bytes about to be
// received before room is made for them, and may block or refuse; their sum is
// n when Body succeeds. The result has length n.
func (f *FrameReader) Body(dst []byte, n int, hold func(int) error) ([]byte, error) {
	for len(dst) < n {
		// A step is what may be received next: all there is room for, or as
		// much again as came so far. So a peer that announces much and sends
		// little is given little.
		step := min(n-len(dst), max(len(dst), FrameStep))
		if err := hold(step); err != nil {
			return dst, err
		}
		if cap(dst)-len(dst) < step {
			// Sizes are doubled from FrameStep whatever n is, so that buffers
			// which are used again come in few sizes.
			room := max(len(dst), FrameStep)
			if n <= FrameStep {
				room = step
			}
			grown := make([]byte, len(dst), len(dst)+room)
			copy(grown, dst)
			dst = grown
		}
		end := len(dst) + step
		if f.hi > f.lo {
			c := copy(dst[len(dst):end], f.buf[f.lo:f.hi])
			f.lo += c
			dst = dst[:len(dst)+c]
		}
		for len(dst) < end {
			if rest := end - len(dst); rest < readAhead && end == n {
				// The tail of a frame is read through the buffer, so that the
				// start of the next one comes with it.
				m, err := f.r.Read(f.buf[:])
				c := copy(dst[len(dst):end], f.buf[:m])
				dst = dst[:len(dst)+c]
				f.lo, f.hi = c, m
				if len(dst) < end && err != nil {
					return dst, unexpected(err)
				}
				continue
			}
			m, err := f.r.Read(dst[len(dst):end])
			dst = dst[:len(dst)+m]
			if len(dst) < end && err != nil {
				return dst, unexpected(err)
			}
		}
	}
	return dst, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
