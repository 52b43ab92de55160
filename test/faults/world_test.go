package faults

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/hanzoai/stream/serde"
	"github.com/hanzoai/stream/test/testkit"
)

// world is a topic under load: on every partition one writer and one reader at
// its end. What must always hold is checked as it happens, the rest by finish.
//
//   - A writer sees only errors that clients retry, and its batch is accepted in
//     the end; connections stay open.
//   - Each acknowledged batch is at its offset, in the end and for ever. Of an
//     idempotent writer each value is there once, in order.
//   - A reader never sees a hole, an end that falls back, "out of range", or an
//     empty answer without error below the end. Its errors are retriable.
type world struct {
	addr, topic string
	writers     []*writer
	readers     []*reader
	stopWriters context.CancelFunc
	stopReaders context.CancelFunc
	wait        sync.WaitGroup // writers
	reading     sync.WaitGroup
}

// load says what writers do.
type load struct {
	partitions int32
	pace       time.Duration // between batches of a writer
	size       int           // bytes of a value
	records    int           // of a batch; 0 is 3
	// mayCut allows connections to end and to be refused.
	mayCut bool
}

// finishLimit bounds how long the last batch of a writer may take to be
// accepted after the fault.
const finishLimit = 60 * time.Second

func newWorld(t *testing.T, addr, topic string, l load) *world {
	t.Helper()
	createTopic(t, addr, topic, l.partitions)
	w := &world{addr: addr, topic: topic}
	if l.records == 0 {
		l.records = 3
	}
	var writing, reading context.Context
	writing, w.stopWriters = context.WithCancel(t.Context())
	reading, w.stopReaders = context.WithCancel(t.Context())
	for p := range l.partitions {
		// Every second writer is a plain one.
		wr := &writer{w: w, partition: p, load: l, idempotent: p%2 == 0, codes: map[int16]int{}, progress: make(chan struct{}, 1)}
		w.writers = append(w.writers, wr)
		w.wait.Go(func() { wr.run(t, writing) })
		rd := &reader{w: w, partition: p, load: l, codes: map[int16]int{}}
		w.readers = append(w.readers, rd)
		w.reading.Go(func() { rd.run(t, reading) })
	}
	t.Cleanup(func() {
		w.stopWriters()
		w.stopReaders()
		w.wait.Wait()
		w.reading.Wait()
	})
	return w
}

// ack is an accepted batch.
type ack struct {
	first, n int   // numbers of its values
	base     int64 // offset of the first
	at       time.Time
	took     time.Duration // since it was first sent
	tries    int
}

type writer struct {
	w          *world
	partition  int32
	load       load
	idempotent bool
	progress   chan struct{} // capacity 1: something was accepted or refused

	mu    sync.Mutex
	acks  []ack         // guards: all
	codes map[int16]int // guards: errors seen; −1 is a lost connection
}

func (w *writer) value(n int) string {
	v := fmt.Sprintf("%d/%d/", w.partition, n)
	return v + strings.Repeat(".", max(0, w.load.size-len(v)))
}

func number(value string) int {
	f := strings.SplitN(value, "/", 3)
	n, err := strconv.Atoi(f[1])
	if err != nil {
		return -1
	}
	return n
}

// run writes until ctx ends, and goes on with the last batch until it is accepted.
func (w *writer) run(t *testing.T, ctx context.Context) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(finishLimit, cancel) })()
	c := &client{addr: w.w.addr}
	defer c.close()
	fields := serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	if w.idempotent {
		id, epoch, err := producerID(life, c)
		if err != nil {
			t.Errorf("partition %d: no producer id: %v", w.partition, err)
			return
		}
		fields.ProducerID, fields.ProducerEpoch, fields.BaseSequence = id, epoch, 0
	}
	pace := time.NewTicker(w.load.pace)
	defer pace.Stop()
	for n := 0; ; n += w.load.records {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
		var rs []serde.NewRecord
		for i := range w.load.records {
			rs = append(rs, serde.NewRecord{TimestampMillis: time.Now().UnixMilli(), Value: []byte(w.value(n + i))})
		}
		a := ack{first: n, n: w.load.records}
		began := time.Now()
		for {
			a.tries++
			// Built anew: the bytes sent must not depend on what came back.
			code, base, err := c.produce(life, w.w.topic, w.partition, serde.Build(fields, rs))
			if life.Err() != nil {
				t.Errorf("partition %d: batch %d was not accepted within %v after the end of the load (%d tries): code %d, %v", w.partition, n, finishLimit, a.tries, code, err)
				return
			}
			w.mu.Lock()
			if code != 0 {
				w.codes[code]++
			}
			w.mu.Unlock()
			switch {
			case code == 0:
				a.base, a.at, a.took = base, time.Now(), time.Since(began)
			case err != nil && !w.load.mayCut:
				t.Errorf("partition %d: batch %d: the connection failed: %v", w.partition, n, err)
			case err == nil && !kerr.IsRetriable(kerr.ErrorForCode(code)):
				t.Errorf("partition %d: batch %d: %v", w.partition, n, kerr.ErrorForCode(code))
				return
			}
			select {
			case w.progress <- struct{}{}:
			default:
			}
			if code == 0 {
				break
			}
			backoff(life)
		}
		w.mu.Lock()
		w.acks = append(w.acks, a)
		w.mu.Unlock()
		if w.idempotent {
			fields.BaseSequence += int32(w.load.records)
		}
	}
}

