package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

// TestCompactionOfTheLargestPlainMessage: what was published to the stream may be as
// large as the store takes, and is larger as a batch. It is compressed; what cannot
// be does not keep what comes before it from being compacted, is told of, and is
// passed once it has a newer record of its key.
func TestCompactionOfTheLargestPlainMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{Remember: true, MaxPayload: 64 << 10})
		w.config.Compacted, w.config.Retained = true, true
		g := w.gateway(memory.Faults{})
		r := rand.New(rand.NewPCG(1, 1))
		publish := func(key, value string) {
			if _, err := w.server.Publish(testSubject, pubsub.Header{headerKey: {key}}, []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		room := 64<<10 - len("NATS/1.0\r\n\r\n") - len(headerKey) - len("text") - 4
		noise := make([]byte, room)
		for i := range noise {
			noise[i] = byte(r.Uint32())
		}
		short := func() (out []string) {
			for _, s := range g.shows() {
				out = append(out, s[:min(len(s), 8)])
			}
			return out
		}
		g.put(0, "a=1")
		publish("text", strings.Repeat("x", room))
		g.put(0, "a=2")
		publish("bits", string(noise))
		g.put(0, "a=3")
		g.put(0, "b=1")
		res := g.mustCompact(CompactOptions{Force: true})
		if got, want := fmt.Sprint(short()), "[1:text=x 2:a=2 3:bits="+string(noise[:1])+" 4:a=3 5:b=1]"; res.Upto != 3 || got != want {
			t.Errorf("compacted to %d: %q, want %q", res.Upto, got, want)
		}
		large := (*tooLarge)(nil)
		if _, err := g.compact(CompactOptions{Force: true}); !errors.As(err, &large) || large.offset != 3 {
			t.Errorf("again: %v", err)
		}
		publish("bits", "few")
		g.put(0, "c=1")
		res = g.mustCompact(CompactOptions{Force: true})
		if got := fmt.Sprint(short()); res.Upto != 7 || got != "[1:text=x 4:a=3 5:b=1 6:bits=f 7:c=1]" {
			t.Errorf("compacted to %d: %q", res.Upto, got)
		}
		if got := g.shows(); got[0] != "1:text="+strings.Repeat("x", room) {
			t.Errorf("the large record has %d bytes", len(got[0]))
		}
	})
}

// TestCompactionWithoutSnapshot: what cannot be switched to without a snapshot is not
// written, as long as none can be.
func TestCompactionWithoutSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := compacted(t)
		var fail atomic.Bool
		var made atomic.Int32
		g := w.gateway(memory.Faults{Set: func(op memory.Op) (f memory.WriteFault) {
			if fail.Load() && strings.Contains(op.Key, ".s.") {
				f.Err = pubsub.ErrUnavailable
			}
			return f
		}, Create: func(memory.Op) (f memory.WriteFault) { made.Add(1); return f }})
		for i := range 10 {
			g.put(0, fmt.Sprint("a=", i))
		}
		fail.Store(true)
		before := made.Load()
		if _, err := g.compact(CompactOptions{Force: true}); !errors.Is(err, pubsub.ErrUnavailable) || made.Load() != before {
			t.Errorf("%v, %d siblings made", err, made.Load()-before)
		}
		fail.Store(false)
		g.mustCompact(CompactOptions{Force: true})
	})
}
