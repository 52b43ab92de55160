package topic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
)

func TestGrow(t *testing.T) {
	t.Parallel()
	c := newCluster(memory.Config{MaxReplicas: 3})
	g := c.gateway(t, "a", memory.Faults{}, func(c *Config, d *Deps) {
		c.MaxPartitions = 10
		d.Broker = func(id int32) bool { return id == 1 || id == 2 }
	})
	other := c.gateway(t, "b", memory.Faults{}, nil)
	s := spec("t")
	s.Partitions = 2
	top := mustCreate(t, g, s)
	for _, c := range []struct {
		what string
		g    Growth
		want *kerr.Error
		text string
	}{
		{"the same", Growth{Partitions: 2}, kerr.InvalidPartitions, "Topic already has 2 partition(s)."},
		{"fewer", Growth{Partitions: 1}, kerr.InvalidPartitions, "The topic t currently has 2 partition(s); 1 would not be an increase."},
		{"none", Growth{}, kerr.InvalidPartitions, "The topic t currently has 2 partition(s); 0 would not be an increase."},
		{"beyond the cluster's limit", Growth{Partitions: 11}, kerr.InvalidPartitions, "9 more partitions are too many: 2 exist, the limit of this cluster is 10."},
		{"too few assignments", Growth{Partitions: 4, Assignments: [][]int32{{1}}}, kerr.InvalidReplicaAssignment, "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."},
		{"no assignments", Growth{Partitions: 4, Assignments: [][]int32{}}, kerr.InvalidReplicaAssignment, "Attempted to add 2 additional partition(s), but only 0 assignment(s) were specified."},
		{"a stranger", Growth{Partitions: 3, Assignments: [][]int32{{9}}}, kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker 9, but no such broker is registered."},
		{"one twice", Growth{Partitions: 3, Assignments: [][]int32{{1, 1}}}, kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker 1 more than once."},
		{"nobody", Growth{Partitions: 3, Assignments: [][]int32{{}}}, kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list."},
		{"only checked", Growth{Partitions: 3, ValidateOnly: true}, nil, ""},
		{"only checked, and wrong", Growth{Partitions: 2, ValidateOnly: true}, kerr.InvalidPartitions, "Topic already has 2 partition(s)."},
	} {
		err := g.Grow(t.Context(), top, c.g)
		wantCode(t, c.what, err, c.want)
		if k := (*kerr.Error)(nil); errors.As(err, &k) && k.Description != c.text {
			t.Errorf("%s: %q, want %q", c.what, k.Description, c.text)
		}
		if now, _ := g.Get(t.Context(), "t"); now.Partitions != 2 {
			t.Fatalf("%s changed the topic: %+v", c.what, now)
		}
	}
	if logs := c.srv.Logs(); len(logs) != 2 {
		t.Errorf("a refusal left streams: %v", logs)
	}

	if err := g.Grow(t.Context(), top, Growth{Partitions: 4, Assignments: [][]int32{{1}, {2}}}); err != nil {
		t.Fatal(err)
	}
	// The old value names the topic still.
	if err := other.Grow(t.Context(), top, Growth{Partitions: 5}); err != nil {
		t.Fatal(err)
	}
	for _, who := range []*gateway{g, other} {
		now, err := who.Newest(t.Context(), top)
		if err != nil || now.Partitions != 5 || now.ID != top.ID || now.Bare != top.Bare {
			t.Errorf("%+v, %v", now, err)
		}
		if who.Current(top) != now {
			t.Error("the present topic is another one")
		}
	}
	if logs := c.srv.Logs(); len(logs) != 5 {
		t.Errorf("streams %v", logs)
	}
	if err := g.Delete(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	if logs := c.srv.Logs(); len(logs) != 0 {
		t.Errorf("left of a grown topic: %v", logs)
	}
	wantCode(t, "a topic that is gone", g.Grow(t.Context(), top, Growth{Partitions: 9}), kerr.UnknownTopicOrPartition)
	again := mustCreate(t, g, s)
	wantCode(t, "another one of the name", g.Grow(t.Context(), top, Growth{Partitions: 9}), kerr.UnknownTopicOrPartition)
	_, err := g.Newest(t.Context(), top)
	wantCode(t, "the newest of another", err, kerr.UnknownTopicOrPartition)
	if now, _ := g.Get(t.Context(), "t"); now.ID != again.ID || now.Partitions != 2 {
		t.Errorf("%+v", now)
	}
}

// Somebody's stream where a new partition would be: refused before anything is
// written, so that the topic does not grow for ever.
func TestGrowInTheWay(t *testing.T) {
	t.Parallel()
	g, srv := simple(t, nil)
	top := mustCreate(t, g, spec("t"))
	stream := g.Partition(top, 1).LogConfig
	stream.Metadata = nil
	if err := g.client.CreateLog(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "in the way", g.Grow(t.Context(), top, Growth{Partitions: 3}), kerr.KafkaStorageError)
	if v, err := g.deps.Table.Get(t.Context(), "t"); err != nil || strings.Contains(string(v.Data), "growing") {
		t.Errorf("it grows: %s, %v", v.Data, err)
	}
	if err := g.client.DeleteLog(t.Context(), stream.Name); err != nil {
		t.Fatal(err)
	}
	if err := g.Grow(t.Context(), top, Growth{Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	if logs := srv.Logs(); len(logs) != 3 {
		t.Errorf("%v", logs)
	}
}

// Growths, changes of configs and a deletion at once, on several gateways: each
// is done whole or refused, nothing is lost and nothing is left.
func TestGrowTogether(t *testing.T) {
	t.Parallel()
	for round := range 20 {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(memory.Config{MaxReplicas: 3})
			var gs []*gateway
			for i := range 3 {
				g := c.gateway(t, fmt.Sprintf("g%d", i), memory.Faults{}, nil)
				defer g.stop()
				gs = append(gs, g)
			}
			top := mustCreate(t, gs[0], spec("t"))
			synctest.Wait()
			var wg sync.WaitGroup
			for i, g := range gs {
				wg.Go(func() {
					err := g.Grow(t.Context(), top, Growth{Partitions: int32(2 + i)})
					if err != nil && !errors.Is(err, pubsub.ErrConflict) {
						wantCode(t, "grow", err, kerr.InvalidPartitions)
					}
				})
				wg.Go(func() {
					if err := g.Alter(t.Context(), top, Alteration{Changes: []Change{{Name: "retention.ms", Value: str("7")}, {Name: fmt.Sprintf("segment.%s", []string{"ms", "jitter.ms", "bytes"}[i]), Value: str("2000000")}}}); err != nil {
						t.Errorf("alter: %v", err)
					}
				})
			}
			wg.Wait()
			now, err := gs[0].Newest(t.Context(), top)
			if err != nil || now.Partitions != 4 || len(now.Configs) != 4 {
				t.Errorf("%+v, %v", now, err)
			}
			if logs := c.srv.Logs(); len(logs) != 4 {
				t.Errorf("streams %v", logs)
			}
			// One deletes while another grows.
			wg.Go(func() { _ = gs[round%3].Grow(t.Context(), now, Growth{Partitions: 8}) })
			wg.Go(func() {
				if err := gs[1].Delete(t.Context(), now); err != nil {
					t.Errorf("delete: %v", err)
				}
			})
			wg.Wait()
			time.Sleep(time.Minute)
			for _, g := range gs {
				if err := g.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if left := append(c.srv.Logs(), c.srv.Keys("kafka-partitions")...); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A growth whose gateway lives and failed is finished by its own sweep.
func TestGrowFinishedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(memory.Config{})
		count := &counting{}
		var failing atomic.Bool
		count.hook = func(_ int64, write bool) (memory.WriteFault, memory.ReadFault) {
			if failing.Load() && write {
				return memory.WriteFault{Err: pubsub.ErrUnavailable}, memory.ReadFault{}
			}
			return memory.WriteFault{}, memory.ReadFault{}
		}
		faults := count.faults()
		faults.Set = nil // records can be written, streams cannot be made
		g := c.gateway(t, "a", faults, nil)
		defer g.stop()
		top := mustCreate(t, g, spec("t"))
		failing.Store(true)
		if err := g.Grow(t.Context(), top, Growth{Partitions: 3}); !errors.Is(err, pubsub.ErrUnavailable) {
			t.Fatalf("%v", err)
		}
		if now, _ := g.Get(context.Background(), "t"); now.Partitions != 1 {
			t.Errorf("%d partitions are shown before they are there", now.Partitions)
		}
		failing.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if now, _ := g.Get(context.Background(), "t"); now.Partitions != 3 || len(c.srv.Logs()) != 3 {
			t.Errorf("%+v with %v", now, c.srv.Logs())
		}
	})
}