// since are the batches accepted from then on.
func (w *writer) since(then time.Time) []ack {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := len(w.acks)
	for i > 0 && w.acks[i-1].at.After(then) {
		i--
	}
	return slices.Clone(w.acks[i:])
}

// seen are the codes so far; −1 is a lost connection.
func (w *writer) seen() map[int16]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.codes)
}

// reader follows the end of a partition from offset 0 on.
type reader struct {
	w         *world
	partition int32
	load      load

	mu    sync.Mutex
	next  int64         // guards: next offset
	codes map[int16]int // guards: errors seen
	slow  time.Duration // guards: longest time between two answers that brought records while some were there
}

func (r *reader) run(t *testing.T, ctx context.Context) {
	c := &client{addr: r.w.addr}
	defer c.close()
	hw := int64(0)
	for ctx.Err() == nil {
		began := time.Now()
		f, err := c.fetch(ctx, r.w.topic, r.partition, r.next, 500*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		code := f.code
		if err != nil {
			code = -1
			if !r.load.mayCut {
				t.Errorf("partition %d: fetch at %d: %v", r.partition, r.next, err)
				return
			}
		}
		r.mu.Lock()
		if code != 0 {
			r.codes[code]++
		}
		if code == 0 {
			if f.hw < hw {
				t.Errorf("partition %d: the end fell from %d to %d", r.partition, hw, f.hw)
			}
			hw = max(hw, f.hw)
			if len(f.records) == 0 && r.next < f.hw {
				t.Errorf("partition %d: no records and no error at %d, the end is %d", r.partition, r.next, f.hw)
			}
		}
		for _, rec := range f.records {
			if rec.offset != r.next {
				t.Errorf("partition %d: offset %d came after %d", r.partition, rec.offset, r.next-1)
			}
			r.next = rec.offset + 1
		}
		if len(f.records) > 0 {
			r.slow = max(r.slow, time.Since(began))
		}
		r.mu.Unlock()
		switch {
		case code == kerr.OffsetOutOfRange.Code || code > 0 && !kerr.IsRetriable(kerr.ErrorForCode(code)):
			t.Errorf("partition %d: fetch at %d: %v", r.partition, r.next, kerr.ErrorForCode(code))
			return
		case code != 0:
			backoff(ctx)
		}
	}
}

func (r *reader) position() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

func (r *reader) seen() map[int16]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[int16]int, len(r.codes))
	for k, v := range r.codes {
		m[k] = v
	}
	return m
}

// waitAcks waits until every writer named (none: all) has had n more batches
// accepted from now on.
func (w *world) waitAcks(t *testing.T, limit time.Duration, n int, partitions ...int32) {
	t.Helper()
	began := time.Now()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for _, wr := range w.writers {
		if len(partitions) > 0 && !slices.Contains(partitions, wr.partition) {
			continue
		}
		for len(wr.since(began)) < n {
			select {
			case <-wr.progress:
			case <-deadline.C:
				t.Fatalf("partition %d: %d of %d batches accepted within %v; errors %v", wr.partition, len(wr.since(began)), n, limit, wr.seen())
			}
		}
	}
}

// codes are the errors of all writers together.
func (w *world) codes() map[int16]int {
	all := map[int16]int{}
	for _, wr := range w.writers {
		for k, v := range wr.seen() {
			all[k] += v
		}
	}
	return all
}

