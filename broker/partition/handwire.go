package partition

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// handVersion is the version of the bytes that gateways hand over.
const handVersion = 1

type handKind byte

const (
	handBatches handKind = 1 // append these
	handTell    handKind = 2 // no batches: the hinted appender loses to you
)

// handOver is a request to the hinted appender.
type handOver struct {
	kind    handKind
	id      types.TopicID
	n       int32
	members []handedBatch
}

// handedBatch is one batch, checked by the gateway that hands it over.
type handedBatch struct {
	batch         serde.Batch
	acksAll       bool
	logAppendTime bool
	// after, unless negative, is the first sequence of a batch of the same
	// producer and epoch that failed: while the producer is unknown that one must
	// come first.
	after int32
	// txn is the number of its transaction; a marker of 0 ends what is open.
	txn int64
	// fromZero is AppendRequest.FromZero. Gateways of before it do not read it, and
	// let the batch of an unknown producer begin anywhere.
	fromZero bool
}

const (
	handAcksAll byte = 1 << iota
	handLogAppendTime
	handAfter
	handTxn
	handFromZero
)

// verdictKind says what became of a batch that was handed over.
type verdictKind byte

const (
	handStored   verdictKind = 1 // or stored already
	handRefused  verdictKind = 2 // by the log: it is not stored
	handDeclined verdictKind = 3 // not stored, and will not be: append it yourself
	handUnknown  verdictKind = 4 // nobody knows
)

// handVerdict answers one handedBatch.
type handVerdict struct {
	kind verdictKind
	// with handStored, as in AppendResult:
	base, start types.Offset
	time        int64
	code        int16  // with handRefused
	text        string // for people
}

// handAnswer answers a handOver of batches.
type handAnswer struct {
	// quiet is for how long nobody else appended.
	quiet time.Duration
	// end of the log as far as the answering gateway knows, at least; −1: it has
	// declined at once.
	end      types.Offset
	verdicts []handVerdict
}

var errHandForm = errors.New("a hand-over that cannot be read")

func encodeHandOver(h handOver) []byte {
	size := 64
	for _, m := range h.members {
		size += len(m.batch) + 16
	}
	b := append(make([]byte, 0, size), handVersion, byte(h.kind))
	b = append(b, h.id[:]...)
	b = binary.AppendUvarint(b, uint64(h.n))
	for _, m := range h.members {
		var flags byte
		if m.acksAll {
			flags |= handAcksAll
		}
		if m.logAppendTime {
			flags |= handLogAppendTime
		}
		if m.after >= 0 {
			flags |= handAfter
		}
		if m.txn != 0 {
			flags |= handTxn
		}
		if m.fromZero {
			flags |= handFromZero
		}
		b = append(b, flags)
		if m.after >= 0 {
			b = binary.AppendUvarint(b, uint64(m.after))
		}
		if m.txn != 0 {
			b = binary.AppendUvarint(b, uint64(m.txn))
		}
		b = binary.AppendUvarint(b, uint64(len(m.batch)))
		b = append(b, m.batch...)
	}
	return b
}

// decodeHandOver reads a request; the batches lie in b.
func decodeHandOver(b []byte) (h handOver, err error) {
	if len(b) < 2+len(h.id) || b[0] != handVersion {
		return h, errHandForm
	}
	h.kind = handKind(b[1])
	copy(h.id[:], b[2:])
	r := handReader{b: b[2+len(h.id):]}
	h.n = int32(r.number(1<<31 - 1))
	for len(r.b) > 0 && r.err == nil {
		flags := r.bytes(1)
		if r.err != nil {
			break
		}
		m := handedBatch{acksAll: flags[0]&handAcksAll != 0, logAppendTime: flags[0]&handLogAppendTime != 0, after: -1, fromZero: flags[0]&handFromZero != 0}
		if flags[0]&handAfter != 0 {
			m.after = int32(r.number(1<<31 - 1))
		}
		if flags[0]&handTxn != 0 {
			m.txn = int64(r.number(1<<63 - 1))
		}
		data := r.bytes(r.number(uint64(len(r.b))))
		if r.err != nil {
			break
		}
		batch, rest, err := serde.ParseBatch(data)
		if err != nil || len(rest) > 0 || len(h.members) == maxBatches {
			return h, errHandForm
		}
		m.batch = batch
		h.members = append(h.members, m)
	}
	if r.err != nil || h.kind == handBatches && len(h.members) == 0 || h.kind != handBatches && h.kind != handTell {
		return h, errHandForm
	}
	return h, nil
}

func encodeHandAnswer(a handAnswer) []byte {
	b := append(make([]byte, 0, 32+24*len(a.verdicts)), handVersion)
	b = binary.AppendUvarint(b, uint64(max(0, a.quiet.Milliseconds())))
	b = binary.AppendVarint(b, int64(a.end))
	for _, v := range a.verdicts {
		b = append(b, byte(v.kind))
		if v.kind == handStored {
			b = binary.AppendVarint(b, int64(v.base))
			b = binary.AppendVarint(b, int64(v.start))
			b = binary.AppendVarint(b, v.time)
			continue
		}
		b = binary.AppendVarint(b, int64(v.code))
		b = binary.AppendUvarint(b, uint64(len(v.text)))
		b = append(b, v.text...)
	}
	return b
}

// maxQuiet bounds how long, in ms, an answer says that nobody else has appended: a
// gateway that never heard of anybody says the largest there is.
const maxQuiet = 1 << 40

// decodeHandAnswer reads an answer about n batches.
func decodeHandAnswer(b []byte, n int) (a handAnswer, err error) {
	if len(b) < 1 || b[0] != handVersion {
		return a, errHandForm
	}
	r := handReader{b: b[1:]}
	a.quiet = time.Duration(min(r.number(1<<63-1), maxQuiet)) * time.Millisecond
	a.end = types.Offset(r.signed())
	for range n {
		kind := r.bytes(1)
		if r.err != nil {
			return a, r.err
		}
		v := handVerdict{kind: verdictKind(kind[0])}
		switch v.kind {
		case handStored:
			v.base, v.start, v.time = types.Offset(r.signed()), types.Offset(r.signed()), r.signed()
		case handRefused, handDeclined, handUnknown:
			v.code = int16(r.signed())
			v.text = string(r.bytes(r.number(uint64(len(r.b)))))
		default:
			return a, errHandForm
		}
		a.verdicts = append(a.verdicts, v)
	}
	if r.err == nil && len(r.b) > 0 {
		return a, errHandForm
	}
	return a, r.err
}

// handReader reads what was checked to be there.
type handReader struct {
	b   []byte
	err error
}

func (r *handReader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if r.err != nil || n <= 0 || v > most {
		r.err = errHandForm
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *handReader) signed() int64 {
	v, n := binary.Varint(r.b)
	if r.err != nil || n <= 0 {
		r.err = errHandForm
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *handReader) bytes(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.b)) {
		r.err = errHandForm
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// refusal is the verdict's error.
func (v *handVerdict) refusal() *kerr.Error { return kerr.TypedErrorForCode(v.code) }
