package webui

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Calls of Redpanda Console, by its own library.

func consoleStart(t *testing.T, w *world) {
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), w.cl)
	if err != nil || len(meta.Brokers) != 1 || meta.ControllerID != 1 {
		t.Fatalf("%v, %+v", err, meta)
	}
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), w.cl)
	if err != nil {
		t.Fatal(err)
	}
	ok(t, "versions", versions.ErrorCode)
	// It shows a guess of the version, and hides pages whose keys are not served.
	if guess := kversion.FromApiVersionsResponse(versions).VersionGuess(); guess == "" {
		t.Error("no guess of the version")
	}
}

func consoleMetadata(t *testing.T, w *world) {
	m, err := w.adm.Metadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.Cluster == "" || m.Controller != 1 || len(m.Brokers) != 1 {
		t.Errorf("%+v", m)
	}
	partitions := map[string]int{}
	for name, topic := range m.Topics {
		if topic.Err != nil {
			t.Errorf("%s: %v", name, topic.Err)
		}
		partitions[name] = len(topic.Partitions)
	}
	if partitions["orders"] != 2 || partitions["empty"] != 1 {
		t.Errorf("%v", partitions)
	}
}

func consoleLogDirs(t *testing.T, w *world) {
	dirs, err := w.adm.DescribeAllLogDirs(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{}
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) { sizes[fmt.Sprintf("%s-%d", p.Topic, p.Partition)] = p.Size })
	})
	if sizes["orders-0"] < 3*61 || sizes["orders-1"] < 3*61 || sizes["empty-0"] != 0 {
		t.Errorf("%v", sizes)
	}
	req := kmsg.NewPtrDescribeLogDirsRequest()
	for _, shard := range w.cl.RequestSharded(t.Context(), req) {
		if shard.Err != nil {
			t.Fatal(shard.Err)
		}
		checkLogDirs(t, shard.Resp.(*kmsg.DescribeLogDirsResponse))
	}
}

func consoleBrokerConfigs(t *testing.T, w *world) {
	resp, err := describeConfigs(kmsg.ConfigResourceTypeBroker, "1").RequestWith(t.Context(), w.cl)
	if err != nil {
		t.Fatal(err)
	}
	checkBrokerConfigs(t, resp)
}

func consoleCleanupPolicies(t *testing.T, w *world) {
	m, err := w.adm.ListTopicsWithInternal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req := describeConfigs(kmsg.ConfigResourceTypeTopic, m.Names()...)
	for i := range req.Resources {
		req.Resources[i].ConfigNames = []string{"cleanup.policy"}
	}
	resp, err := req.RequestWith(t.Context(), w.cl)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range resp.Resources {
		ok(t, r.ResourceName, r.ErrorCode)
		if len(r.Configs) != 1 || r.Configs[0].Value == nil {
			t.Fatalf("%+v", r)
		}
		got[r.ResourceName] = *r.Configs[0].Value
	}
	same(t, "cleanup.policy", got, map[string]string{"orders": "delete", "empty": "delete", "__consumer_offsets": "compact"})
}

func consoleTopicConfigs(t *testing.T, w *world) {
	resp, err := describeConfigs(kmsg.ConfigResourceTypeTopic, "orders").RequestWith(t.Context(), w.cl)
	if err != nil {
		t.Fatal(err)
	}
	checkTopicConfigs(t, resp, 1)
}

func listed(t *testing.T, offsets kadm.ListedOffsets, err error) map[int32]int64 {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	got := map[int32]int64{}
	offsets.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			t.Error(o.Err)
		}
		got[o.Partition] = o.Offset
	})
	return got
}

func consoleWatermarks(t *testing.T, w *world) {
	consoleMetadata(t, w)
	low, err := w.adm.ListStartOffsets(t.Context(), "orders")
	same(t, "low water marks", listed(t, low, err), starts)
	high, err := w.adm.ListEndOffsets(t.Context(), "orders")
	same(t, "high water marks", listed(t, high, err), ends)
}

func consoleGroups(t *testing.T, w *world) {
	groups, err := w.adm.ListGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	has(t, "groups", groups.Groups(), "live", "idle")
	described, err := w.adm.DescribeGroups(t.Context(), groups.Groups()...)
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, g := range described {
		if g.Err != nil || g.Coordinator.NodeID != 1 {
			t.Errorf("%+v", g)
		}
		states[g.Group] = fmt.Sprintf("%s, %d", g.State, len(g.Members))
	}
	same(t, "states", states, map[string]string{"live": "Stable, 1", "idle": "Empty, 0"})

	high, err := w.adm.ListEndOffsets(t.Context(), "orders")
	end := listed(t, high, err)
	for name, fetched := range w.adm.FetchManyOffsets(t.Context(), groups.Groups()...) {
		if fetched.Err != nil {
			t.Errorf("%s: %v", name, fetched.Err)
		}
		lag := map[int32]int64{}
		fetched.Fetched.Each(func(o kadm.OffsetResponse) {
			if o.Err != nil || o.Topic != "orders" {
				t.Errorf("%s: %+v", name, o)
			}
			lag[o.Partition] = end[o.Partition] - o.At
		})
		same(t, "lag of "+name, lag, lags[name])
	}
}

func consoleReassignments(t *testing.T, w *world) {
	resp, err := kmsg.NewPtrListPartitionReassignmentsRequest().RequestWith(t.Context(), w.cl)
	if err != nil {
		t.Fatal(err)
	}
	ok(t, "reassignments", resp.ErrorCode)
	if len(resp.Topics) != 0 {
		t.Errorf("%+v", resp.Topics)
	}
}

// consoleMessages reads the topic from its first offsets, as the message viewers
// do: a consumer without a group that knows where it ends.
func consoleMessages(t *testing.T, w *world) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.Addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		"orders": {0: kgo.NewOffset().At(starts[0]), 1: kgo.NewOffset().At(starts[1])},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got := map[string]string{}
	want := map[string]string{}
	for p, end := range ends {
		for o := starts[p]; o < end; o++ {
			want[fmt.Sprintf("%d/%d", p, o)] = fmt.Sprintf("k%d=%d-%d", o, p, o)
		}
	}
	for len(got) < len(want) {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%v, after %v", err, got)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[fmt.Sprintf("%d/%d", r.Partition, r.Offset)] = fmt.Sprintf("%s=%s", r.Key, r.Value)
		})
	}
	same(t, "messages", got, want)
}