// finish ends the load, reads everything and compares.
func (w *world) finish(t *testing.T) {
	t.Helper()
	w.stopWriters()
	w.wait.Wait()
	c := &client{addr: w.addr}
	defer c.close()
	for i, wr := range w.writers {
		var end int64
		testkit.Poll(t, 30*time.Second, "end offset", func() error {
			code, o, err := c.endOffset(t.Context(), w.topic, wr.partition)
			if end = o; err == nil && code != 0 {
				err = kerr.ErrorForCode(code)
			}
			return err
		})
		var got []record
		for at := int64(0); at < end; {
			testkit.Poll(t, 30*time.Second, "read to the end", func() error {
				f, err := c.fetch(t.Context(), w.topic, wr.partition, at, 0)
				if err == nil && f.code != 0 {
					err = kerr.ErrorForCode(f.code)
				}
				if err == nil && len(f.records) == 0 {
					err = fmt.Errorf("nothing at %d of %d", at, end)
				}
				if err == nil {
					got = append(got, f.records...)
					at = got[len(got)-1].offset + 1
				}
				return err
			})
		}
		wr.check(t, end, got)
		rd := w.readers[i]
		testkit.Poll(t, 30*time.Second, "the reader at the end", func() error {
			if p := rd.position(); p != end {
				return fmt.Errorf("partition %d: it is at %d of %d; errors %v", rd.partition, p, end, rd.seen())
			}
			return nil
		})
	}
	w.stopReaders()
	w.reading.Wait()
}

// check compares what was accepted with what is stored.
func (w *writer) check(t *testing.T, end int64, got []record) {
	t.Helper()
	if int64(len(got)) != end {
		t.Errorf("partition %d: %d records below the end %d", w.partition, len(got), end)
		return
	}
	last := -1
	for i, r := range got {
		n := number(r.value)
		switch {
		case r.offset != int64(i):
			t.Errorf("partition %d: record %d is at offset %d", w.partition, i, r.offset)
			return
		case r.value != w.value(n):
			t.Errorf("partition %d: offset %d holds what nobody wrote: %.40q", w.partition, i, r.value)
			return
		case w.idempotent && n != last+1:
			t.Errorf("partition %d: value %d at offset %d follows value %d", w.partition, n, i, last)
			return
		}
		last = n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	retried, stored, accepted := 0, len(got), 0
	for _, a := range w.acks {
		accepted += a.n
		if a.tries > 1 {
			retried++
		}
		for i := range a.n {
			at := a.base + int64(i)
			if at >= end || number(got[at].value) != a.first+i {
				t.Errorf("partition %d: value %d was acknowledged at offset %d and is not there", w.partition, a.first+i, at)
				return
			}
		}
	}
	if w.idempotent && stored != accepted {
		t.Errorf("partition %d: %d values stored, %d acknowledged", w.partition, stored, accepted)
	}
	if extra := stored - accepted; extra < 0 || extra > 0 && retried == 0 {
		t.Errorf("partition %d: %d values stored, %d acknowledged, and nothing was sent twice", w.partition, stored, accepted)
	}
}

// pause is the longest time that a partition accepted nothing since then.
func (w *world) pause(then time.Time) time.Duration {
	stall := time.Duration(0)
	for _, wr := range w.writers {
		at := then
		for _, a := range wr.since(then) {
			stall = max(stall, a.at.Sub(at))
			at = a.at
		}
	}
	return stall
}

// report is a line about the batches accepted since then.
func (w *world) report(t *testing.T, what string, then time.Time) {
	t.Helper()
	var took []time.Duration
	for _, wr := range w.writers {
		for _, a := range wr.since(then) {
			took = append(took, a.took)
		}
	}
	if len(took) == 0 {
		t.Logf("%s: nothing was accepted", what)
		return
	}
	slices.Sort(took)
	t.Logf("%s: %d batches, p50 %v, p99 %v, longest pause of a partition %v; errors %v", what, len(took),
		took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond), w.pause(then).Round(time.Millisecond), w.codes())
}

// rest is the length of a fault, or of a comparison without one.
func rest(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// peakMemory is the highest resident size of the process so far, in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("memory of a process cannot be read here: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// plainBatch is a batch of one record without a producer.
func plainBatch(value string) serde.Batch {
	return serde.Build(serde.BatchFields{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]serde.NewRecord{{TimestampMillis: time.Now().UnixMilli(), Value: []byte(value)}})
}
