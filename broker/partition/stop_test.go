package partition

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// stopped checks that a gateway refuses everything, that the record says why,
// and that nothing was appended.
func (g *gateway) stopped(kind string) {
	t := g.w.t
	t.Helper()
	before := len(g.w.server.Messages(testLog))
	if a := g.produce(AppendRequest{Records: batch(1)}); !errors.Is(a.Err, kerr.KafkaStorageError) {
		t.Errorf("produce to a stopped partition: %+v", a)
	}
	if n := len(g.w.server.Messages(testLog)); n != before {
		t.Errorf("a stopped partition has %d messages, had %d", n, before)
	}
	if _, err := g.p.Read(t.Context(), ReadRequest{MaxBytes: 1000, Whole: true}); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("read of a stopped partition: %v", err)
	}
	if _, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("lookup in a stopped partition: %v", err)
	}
	if s, err := g.p.Status(t.Context()); err != nil || !strings.Contains(s.Stopped, kind) {
		t.Errorf("status: %+v, %v", s, err)
	}
	synctest.Wait()
	v, err := g.host.records.Get(t.Context(), g.p.key)
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseRecord(v.Data)
	if err != nil || r.Stop == nil || r.Stop.Kind != kind {
		t.Errorf("record: %s, %v", v.Data, err)
	}
}

// A stream that is restored from an older copy contradicts what is known.
// It may be a leader that woke from a freeze; after 20 s the partition stops,
// on the gateway that knew and on every other, and no offset is used again.
func TestC39RestoredFromAnOlderCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		run(t, g)
		for range 5 {
			g.mustProduce(batch(3))
		}
		old := w.server.Snapshot(testLog)
		for range 5 {
			g.mustProduce(batch(3))
		}
		ch := make(chan struct{}, 1)
		defer g.p.Notify(ch)()
		time.Sleep(7 * time.Second) // a snapshot of sequence 10 is written
		w.server.Restore(old)
		cold := w.gateway(memory.Faults{})
		for range 10 {
			for _, g := range []*gateway{g, cold} {
				if a := g.produce(AppendRequest{Records: batch(1)}); a.Err == nil {
					t.Fatalf("appended at %d to a log that went back", a.BaseOffset)
				}
				if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); err == nil {
					t.Errorf("latest %+v of a log that went back", r)
				}
			}
			time.Sleep(3 * time.Second)
		}
		g.stopped("back")
		cold.stopped("back")
		w.gateway(memory.Faults{}).stopped("back")
	})
}

// A leader that denies what is stored for a moment stops nothing.
func TestC41LeaderThatWokeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		until := time.Now()
		deny := func(memory.Op) (f memory.ReadFault) {
			if time.Now().Before(until) {
				f.Behind = 3
			}
			return f
		}
		g := w.gateway(memory.Faults{Get: deny, Bounds: deny, Headers: deny, Read: deny})
		for range 6 {
			g.mustProduce(batch(1))
		}
		until = time.Now().Add(15 * time.Second)
		for range 3 {
			if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); err == nil && r.Offset < 6 {
				t.Errorf("latest %d", r.Offset)
			}
			if r, err := g.p.Read(t.Context(), ReadRequest{Offset: 4, MaxBytes: 1000, Whole: true}); err == nil && r.Bytes == 0 || errors.Is(err, kerr.OffsetOutOfRange) {
				t.Errorf("read: %+v, %v", r, err)
			}
			time.Sleep(5 * time.Second)
		}
		if got := g.mustProduce(batch(1)); got != 6 {
			t.Errorf("base %d", got)
		}
		if bs := g.read(4); len(bs) != 3 {
			t.Errorf("%d batches", len(bs))
		}
	})
}

func TestMessageRemovedByHand(t *testing.T) {
	for name, seq := range map[string]pubsub.Seq{"in the middle": 3, "the last": 6} {
		for _, replicas := range []int{1, 3} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, memory.Config{MaxReplicas: replicas})
					g := w.gateway(memory.Faults{})
					for range 6 {
						g.mustProduce(batch(1))
					}
					w.server.Remove(testLog, seq)
					// Warm: found by reading it.
					if _, err := g.p.Read(t.Context(), ReadRequest{Offset: types.Offset(seq - 1), MaxBytes: 1000, Whole: true}); !errors.Is(err, kerr.KafkaStorageError) {
						t.Errorf("read of the hole: %v", err)
					}
					g.stopped("gap")
					w.gateway(memory.Faults{}).stopped("gap")
				})
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, memory.Config{MaxReplicas: replicas})
					g := w.gateway(memory.Faults{})
					for range 6 {
						g.mustProduce(batch(1))
					}
					g.kill()
					w.server.Remove(testLog, seq)
					w.gateway(memory.Faults{}).stopped("gap") // cold: found on open
				})
			})
		}
	}
}

