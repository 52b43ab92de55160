package compact

import (
	"errors"
	"fmt"
	"math"

	"github.com/hanzoai/stream/compress"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// parse takes one whole batch and checks everything in its header that the
// rules rely on.
func parse(p []byte) (serde.Batch, error) {
	b, rest, err := serde.ParseBatch(p)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	base, delta := b.BaseOffset(), int64(b.LastOffsetDelta())
	switch {
	case len(rest) > 0:
		err = fmt.Errorf("%d bytes follow", len(rest))
	case !b.ChecksumOK():
		err = errors.New("the checksum is wrong")
	case base < 0 || delta < 0 || base > math.MaxInt64-1-delta:
		err = fmt.Errorf("last offset delta %d", delta)
	case b.Count() < 0 || int64(b.Count()) > delta+1:
		err = fmt.Errorf("%d records in %d offsets", b.Count(), delta+1)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: at offset %d: %w", ErrUnreadable, base, err)
	}
	return b, nil
}

// records gives a batch's records, decompressed if need be, good until the next
// call.
func (e *Env) records(b serde.Batch) ([]byte, error) {
	if b.Codec() == 0 {
		return b.Records(), nil
	}
	var err error
	if e.plain, err = compress.Decode(e.plain[:0], compress.Codec(b.Codec()), b.Records(), e.Budget); err != nil {
		return nil, fmt.Errorf("%w: at offset %d: %w", ErrUnreadable, b.BaseOffset(), err)
	}
	return e.plain, nil
}

// walk goes through a batch's records and checks that their offsets rise within
// the batch's range.
type walk struct {
	serde.Records
	b    serde.Batch
	prev int32
	err  error
}

func (w *walk) next() bool {
	if w.err != nil {
		return false
	}
	if !w.Next() {
		w.err = w.Err()
	} else if d := w.Record.OffsetDelta; d <= w.prev || d > w.b.LastOffsetDelta() {
		w.err = fmt.Errorf("offset delta %d after %d", d, w.prev)
	} else {
		w.prev = d
		return true
	}
	if w.err != nil {
		w.err = fmt.Errorf("%w: at offset %d: %w", ErrUnreadable, w.b.BaseOffset(), w.err)
	}
	return false
}

func (w *walk) offset() types.Offset {
	return types.Offset(w.b.BaseOffset() + int64(w.Record.OffsetDelta))
}

func newWalk(b serde.Batch, records []byte) walk {
	return walk{Records: serde.NewRecords(records, b.Count()), b: b, prev: -1}
}
