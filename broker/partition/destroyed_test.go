package partition

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/types"
)

// TestSweepDestroyed: a sibling that was made, or a key that was written, when its
// partition was destroyed already goes; those of a partition that lives, or of which
// nothing is known, stay.
func TestSweepDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := many(t, 3)
		name := siblingName(testLog)
		if err := g.p.createSibling(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		info, err := g.client.FindLog(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		filter := siblingSubjects(testLog)
		if err := g.host.SweepDestroyed(t.Context(), filter); err != nil || len(w.server.Logs()) != 3 {
			t.Errorf("it lives: %v, %v", err, w.server.Logs())
		}
		if err := g.host.Destroy(t.Context(), DestroySpec{ID: w.id, Log: testLog}); err != nil {
			t.Fatal(err)
		}
		other := info.LogConfig
		other.Name, other.Subject = siblingName(testLog), ""
		other.Subject = siblingSubject(other.Name)
		other.Metadata = map[string]string{siblingMeta: testLog, siblingKey: recordKey(types.NewTopicID(), 0)}
		for _, c := range []pubsub.LogConfig{info.LogConfig, other} {
			if err := g.client.CreateLog(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		stray, unknown := recordKey(w.id, 0)+".s.9.x.0", recordKey(types.NewTopicID(), 0)+".s.9.x.0"
		for _, key := range []string{stray, unknown} {
			if _, err := g.host.records.Set(t.Context(), pubsub.Write{Key: key, Data: []byte("late")}); err != nil {
				t.Fatal(err)
			}
		}
		late, lease := w.maintainer(memory.Faults{}, 5, false)
		if err := late.host.SweepDestroyed(t.Context(), filter); !errors.Is(err, ErrNotMaintainer) {
			t.Errorf("without the lease: %v", err)
		}
		lease.set(5, true)
		if err := late.host.SweepDestroyed(t.Context(), filter); err != nil || !slices.Equal(w.server.Logs(), []string{other.Name}) {
			t.Errorf("%v, left are %v", err, w.server.Logs())
		}
		if left := w.server.Keys("kafka-partitions"); !slices.Equal(left, []string{unknown}) {
			t.Errorf("left are %v", left)
		}
	})
}

// TestWrittenWhenDestroyed: a partition is destroyed while something of it is on its
// way to the store, which nothing there refuses. Who sent it removes it.
func TestWrittenWhenDestroyed(t *testing.T) {
	t.Parallel()
	for what, mark := range map[string]string{"a snapshot": ".s.", "the index of a sibling": ".k.", "a sibling": siblingMark} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var late atomic.Bool
				hold := func(name string) memory.WriteFault {
					if strings.Contains(name, mark) && late.CompareAndSwap(true, false) {
						return memory.WriteFault{Before: 4 * time.Second}
					}
					return memory.WriteFault{}
				}
				w := compacted(t)
				g := w.gateway(memory.Faults{
					Set:    func(o memory.Op) memory.WriteFault { return hold(o.Key) },
					Create: func(o memory.Op) memory.WriteFault { return hold(o.Name) },
				})
				for _, v := range []string{"a=1", "a=2", "a=3"} {
					g.put(0, v)
				}
				late.Store(true)
				done := make(chan error, 1)
				go func() {
					if mark == ".s." {
						done <- g.p.snapshotNow(t.Context())
						return
					}
					_, err := g.compact(CompactOptions{Force: true})
					if err == nil {
						err = errors.New("compacted")
					} else {
						err = nil
					}
					done <- err
				}()
				time.Sleep(2 * time.Second)
				if late.Load() {
					t.Fatal("nothing was held up")
				}
				other := w.gateway(memory.Faults{})
				if err := other.host.Destroy(t.Context(), DestroySpec{ID: w.id, Log: testLog}); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if logs, keys := w.server.Logs(), w.server.Keys("kafka-partitions"); len(logs)+len(keys) > 0 {
					t.Errorf("left are the logs %v and the keys %v", logs, keys)
				}
			})
		})
	}
}

// TestSiblingMadeWhenOvertaken: the stream of a run is made when another gateway has
// taken that run away. Who had it made removes it.
func TestSiblingMadeWhenOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late atomic.Bool
		w := compacted(t)
		g, lease := w.maintainer(memory.Faults{Create: func(o memory.Op) memory.WriteFault {
			if strings.Contains(o.Name, siblingMark) && late.CompareAndSwap(true, false) {
				return memory.WriteFault{Before: 4 * time.Second}
			}
			return memory.WriteFault{}
		}}, 1, true)
		for _, v := range []string{"a=1", "a=2", "a=3"} {
			g.put(0, v)
		}
		late.Store(true)
		done := make(chan error, 1)
		go func() {
			_, err := g.compact(CompactOptions{Force: true})
			done <- err
		}()
		time.Sleep(2 * time.Second)
		lease.set(1, false)
		next, _ := w.maintainer(memory.Faults{}, 2, true)
		next.mustCompact(CompactOptions{Force: true})
		if err := <-done; err == nil || late.Load() {
			t.Errorf("the run that was overtaken: %v", err)
		}
		synctest.Wait()
		if logs, want := w.server.Logs(), append([]string{testLog}, w.stored().siblings()...); len(want) != 2 || !slices.Equal(logs, want) {
			t.Errorf("there are %v, want %v", logs, want)
		}
	})
}
