package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hanzoai/stream/test/e2e/broker"
	"github.com/hanzoai/stream/test/e2e/tools"
)

const offsetsTopic = "__consumer_offsets"

// TestOffsetsTopic reads Kafka's internal topic of committed offsets as its own
// tools and monitors do. Every check holds for Apache Kafka too
// (STREAM_E2E_BROKERS=kafka), except where it says so.
func TestOffsetsTopic(t *testing.T) {
	t.Parallel()
	broker.Each(t, []string{broker.Embedded}, func(t *testing.T, b *broker.Broker) {
		create(t, b, "offsets-t", 1)
		produce(t, b, "offsets-t", []string{"a", "b", "c"})
		consume(t, b, "offsets-t", 3, "--from-beginning", "--group", "offsets-g", "--consumer-property", "group.protocol=classic")

		if got := lines(tool(t, b, "kafka-topics", "--list").Must(t).Stdout); !slices.Contains(got, offsetsTopic) {
			t.Errorf("list: no %s in %q", offsetsTopic, got)
		}
		if got := lines(tool(t, b, "kafka-topics", "--list", "--exclude-internal").Must(t).Stdout); slices.Contains(got, offsetsTopic) {
			t.Errorf("%s is not internal: %q", offsetsTopic, got)
		}
		out := tool(t, b, "kafka-topics", "--describe", "--topic", offsetsTopic).Must(t).Stdout
		for _, want := range []string{"cleanup.policy=compact", "compression.type=producer", "segment.bytes=104857600"} {
			if !strings.Contains(out, want) {
				t.Errorf("describe: no %s in %s", want, out)
			}
		}
		formatted(t, b)
		t.Run("refusals", func(t *testing.T) { refusals(t, b) })
		t.Run("follow", func(t *testing.T) { follow(t, b) })
	})
}

// formatted reads the topic through Kafka's own formatters.
func formatted(t *testing.T, b *broker.Broker) {
	t.Helper()
	read := func(formatter string) (rs []map[string]any) {
		run := tool(t, b, "kafka-console-consumer", "--topic", offsetsTopic, "--from-beginning", "--timeout-ms", "5000",
			"--formatter", "org.apache.kafka.tools.consumer."+formatter)
		res, err := run.Do(t.Context()) // ends by its timeout
		if err != nil {
			t.Fatal(err)
		}
		// One document after the other, with no line ends between them.
		for d := json.NewDecoder(strings.NewReader(res.Stdout)); d.More(); {
			var r map[string]any
			if err := d.Decode(&r); err != nil {
				t.Fatalf("%s: %v in %q", formatter, err, res.Stdout)
			}
			rs = append(rs, r)
		}
		t.Logf("%s:\n%s", formatter, res.Stdout)
		return rs
	}
	part := func(of any, number string) (float64, map[string]any) {
		m, _ := of.(map[string]any)
		data, _ := m["data"].(map[string]any)
		n, _ := m[number].(float64)
		return n, data
	}
	found := map[string]bool{}
	for _, r := range read("OffsetsMessageFormatter") {
		kv, key := part(r["key"], "type")
		vv, value := part(r["value"], "version")
		if key["group"] != "offsets-g" {
			continue
		}
		if kv != 1 || vv != 4 || key["topic"] != "offsets-t" || key["partition"] != 0.0 || value["leaderEpoch"] == nil ||
			value["metadata"] != "" || value["topicId"] == nil || value["commitTimestamp"] == nil || len(value) != 5 {
			t.Errorf("record of an offset: %v", r)
		}
		found["offset"] = found["offset"] || value["offset"] == 3.0
	}
	for _, r := range read("GroupMetadataMessageFormatter") {
		kv, key := part(r["key"], "type")
		vv, value := part(r["value"], "version")
		if key["group"] != "offsets-g" || value["generation"] == 0.0 { // before its first member
			continue
		}
		if kv != 2 || vv != 3 || value["protocolType"] != "consumer" || value["currentStateTimestamp"] == nil || len(value) != 6 {
			t.Errorf("record of a group: %v", r)
		}
		found["left"] = found["left"] || value["leader"] == nil && value["protocol"] == nil
	}
	for _, want := range []string{"offset", "left"} {
		if !found[want] {
			t.Errorf("no record of: %s", want)
		}
	}
}

func refusals(t *testing.T, b *broker.Broker) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.DisableIdempotentWrite())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	adm := kadm.NewClient(cl)
	ts, err := adm.ListTopicsWithInternal(ctx)
	if err != nil || !ts[offsetsTopic].IsInternal || ts[offsetsTopic].ID == (kadm.TopicID{}) {
		t.Fatalf("metadata: %+v, %v", ts[offsetsTopic], err)
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, offsetsTopic); err != kerr.TopicAlreadyExists {
		t.Errorf("create: %v", err)
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: offsetsTopic, Value: []byte("x")}).FirstErr(); err != kerr.InvalidTopicException {
		t.Errorf("produce: %v", err)
	}
	collisions(t, cl)
	if b.Kind == broker.Kafka {
		return // it would be deleted
	}
	if _, err := adm.DeleteTopic(ctx, offsetsTopic); err != kerr.InvalidTopicException {
		t.Errorf("delete: %v", err)
	}
}

