package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// history is what fills a log: record i is at offset i. Each key comes once, then
// keys come by chance; a value tells which record it belongs to.
type history struct {
	plan  cleaningPlan
	noise []byte
	keyOf []int32
	last  []int32 // by key
}

// newHistory makes the same one for the same plan.
func newHistory(p cleaningPlan) *history {
	r := rand.New(rand.NewPCG(1, 2))
	h := &history{plan: p, noise: make([]byte, 64<<10), keyOf: make([]int32, p.records), last: make([]int32, p.keys)}
	for i := range h.noise {
		h.noise[i] = byte(r.Uint32())
	}
	for i := range h.keyOf {
		h.keyOf[i] = int32(i)
		if i >= p.keys {
			h.keyOf[i] = int32(r.IntN(p.keys))
		}
		h.last[h.keyOf[i]] = int32(i)
	}
	return h
}

const keyPrefix = "key-"

func (h *history) key(i int) []byte { return fmt.Appendf(nil, keyPrefix+"%08d", h.keyOf[i]) }

// value appends what record i has.
func (h *history) value(dst []byte, i int) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(i))
	at := i * 7919 % (len(h.noise) - cleanedSize)
	return append(dst, h.noise[at:at+cleanedSize-len(keyPrefix)-8-8]...)
}

// client makes a producer of one topic's partition 0, without compression.
func (b *bench) writer(s *server, topic string, opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(s.addr), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}, opts...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	return cl
}

// fill writes the history, which the topic's offsets must agree with.
func (b *bench) fill(s *server, topic string, h *history) {
	ctx, cancel := context.WithTimeout(b.t.Context(), cleaningLimit)
	defer cancel()
	cl := b.writer(s, topic, kgo.ProducerBatchMaxBytes(int32(h.plan.batch)), kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(4096))
	defer cl.Close()
	var failed atomic.Pointer[error]
	values := sync.Pool{New: func() any { return make([]byte, 0, cleanedSize) }}
	for i := range h.plan.records {
		r := &kgo.Record{Key: h.key(i), Value: h.value(values.Get().([]byte)[:0], i)}
		cl.Produce(ctx, r, func(r *kgo.Record, err error) {
			if err == nil && r.Offset != int64(i) {
				err = fmt.Errorf("record %d is at offset %d", i, r.Offset)
			}
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
			values.Put(r.Value) //nolint:staticcheck // a slice of one size
		})
		if failed.Load() != nil {
			break
		}
	}
	err := cl.Flush(ctx)
	if e := failed.Load(); e != nil {
		err = *e
	}
	if err != nil {
		b.t.Fatalf("fill %s on %s: %v", topic, s.name, err)
	}
}

// one produces a single record.
func (b *bench) one(s *server, topic, key string) int64 {
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	cl := b.writer(s, topic)
	defer cl.Close()
	r, err := cl.ProduceSync(ctx, &kgo.Record{Key: []byte(key), Value: []byte(key)}).First()
	if err != nil {
		b.t.Fatalf("produce to %s on %s: %v", topic, s.name, err)
	}
	return r.Offset
}

// steady is a producer with a steady rate, whatever the answers: records are due at
// fixed times, and their latency counts from then.
type steady struct {
	b      *bench
	topic  string
	cl     *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex // guards: all below
	acked []acked
	sent  int
	err   error
}

type acked struct {
	due  time.Time
	took time.Duration
}

// loadKeys is how many keys a load has.
const loadKeys = 1000

// steady starts one.
func (b *bench) steady(s *server, topic string, rate int) *steady {
	ctx, cancel := context.WithCancel(b.t.Context())
	l := &steady{b: b, topic: topic, cl: b.writer(s, topic, kgo.ProducerLinger(0)), cancel: cancel, done: make(chan struct{})}
	go l.run(ctx, time.Second/time.Duration(rate))
	return l
}

