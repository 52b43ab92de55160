package partition

import (
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// benchGateway is a gateway on a store in memory.
func benchGateway(b *testing.B) *gateway {
	w := newWorld(b, memory.Config{})
	return w.gateway(memory.Faults{})
}

// BenchmarkCheck: what a batch costs in its connection's goroutine. No
// decompression, no allocation.
func BenchmarkCheck(b *testing.B) {
	for name, data := range map[string][]byte{"100B": batch(1), "16KB": sized(16 << 10)} {
		b.Run(name, func(b *testing.B) {
			c := Config{MaxMessageBytes: 1 << 20, MaxAheadMillis: 3600000, MaxBehindMillis: 1<<63 - 1}
			r := AppendRequest{Records: data}
			p := &Partition{topic: "t"}
			now := time.Now().UnixMilli()
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				var k checked
				k.check(p, &r, &c, 1<<20, now)
				if k.err != nil {
					b.Fatal(k.message)
				}
			}
		})
	}
}

// BenchmarkAppend: one batch after the other, store in memory.
func BenchmarkAppend(b *testing.B) {
	g := benchGateway(b)
	data := sized(1 << 10)
	done := make(chan AppendResult, 1)
	answer := func(a AppendResult) { done <- a }
	b.ReportAllocs()
	for b.Loop() {
		g.p.Submit(AppendRequest{Records: data}, answer)
		if a := <-done; a.Err != nil {
			b.Fatal(a.Err)
		}
	}
}

// BenchmarkAppendGrouped: 64 idempotent batches per message.
func BenchmarkAppendGrouped(b *testing.B) {
	g := benchGateway(b)
	const n = 64
	batches := make([][]byte, n)
	done := make(chan AppendResult, n)
	answer := func(a AppendResult) { done <- a }
	seq := int32(0)
	b.ReportAllocs()
	for b.Loop() {
		for i := range batches {
			batches[i] = idempotent(int64(i+1), 0, seq, 1)
		}
		seq++
		for _, data := range batches {
			g.p.Submit(AppendRequest{Records: data}, answer)
		}
		for range n {
			if a := <-done; a.Err != nil {
				b.Fatal(a.Err, a.Message)
			}
		}
	}
}

// BenchmarkReadTail reads one message from the tail cache.
func BenchmarkReadTail(b *testing.B) {
	g := benchGateway(b)
	g.p.interested()
	for range 32 {
		g.mustProduce(sized(16 << 10))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		r, err := g.p.Read(b.Context(), ReadRequest{Offset: types.Offset(i % 32), MaxBytes: 16 << 10, Whole: true})
		if err != nil || r.Bytes != 16<<10 {
			b.Fatal(r.Bytes, err)
		}
		i++
	}
}
