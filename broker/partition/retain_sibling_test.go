package partition

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
)

// TestRetentionThroughSibling: by time and by size the log start moves over the
// messages of a sibling, and beyond it.
func TestRetentionThroughSibling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := many(t, 10)
		m := w.stored().Clean
		if m.X != 20 || m.Last < 10 {
			t.Fatalf("%+v", m)
		}
		before, err := g.p.Size(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		half := int64(0) // by the bytes of batches: messages are much larger in real ones
		for _, part := range m.Parts {
			half += part.Bytes / 2
		}
		b, err := g.p.log.Bounds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g.configure(func(c *Config) { c.RetentionBytes = half + int64(b.Bytes) })
		g.retain()
		if r := w.stored(); r.Start <= 10 || r.Start >= 20 || r.Clean == nil {
			t.Errorf("by size: %+v", r)
		}
		if after, err := g.p.Size(t.Context()); err != nil || after >= before || after < before/4 {
			t.Errorf("%d bytes became %d, %v", before, after, err)
		}
		if ms := w.server.Messages(m.Stream); len(ms) == 0 || ms[0].Seq == 1 {
			t.Error("the sibling was not trimmed")
		}
		g.configure(func(c *Config) { c.RetentionBytes, c.RetentionMillis = -1, 60_000 })
		time.Sleep(30 * time.Second)
		start := w.stored().Start
		if g.retain(); w.stored().Start != start {
			t.Error("too early")
		}
		g.put(0, "z=1")
		time.Sleep(31 * time.Second)
		g.retain()
		if r := w.stored(); r.Start != 21 || r.Clean != nil || len(w.server.Logs()) != 1 {
			t.Errorf("by time: %+v, %v", r, w.server.Logs())
		}
		if got := fmt.Sprint(w.gateway(memory.Faults{}).shows()); got != "[21:z=1]" {
			t.Error(got)
		}
	})
}

// TestRetentionBehindASiblingWithoutRecords: where compaction has left no record, of a
// topic without keys, say, it does not keep what comes behind from being let go, by
// time or size, whatever the policy is by then.
func TestRetentionBehindASiblingWithoutRecords(t *testing.T) {
	for name, set := range map[string]func(c *Config){
		"time": func(c *Config) { c.RetentionMillis = 60_000 },
		"size": func(c *Config) { c.RetentionMillis, c.RetentionBytes = -1, 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := compacted(t)
				g, _ := w.maintainer(memory.Faults{}, 1, true)
				keyless := func() {
					g.configure(func(c *Config) { c.Compacted = false })
					g.mustProduce(keyed(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, 0, []serde.NewRecord{{TimestampMillis: time.Now().UnixMilli(), Value: make([]byte, 500)}}))
				}
				for range 10 {
					keyless()
				}
				g.configure(func(c *Config) { c.Compacted = true })
				g.mustCompact(CompactOptions{Force: true})
				if m := w.stored().Clean; m == nil || m.Records != 0 {
					t.Fatalf("left: %+v", m)
				}
				for range 10 {
					keyless()
				}
				g.configure(set)
				time.Sleep(time.Hour)
				keyless()
				g.retain()
				if r := w.stored(); r.Start < 18 || r.Clean != nil || len(w.server.Logs()) != 1 {
					t.Errorf("the log begins at %d of 21, %+v, %v", r.Start, r.Clean, w.server.Logs())
				}
				g.put(0, "z=1")
				if got := g.shows(); !strings.HasSuffix(got[len(got)-1], ":z=1") {
					t.Error(got)
				}
			})
		})
	}
}

// TestRetentionBetweenRuns: a log that is rewritten every 15 seconds lets go of what
// is old like any other, though its sibling is always new; what came with an old
// timestamp can be read for a while.
func TestRetentionBetweenRuns(t *testing.T) {
	for _, memoryFor := range []int{1, 1 << 16} { // many passes, or one
		synctest.Test(t, func(t *testing.T) {
			w := compacted(t)
			g, _ := w.maintainer(memory.Faults{}, 1, true)
			g.host.sibling = siblingSizes{1, 4}
			g.configure(func(c *Config) { c.RetentionMillis = 60_000 })
			g.put(0, "old=1")
			for i := range 12 {
				if i == 8 {
					r := pairs([]string{"ancient=1"})
					r[0].TimestampMillis = 1
					g.mustProduce(keyed(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, 0, r))
				}
				for j := range 3 {
					g.put(0, fmt.Sprintf("a=%d", j))
				}
				if _, err := g.p.Compact(t.Context(), CompactOptions{Now: time.Now(), MaxLag: 1 << 62, Force: true, Memory: memoryFor}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(14 * time.Second)
				g.retain()
				if got := fmt.Sprint(g.shows()); strings.Contains(got, ":old=") != (i < 4) && i != 4 {
					t.Errorf("memory %d, after %d s: %s", memoryFor, 15*i+14, got)
				} else if i == 8 && !strings.Contains(got, ":ancient=") {
					t.Errorf("what has an old timestamp is gone at once: %s", got)
				}
				time.Sleep(time.Second)
			}
			if got := fmt.Sprint(g.shows()); strings.Contains(got, ":ancient=") {
				t.Errorf("at last: %s", got)
			}
		})
	}
}
