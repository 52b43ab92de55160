package jetstream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/embedded"
	"github.com/hanzoai/stream/pubsub/jetstream"
	"github.com/hanzoai/stream/test/testkit"
)

// TestRunGrowingMessages: how much a consumer sends at once follows from what was
// asked for, not from how small messages were before.
func TestRunGrowingMessages(t *testing.T) {
	const small, large, smalls, larges, limit = 100, 400_000, 300, 60, 1 << 20
	srv := startEmbedded(t, embedded.Config{})
	st := connect(t, jetstream.Config{InProcess: srv})
	st.SetRuns(1, time.Minute, time.Minute)
	if err := st.CreateLog(t.Context(), pubsub.LogConfig{Name: "r", Subject: "r.0"}); err != nil {
		t.Fatal(err)
	}
	l := st.Log("r", "r.0")
	fillLarge(t, l, 1, smalls, small)
	fillLarge(t, l, smalls+1, smalls+larges, large)
	js, err := raw(t, srv).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	next := pubsub.Seq(1)
	for next <= smalls+larges {
		lim := pubsub.Limit{MaxBytes: limit}
		if next < smalls-100 { // it learns of small messages first
			lim.MaxMessages = 40
		}
		before := next
		ms, err := l.Read(t.Context(), next, lim)
		if err != nil || len(ms) == 0 {
			t.Fatalf("read at %d: %d messages, %v", next, len(ms), err)
		}
		read := 0
		for _, m := range ms {
			if m.Seq != next {
				t.Fatalf("sequence %d, want %d", m.Seq, next)
			}
			next++
			read += m.Size
			if m.Release != nil {
				m.Release()
			}
		}
		if read > limit+large {
			t.Errorf("a read of %d bytes brought %d", limit, read)
		}
		if st.Runs() == 0 {
			continue
		}
		// When the server has nothing more to send, what has it sent?
		testkit.Poll(t, 10*time.Second, "an idle consumer", func() error {
			var all []*nats.ConsumerInfo // read whole: the client waits for whoever does not
			for c := range js.Consumers("r") {
				all = append(all, c)
			}
			for _, c := range all {
				if c.NumWaiting > 0 {
					return fmt.Errorf("%d requests are waiting", c.NumWaiting)
				}
				if next > smalls && next+8 < pubsub.Seq(c.Delivered.Stream) {
					t.Errorf("read %d to %d, the server has sent up to %d", before, next-1, c.Delivered.Stream)
				}
			}
			return nil
		})
	}
}
