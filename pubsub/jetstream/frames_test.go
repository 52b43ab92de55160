package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
)

// TestReadersShareFrames: many readers of large messages at once, who hold what
// they got for a while, give it back or forget to, give up in the middle of reads
// and go elsewhere, while consumers are taken from them and the log is cut in
// front of them: all that anybody holds stays what was stored.
func TestReadersShareFrames(t *testing.T) {
	t.Parallel()
	const n, readers, rounds = 60, 6, 20
	size := func(seq pubsub.Seq) int { return 6_000 + int(seq%7)*60_000 }
	for _, batched := range []bool{true, false} {
		srv := startEmbedded(t, embedded.Config{})
		st := connect(t, jetstream.Config{InProcess: srv})
		st.SetBatched(batched)
		st.SetRuns(1, 50*time.Millisecond, 20*time.Millisecond)
		if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "r", Subject: "r.0"}); err != nil {
			t.Fatal(err)
		}
		l := st.Log("r", "r.0")
		for seq := pubsub.Seq(1); seq <= n; seq++ {
			if _, err := l.Append(t.Context(), seq-1, pubsub.Entry{Data: body(seq, size(seq))}); err != nil {
				t.Fatal(err)
			}
		}
		js, err := raw(t, srv).JetStream()
		if err != nil {
			t.Fatal(err)
		}
		check := func(m pubsub.Message) bool { return bytes.Equal(m.Data, body(m.Seq, size(m.Seq))) }
		var wg sync.WaitGroup
		for i := range readers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 5))
				var held []pubsub.Message
				next := pubsub.Seq(1)
				for range rounds {
					ctx, cancel := context.WithCancel(t.Context())
					if rnd.IntN(4) == 0 {
						after := time.AfterFunc(time.Duration(rnd.IntN(3000))*time.Microsecond, cancel)
						defer after.Stop()
					}
					limit := pubsub.Limit{MaxBytes: 1 + rnd.IntN(1_500_000)}
					ms, err := l.Read(ctx, next, limit)
					cancel()
					if err != nil && !errors.Is(err, pubsub.ErrUnavailable) {
						t.Errorf("read from %d: %v", next, err)
					}
					last := next - 1
					for _, m := range ms {
						if m.Seq <= last || !check(m) {
							t.Errorf("read from %d: message %d of %d bytes after %d", next, m.Seq, len(m.Data), last)
						}
						last = m.Seq
					}
					next = last + 1
					held = append(held, ms...)
					if next > n || rnd.IntN(8) == 0 {
						next = 1 + pubsub.Seq(rnd.IntN(n))
					}
					for len(held) > 12 {
						at := rnd.IntN(len(held))
						m := held[at]
						held = append(held[:at], held[at+1:]...)
						if !check(m) {
							t.Errorf("message %d has changed while it was held", m.Seq)
						}
						if m.Release != nil && rnd.IntN(5) > 0 {
							m.Release()
						}
					}
				}
				for _, m := range held {
					if !check(m) {
						t.Errorf("message %d has changed while it was held", m.Seq)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for cut := pubsub.Seq(1); ; {
			select {
			case <-done:
			case <-time.After(20 * time.Millisecond):
				for name := range js.ConsumerNames("r") {
					_ = js.DeleteConsumer("r", name) // it may have gone by itself
				}
				if cut < n/2 {
					if err := l.Trim(t.Context(), cut); err != nil {
						t.Error(err)
					}
					cut++
				}
				continue
			}
			break
		}
		if st.Ahead() < 0 {
			t.Errorf("%d bytes are read ahead", st.Ahead())
		}
	}
}
