package broker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/broker/clean"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
	"github.com/hanzoai/stream/pubsub"
	"github.com/hanzoai/stream/pubsub/memory"
	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/types"
)

// keyed appends one record in a batch of its own.
func (b *built) keyed(t *testing.T, top *topic.Topic, key, value string) {
	t.Helper()
	p, err := b.Partition(t.Context(), top, 0)
	if err != nil {
		t.Fatal(err)
	}
	batch := serde.Build(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]serde.NewRecord{{TimestampMillis: time.Now().UnixMilli(), Key: []byte(key), Value: []byte(value)}})
	done := make(chan partition.AppendResult, 1)
	p.Submit(partition.AppendRequest{Records: batch}, func(r partition.AppendResult) { done <- r })
	if r := <-done; r.Err != nil {
		t.Fatal(r.Err)
	}
}

func siblings(srv *memory.Server) (names []string) {
	for _, l := range srv.Logs() {
		if strings.Contains(l, "=k") {
			names = append(names, l)
		}
	}
	return names
}

// TestNothingIsCompactedBesideAnOlderGateway: while one lives that does not know
// compacted logs, nothing is compacted, asked for or not; when it has gone, and the
// format is in force, it is, live settings obeyed; the older one is locked out then.
func TestNothingIsCompactedBesideAnOlderGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before, with = partition.FormatCompaction - 1, partition.FormatCompaction
		srv := memory.NewServer(memory.Config{})
		old := mustBuilt(t, srv, 1, before)
		b := mustBuilt(t, srv, 1, with)
		policy, ratio := "compact", "0"
		top, err := b.CreateTopic(t.Context(), topic.Spec{Name: "t", Partitions: 1, Replicas: 1, Configs: map[string]*string{"cleanup.policy": &policy, "min.cleanable.dirty.ratio": &ratio}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			[]*built{old, b}[i%2].keyed(t, top, "k", fmt.Sprint(i))
		}
		time.Sleep(3 * time.Minute)
		if s := siblings(srv); len(s) > 0 {
			t.Fatalf("siblings %q beside an older gateway", s)
		}
		for _, g := range []*built{old, b} {
			if _, err := g.WantCompacted(t.Context(), top); !errors.Is(err, ErrOlderGateways) {
				t.Errorf("asked for: %v", err)
			}
			if s := g.Cleaner().State; s != clean.OlderGateways && s != clean.Elsewhere {
				t.Errorf("state %q", s)
			}
		}
		old.end()
		force(t, with, b)
		began := time.Now()
		for len(siblings(srv)) == 0 {
			if time.Since(began) > time.Minute {
				t.Fatalf("nothing is compacted: %+v", b.Cleaner())
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		if l := b.Cleaner().Last; l == nil || l.Result.RecordsIn != 4 || l.Result.RecordsOut != 1 || l.Result.Upto != 4 {
			t.Errorf("%+v", l)
		}
		p, err := b.Partition(t.Context(), top, 0)
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Read(t.Context(), partition.ReadRequest{MaxBytes: 1 << 20, Whole: true})
		if err != nil || len(r.Batches) == 0 || serde.Batch(r.Batches[0]).BaseOffset() != 3 && serde.Batch(r.Batches[0]).LastOffset() != 3 {
			t.Errorf("%+v, %v", r, err)
		}
		if lr, err := p.Lookup(t.Context(), partition.LookupRequest{Timestamp: partition.Earliest}); err != nil || lr.Offset != types.Offset(0) {
			t.Errorf("%+v, %v", lr, err)
		}
		_, err = startBuilt(t, srv, 1, before, memory.Faults{})
		refusedFormat(t, err, "newer than this build's")

		// Deleting the topic takes the sibling along.
		if err := b.DeleteTopic(t.Context(), top); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); len(siblings(srv)) > 0; time.Sleep(time.Second) {
			if time.Since(began) > time.Minute {
				t.Fatalf("left of a deleted topic: %q", siblings(srv))
			}
		}
	})
}

