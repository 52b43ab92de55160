package protocol

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/serde"
)

// TestC03ShapesAgreeWithKmsg: each shape reads exactly what kmsg writes, in every
// served version (C-03's second implementation).
func TestC03ShapesAgreeWithKmsg(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		for _, tags := range []int{0, 2, 16} {
			f := newFiller(seed)
			f.tags = tags
			every(func(a *api, v int16) {
				shape := shapes[a.key]
				if shape == nil {
					t.Fatalf("key %d has no shape", a.key)
				}
				req := kmsg.RequestForKey(a.key)
				req.SetVersion(v)
				f.fill(req)
				b := req.AppendTo(nil)
				left, _, err := measure(shape, v, req.IsFlexible(), b, 1<<20)
				if err != nil || left != 0 {
					t.Fatalf("key %d v%d, %d tags: %d of %d bytes left, %v", a.key, v, tags, left, len(b), err)
				}
				if left, _, err = measure(shape, v, req.IsFlexible(), append(b, 1, 2, 3), 1<<20); err != nil || left != 3 {
					t.Fatalf("key %d v%d: trailing bytes: %d, %v", a.key, v, left, err)
				}
				if tags > 0 {
					return
				}
				for i := range b {
					if _, _, err := measure(shape, v, req.IsFlexible(), b[:i], 1<<20); err == nil {
						t.Fatalf("key %d v%d: cut at %d of %d: no error", a.key, v, i, len(b))
					}
				}
			})
		}
	}
}

// TestC05Row11ElementBudget: what a request may decode to.
func TestC05Row11ElementBudget(t *testing.T) {
	count := func(n uint32, body []byte) error {
		b := append(binary.BigEndian.AppendUint32(nil, n), body...)
		_, _, err := measure(shapes[3], 1, false, b, 100_000)
		return err
	}
	if err := count(1<<31-1, make([]byte, 26)); err == nil || errors.Is(err, errElements) {
		t.Errorf("2^31-1 in 26 bytes: %v", err)
	}
	if err := count(0xfffffffe, nil); err == nil {
		t.Error("-2 elements")
	}
	body := make([]byte, 16<<20) // 8 million empty names
	if err := count(uint32(len(body)/2), body); !errors.Is(err, errElements) {
		t.Errorf("8 million names: %v", err)
	}
	if err := count(100_000, body[:200_000]); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := count(100_001, body[:200_002]); !errors.Is(err, errElements) {
		t.Errorf("one above the limit: %v", err)
	}
	// Nested arrays and tagged fields share the budget: each topic of a flexible
	// Metadata request carries 16 tags here.
	topic := make([]byte, 0, 64)
	topic = append(topic, 1, 16) // empty name, 16 tags
	for range 16 {
		topic = append(topic, 5, 0)
	}
	flexible := binary.AppendUvarint(nil, 9001)
	for range 9000 {
		flexible = append(flexible, topic...)
	}
	flexible = append(flexible, 1, 1, 1, 0)
	if _, _, err := measure(shapes[3], 9, true, flexible, 100_000); !errors.Is(err, errElements) {
		t.Errorf("144000 tags: %v", err)
	}
	if left, _, err := measure(shapes[3], 9, true, flexible, 200_000); err != nil || left != 0 {
		t.Errorf("144000 tags within the limit: %d, %v", left, err)
	}
	if n := testing.AllocsPerRun(10, func() { _, _, _ = measure(shapes[3], 9, true, flexible, 200_000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A string has at most 32767 bytes, in a compact form as well: so say Kafka's
// generated readers, and nobody can make us keep longer names.
func TestRow12LongStrings(t *testing.T) {
	t.Parallel()
	for _, n := range []int{math.MaxInt16, math.MaxInt16 + 1, 1 << 20} {
		req := kmsg.NewPtrMetadataRequest()
		req.SetVersion(9)
		rt := kmsg.NewMetadataRequestTopic()
		name := strings.Repeat("x", n)
		rt.Topic = &name
		req.Topics = append(req.Topics, rt)
		_, _, err := measure(shapes[3], 9, true, req.AppendTo(nil), 1000)
		if (err == nil) != (n <= math.MaxInt16) || err != nil && !errors.Is(err, serde.ErrMalformed) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
