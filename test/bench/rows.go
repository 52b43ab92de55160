package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is one run of one row on one system.
type sample struct {
	rate    float64       // records a second
	cpu     time.Duration // the server's
	records int
	foreign float64 // cores used by others meanwhile
	times   times   // of the rows that measure them
	bytes   float64 // a second, of JetStream's rows only
}

// perMillion is the server's CPU seconds per million records.
func (s sample) perMillion() float64 { return s.cpu.Seconds() / float64(s.records) * 1e6 }

// row is one kind of load.
type row struct {
	name string
	// count is how many records one client moves in short mode, about two seconds.
	count int
	// floor is the ratio to Kafka that stream must reach when pinned; 0: none.
	floor float64
	// run makes the load once and returns records, seconds and the clients' CPU.
	run  func(b *bench, v view, s *server, topic string, count int) (result, error)
	long bool // in long mode only
	read int  // size of the records of a topic made before; 0: a new topic for each run
	// fsync: the row says something about flushing too.
	fsync bool
}

type result struct {
	records int
	took    time.Duration
	cpu     time.Duration // the clients'
	times   times
}

// times are mean, median and 99th percentile of something, in milliseconds.
type times struct{ mean, p50, p99 float64 }

var rows = []row{
	{name: "produce 100 B", count: 2_500_000, floor: 1, run: produce(100), fsync: true},
	{name: "produce 100 B, idempotent", count: 2_500_000, floor: 1, run: produce(100, "enable.idempotence=true")},
	{name: "produce 1 KB", count: 700_000, floor: 1, run: produce(1024), fsync: true},
	{name: "produce 1 KB, idempotent", count: 500_000, floor: 1, run: produce(1024, "enable.idempotence=true"), fsync: true},
	{name: "small requests, one client", count: 120_000, run: small(1), long: true},
	{name: "small requests, four clients", count: 40_000, floor: 1, run: small(4), fsync: true},
	{name: "small requests, four idempotent clients", count: 30_000, floor: 1, run: small(4, "enable.idempotence=true"), long: true},
	{name: "consume 100 B, cold", count: 5_000_000, floor: 0.7, run: consume, read: 100},
	{name: "consume 1 KB, cold", count: 1_000_000, floor: 0.7, run: consume, read: 1024},
	{name: "produce and consume 1 KB, at the tail", count: 400_000, floor: 0.7, run: both(1024)},
	{name: "transactions, 100 B, a commit every 100 ms", count: 4_000_000, floor: 0.8, run: transactions(100, 0)},
	{name: "commits of 10 records, one after another", count: 5_000, run: transactions(0, 10), fsync: true},
	{name: "latency end to end, 100 B, 1,000 a second", count: 3_000, run: latency},
}

// produce is one client at full speed.
func produce(size int, properties ...string) func(*bench, view, *server, string, int) (result, error) {
	return func(b *bench, v view, s *server, topic string, count int) (result, error) {
		return b.produceAll(v, s, topic, 1, size, count, properties)
	}
}

// small is n clients whose requests hold at most ten records of 100 bytes.
func small(n int, properties ...string) func(*bench, view, *server, string, int) (result, error) {
	return func(b *bench, v view, s *server, topic string, count int) (result, error) {
		return b.produceAll(v, s, topic, n, 100, count, append([]string{"linger.ms=0", "batch.num.messages=10"}, properties...))
	}
}

func (b *bench) produceAll(v view, s *server, topic string, n, size, count int, properties []string, args ...string) (result, error) {
	for _, p := range properties {
		args = append(args, "-X", p)
	}
	var clients []*client
	for range n {
		clients = append(clients, b.producer(v, s.addr, topic, size, count, args...))
	}
	var sum result
	var errs []error
	for _, c := range clients {
		out, cpu, err := c.wait()
		if err == nil {
			var records int
			var took time.Duration
			records, took, err = produced(out)
			sum.records += records
			sum.took = max(sum.took, took) // they start together
			sum.cpu += cpu
		}
		errs = append(errs, err)
	}
	if sum.records != n*count {
		errs = append(errs, fmt.Errorf("%d of %d records were delivered", sum.records, n*count))
	}
	return sum, errors.Join(errs...)
}

func consume(b *bench, v view, s *server, topic string, count int) (result, error) {
	return b.consumeEnd(b.consumer(v, s.addr, topic, count), count)
}

func (b *bench) consumeEnd(c *client, count int) (result, error) {
	out, cpu, err := c.wait()
	if err != nil {
		return result{}, err
	}
	records, took, err := consumed(out)
	if err == nil && records < count {
		err = fmt.Errorf("%d of %d records were consumed", records, count)
	}
	return result{records: records, took: took, cpu: cpu}, err
}

