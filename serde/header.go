package serde

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxHeaderTags is the most tagged fields a request header may carry; real
// clients send none.
const MaxHeaderTags = 16

// ErrMalformed: bytes that no schema allows.
var ErrMalformed = errors.New("malformed bytes")

// RequestHeader is what stands before every request's body.
type RequestHeader struct {
	Key, Version  int16
	CorrelationID int32
}

// ParseRequestHeader reads the part that is the same for every key and version,
// also for those that nobody knows, and returns what follows it.
func ParseRequestHeader(p []byte) (h RequestHeader, rest []byte, err error) {
	if len(p) < minFrame {
		return h, nil, fmt.Errorf("%w: request of %d bytes", ErrMalformed, len(p))
	}
	return RequestHeader{
		Key:           int16(binary.BigEndian.Uint16(p)),
		Version:       int16(binary.BigEndian.Uint16(p[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(p[4:])),
	}, p[minFrame:], nil
}

// ParseClientID reads the rest of the header: the client id (an int16 length in
// flexible headers too, null gives nil) and, if flexible, the tag section, which
// is skipped. The client id shares p.
func ParseClientID(p []byte, flexible bool) (clientID, body []byte, err error) {
	if len(p) < 2 {
		return nil, nil, fmt.Errorf("%w: no client id", ErrMalformed)
	}
	n := int(int16(binary.BigEndian.Uint16(p)))
	p = p[2:]
	if n < -1 || n > len(p) {
		return nil, nil, fmt.Errorf("%w: client id of %d bytes", ErrMalformed, n)
	}
	if n >= 0 {
		clientID, p = p[:n:n], p[n:]
	}
	if flexible {
		if p, err = SkipTags(p, MaxHeaderTags); err != nil {
			return nil, nil, fmt.Errorf("request header: %w", err)
		}
	}
	return clientID, p, nil
}

// SkipTags skips one tag section of at most limit tagged fields (KIP-482).
func SkipTags(p []byte, limit int) (rest []byte, err error) {
	if len(p) > 0 && p[0] == 0 {
		return p[1:], nil
	}
	n, p, err := Uvarint(p)
	if err != nil {
		return nil, err
	}
	if int64(n) > int64(limit) {
		return nil, fmt.Errorf("%w: %d tagged fields, %d allowed", ErrMalformed, n, limit)
	}
	for range n {
		var size uint32
		if _, p, err = Uvarint(p); err != nil { // the tag's number
			return nil, err
		}
		if size, p, err = Uvarint(p); err != nil {
			return nil, err
		}
		if int64(size) > int64(len(p)) {
			return nil, fmt.Errorf("%w: tagged field of %d bytes, %d there", ErrMalformed, size, len(p))
		}
		p = p[size:]
	}
	return p, nil
}

// Uvarint reads an unsigned 32-bit varint of at most five bytes.
func Uvarint(p []byte) (v uint32, rest []byte, err error) {
	for i, c := range p {
		if i == 4 {
			if c > 0x0f {
				break
			}
			return v | uint32(c)<<28, p[5:], nil
		}
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v, p[i+1:], nil
		}
	}
	return 0, nil, fmt.Errorf("%w: varint", ErrMalformed)
}
