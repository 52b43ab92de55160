package partition

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// readCounter counts the bytes that a log's reads returned.
type readCounter struct {
	pubsub.Log
	mu    sync.Mutex // guards: bytes
	bytes int
}

func (c *readCounter) Read(ctx context.Context, from pubsub.Seq, limit pubsub.Limit) ([]pubsub.Message, error) {
	ms, err := c.Log.Read(ctx, from, limit)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range ms {
		c.bytes += len(m.Data)
	}
	return ms, err
}

// Large batches that wait together are stored one by one, and a reader that asks
// for a megabyte at a time has the store send hardly more than it gets.
func TestLargeBatchesStayApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		first, once := make(chan struct{}), sync.Once{}
		g := w.gateway(memory.Faults{Append: func(op memory.Op) (f memory.WriteFault) {
			if op.Seq == 0 {
				once.Do(func() { close(first) })
				f.Before = time.Second
			}
			return f
		}})
		const n, size = 8, 600 << 10
		now := time.Now().UnixMilli()
		done := make(chan AppendResult, n)
		for i := range n {
			b := batchSpec{times: []int64{now}, values: [][]byte{make([]byte, size)}}.bytes()
			g.p.Submit(AppendRequest{Records: b}, func(a AppendResult) { done <- a })
			if i == 0 {
				<-first // the others wait together
			}
		}
		for range n {
			if a := <-done; a.Err != nil {
				t.Fatal(a.Err, a.Message)
			}
		}
		if ms := w.server.Messages(testLog); len(ms) != n {
			t.Fatalf("%d batches of %d bytes in %d messages", n, size, len(ms))
		}

		cold := w.gateway(memory.Faults{})
		log := &readCounter{Log: cold.p.log}
		cold.p.log = log // before its first use
		got := 0
		for offset := types.Offset(0); offset < n; {
			bs := cold.read(offset)
			if len(bs) != 1 {
				t.Fatalf("%d batches at %d", len(bs), offset)
			}
			got += len(bs[0])
			offset = types.Offset(bs[0].LastOffset()) + 1
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		// The first read does not know how large messages are.
		if log.bytes < got || log.bytes > got+size*3/2 {
			t.Errorf("the store sent %d bytes for %d", log.bytes, got)
		}
	})
}
