package webui

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

// world is what the pages show:
//
//	orders  2 partitions, retention.ms set: [2, 5) and [0, 3)
//	empty   1 partition
//	live    a group with one member, which has committed 3 of orders-0
//	idle    a group without members: 4 of orders-0, 3 of orders-1
type world struct {
	*broker.Broker
	cl  *kgo.Client
	adm *kadm.Client
}

var (
	starts  = map[int32]int64{0: 2, 1: 0}
	ends    = map[int32]int64{0: 5, 1: 3}
	commits = map[string]map[int32]int64{"live": {0: 3}, "idle": {0: 4, 1: 3}}
	lags    = map[string]map[int32]int64{"live": {0: 2}, "idle": {0: 1, 1: 0}}
)

const retention = "7200000"

func newWorld(t *testing.T, b *broker.Broker) *world {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	w := &world{b, cl, kadm.NewClient(cl)}
	ctx := t.Context()
	value := retention
	if _, err := w.adm.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &value}, "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.adm.CreateTopic(ctx, 1, 1, nil, "empty"); err != nil {
		t.Fatal(err)
	}
	for p, end := range ends {
		for o := range end {
			r := &kgo.Record{Topic: "orders", Partition: p, Key: fmt.Appendf(nil, "k%d", o), Value: fmt.Appendf(nil, "%d-%d", p, o)}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var cut kadm.Offsets
	cut.AddOffset("orders", 0, starts[0], -1)
	if _, err := w.adm.DeleteRecords(ctx, cut); err != nil {
		t.Fatal(err)
	}

	assigned := make(chan struct{}, 1)
	member, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.ClientID("app"), kgo.ConsumerGroup("live"), kgo.ConsumeTopics("orders"),
		kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { assigned <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Close)
	select {
	case <-assigned:
	case <-time.After(30 * time.Second):
		t.Fatal("the member has no partitions")
	}
	if err := member.CommitRecords(ctx, &kgo.Record{Topic: "orders", Partition: 0, Offset: commits["live"][0] - 1, LeaderEpoch: -1}); err != nil {
		t.Fatal(err)
	}
	var idle kadm.Offsets
	for p, o := range commits["idle"] {
		idle.AddOffset("orders", p, o, -1)
	}
	// On a fresh broker the first answers can be that the coordinator loads.
	testkit.Poll(t, 30*time.Second, "the commit of idle", func() error { return w.adm.CommitAllOffsets(ctx, "idle", idle) })
	return w
}

// ask sends req in the version a client would use, to the broker that
// metadata shows.
func ask[R kmsg.Response](t *testing.T, w *world, req kmsg.Request, version int16) R {
	t.Helper()
	resp, err := send(t, w, req, version)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

func send(t *testing.T, w *world, req kmsg.Request, version int16) (kmsg.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return w.cl.Broker(1).Request(ctx, pinned{req, version})
}

// pinned is a request whose version the client may not raise.
type pinned struct {
	kmsg.Request
	version int16
}

func (p pinned) MaxVersion() int16 { return min(p.version, p.Request.MaxVersion()) }

func ok(t *testing.T, what string, code int16) {
	t.Helper()
	if err := kerr.ErrorForCode(code); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func same[K comparable, V comparable](t *testing.T, what string, got, want map[K]V) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// has checks that all of want are in got.
func has(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%s: no %s in %v", what, name, got)
		}
	}
}