// TestAnyGatewayTellsOfCompaction: whichever gateway is asked tells the run under way,
// the last one and why one failed, of the gateway that compacts; while that one cannot
// be asked, or there is none, it says so; who asks for a compaction that has failed has
// it tried at once.
func TestAnyGatewayTellsOfCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.NewServer(memory.Config{})
		var full, slow atomic.Bool
		start := func() *built {
			b, err := startBuilt(t, srv, 1, partition.FormatCompaction, memory.Faults{
				Create: func(op memory.Op) memory.WriteFault {
					if full.Load() && strings.Contains(op.Name, "=k") {
						return memory.WriteFault{Err: pubsub.ErrFull}
					}
					return memory.WriteFault{}
				},
				Append: func(op memory.Op) memory.WriteFault {
					if slow.Load() && strings.Contains(op.Name, "=k") {
						return memory.WriteFault{Before: 20 * time.Second}
					}
					return memory.WriteFault{}
				}})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		await := func(what string, ok func() bool) {
			t.Helper()
			for began := time.Now(); !ok(); time.Sleep(50 * time.Millisecond) {
				if time.Since(began) > time.Minute {
					t.Fatal(what)
				}
			}
		}
		a := start()
		force(t, partition.FormatCompaction, a)
		await("nobody took the lease", a.maintains)
		b := start()
		all := []*built{a, b}
		nodeA, _ := a.Node()
		nodeB, _ := b.Node()
		await("b does not know who compacts", func() bool { return b.Cleaning(t.Context()).Gateway == nodeA })
		if c := b.Cleaning(t.Context()); c.State.State != clean.Idle || c.Detail != "" {
			t.Errorf("%+v", c)
		}
		policy, ratio := "compact", "1"
		top, err := a.CreateTopic(t.Context(), topic.Spec{Name: "t", Partitions: 1, Replicas: 1, Configs: map[string]*string{"cleanup.policy": &policy, "min.cleanable.dirty.ratio": &ratio}})
		if err != nil {
			t.Fatal(err)
		}
		append := func() {
			for i := range 5 {
				b.keyed(t, top, "k", fmt.Sprint(i))
			}
		}
		want := func() {
			t.Helper()
			if _, err := b.WantCompacted(t.Context(), top); err != nil {
				t.Fatal(err)
			}
		}
		of := func(g *built, again bool) (PartitionCompaction, Cleaning) {
			t.Helper()
			ps, c, err := g.Compaction(t.Context(), top, again)
			if err != nil {
				t.Fatal(err)
			}
			return ps[0], c
		}

		append()
		full.Store(true)
		want()
		await("no failure is told of", func() bool { return len(b.Cleaning(t.Context()).Failing) > 0 })
		for _, g := range all {
			p, c := of(g, false)
			if f := p.Failure; f == nil || !strings.Contains(f.Error, pubsub.ErrFull.Error()) || !f.Again.After(f.At) || p.Running != nil {
				t.Errorf("%+v", p)
			}
			if c.Gateway != nodeA || c.Failing["t-0"] != *p.Failure || c.Last != nil {
				t.Errorf("%+v", c)
			}
		}
		time.Sleep(20 * time.Minute) // by now it is tried once an hour or so
		full.Store(false)
		asked := time.Now()
		want()
		if p, c := of(b, true); p.Failure != nil || len(c.Failing) > 0 {
			t.Errorf("asked for again: %+v, %+v", p, c)
		}
		await("not compacted", func() bool { p, _ := of(b, false); return p.X == 4 })
		if d := time.Since(asked); d > 5*time.Second {
			t.Errorf("compacted %v after it was asked for", d)
		}
		await("the run does not end", func() bool { return a.Cleaner().State == clean.Idle })
		if x, y := a.Cleaning(t.Context()), b.Cleaning(t.Context()); y.Last == nil || y.Last.Partition != "t-0" || y.Last.Result.RecordsIn != 4 || !y.Last.Ended.Equal(x.Last.Ended) || !reflect.DeepEqual(x.Last.Result, y.Last.Result) {
			t.Errorf("%+v and %+v", x.Last, y.Last)
		}

		append()
		slow.Store(true)
		want()
		await("no run is told of", func() bool { r := b.Cleaning(t.Context()).Running; return r != nil && r.Of > 0 })
		if p, c := of(b, false); p.Running == nil || p.Running.Partition != "t-0" || p.Running.Of == 0 || c.State.State != clean.Busy || c.Gateway != nodeA {
			t.Errorf("%+v, %+v", p, c)
		}

		// It stands still: what it does is not known, until another one takes over.
		a.client.Freeze()
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		c := b.Cleaning(short)
		cancel()
		if c.State.State != clean.Unknown || c.Gateway != nodeA || !strings.Contains(c.Detail, "does not answer") || c.Running != nil || c.Last != nil {
			t.Errorf("of one that stands still: %+v", c)
		}
		slow.Store(false)
		await("nobody takes over", func() bool { c := b.Cleaning(t.Context()); return c.Gateway == nodeB && c.Last != nil })
		a.client.Thaw()
		await("who stood still does not know who compacts", func() bool { c := a.Cleaning(t.Context()); return c.Gateway == nodeB && c.Last != nil })
		// One that does not know the question.
		b.unhand()
		if c := a.Cleaning(t.Context()); c.State.State != clean.Unknown || c.Gateway != nodeB || !strings.Contains(c.Detail, "cannot be asked") {
			t.Errorf("of one that cannot be asked: %+v", c)
		}
		// Nobody.
		a.client.Freeze()
		b.release(t.Context())
		if c := b.Cleaning(t.Context()); c.State.State != clean.Unknown || c.Gateway != 0 || !strings.Contains(c.Detail, "no gateway holds") {
			t.Errorf("of nobody: %+v", c)
		}
		a.client.Thaw()
	})
}
