package partition

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
)

// While the store takes ten seconds for an append, what waits is held to a
// share: the newest is refused at once with its answer to leave late, the rest
// is stored in order, and nobody waits longer than clients do.
func TestC36SlowStoreShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		var mu sync.Mutex
		slow := true
		g := w.gateway(memory.Faults{Append: func(memory.Op) memory.WriteFault {
			mu.Lock()
			defer mu.Unlock()
			if slow {
				return memory.WriteFault{Before: 4 * time.Second}
			}
			return memory.WriteFault{}
		}})
		one := serde.Build(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, []serde.NewRecord{{TimestampMillis: time.Now().UnixMilli(), Value: make([]byte, 1000)}})
		g.host.queueBytes = 10 * len(one)
		results := make(chan AppendResult, 100)
		began := time.Now()
		submit := func(n int) {
			for range n {
				g.p.Submit(AppendRequest{Records: append([]byte{}, one...)}, func(r AppendResult) { results <- r })
			}
		}
		submit(1)
		synctest.Wait() // it is on its way alone
		submit(30)
		synctest.Wait()
		if n := len(results); n != 0 {
			t.Fatalf("%d answers before the store is known to be slow", n)
		}
		time.Sleep(slowAfter)
		synctest.Wait()
		refused := func(n int) {
			t.Helper()
			if len(results) != n {
				t.Fatalf("%d refused, want %d", len(results), n)
			}
			for range n {
				if r := <-results; !errors.Is(r.Err, pubsub.ErrUnavailable) || r.Delay != refusalDelay {
					t.Fatalf("refused with %v, delay %v", r.Err, r.Delay)
				}
			}
		}
		refused(20)
		submit(5)
		refused(5)
		for range 11 {
			if r := <-results; r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if took := time.Since(began); took > inAll {
			t.Fatalf("the last answer came after %v", took)
		}
		mu.Lock()
		slow = false
		mu.Unlock()
		g.mustProduce(append([]byte{}, one...))
		if bs := g.read(0); len(bs) != 12 {
			t.Fatalf("%d batches stored", len(bs))
		}
		g.kill()
		synctest.Wait() // the appender has ended
		g.p.mu.Lock()
		defer g.p.mu.Unlock()
		if g.p.slow || g.host.slow.Load() != 0 || g.p.queueBytes != 0 {
			t.Fatalf("slow %v, %d slow partitions, %d bytes queued", g.p.slow, g.host.slow.Load(), g.p.queueBytes)
		}
	})
}

// A store that says nothing at all: whatever waits is answered before its
// client gives up, and idempotent producers go on in order afterwards.
func TestSlowStoreAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{Append: func(memory.Op) memory.WriteFault { return memory.WriteFault{Drop: true} }})
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				began := time.Now()
				b := serde.Build(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, []serde.NewRecord{{TimestampMillis: time.Now().UnixMilli(), Value: []byte("v")}})
				if r := g.produce(AppendRequest{Records: b}); r.Err == nil {
					t.Error("stored")
				}
				if took := time.Since(began); took > inAll+ackTimeout {
					t.Errorf("batch %d: answer after %v", i, took)
				}
			})
		}
		wg.Wait()
		g.kill()
	})
}
