package jetstream

import "sync"

// Memory for messages is used again when their readers say that they are
// done: new memory has to be cleared and touched for the first time, which costs
// about as much as the copies do, and whoever reads a whole log, as compaction
// does, leaves as much garbage as the log has bytes. Below 8 KiB it is not worth
// a function for each message.
const (
	frameMin = 8 << 10
	// frameSizes are 8 KiB and up, half and whole powers of two: 8 MiB is last.
	frameSizes = 21
)

var frames [frameSizes]sync.Pool // of *[]byte

// frameSize is the size of class i.
func frameSize(i int) int { return frameMin << (i / 2) * (2 + i%2) / 2 }

// frameClass is the smallest class that holds n bytes, -1 for none.
func frameClass(n int) int {
	if n < frameMin {
		return -1
	}
	for i := range frames {
		if frameSize(i) >= n {
			return i
		}
	}
	return -1
}

// frame is memory for a message of n bytes. Its contents are undefined.
func frame(n int) []byte {
	i := frameClass(n)
	if i < 0 {
		return make([]byte, n)
	}
	if b, ok := frames[i].Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return make([]byte, n, frameSize(i))
}

// release returns what gives the memory of a message back; nil if it is too
// small for that, or was not made by frame.
func release(b []byte) func() {
	i := frameClass(len(b))
	if i < 0 || cap(b) != frameSize(i) {
		return nil
	}
	return func() { frames[i].Put(&b) }
}
