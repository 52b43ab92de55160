package clients

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/test/testkit"
)

// wantCode checks the code of a refusal.
func wantCode(t *testing.T, what string, err error, want *kerr.Error) {
	t.Helper()
	if code(err) != int(want.Code) {
		t.Errorf("%s: code %d, %v, want %s", what, code(err), err, want.Message)
	}
}

// counts waits until the client itself counts the partitions of w's topic.
func (w world) counts(ctx context.Context, t *testing.T, want int) {
	t.Helper()
	testkit.Poll(t, 20*time.Second, "partitions of "+w.topic, func() error {
		n, err := w.cl.partitions(ctx, w.topic)
		if err == nil && n != want {
			err = fmt.Errorf("%d partitions, want %d", n, want)
		}
		return err
	})
}

// topics creates, counts, lists and deletes a topic.
func topics(ctx context.Context, t *testing.T, w world) {
	if err := w.cl.create(ctx, w.topic, 5, nil); err != nil {
		t.Fatalf("create: %v", err)
	}
	w.counts(ctx, t, 5)
	wantCode(t, "create again", w.cl.create(ctx, w.topic, 5, nil), kerr.TopicAlreadyExists)
	names, err := w.cl.topics(ctx)
	if err != nil || !slices.Contains(names, w.topic) {
		t.Errorf("topics: %q, %v, want one called %s", names, err, w.topic)
	}
	if err := w.cl.remove(ctx, w.topic); err != nil {
		t.Fatalf("delete: %v", err)
	}
	testkit.Poll(t, 20*time.Second, "topic gone", func() error {
		list, err := w.adm.ListTopics(ctx)
		if err == nil && list.Has(w.topic) {
			err = fmt.Errorf("%s is still there", w.topic)
		}
		return err
	})
}

// configs sets one at creation and again later.
func configs(ctx context.Context, t *testing.T, w world) {
	if err := w.cl.create(ctx, w.topic, 1, map[string]string{"max.message.bytes": "1500000"}); err != nil {
		t.Fatalf("create: %v", err)
	}
	w.counts(ctx, t, 1)
	check := func(config, want string) {
		t.Helper()
		testkit.Poll(t, 10*time.Second, config, func() error {
			got, err := w.cl.config(ctx, w.topic, config)
			if err == nil && got != want {
				err = fmt.Errorf("%q, want %q", got, want)
			}
			return err
		})
	}
	check("max.message.bytes", "1500000")
	check("retention.ms", "604800000")
	if err := w.cl.alter(ctx, w.topic, "max.message.bytes", "2000000"); err != nil {
		t.Fatalf("alter: %v", err)
	}
	check("max.message.bytes", "2000000")
	wantCode(t, "a value that is no number", w.cl.alter(ctx, w.topic, "max.message.bytes", "many"), kerr.InvalidConfig)
	check("max.message.bytes", "2000000")
}

// addPartitions makes two partitions five and uses the last.
func addPartitions(ctx context.Context, t *testing.T, w world) {
	if err := w.cl.grow(ctx, w.topic, 5); err != nil {
		t.Fatalf("add partitions: %v", err)
	}
	w.counts(ctx, t, 5)
	wantCode(t, "fewer partitions", w.cl.grow(ctx, w.topic, 3), kerr.InvalidPartitions)
	testkit.Poll(t, 10*time.Second, "the new partitions", func() error {
		ends, err := w.adm.ListEndOffsets(ctx, w.topic)
		if err == nil {
			err = ends.Error()
		}
		return err
	})
	rs := batch(50, 5, "five")
	for i := range rs {
		rs[i].Time = rs[i].Time.Truncate(time.Millisecond)
	}
	w.produce(ctx, t, sending{codec: "none"}, rs)
	w.read(ctx, t, w.reader(), start{}, partition(rs, 4))
}

// deleteRecords moves the start of a partition.
func deleteRecords(ctx context.Context, t *testing.T, w world) {
	rs := batch(10, 1, "some")
	for i := range rs {
		rs[i].Time = rs[i].Time.Truncate(time.Millisecond)
	}
	with := w.others()
	with.produce(ctx, t, sending{codec: "none"}, rs)
	if err := w.cl.truncate(ctx, w.topic, 0, 4); err != nil {
		t.Fatalf("delete records: %v", err)
	}
	starts, err := w.adm.ListStartOffsets(ctx, w.topic)
	if o, ok := starts.Lookup(w.topic, 0); err != nil || !ok || o.Offset != 4 {
		t.Errorf("the first offset is %d, %v, want 4", o.Offset, err)
	}
	with.read(ctx, t, w.reader(), start{offset: 4}, rs[4:])
	wantCode(t, "delete past the end", w.cl.truncate(ctx, w.topic, 0, 11), kerr.OffsetOutOfRange)
}

// unknown asks about a topic that is not there.
func unknown(ctx context.Context, t *testing.T, w world) {
	if !w.lib.limits.createsUnknown {
		_, err := w.cl.partitions(ctx, w.topic)
		wantCode(t, "describe", err, kerr.UnknownTopicOrPartition)
	}
	wantCode(t, "delete", w.cl.remove(ctx, w.topic), kerr.UnknownTopicOrPartition)
	list, err := w.adm.ListTopics(ctx)
	if err != nil || list.Has(w.topic) {
		t.Errorf("asking has made the topic, or %v", err)
	}
}
