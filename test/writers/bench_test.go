package writers

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hanzoai/stream/broker/partition"
)

// BenchmarkProduce has batches of 16 KB on their way, spread over gateways in
// this process.
func BenchmarkProduce(b *testing.B) {
	bs := newBrokers(b, 2)
	for n := 1; n <= 2; n++ {
		for _, depth := range []int{10, 50} {
			b.Run(fmt.Sprintf("%d gateways, depth %d", n, depth), func(b *testing.B) {
				ps := open(b, bs, fmt.Sprintf("t-%d-%d-%d", n, depth, b.N))[:n]
				b.SetBytes(16 << 10)
				b.SetParallelism(depth / 2)
				var turn atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					p := ps[int(turn.Add(1))%n]
					done := make(chan partition.AppendResult, 1)
					data := batchOf(16 << 10)
					for pb.Next() {
						p.Submit(partition.AppendRequest{Records: data}, func(a partition.AppendResult) { done <- a })
						if a := <-done; a.Err != nil {
							b.Error(a.Err)
						}
					}
				})
			})
		}
	}
}
