package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const kafkaLog = `[2026-11-30 21:14:01,105] INFO Cleaner 0: Beginning cleaning of log t-0 (org.apache.kafka.storage.internals.log.Cleaner)
[2026-11-30 21:14:01,123] INFO Cleaner 0: Building offset map for t-0... (org.apache.kafka.storage.internals.log.Cleaner)
[2026-11-30 21:14:03,616] WARN something else (org.apache.kafka.controller.QuorumController)
[2026-11-30 21:14:04,623] INFO [kafka-log-cleaner-thread-0]: 
	Log cleaner thread 0 cleaned log t-0 (dirty section = [0, 8192])
	16.2 MB of log processed in 3.5 seconds (4.6 MB/sec).
	Indexed 8.1 MB in 2.5 seconds (3.2 Mb/sec, 71.7% of total time)
 (org.apache.kafka.storage.internals.log.LogCleaner$CleanerThread)
`

const streamLog = `stream devel: a Kafka server on NATS JetStream
time=2026-11-30T21:08:11.555Z level=INFO msg=compacted component=compaction partition=u-0 upto=7 records_in=7 records_out=4 bytes_in=71 bytes_out=42 passes=1 took=3ms
time=2026-11-30T21:08:16.555Z level=INFO msg=compacted component=compaction partition=t-0 upto=69185 records_in=69185 records_out=4001 bytes_in=71893383 bytes_out=4219189 passes=1 took=22.813s
`

func TestCleanersLogs(t *testing.T) {
	r, ok, err := kafkaRun(kafkaLog, "t-0", 8192)
	if !ok || err != nil || r.took() != 3518*time.Millisecond || !strings.Contains(r.words, "16.2 MB of log processed in 3.5 seconds") {
		t.Errorf("kafka: %+v, %v, %v", r, ok, err)
	}
	if _, ok, err := kafkaRun(kafkaLog[:strings.Index(kafkaLog, "[kafka-log")], "t-0", 8192); ok || err != nil {
		t.Errorf("kafka has ended before it says so: %v", err)
	}
	if _, ok, err := kafkaRun(kafkaLog, "t-0", 8193); ok || err == nil {
		t.Error("kafka did not come far enough")
	}
	r, ok, err = streamRun(streamLog, "t-0", 69000)
	if !ok || err != nil || r.took() != 22813*time.Millisecond || r.ended.UnixMilli() != 1796072896555 {
		t.Errorf("stream: %+v, %d, %v, %v", r, r.ended.UnixMilli(), ok, err)
	}
	if _, ok, _ := streamRun(streamLog, "v-0", 0); ok {
		t.Error("stream has compacted what it has not")
	}
	if _, ok, err := streamRun(streamLog, "t-0", 69186); ok || err == nil {
		t.Error("stream did not come far enough")
	}
}

func TestHistory(t *testing.T) {
	h := newHistory(cleaningPlan{records: 1000, keys: 100})
	for k, last := range h.last {
		if i := slices.Index(h.keyOf, int32(k)); i != k {
			t.Fatalf("key %d comes first at %d", k, i)
		}
		if int(h.keyOf[last]) != k || slices.Contains(h.keyOf[last+1:], int32(k)) {
			t.Fatalf("key %d comes last at %d?", k, last)
		}
	}
	a, b := h.value(nil, 1), h.value(nil, 2)
	if len(h.key(7))+len(a) != cleanedSize || string(a[8:]) == string(b[8:]) {
		t.Errorf("a key of %d and a value of %d bytes; values are all the same: %v", len(h.key(7)), len(a), string(a[8:]) == string(b[8:]))
	}
}

func TestCleaningVerdicts(t *testing.T) {
	at := time.Unix(0, 0)
	sample := func(seconds int, grown int64, p99 float64) cleaningSample {
		s := spread{n: enough, p50: 1, p99: 2}
		d := spread{n: enough, p50: 1, p99: p99}
		return cleaningSample{records: 1000, cleaner: cleanerRun{began: at, ended: at.Add(time.Duration(seconds) * time.Second)},
			before: 1 << 20, most: 1<<20 + grown, other: [3]spread{s, d, s}, same: [3]spread{s, s, s}}
	}
	missed := func(us, them cleaningSample) (n int) {
		r := cleaningResult{systems: []string{"kafka", "stream"}, configs: map[string]map[string]string{"stream": {memoryBudget: "1000"}},
			samples: map[string][]cleaningSample{"stream": {us}, "kafka": {them}}}
		return strings.Count(report{cleanings: []cleaningResult{r}}.markdown(), "**missed**")
	}
	them := sample(2, 0, 2)
	for _, c := range []struct {
		us   cleaningSample
		want int
	}{{sample(4, 1000, 3.9), 0}, {sample(5, 0, 2), 1}, {sample(1, 1001, 2), 1}, {sample(1, 0, 4), 1}, {sample(9, 2000, 9), 3}} {
		if n := missed(c.us, them); n != c.want {
			t.Errorf("%v: %d bounds are missed instead of %d", c.us, n, c.want)
		}
	}
	if s := newSpread([]time.Duration{3e6, 1e6, 2e6}); s != (spread{n: 3, p50: 2, p99: 3, max: 3}) {
		t.Errorf("spread: %+v", s)
	}
}
