package partition

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// Bytes on disk went bad within one message: what comes before it is served,
// wherever a reader begins, and only then the partition stops.
func TestReadUpToDamage(t *testing.T) {
	const bad = types.Offset(3) // of the damaged message, which is the fourth
	spoils := map[string]func(data []byte){
		"magic":        func(data []byte) { data[16] = 9 },
		"length":       func(data []byte) { data[8] = 0x7f },
		"base offset":  func(data []byte) { data[7]++ },
		"last offset":  func(data []byte) { data[len(data)/2+26]++ },
		"second base":  func(data []byte) { data[len(data)/2+7]++ },
		"second batch": func(data []byte) { data[len(data)/2+16] = 9 },
	}
	for name, spoil := range spoils {
		for _, begin := range []types.Offset{0, 1, 2, 3} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				g := w.gateway(memory.Faults{Append: func(memory.Op) memory.WriteFault { return memory.WriteFault{Before: time.Second} }})
				run(t, g)
				for range bad - 1 {
					g.mustProduce(batch(1))
				}
				// While one message is stored, two batches gather for the next.
				done := make(chan AppendResult, 4)
				answer := func(a AppendResult) { done <- a }
				spoilt := 0
				g.p.Submit(AppendRequest{Records: batch(1)}, answer)
				synctest.Wait()
				g.p.Submit(AppendRequest{Records: batch(1)}, answer)
				g.p.Submit(AppendRequest{Records: batch(1)}, answer)
				for range 3 {
					if a := <-done; a.Err != nil {
						t.Fatal(a.Err)
					}
				}
				w.server.Rewrite(testLog, pubsub.Seq(bad)+1, func(m *pubsub.Message) {
					spoilt = len(m.Header[headerBatch])
					spoil(m.Data)
				})
				if spoilt != 2 {
					t.Fatalf("%d batches in the damaged message", spoilt)
				}
				cold := w.gateway(memory.Faults{})
				run(t, cold)
				next := begin
				for range 10 {
					r, err := cold.p.Read(t.Context(), ReadRequest{Offset: next, MaxBytes: 1 << 20, Whole: true})
					if err != nil {
						if !errors.Is(err, kerr.KafkaStorageError) {
							t.Errorf("%s, from %d: read at %d: %v", name, begin, next, err)
						}
						break
					}
					bs := split(t, r)
					if len(bs) == 0 {
						t.Fatalf("%s, from %d: nothing at %d", name, begin, next)
					}
					next = types.Offset(bs[len(bs)-1].LastOffset()) + 1
				}
				if next != bad {
					t.Errorf("%s, from %d: read up to %d, want %d", name, begin, next, bad)
				}
				cold.stopped("header")
			})
		}
	}
}