// collisions: a name that differs from the internal topic's only in "." and "_"
// cannot be created, by no way.
func collisions(t *testing.T, cl *kgo.Client) {
	for _, name := range []string{"__consumer.offsets", "_.consumer_offsets", "..consumer.offsets"} {
		r, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, name)
		if !errors.Is(err, kerr.InvalidTopicException) || !strings.Contains(r.ErrMessage, "collides with existing topic: "+offsetsTopic) {
			t.Errorf("create %s: %v, %q", name, err, r.ErrMessage)
		}
		ask := kmsg.NewPtrMetadataRequest()
		ask.AllowAutoTopicCreation = true
		ask.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		for range 3 {
			got, err := ask.RequestWith(t.Context(), cl)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("metadata of %s: %d", name, got.Topics[0].ErrorCode)
			if c := got.Topics[0].ErrorCode; c != kerr.UnknownTopicOrPartition.Code {
				t.Errorf("metadata of %s: %d", name, c)
			}
		}
	}
}

// follow: a reader at the end is woken by a commit and by the end of a group,
// and gets to the end although most of what was stored has been overwritten.
func follow(t *testing.T, b *broker.Broker) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.ConsumeTopics(offsetsTopic), kgo.FetchMaxWait(20*time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	adm := kadm.NewClient(cl)
	commit := func(at int64) {
		t.Helper()
		var os kadm.Offsets
		os.Add(kadm.Offset{Topic: "offsets-t", Partition: 0, At: at, LeaderEpoch: -1, Metadata: fmt.Sprint("m", at)})
		if err := adm.CommitAllOffsets(ctx, "offsets-f", os); err != nil {
			t.Fatal(err)
		}
	}
	key := kmsg.OffsetCommitKey{Version: 1, Group: "offsets-f", Topic: "offsets-t"}
	want := string(key.AppendTo(nil))
	// until returns the first record of our key that is the one waited for.
	until := func(what string, is func(*kgo.Record) bool) {
		t.Helper()
		for {
			fs := cl.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			done := false
			fs.EachRecord(func(r *kgo.Record) { done = done || string(r.Key) == want && is(r) })
			if done {
				return
			}
		}
	}
	has := func(at int64) func(*kgo.Record) bool {
		return func(r *kgo.Record) bool {
			var v kmsg.OffsetCommitValue
			if r.Value == nil {
				return false
			}
			if err := v.ReadFrom(r.Value); err != nil || v.Version != 4 || v.LeaderEpoch != -1 || v.Metadata != fmt.Sprint("m", v.Offset) ||
				v.CommitTimestamp != r.Timestamp.UnixMilli() && b.Kind != broker.Kafka {
				t.Errorf("value %+v of %v: %v", v, r.Timestamp, err)
			}
			return v.Offset == at
		}
	}
	for at := range int64(50) {
		commit(at)
	}
	until("the last of many commits", has(49))
	for at := int64(50); at < 53; at++ {
		start := time.Now()
		commit(at)
		until("a commit", has(at))
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("a commit was seen after %v: nobody was woken", d)
		}
	}
	if _, err := adm.DeleteGroup(ctx, "offsets-f"); err != nil {
		t.Fatal(err)
	}
	until("the tombstone", func(r *kgo.Record) bool { return r.Value == nil })

	if b.Kind == broker.Kafka {
		return
	}
	// Whoever begins at the start reaches the end.
	ends, err := adm.ListEndOffsets(ctx, offsetsTopic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(offsetsTopic, 0)
	fromStart, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{offsetsTopic: {0: kgo.NewOffset().At(0)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer fromStart.Close()
	last, n := int64(-1), 0
	for last < end.Offset-1 {
		fs := fromStart.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("at %d of %d: %v", last, end.Offset, err)
		}
		fs.EachRecord(func(r *kgo.Record) { last = r.Offset; n++ })
	}
	if int64(n) >= end.Offset/2 {
		t.Errorf("%d records at %d offsets: what was overwritten is still there", n, end.Offset)
	}
	// So does a client that ends there.
	if got := lines(tools.Kcat(t, "-C", "-b", b.Addr, "-t", offsetsTopic, "-o", "beginning", "-e", "-q", "-f", "%o\n").Must(t).Stdout); len(got) != n {
		t.Errorf("kcat: %d records, franz-go: %d", len(got), n)
	}
	os, err := adm.ListOffsetsAfterMilli(ctx, time.Now().Add(-time.Hour).UnixMilli(), offsetsTopic)
	if o, ok := os.Lookup(offsetsTopic, 0); err != nil || !ok || o.Err != nil || o.Offset < 0 || o.Offset >= end.Offset {
		t.Errorf("offset by time: %+v, %v", o, err)
	}
}