// both is a producer at full speed with a consumer that follows it.
func both(size int) func(*bench, view, *server, string, int) (result, error) {
	return func(b *bench, v view, s *server, topic string, count int) (result, error) {
		begin := time.Now()
		reader := b.consumer(v, s.addr, topic, count)
		w, err1 := b.produceAll(v, s, topic, 1, size, count, nil)
		r, err2 := b.consumeEnd(reader, count)
		r.took = time.Since(begin)
		r.cpu += w.cpu
		return r, errors.Join(err1, err2)
	}
}

// latency is the time from a record's making to its consumption, in another
// process, at a rate far below the limit.
func latency(b *bench, v view, s *server, topic string, count int) (result, error) {
	file := filepath.Join(b.dir, "latency")
	reader := b.consumer(v, s.addr, topic, count, "-l", "-A", file)
	w, err1 := b.produceAll(v, s, topic, 1, 100, count, []string{"linger.ms=0"}, "-l", "-r", "1000")
	r, err2 := b.consumeEnd(reader, count)
	if err := errors.Join(err1, err2); err != nil {
		return r, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	r.cpu += w.cpu
	r.took = w.took
	r.times, err = latencies(string(text))
	return r, err
}

// transactions is one client that commits every so many milliseconds, or after
// so many records, of which the times of the commits are measured.
func transactions(ms, per int) func(*bench, view, *server, string, int) (result, error) {
	return func(b *bench, v view, s *server, topic string, count int) (result, error) {
		file := filepath.Join(b.dir, "commits")
		out, cpu, err := b.client(v, b.tools.transactions, s.addr, topic, "100", strconv.Itoa(count), strconv.Itoa(ms), strconv.Itoa(per), file).wait()
		if err != nil {
			return result{}, err
		}
		r := result{cpu: cpu}
		if r.records, r.took, err = produced(out); err != nil {
			return r, err
		}
		if r.records != count {
			return r, fmt.Errorf("%d of %d records were delivered", r.records, count)
		}
		if per > 0 { // else they are too few
			text, err := os.ReadFile(file)
			if err != nil {
				return r, err
			}
			if r.times, err = latencies(string(text)); err != nil {
				return r, err
			}
		}
		return r, nil
	}
}

// latencies are those of lines in microseconds; the first tenth is connections and topics being found.
func latencies(text string) (times, error) {
	var all []float64
	for line := range strings.FieldsSeq(text) {
		n, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return times{}, err
		}
		all = append(all, n/1000)
	}
	if len(all) < 100 {
		return times{}, fmt.Errorf("%d latencies", len(all))
	}
	all = all[len(all)/10:]
	var sum float64
	for _, n := range all {
		sum += n
	}
	slices.Sort(all)
	return times{mean: sum / float64(len(all)), p50: middle(all), p99: all[len(all)*99/100]}, nil
}

// rawRows are what NATS does alone with the cores and disk of a view: messages
// of one record, and as large as librdkafka's batches.
var rawRows = []struct {
	name             string
	size, msgs, mode int
}{
	{"publish 100 B", 100, 300_000, 0},
	{"publish 1,000,000 B", 1_000_000, 700, 0},
	{"ordered consumer 100 B", 100, 300_000, 1},
	{"ordered consumer 1,000,000 B", 1_000_000, 700, 1},
}

// raw runs nats bench once per row.
func (b *bench) raw(v view, s *server) map[string]sample {
	all := map[string]sample{}
	for i, r := range rawRows {
		stream := fmt.Sprintf("S%d", r.size)
		args := []string{"-s", s.addr, "bench", "js"}
		if r.mode == 0 {
			// The window holds a few batches of a client, not gigabytes.
			batch := "1000"
			if r.size > 1000 {
				batch = "8"
			}
			args = append(args, "pub", "async", "bench."+stream, "--create", "--storage", "file", "--maxbytes", "4GB", "--batch", batch)
		} else {
			args = append(args, "ordered")
		}
		args = append(args, "--stream", stream, "--size", strconv.Itoa(r.size), "--msgs", strconv.Itoa(r.msgs), "--no-progress")
		m := b.measure(s, func() (result, error) {
			out, cpu, err := b.client(v, b.tools.nats, args...).wait()
			if err != nil {
				return result{}, err
			}
			rate, err := natsRate(out)
			if err != nil {
				return result{}, err
			}
			return result{records: r.msgs, took: time.Duration(float64(r.msgs) / rate * 1e9), cpu: cpu}, nil
		})
		m.bytes = m.rate * float64(r.size)
		all[r.name] = m
		if r.mode == 1 || i+1 == len(rawRows) {
			_, _, err := b.client(v, b.tools.nats, "-s", s.addr, "stream", "rm", "-f", stream).wait()
			if err != nil {
				b.t.Logf("bench: %v", err)
			}
		}
	}
	return all
}
