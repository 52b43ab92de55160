package broker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanzoai/stream/broker/clean"
	"github.com/hanzoai/stream/broker/partition"
	"github.com/hanzoai/stream/broker/topic"
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