func (l *steady) run(ctx context.Context, every time.Duration) {
	defer close(l.done)
	runtime.LockOSThread() // the kernel's timers are finer than Go's
	defer runtime.UnlockOSThread()
	value := make([]byte, cleanedSize-8)
	due := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		if due = due.Add(every); time.Until(due) > 0 {
			ts := syscall.NsecToTimespec(int64(time.Until(due)))
			_ = syscall.Nanosleep(&ts, nil) // an early end does no harm
		}
		due := due
		r := &kgo.Record{Key: fmt.Appendf(nil, "load-%03d", n%loadKeys), Value: strconv.AppendInt(nil, int64(n), 10)}
		r.Value = append(append(r.Value, ' '), value...)
		l.cl.Produce(context.WithoutCancel(ctx), r, func(_ *kgo.Record, err error) {
			took := time.Since(due)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.acked = append(l.acked, acked{due, took})
			if err != nil && l.err == nil {
				l.err = err
			}
		})
		l.sent = n + 1
	}
}

// stop ends the load; everything it sent must have been acknowledged.
func (l *steady) stop() {
	l.cancel()
	<-l.done
	ctx, cancel := context.WithTimeout(l.b.t.Context(), time.Minute)
	defer cancel()
	err := l.cl.Flush(ctx)
	l.cl.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err = errors.Join(err, l.err); err != nil {
		l.b.t.Fatalf("load on %s: %v", l.topic, err)
	}
}

// between are the latencies of records that were due in a span of time.
func (l *steady) between(from, to time.Time) spread {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []time.Duration
	for _, a := range l.acked {
		if !a.due.Before(from) && a.due.Before(to) {
			all = append(all, a.took)
		}
	}
	return newSpread(all)
}

// spread are a number of latencies, milliseconds.
type spread struct {
	n             int
	p50, p99, max float64
}

func newSpread(all []time.Duration) spread {
	if len(all) == 0 {
		return spread{}
	}
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	return spread{n: len(all), p50: ms(all[len(all)/2]), p99: ms(all[min(len(all)*99/100, len(all)-1)]), max: ms(all[len(all)-1])}
}

func (s spread) String() string {
	return fmt.Sprintf("p50 %.2f p99 %.2f max %.1f ms of %d", s.p50, s.p99, s.max, s.n)
}

// check reads a compacted topic to its end: of each key of the history the last
// record must be there, with its offset and its value, and no other; of the load's
// keys, the last at least. It returns how many records there are.
func (b *bench) check(s *server, topic string, h *history, l *steady) (records int) {
	end := b.one(s, topic, "end")
	ctx, cancel := context.WithTimeout(b.t.Context(), cleaningLimit)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	wrong := func(f string, a ...any) {
		b.t.Fatalf("%s on %s after its compaction: %s", topic, s.name, fmt.Sprintf(f, a...))
	}
	seen, keys := make([]bool, h.plan.keys), 0
	loaded := map[string]int{}
	var want []byte
	for at := int64(-1); at < end; {
		fs := cl.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), fs.Err()); err != nil {
			wrong("read from %d: %v", at, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset <= at {
				wrong("offset %d after %d", r.Offset, at)
			}
			at = r.Offset
			records++
			key := string(r.Key)
			if !strings.HasPrefix(key, keyPrefix) {
				if strings.HasPrefix(key, "load-") {
					n, err := strconv.Atoi(string(r.Value[:max(0, bytes.IndexByte(r.Value, ' '))]))
					if err != nil {
						wrong("a value of the load at %d: %v", at, err)
					}
					loaded[key] = max(loaded[key], n)
				}
				return
			}
			k, err := strconv.Atoi(key[len(keyPrefix):])
			if err != nil || k >= len(seen) {
				wrong("key %q at %d", key, at)
			}
			if want = h.value(want[:0], int(h.last[k])); at != int64(h.last[k]) || !bytes.Equal(want, r.Value) {
				wrong("%q is at %d, its last record was %d; its value is right: %v", key, at, h.last[k], bytes.Equal(want, r.Value))
			}
			if seen[k] {
				wrong("%q is there twice", key)
			}
			seen[k], keys = true, keys+1
		})
	}
	if keys != h.plan.keys {
		wrong("%d of %d keys are left", keys, h.plan.keys)
	}
	for n := max(0, l.sent-loadKeys); n < l.sent; n++ {
		if key := fmt.Sprintf("load-%03d", n%loadKeys); loaded[key] != n {
			wrong("the last value of %s is %d, it was %d", key, loaded[key], n)
		}
	}
	return records
}
