package connect

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/testkit"
)

// TestConnect copies a file through a topic into another one, with a worker that
// is stopped in between and goes on where it was: standalone from its file,
// distributed from the topics that it made for configs, offsets and status.
// STREAM_CONNECT=whole copies 100,000 lines, CI 10,000, and tries what a worker
// must refuse.
func TestConnect(t *testing.T) {
	n, whole := 10_000, os.Getenv("STREAM_CONNECT") == "whole"
	if whole {
		n = 100_000
	}
	broker.Each(t, []string{broker.Embedded}, func(t *testing.T, b *broker.Broker) {
		t.Run("standalone", func(t *testing.T) {
			t.Parallel()
			copyFile(t, b, newWorker(t, b, true), func(*worker) {}, n)
		})
		t.Run("C-42 distributed", func(t *testing.T) {
			t.Parallel()
			copyFile(t, b, newWorker(t, b, false), (*worker).create, n)
			for _, topic := range []string{"connect-configs", "connect-offsets", "connect-status"} {
				if policy := config(t, b, topic, "cleanup.policy"); policy != "compact" {
					t.Errorf("%s has cleanup.policy %q", topic, policy)
				}
			}
		})
		if whole {
			t.Run("C-42 topic without compaction", func(t *testing.T) { refused(t, b) })
		}
	})
}

// refused: a worker that finds its topic with another policy says so (and ends,
// after it has waited for itself for most of a minute).
func refused(t *testing.T, b *broker.Broker) {
	ctx, a := admin(t, b)
	if _, err := a.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("delete")}, "other-configs"); err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, b, false, "group.id=others", "config.storage.topic=other-configs", "offset.storage.topic=other-offsets", "status.storage.topic=other-status")
	w.start()
	testkit.Poll(t, 2*time.Minute, "refusal by the worker", func() error {
		if !strings.Contains(w.process.Log(), "required to have 'cleanup.policy=compact'") {
			return errors.New("it has said nothing of the policy")
		}
		return nil
	})
}

func copyFile(t *testing.T, b *broker.Broker, w *worker, create func(*worker), n int) {
	begin := time.Now()
	step := func(what string) { t.Logf("%5.1f s: %s", time.Since(begin).Seconds(), what) }
	ctx, a := admin(t, b)
	if _, err := a.CreateTopic(ctx, 1, 1, nil, w.topic); err != nil { // several partitions would lose the order
		t.Fatal(err)
	}
	w.feed(0, n/2)
	w.start()
	create(w)
	w.copied(n / 2)
	step("half the lines copied")
	w.stop()
	step("worker stopped")
	w.feed(n/2, n)
	w.start()
	w.copied(n)
	step("all lines copied")
	w.stop()
	step("worker stopped")
	if got := end(t, b, w.topic); got != int64(n) {
		t.Errorf("the topic holds %d records, want %d", got, n)
	}
}

func admin(t *testing.T, b *broker.Broker) (context.Context, *kadm.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return ctx, kadm.NewClient(cl)
}

// end is the end offset of a topic of one partition.
func end(t *testing.T, b *broker.Broker, topic string) int64 {
	t.Helper()
	ctx, a := admin(t, b)
	offsets, err := a.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := offsets.Lookup(topic, 0)
	if !ok || o.Err != nil || len(offsets[topic]) != 1 {
		t.Fatalf("end offset of %s: %v", topic, offsets)
	}
	return o.Offset
}

func config(t *testing.T, b *broker.Broker, topic, key string) string {
	t.Helper()
	ctx, a := admin(t, b)
	configs, err := a.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	rc, err := configs.On(topic, nil)
	if err != nil || rc.Err != nil {
		t.Fatal(err, rc.Err)
	}
	for _, c := range rc.Configs {
		if c.Key == key {
			return c.MaybeValue()
		}
	}
	t.Fatalf("%s has no config %s", topic, key)
	return ""
}
