package scale

import (
	"fmt"
	"testing"
	"time"

	"github.com/hanzoai/stream/test/testkit"
)

// TestManyPartitions: a gateway is ready at once beside many partitions with
// data, and touching all of them costs little memory.
func TestManyPartitions(t *testing.T) {
	topics, each, messages := sized(2, 10), sized(20, 100), sized(100, 1000)
	nats := startNATS(t)
	o := testkit.Options{PubsubURL: nats.URL}
	manyPartitions(t, o, nats.URL, topics, each, messages, false)
}

// TestManyPartitionsEmbedded: the same with the store in the process. Its times
// and memory are reported; no promise was made about them.
func TestManyPartitionsEmbedded(t *testing.T) {
	topics, each, messages := sized(2, 10), sized(20, 100), sized(100, 1000)
	o := testkit.Options{DataDir: t.TempDir(), Args: []string{"--nats-listen", testkit.FreeAddr(t)}}
	manyPartitions(t, o, "nats://"+o.Args[1], topics, each, messages, true)
}

func manyPartitions(t *testing.T, o testkit.Options, url string, topics, each, messages int, embedded bool) {
	first, ready := launch(t, o)
	t.Logf("%-44s %8.1f ms", "start on nothing until ready", float64(ready.Microseconds())/1000)
	c := dial(t, first.Addr)
	to, ss := make([][]target, topics), make([][]*series, topics)
	var allTo []target
	var allSeries []*series
	begin := time.Now()
	producer, start := c.producer(t), time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for i := range to {
		to[i] = c.create(t, fmt.Sprintf("many-%d", i), each)
		for range to[i] {
			ss[i] = append(ss[i], newSeries(producer, start))
		}
		allTo, allSeries = append(allTo, to[i]...), append(allSeries, ss[i]...)
	}
	t.Logf("made %d partitions in %v", len(allTo), time.Since(begin).Round(time.Millisecond))
	if !embedded {
		first.Stop(t)
	}
	g := newGenerator(t, url)
	g.fillAll(t, allTo, allSeries, messages)
	begin = time.Now()
	g.drain(t)
	t.Logf("wrote %d snapshots in %v", len(allTo), time.Since(begin).Round(time.Millisecond))
	g.close(t)
	if embedded {
		now, peak := first.memory(t)
		t.Logf("memory after filling: %.1f MB, at most %.1f MB", float64(now)/1e6, float64(peak)/1e6)
		begin = time.Now()
		first.Stop(t)
		t.Logf("%-44s %8.1f ms", "stop", float64(time.Since(begin).Microseconds())/1000)
	}

	gw, ready := launch(t, o)
	report, reportMemory := promise, promiseMemory
	if embedded {
		report = func(t *testing.T, what string, took time.Duration, note string) {
			t.Helper()
			t.Logf("%-44s %8.1f ms  %s", what, float64(took.Microseconds())/1000, note)
		}
		reportMemory = func(t *testing.T, what string, bytes int) {
			t.Helper()
			t.Logf("%-44s %8.1f MB", what, float64(bytes)/1e6)
		}
	}
	report(t, "start until ready", ready, fmt.Sprintf("%d bytes read from the store", gw.read(t)))
	now, peak := gw.memory(t)
	reportMemory(t, "memory when ready", now)
	reportMemory(t, "memory when ready, at most", peak)

	c = dial(t, gw.Addr)
	before, begin := gw.read(t), time.Now()
	var slowest time.Duration
	for i := range to {
		at := time.Now()
		c.produce(t, to[i], ss[i])
		slowest = max(slowest, time.Since(at))
	}
	took := time.Since(begin)
	t.Logf("%-44s %8.1f ms  %d bytes read from the store", fmt.Sprintf("produce to %d partitions", len(allTo)), float64(took.Microseconds())/1000, gw.read(t)-before)
	report(t, fmt.Sprintf("slowest produce to %d partitions", each), slowest, "")

	before, begin, slowest = gw.read(t), time.Now(), 0
	for i := range to {
		at := make([]int64, len(to[i]))
		for k := range at {
			at[k] = int64(perMessage * messages / 2)
		}
		asked := time.Now()
		c.fetch(t, to[i], ss[i], at, 16<<10)
		slowest = max(slowest, time.Since(asked))
	}
	took = time.Since(begin)
	t.Logf("%-44s %8.1f ms  %d bytes read from the store", fmt.Sprintf("fetch from %d partitions", len(allTo)), float64(took.Microseconds())/1000, gw.read(t)-before)
	report(t, fmt.Sprintf("slowest fetch from %d partitions", each), slowest, "")
	now, peak = gw.memory(t)
	reportMemory(t, "memory after touching all", now)
	reportMemory(t, "memory after touching all, at most", peak)
	begin = time.Now()
	gw.Stop(t)
	t.Logf("%-44s %8.1f ms", "stop", float64(time.Since(begin).Microseconds())/1000)
}
