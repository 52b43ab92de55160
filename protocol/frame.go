package protocol

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/hanzoai/stream/serde"
)

// frame is one request's bytes. It is used again once every holder released
// it: the request itself, and each batch of it that a partition works on.
type frame struct {
	buf  []byte
	refs atomic.Int32
	hold hold
	srv  *Server
}

// framePools keep frames by the size of their buffers: 4 KiB, 64 KiB, 128 KiB
// and so on. Without them, garbage is a tenth to a third of a produce's cost.
var framePools [16]sync.Pool

// frameClass is the smallest class whose buffers hold n bytes.
func frameClass(n int) int {
	switch {
	case n <= 4<<10:
		return 0
	case n <= serde.FrameStep:
		return 1
	}
	return min(bits.Len(uint((n-1)/serde.FrameStep))+1, len(framePools)-1)
}

// frameSize is the size of a class's buffers.
func frameSize(class int) int {
	if class == 0 {
		return 4 << 10
	}
	return serde.FrameStep << (class - 1)
}

// newFrame gives a frame with an empty buffer for n bytes. Its capacity is less
// than n where none that large was used before: it grows with what comes.
func newFrame(s *Server, n int) *frame {
	class := frameClass(n)
	f, _ := framePools[class].Get().(*frame)
	if f == nil {
		f = &frame{buf: make([]byte, 0, frameSize(min(class, 1)))}
	}
	f.buf = f.buf[:0]
	f.srv = s
	f.refs.Store(1)
	return f
}

func (f *frame) retain() { f.refs.Add(1) }

// release gives up one hold; the last one returns the bytes to the budget and
// the buffer to its pool.
func (f *frame) release() {
	if n := f.refs.Add(-1); n > 0 {
		return
	} else if n < 0 {
		panic("protocol: frame released twice")
	}
	f.srv.budget.give(&f.hold)
	f.srv = nil
	class := frameClass(cap(f.buf))
	if frameSize(class) > cap(f.buf) {
		class-- // an odd size serves the class below
	}
	if class >= 0 {
		framePools[class].Put(f)
	}
}
