package protocol

import (
	"encoding/binary"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchResponse is a FetchResponse whose records are written from where they
// are, without a copy: kmsg's encoder would need them in one piece per
// partition, inside its own buffer. Its encoding equals kmsg's byte for byte;
// fetch_response_test.go compares them in every version.
type fetchResponse struct {
	kmsg.FetchResponse // RecordBatches are empty
	// records are the batches of each partition, in the order of the response.
	records [][][]byte
	lent    []func() // give memory of records back
	h       *handler
	held    int64 // of h.answers
	beyond  bool  // has a token of h.answers
}

// smallRecords are copied: a piece of its own costs more than that.
const smallRecords = 2 << 10

func (f *fetchResponse) bytes(i int) int {
	n := 0
	for _, p := range f.records[i] {
		n += len(p)
	}
	return n
}

// reserve takes up to n bytes of what all answers may hold together, and returns
// how much there was. One batch passes in any case, so it may be 0.
func (f *fetchResponse) reserve(n int) int {
	for {
		held := f.h.answers.held.Load()
		got := max(min(int64(n), f.h.answers.max-held), 0)
		if f.h.answers.held.CompareAndSwap(held, held+got) {
			if f.held = got; got < int64(n) {
				f.h.limits.hit(limitFetchHeld)
			}
			return int(got)
		}
	}
}

// settle corrects the reservation to what was read.
func (f *fetchResponse) settle(n int) {
	f.h.answers.add(int64(n) - f.held)
	f.held = int64(n)
}

// release gives it back, and the memory of the records, once the answer was
// written, or never will be.
func (f *fetchResponse) release() {
	f.h.answers.add(-f.held)
	f.held = 0
	if f.beyond {
		f.beyond = false
		<-f.h.answers.beyond
	}
	for _, back := range f.lent {
		back()
	}
	f.records, f.lent = nil, nil
}

// encode appends the body to b, whose frame began at start, and returns the
// pieces to write, the frame's length set. The pieces share b, which is
// returned to be used again after they were written, and the records.
func (f *fetchResponse) encode(b []byte, start int) (pieces net.Buffers, buf []byte) {
	type cut struct {
		at      int // in b
		records [][]byte
	}
	var cuts []cut
	outside := 0 // bytes of records that are not in b
	v := f.Version
	flexible := v >= 12
	b = binary.BigEndian.AppendUint32(b, uint32(f.ThrottleMillis))
	if v >= 7 {
		b = binary.BigEndian.AppendUint16(b, uint16(f.ErrorCode))
		b = binary.BigEndian.AppendUint32(b, uint32(f.SessionID))
	}
	b = appendArrayLen(b, flexible, len(f.Topics))
	i := 0
	for t := range f.Topics {
		topic := &f.Topics[t]
		switch {
		case v >= 13:
			b = append(b, topic.TopicID[:]...)
		case flexible:
			b = binary.AppendUvarint(b, uint64(len(topic.Topic))+1)
			b = append(b, topic.Topic...)
		default:
			b = binary.BigEndian.AppendUint16(b, uint16(len(topic.Topic)))
			b = append(b, topic.Topic...)
		}
		b = appendArrayLen(b, flexible, len(topic.Partitions))
		for j := range topic.Partitions {
			p := &topic.Partitions[j]
			b = binary.BigEndian.AppendUint32(b, uint32(p.Partition))
			b = binary.BigEndian.AppendUint16(b, uint16(p.ErrorCode))
			b = binary.BigEndian.AppendUint64(b, uint64(p.HighWatermark))
			b = binary.BigEndian.AppendUint64(b, uint64(p.LastStableOffset))
			if v >= 5 {
				b = binary.BigEndian.AppendUint64(b, uint64(p.LogStartOffset))
			}
			if p.AbortedTransactions == nil {
				b = appendArrayLen(b, flexible, -1)
			} else {
				b = appendArrayLen(b, flexible, len(p.AbortedTransactions))
			}
			for _, a := range p.AbortedTransactions {
				b = binary.BigEndian.AppendUint64(b, uint64(a.ProducerID))
				b = binary.BigEndian.AppendUint64(b, uint64(a.FirstOffset))
				if flexible {
					b = append(b, 0)
				}
			}
			if v >= 11 {
				b = binary.BigEndian.AppendUint32(b, uint32(p.PreferredReadReplica))
			}
			n := f.bytes(i)
			b = appendArrayLen(b, flexible, n) // bytes have the same form of length
			if n <= smallRecords {
				for _, r := range f.records[i] {
					b = append(b, r...)
				}
			} else {
				cuts = append(cuts, cut{len(b), f.records[i]})
				outside += n
			}
			if flexible {
				b = append(b, 0)
			}
			i++
		}
		if flexible {
			b = append(b, 0)
		}
	}
	if flexible {
		b = append(b, 0)
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4+outside))

	at := 0
	for _, c := range cuts {
		pieces = append(pieces, b[at:c.at])
		for _, r := range c.records {
			if len(r) > 0 {
				pieces = append(pieces, r)
			}
		}
		at = c.at
	}
	return append(pieces, b[at:]), b
}

// appendArrayLen appends the length of an array or of bytes, -1 for null.
func appendArrayLen(b []byte, flexible bool, n int) []byte {
	if flexible {
		return binary.AppendUvarint(b, uint64(n+1))
	}
	return binary.BigEndian.AppendUint32(b, uint32(int32(n)))
}