// A message that says it is ours and does not continue the log.
func TestForgedMessage(t *testing.T) {
	for name, forge := range map[string]func(w *world, h pubsub.Header){
		"order": func(w *world, h pubsub.Header) {
			h[headerLog] = []string{"v=1 topic=" + w.id.String() + " seq=3 append=x.1 prev=x.0 base=4 last=4"}
			h[headerBatch] = []string{"len=70 n=1 max=1 at=1"}
		},
		"header": func(w *world, h pubsub.Header) {
			h[headerLog] = []string{"v=1 topic=" + w.id.String() + " seq=3 append=x.1 prev"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, memory.Config{})
				g := w.gateway(memory.Faults{})
				g.mustProduce(batch(2))
				g.mustProduce(batch(2))
				h := pubsub.Header{}
				forge(w, h)
				if _, err := w.server.Publish(testSubject, h, make([]byte, 70)); err != nil {
					t.Fatal(err)
				}
				if a := g.produce(AppendRequest{Records: batch(1)}); a.Err == nil {
					t.Errorf("appended at %d after a forged message", a.BaseOffset)
				}
				g.stopped(name)
				w.gateway(memory.Faults{}).stopped(name)
			})
		})
	}
}

func TestPayloadThatIsNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		g.mustProduce(batch(2))
		w.server.Rewrite(testLog, 1, func(m *pubsub.Message) { m.Data[16] = 9 })
		if _, err := g.p.Read(t.Context(), ReadRequest{MaxBytes: 1000, Whole: true}); !errors.Is(err, kerr.KafkaStorageError) {
			t.Errorf("read: %v", err)
		}
		g.stopped("header")
	})
}

// A message in a format of the future makes the partition unavailable here; it
// is not corruption.
func TestUnknownFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		g.mustProduce(batch(2))
		h := pubsub.Header{headerLog: {"v=2 topic=" + w.id.String() + " seq=2 anything else"}}
		if _, err := w.server.Publish(testSubject, h, []byte("?")); err != nil {
			t.Fatal(err)
		}
		for _, g := range []*gateway{g, w.gateway(memory.Faults{})} {
			if a := g.produce(AppendRequest{Records: batch(1)}); !errors.Is(a.Err, pubsub.ErrUnavailable) {
				t.Errorf("%+v", a)
			}
			if s, _ := g.p.Status(t.Context()); s.Stopped != "" {
				t.Errorf("stopped: %s", s.Stopped)
			}
		}
		if n := len(w.server.Messages(testLog)); n != 2 {
			t.Errorf("%d messages", n)
		}
	})
}

// A stream or record that is not there is a failure, never an empty partition.
func TestMissingStreamOrRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		g.mustProduce(batch(1))
		check := func(g *gateway) {
			t.Helper()
			if a := g.produce(AppendRequest{Records: batch(1)}); !errors.Is(a.Err, pubsub.ErrUnavailable) {
				t.Errorf("produce: %+v", a)
			}
			if r, err := g.p.Lookup(t.Context(), LookupRequest{Timestamp: Latest}); !errors.Is(err, pubsub.ErrUnavailable) {
				t.Errorf("lookup: %+v, %v", r, err)
			}
		}
		w.server.Forget("kafka-partitions", g.p.key)
		check(w.gateway(memory.Faults{}))
		if err := g.client.DeleteLog(t.Context(), testLog); err != nil {
			t.Fatal(err)
		}
		check(g)
	})
}

// The record carries unknown fields through and is not overwritten in an
// unknown version.
func TestRecordOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Config{})
		g := w.gateway(memory.Faults{})
		set := func(s string) {
			v, err := g.host.records.Get(t.Context(), g.p.key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pubsub.Put(t.Context(), g.host.records, pubsub.Write{Key: g.p.key, Data: []byte(s), Expect: v.Rev}); err != nil {
				t.Fatal(err)
			}
		}
		set(`{"v":1,"stream":"kafka-t-0","first":1,"base":0,"start":0,"manifest":{"x":[1,2]}}`)
		g.mustProduce(batch(1))
		if err := g.host.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		v, _ := g.host.records.Get(t.Context(), g.p.key)
		if s := string(v.Data); !strings.Contains(s, `"manifest":{"x":[1,2]}`) || !strings.Contains(s, `"snapshot"`) {
			t.Errorf("record: %s", s)
		}
		set(`{"v":2,"stream":"kafka-t-0","what":1}`)
		g.mustProduce(batch(1))
		_ = g.host.Drain(t.Context())
		v, _ = g.host.records.Get(t.Context(), g.p.key)
		if s := string(v.Data); s != `{"v":2,"stream":"kafka-t-0","what":1}` {
			t.Errorf("record: %s", s)
		}
	})
}
